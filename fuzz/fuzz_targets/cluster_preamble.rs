//! Any bytes to the listener where nodes hand their clients on: no panic; what was read is written as
//! what reads the same; and not a byte behind it is read.

#![no_main]

use std::pin::pin;
use std::task::{Context, Poll, Waker};

use libfuzzer_sys::fuzz_target;
use spindle_cluster::{Preamble, PreambleError};

/// What stands before the JSON: the magic, the version and a length.
const HEAD_BYTES: usize = 9;
/// When a field is written that was not there to be read, the longest ones come to more than may be.
const FIELD_BYTES_MAX: usize = 16;

/// Reads one from bytes that are all there already. What is left of them.
fn read(mut bytes: &[u8]) -> (Result<Preamble, PreambleError>, &[u8]) {
    let read = {
        let reading = pin!(Preamble::read(&mut bytes));
        let Poll::Ready(read) = reading.poll(&mut Context::from_waker(Waker::noop())) else {
            panic!("it waits for more than there is")
        };
        read
    };
    (read, bytes)
}

/// The bytes as what stands behind a head: more of them get past it than whole ones would.
fn behind_a_head(body: &[u8]) -> Vec<u8> {
    let length = u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes();
    [b"SPNODE\x01", &length[..], body, b"add ..."].concat()
}

fuzz_target!(|data: &[u8]| {
    for bytes in [data.to_vec(), behind_a_head(data)] {
        let (Ok(preamble), left) = read(&bytes) else { continue };
        let length = usize::from(u16::from_be_bytes([bytes[7], bytes[8]]));
        assert_eq!(left, &bytes[HEAD_BYTES + length..]);
        let _ = preamble.arrival();
        match preamble.write() {
            Ok(written) => {
                let (again, left) = read(&written);
                assert_eq!(again.expect("its own encoding"), preamble);
                assert!(left.is_empty());
            }
            Err(PreambleError::TooLong(long)) => {
                assert!(usize::from(long) <= length + FIELD_BYTES_MAX);
            }
            Err(error) => panic!("{error}"),
        }
    }
});
