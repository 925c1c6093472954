//! Any bytes to the Gearman door's decoder: no panic, the same packets and lines however the
//! bytes are cut, and what was decoded is what its own encoding decodes to.

#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use spindle_gearman::wire::{Decoder, Incoming, Limits, Protocol, WireError};
use spindle_gearman::client::Encode;

fn decode<'a>(
    limits: Limits,
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Vec<Result<Incoming, WireError>> {
    let mut decoder = Decoder::new(limits);
    let mut input = BytesMut::new();
    let mut outcomes = Vec::new();
    for piece in pieces {
        input.extend_from_slice(piece);
        while let Some(outcome) = decoder.decode(&mut input).transpose() {
            let closes = matches!(outcome, Err(error) if error.closes());
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
    let _ = Protocol::of(data);
    // Short limits, so that the fuzzer reaches them.
    let limits = Limits { packet_bytes_max: 256, line_bytes_max: 64 };
    let whole = decode(limits, std::iter::once(data));
    assert_eq!(decode(limits, data.chunks(usize::from(cut).max(1))), whole);
    for outcome in whole {
        let mut bytes = BytesMut::new();
        match &outcome {
            Ok(Incoming::Request(request)) => request.encode(&mut bytes),
            Ok(Incoming::Admin(Ok(command))) => command.encode(&mut bytes),
            Ok(Incoming::Admin(Err(error))) => {
                error.encode(&mut bytes);
                assert_eq!(bytes.iter().filter(|byte| **byte == b'\n').count(), 1);
                continue;
            }
            Err(_) => continue,
        }
        assert_eq!(decode(Limits::default(), std::iter::once(&bytes[..])), [outcome]);
    }
});
