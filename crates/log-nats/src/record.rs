//! A record as a message: the contents of its header, and how a message is checked when it is read.
//!
//! The payload of the message is the record's bytes and nothing else. One header goes before it:
//!
//! ```text
//! Spindle-Record: 1 4711 12 9af3c211
//!                 | |    |  `- CRC-32C of position, epoch and bytes, hexadecimal
//!                 | |    `---- the writer's epoch
//!                 | `--------- the position: the message's sequence minus 1
//!                 `----------- the format of this header
//! ```
//!
//! The position is in it although the sequence gives it, too: so it shows at once if a stream was
//! restored, mirrored or cut by other means than Spindle's.

use async_nats::HeaderMap;
use bytes::Bytes;
use spindle_log::{Position, Record, Stored};

/// The header of every record.
pub(crate) const HEADER: &str = "Spindle-Record";
/// What a message takes on the server's disk besides its payload, subject and headers.
const FRAME_BYTES: u64 = 34;
/// What its headers take, about: ours, and the ones the server is asked to compare.
const HEADER_BYTES: u64 = 130;
const FORMAT: u64 = 1;

/// Why a message is no record of this log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Unreadable(pub(crate) &'static str);

/// What a record takes in the stream, about.
pub(crate) fn bytes_in_stream(subject: &str, record_bytes: usize) -> u64 {
    FRAME_BYTES + HEADER_BYTES + subject.len() as u64 + record_bytes as u64
}

/// The value of the header.
pub(crate) fn header_of(position: Position, record: &Record) -> String {
    let crc = checksum(position, record.epoch, &record.bytes);
    format!("{FORMAT} {position} {} {crc:08x}", record.epoch)
}

/// The record in a message.
pub(crate) fn decode(
    sequence: u64,
    headers: Option<&HeaderMap>,
    payload: Bytes,
) -> Result<Stored, Unreadable> {
    let value = headers.and_then(|headers| headers.get(HEADER));
    let value = value.ok_or(Unreadable("it has no header Spindle-Record"))?;
    let mut words = value.as_str().split(' ');
    let mut number = |radix| u64::from_str_radix(words.next().unwrap_or_default(), radix).ok();
    let malformed = Unreadable("its header Spindle-Record is malformed");
    let format = number(10).ok_or(malformed)?;
    if format != FORMAT {
        return Err(Unreadable("a newer version of Spindle has written it"));
    }
    let position = Position(number(10).ok_or(malformed)?);
    let epoch = number(10).ok_or(malformed)?;
    let crc = number(16).ok_or(malformed)?;
    if position.0.checked_add(1) != Some(sequence) {
        return Err(Unreadable("it was written at another position"));
    }
    if crc != u64::from(checksum(position, epoch, &payload)) {
        return Err(Unreadable("its checksum does not match"));
    }
    Ok(Stored { position, epoch, bytes: payload, damaged: false })
}

fn checksum(position: Position, epoch: u64, bytes: &[u8]) -> u32 {
    let mut before = [0; 16];
    before[..8].copy_from_slice(&position.0.to_le_bytes());
    before[8..].copy_from_slice(&epoch.to_le_bytes());
    crc32c::crc32c_append(crc32c::crc32c(&before), bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(HEADER, value);
        headers
    }

    #[test]
    fn a_record_comes_back_from_its_message() {
        let record = Record { epoch: 12, bytes: "three events".into() };
        let headers = headers(&header_of(Position(4711), &record));
        let stored = decode(4712, Some(&headers), record.bytes.clone()).expect("sound");
        assert_eq!((stored.position, stored.epoch), (Position(4711), 12));
        assert_eq!(stored.bytes, record.bytes);
    }

    #[test]
    fn what_does_not_match_is_refused_with_the_reason() {
        let record = Record { epoch: 12, bytes: "three events".into() };
        let sound = header_of(Position(7), &record);
        let reason = |sequence, value: &str, bytes: &'static str| {
            let headers = headers(value);
            decode(sequence, Some(&headers), bytes.into()).expect_err("refused").0
        };
        assert!(reason(9, &sound, "three events").contains("another position"));
        assert!(reason(8, &sound, "three Events").contains("checksum"));
        assert!(reason(8, &sound.replace(" 12 ", " 13 "), "three events").contains("checksum"));
        assert!(reason(8, &sound.replacen('1', "2", 1), "three events").contains("newer version"));
        for malformed in ["", "1", "1 7", "1 7 12", "1 x 12 0", "1 7 12 0x0", "words"] {
            assert!(reason(8, malformed, "three events").contains("malformed"), "{malformed}");
        }
        let none = decode(8, None, "three events".into()).expect_err("refused");
        assert!(none.0.contains("no header"));
        let end = decode(0, Some(&headers("1 18446744073709551615 0 0")), Bytes::new());
        assert!(end.expect_err("refused").0.contains("another position"));
    }
}
