//! Any bytes to a jobd connection: no panic, the same messages however the bytes are cut, and a
//! request that was read is what its own encoding reads as.

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use spindle_jobd_master::wire::{Arguments, FrameError, Frames, Message, decode, encode_request, raw};

/// Short, so that the fuzzer reaches it.
const MESSAGE_BYTES_MAX: usize = 512;

fn messages<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Bytes>, Option<FrameError>) {
    let mut frames = Frames::new(MESSAGE_BYTES_MAX);
    let mut messages = Vec::new();
    for piece in pieces {
        frames.input().extend_from_slice(piece);
        loop {
            match frames.next_message() {
                Ok(Some(message)) => messages.push(message),
                Ok(None) => break,
                Err(error) => return (messages, Some(error)),
            }
        }
    }
    (messages, None)
}

fuzz_target!(|data: &[u8]| {
    let Some((&cut, data)) = data.split_first() else { return };
    let whole = messages(std::iter::once(data));
    assert_eq!(messages(data.chunks(usize::from(cut).max(1))), whole);
    for message in whole.0 {
        let Ok(Message::Request(request)) = decode(&message) else { continue };
        let arguments = Arguments::of(&request.data);
        let _ = (arguments.targets(), arguments.ids(), arguments.jobs(|_| Ok(())));
        let _ = (arguments.target_concurrency(), arguments.text("target"));
        let data = (!request.data.is_null()).then(|| raw(&request.data));
        let bytes =
            encode_request(request.no, &request.kind, data.as_deref(), request.password.as_deref());
        let Some((_, text)) = bytes.split_last() else { panic!("an encoding ends in EOT") };
        match decode(text) {
            Ok(Message::Request(again)) => assert_eq!(again, request),
            other => panic!("{other:?}"),
        }
    }
});
