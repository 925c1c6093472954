//! Any bytes to the Workq door's decoder: no panic, the same requests however the bytes are cut,
//! and what was decoded is what its own encoding decodes to.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use spindle_workq::wire::{Decoder, Limits, Reject, Request};

fn drain(
    decoder: &mut Decoder,
    input: &mut BytesMut,
    outcomes: &mut Vec<Result<Request, Reject>>,
) -> bool {
    while let Some(outcome) = decoder.decode(input).transpose() {
        let closes = matches!(outcome, Err(Reject::Close | Reject::ReplyThenClose(_)));
        outcomes.push(outcome);
        if closes {
            return false;
        }
    }
    true
}

fn decode<'a>(
    limits: Limits,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Vec<Result<Request, Reject>> {
    let mut decoder = Decoder::new(limits);
    let mut input = BytesMut::new();
    let mut outcomes = Vec::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        if !drain(&mut decoder, &mut input, &mut outcomes) {
            return outcomes;
        }
    }
    loop {
        match decoder.decode_at_eof(&mut input) {
            Ok(Some(request)) => outcomes.push(Ok(request)),
            Ok(None) => panic!("the end of input leaves nothing to wait for"),
            Err(reject) => {
                outcomes.push(Err(reject));
                if !matches!(reject, Reject::Reply(_)) {
                    return outcomes;
                }
            }
        }
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((&cut, data)) = data.split_first() else { return };
    // Short limits, so that the fuzzer reaches them.
    let limits = Limits {
        line_bytes_max: 512,
        payload_bytes_max: 64,
        result_bytes_max: 64,
        lease_names_max: 4,
    };
    let whole = decode(limits, std::iter::once(data));
    assert_eq!(decode(limits, data.chunks(usize::from(cut).max(1))), whole);
    for request in whole.into_iter().flatten() {
        let mut bytes = BytesMut::new();
        request.encode(&mut bytes);
        let again = decode(Limits::default(), std::iter::once(&bytes[..]));
        assert_eq!(again.first(), Some(&Ok(request)));
    }
});
