//! Any bytes to both decoders of the draft: no panic, the same packets however the bytes are cut,
//! and what was decoded is what its own encoding decodes to.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use spindle_gearman::wire::draft::{Decoder, DraftError, Limits, Request};
use spindle_gearman::client::{Encode, decode_reply};

fn decode<'a>(
    limits: Limits,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Vec<Result<Request, DraftError>> {
    let mut decoder = Decoder::new(limits);
    let mut input = BytesMut::new();
    let mut outcomes = Vec::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        while let Some(outcome) = decoder.decode(&mut input).transpose() {
            let closes = outcome.is_err();
            outcomes.push(outcome);
            if closes {
                return outcomes;
            }
        }
    }
    outcomes
}

fuzz_target!(|data: &[u8]| {
    let Some((&cut, data)) = data.split_first() else { return };
    // Short limits, so that the fuzzer reaches them.
    let limits = Limits { packet_bytes_max: 128, duplicate_key_bytes_max: 8, names_max: 4, names_bytes_max: 64 };
    let whole = decode(limits, std::iter::once(data));
    assert_eq!(decode(limits, data.chunks(usize::from(cut).max(1))), whole);
    for request in whole.into_iter().flatten() {
        let mut bytes = BytesMut::new();
        request.encode(&mut bytes);
        assert_eq!(decode(limits, std::iter::once(&bytes[..])), [Ok(request)]);
    }
    let mut input = BytesMut::from(data);
    while let Ok(Some(reply)) = decode_reply(&mut input, 128) {
        let mut bytes = BytesMut::new();
        reply.encode(&mut bytes);
        assert_eq!(decode_reply(&mut bytes, 128), Ok(Some(reply)));
    }
});
