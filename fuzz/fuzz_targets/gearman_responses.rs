//! Any bytes to the Gearman client's decoder: no panic, an incomplete packet stays untouched, and
//! what was decoded is what its own encoding decodes to.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use spindle_gearman::client::decode_response;

fuzz_target!(|data: &[u8]| {
    let mut input = BytesMut::from(data);
    loop {
        let before = input.clone();
        match decode_response(&mut input, 256) {
            Ok(Some(response)) => {
                assert!(input.len() < before.len());
                let mut bytes = BytesMut::new();
                response.encode(&mut bytes);
                assert_eq!(decode_response(&mut bytes, 512), Ok(Some(response)));
            }
            Ok(None) => {
                assert_eq!(input, before);
                return;
            }
            Err(_) => return,
        }
    }
});
