//! Gearman's binary protocol: a header of magic, type and length, then arguments with NULs
//! between them.

use super::{Answer, Decoded, PAYLOAD_BYTES_MAX, WireError, malformed};

const HEADER_BYTES: usize = 12;
/// Names and handles before a payload are far shorter than this.
const ARGUMENT_BYTES_MAX: usize = 1024;

const CAN_DO: u32 = 1;
const PRE_SLEEP: u32 = 4;
const NOOP: u32 = 6;
const JOB_CREATED: u32 = 8;
const GRAB_JOB: u32 = 9;
const NO_JOB: u32 = 10;
const JOB_ASSIGN: u32 = 11;
const WORK_COMPLETE: u32 = 13;
const ECHO_REQ: u32 = 16;
const ECHO_RES: u32 = 17;
const SUBMIT_JOB_BG: u32 = 18;
const ERROR: u32 = 19;

/// The packet with these arguments, up to the end of the last one; `more` bytes still follow.
fn put(out: &mut Vec<u8>, kind: u32, arguments: &[&[u8]], more: usize) {
    let nuls = arguments.len().saturating_sub(1);
    let length = arguments.iter().map(|argument| argument.len()).sum::<usize>() + nuls + more;
    out.extend_from_slice(b"\0REQ");
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&u32::try_from(length).unwrap_or(u32::MAX).to_be_bytes());
    for (place, argument) in arguments.iter().enumerate() {
        if place > 0 {
            out.push(0);
        }
        out.extend_from_slice(argument);
    }
}

/// A submit in the background without a unique, up to where its payload goes.
pub(super) fn submit_head(queue: &str, payload_bytes: usize) -> Vec<u8> {
    let mut head = vec![];
    put(&mut head, SUBMIT_JOB_BG, &[queue.as_bytes(), b"", b""], payload_bytes);
    head
}

/// Announces a worker. The echo after it is sent to get an answer.
pub(super) fn greeting(queue: &str) -> Vec<u8> {
    let mut greeting = vec![];
    put(&mut greeting, CAN_DO, &[queue.as_bytes()], 0);
    put(&mut greeting, ECHO_REQ, &[], 0);
    greeting
}

pub(super) fn encode_grab(out: &mut Vec<u8>) {
    put(out, GRAB_JOB, &[], 0);
}

pub(super) fn encode_sleep(out: &mut Vec<u8>) {
    put(out, PRE_SLEEP, &[], 0);
}

/// With an empty result.
pub(super) fn encode_finish(handle: &[u8], out: &mut Vec<u8>) {
    put(out, WORK_COMPLETE, &[handle, b""], 0);
}

pub(super) fn decode(input: &[u8]) -> Decoded<'_> {
    let Some((header, rest)) = input.split_first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let [m0, m1, m2, m3, k0, k1, k2, k3, l0, l1, l2, l3] = *header;
    let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
    let kind = u32::from_be_bytes([k0, k1, k2, k3]);
    if [m0, m1, m2, m3] != *b"\0RES" || length > PAYLOAD_BYTES_MAX + ARGUMENT_BYTES_MAX {
        return Err(malformed(header));
    }
    let Some(data) = rest.get(..length) else { return Ok(None) };
    let answer = match kind {
        JOB_CREATED | ECHO_RES => Answer::Ok,
        NO_JOB => Answer::TimedOut,
        NOOP => Answer::Awake,
        JOB_ASSIGN => {
            let (id, data) = argument(data)?;
            let (_function, payload) = argument(data)?;
            Answer::Leased { id, payload }
        }
        ERROR => Answer::Refused(data),
        _ => return Err(malformed(header)),
    };
    Ok(Some((answer, HEADER_BYTES + length)))
}

/// The first argument, and what follows its NUL.
fn argument(data: &[u8]) -> Result<(&[u8], &[u8]), WireError> {
    let end = data.iter().position(|&byte| byte == 0).ok_or_else(|| malformed(data))?;
    Ok((&data[..end], &data[end + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(bytes: &[u8], expected: Answer<'_>) {
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end]), Ok(None), "after {end} bytes");
        }
        assert_eq!(decode(bytes), Ok(Some((expected, bytes.len()))));
    }

    #[test]
    fn answers_come_out_with_their_last_byte() {
        check(b"\0RES\0\0\0\x08\0\0\0\x05H:h:1", Answer::Ok);
        check(b"\0RES\0\0\0\x11\0\0\0\0", Answer::Ok);
        check(b"\0RES\0\0\0\x0A\0\0\0\0", Answer::TimedOut);
        check(b"\0RES\0\0\0\x06\0\0\0\0", Answer::Awake);
        check(
            b"\0RES\0\0\0\x0B\0\0\0\x0AH:h:1\0q\0ab",
            Answer::Leased { id: b"H:h:1", payload: b"ab" },
        );
        check(b"\0RES\0\0\0\x13\0\0\0\x03A\0b", Answer::Refused(b"A\0b"));
    }

    #[test]
    fn answers_of_another_protocol_are_errors() {
        for bytes in [
            b"HTTP/1.1 400 Bad Request\r\n".as_slice(),
            b"\0REQ\0\0\0\x08\0\0\0\x05H:h:1",
            b"\0RES\0\0\0\x07\0\0\0\x05H:h:1",
            b"\0RES\0\0\0\x0B\0\0\0\x05H:h:1",
            b"\0RES\0\0\0\x0B\xff\0\0\0",
        ] {
            assert!(decode(bytes).is_err(), "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn requests_are_spelled_as_the_protocol_asks() {
        let mut out = greeting("q");
        encode_grab(&mut out);
        encode_sleep(&mut out);
        encode_finish(b"H:h:1", &mut out);
        let expected = [
            b"\0REQ\0\0\0\x01\0\0\0\x01q".as_slice(),
            b"\0REQ\0\0\0\x10\0\0\0\0",
            b"\0REQ\0\0\0\x09\0\0\0\0",
            b"\0REQ\0\0\0\x04\0\0\0\0",
            b"\0REQ\0\0\0\x0D\0\0\0\x06H:h:1\0",
        ];
        assert_eq!(out, expected.concat());
        assert_eq!(submit_head("q", 256), b"\0REQ\0\0\0\x12\0\0\x01\x03q\0\0");
    }
}
