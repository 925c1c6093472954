//! Any bytes to the Workq client's decoder: no panic, and an incomplete reply stays untouched.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use spindle_workq::wire::{ReplyKind, decode_reply};

const KINDS: [ReplyKind; 6] = [
    ReplyKind::Ok,
    ReplyKind::Result,
    ReplyKind::Lease,
    ReplyKind::Jobs,
    ReplyKind::Queues,
    ReplyKind::Server,
];

fuzz_target!(|data: &[u8]| {
    let Some((&kind, data)) = data.split_first() else { return };
    let Some(&kind) = KINDS.get(usize::from(kind) % KINDS.len()) else { return };
    let mut input = BytesMut::from(data);
    loop {
        let before = input.clone();
        match decode_reply(kind, &mut input) {
            Ok(Some(_)) => assert!(input.len() < before.len()),
            Ok(None) => {
                assert_eq!(input, before);
                return;
            }
            Err(_) => return,
        }
    }
});
