//! HTTP/1.1 with kept connections: submits to the doors that speak it.

use super::{AddParts, Answer, Decoded, malformed};

/// Heads and bodies of answers to submits are far shorter.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// Jobs in one request of [`Submits::Batch`].
pub(crate) const BATCH_JOBS: usize = 100;

/// Which requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submits {
    /// The native API, one job a request, in JSON.
    Api,
    /// The native API, [`BATCH_JOBS`] jobs a request.
    Batch,
    /// LightJQ, in MessagePack.
    Lightjq,
    /// Jobq, in JSON.
    JobqCreate,
    /// Jobq: the state of a job that is there is set. On a fresh server jobs are numbered from 1
    /// on, in the order they came.
    JobqState,
}

/// The state that [`Submits::JobqState`] sets.
const STATE: &str = "[\"ASSIGNED\"]";

/// Appends the request that sets the state of the `number`th job.
pub(crate) fn encode_state(number: u64, out: &mut Vec<u8>) {
    let request = format!(
        "POST /api/v0/job/{}/state HTTP/1.1\r\nHost: localhost\r\nContent-Type: \
         application/json\r\nContent-Length: {}\r\n\r\n{STATE}",
        number + 1,
        STATE.len()
    );
    out.extend_from_slice(request.as_bytes());
}

/// The request around payloads of that size. In JSON a payload is a string of as many letters.
pub(super) fn add_parts(submits: Submits, queue: &str, payload_bytes: usize) -> AddParts {
    let (mut body, end): (Vec<u8>, &'static [u8]) = match submits {
        Submits::Api => (api_job(queue).into_bytes(), b"\"}"),
        Submits::Batch => (b"{\"jobs\":[".to_vec(), b"\"}]}"),
        Submits::Lightjq => (lightjq_job(queue, payload_bytes), b""),
        Submits::JobqCreate | Submits::JobqState => (b"{\"d\":\"".to_vec(), b"\"}"),
    };
    let bytes = match submits {
        Submits::Batch => {
            body.extend_from_slice(api_job(queue).as_bytes());
            let each = between(queue).len() + payload_bytes;
            body.len() + payload_bytes + (BATCH_JOBS - 1) * each + end.len()
        }
        _ => body.len() + payload_bytes + end.len(),
    };
    let (path, kind) = match submits {
        Submits::Api => ("/api/v1/jobs", "json"),
        Submits::Batch => ("/api/v1/jobs/batch", "json"),
        Submits::Lightjq => ("/job", "msgpack"),
        Submits::JobqCreate | Submits::JobqState => ("/api/v0/job/create", "json"),
    };
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/{kind}\r\n\
         Content-Length: {bytes}\r\n\r\n"
    );
    AddParts { head: [head.as_bytes(), &body].concat(), tail: vec![], end }
}

fn api_job(queue: &str) -> String {
    format!("{{\"queue\":\"{queue}\",\"payload\":\"")
}

/// What stands between two payloads of a batch.
pub(crate) fn between(queue: &str) -> Vec<u8> {
    format!("\"}},{}", api_job(queue)).into_bytes()
}

/// `{"name": queue, "argument": {"d": bytes}}`, up to where the bytes go.
fn lightjq_job(queue: &str, payload_bytes: usize) -> Vec<u8> {
    let mut body = vec![0x82, 0xa4];
    body.extend_from_slice(b"name");
    body.push(0xa0 | u8::try_from(queue.len()).unwrap_or(31).min(31));
    body.extend_from_slice(queue.as_bytes());
    body.push(0xa8);
    body.extend_from_slice(b"argument");
    body.extend_from_slice(&[0x81, 0xa1, b'd', 0xc6]);
    body.extend_from_slice(&u32::try_from(payload_bytes).unwrap_or(u32::MAX).to_be_bytes());
    body
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
        for submits in [Submits::Api, Submits::Batch, Submits::Lightjq, Submits::JobqCreate] {
            let parts = add_parts(submits, "q", 32);
            let payloads = match submits {
                Submits::Batch => {
                    let mut bytes = vec![b'x'; 32];
                    for _ in 1..BATCH_JOBS {
                        bytes.extend_from_slice(&between("q"));
                        bytes.extend_from_slice(&[b'x'; 32]);
                    }
                    bytes
                }
                _ => vec![b'x'; 32],
            };
            check_length(&[&parts.head, payloads.as_slice(), parts.end].concat());
        }
        let mut state = vec![];
        encode_state(6, &mut state);
        assert!(state.starts_with(b"POST /api/v0/job/7/state "));
        check_length(&state);
    }

    #[track_caller]
    fn check_length(request: &[u8]) {
        let end = request.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(request[..end].to_vec()).unwrap();
        let len = format!("Content-Length: {}", request.len() - end - 4);
        assert!(head.contains(&len), "{head} is not {len}");
    }
}
