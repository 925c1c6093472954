//! HTTP/1.1 with kept connections: submits to the doors that speak it.

use super::{Answer, Decoded, SubmitParts, malformed};

/// Heads and bodies of answers to submits are far shorter.
const ANSWER_BYTES_MAX: usize = 64 * 1024;
/// What follows the payload, which is the last string of an object.
const END: &[u8] = b"\"}";

/// The request around payloads of that size; `body` is what stands before the payload.
pub(super) fn submit_parts(path: &str, body: &str, payload_bytes: usize) -> SubmitParts {
    let bytes = body.len() + payload_bytes + END.len();
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n\
         Content-Length: {bytes}\r\n\r\n{body}"
    );
    SubmitParts { head: head.into_bytes(), tail: vec![], end: END }
}

pub(super) fn decode(input: &[u8]) -> Decoded<'_> {
    let Some(head_bytes) = input.windows(4).position(|end| end == b"\r\n\r\n") else {
        return if input.len() > ANSWER_BYTES_MAX {
            Err(malformed(b"no end of a head"))
        } else {
            Ok(None)
        };
    };
    let head = &input[..head_bytes];
    let status = head.strip_prefix(b"HTTP/1.1 ").ok_or_else(|| malformed(head))?;
    let len = head.split(|byte| *byte == b'\n').find_map(|line| {
        let (name, value) = line.split_at_checked(b"content-length:".len())?;
        name.eq_ignore_ascii_case(b"content-length:").then_some(value)
    });
    let len = match len {
        None => 0,
        Some(text) => std::str::from_utf8(text.trim_ascii())
            .ok()
            .and_then(|text| text.parse().ok())
            .filter(|len| *len <= ANSWER_BYTES_MAX)
            .ok_or_else(|| malformed(text))?,
    };
    let used = head_bytes + 4 + len;
    let Some(answer) = input.get(..used) else { return Ok(None) };
    let taken = status.starts_with(b"2");
    Ok(Some((if taken { Answer::Ok } else { Answer::Refused(answer) }, used)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_come_out_with_their_last_byte() {
        let bytes = b"HTTP/1.1 201 Created\r\nContent-Length: 3\r\ndate: now\r\n\r\nabc";
        for end in 0..bytes.len() {
            assert_eq!(decode(&bytes[..end]), Ok(None), "after {end} bytes");
        }
        assert_eq!(decode(bytes), Ok(Some((Answer::Ok, bytes.len()))));
        let empty = b"HTTP/1.1 204 No Content\r\n\r\nHTTP";
        assert_eq!(decode(empty), Ok(Some((Answer::Ok, empty.len() - 4))));
        let refused = b"HTTP/1.1 400 Bad Request\r\ncontent-length: 1\r\n\r\n!";
        assert_eq!(decode(refused), Ok(Some((Answer::Refused(refused), refused.len()))));
        assert!(decode(b"+OK\r\n\r\n").is_err());
    }

    #[test]
    fn requests_say_their_own_length() {
        let parts = submit_parts("/x", "{\"d\":\"", 3);
        let request = [&parts.head, b"abc".as_slice(), parts.end].concat();
        let request = String::from_utf8(request).unwrap();
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("POST /x HTTP/1.1\r\n"));
        assert_eq!(body, "{\"d\":\"abc\"}");
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{head}");
    }
}
