//! The protocols as bytes: requests are appended to a buffer, answers are recognised in one.
//! Nothing here does I/O, and an answer that is not complete yet is no error.

mod count;
mod gearman;
mod http;

pub(crate) use count::waiting_jobs;
use thiserror::Error;

/// How long a lease lasts, in every submit; long enough never to end during a run.
const TTR_MS: u64 = 60_000;
/// How long a job lives, in every submit; longer than any run.
const TTL_MS: u64 = 3_600_000;
/// Answer lines of the text protocols are far shorter; a longer one is not an answer of theirs.
const LINE_BYTES_MAX: usize = 512;
/// The longest payload of the load; a larger size in an answer is wrong, and would only fill
/// memory.
const PAYLOAD_BYTES_MAX: usize = 1 << 20;

/// Which protocol a server speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    /// Workq's text protocol; the echo is spoken to in it too.
    Workq,
    /// beanstalkd's text protocol.
    Beanstalkd,
    /// Gearman's binary protocol, jobs in the background.
    Gearman,
    /// The native API over HTTP, one job a request, in JSON; submits only.
    Api,
    /// Jobq over HTTP, in JSON; creates only.
    Jobq,
}

/// What a server said to one request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Answer<'a> {
    /// Done: a job was taken, finished, or a queue chosen.
    Ok,
    /// A job was handed out.
    Leased {
        /// The name the server finishes this job by.
        id: &'a [u8],
        /// The bytes of the job.
        payload: &'a [u8],
    },
    /// A lease found nothing in time.
    TimedOut,
    /// A sleeping worker is to ask again.
    Awake,
    /// The server refused; the line says why.
    Refused(&'a [u8]),
}

/// Why bytes are not an answer of the protocol.
#[derive(Debug, Error, PartialEq, Eq)]
pub(crate) enum WireError {
    /// There is no line end within the longest line allowed.
    #[error("an answer line goes on for over {LINE_BYTES_MAX} bytes")]
    LineTooLong,
    /// A line that means nothing in this protocol.
    #[error("not an answer of this protocol: {0:?}")]
    Malformed(String),
}

type Decoded<'a> = Result<Option<(Answer<'a>, usize)>, WireError>;

impl Wire {
    /// Recognises the first answer in `input` and says how many bytes it took, or `None` while
    /// it is incomplete.
    pub(crate) fn decode(self, input: &[u8]) -> Decoded<'_> {
        match self {
            Self::Workq => decode_workq(input),
            Self::Beanstalkd => decode_beanstalkd(input),
            Self::Gearman => gearman::decode(input),
            Self::Api | Self::Jobq => http::decode(input),
        }
    }

    /// Whether payloads are text, because they stand in JSON.
    pub(crate) fn is_text(self) -> bool {
        matches!(self, Self::Api | Self::Jobq)
    }

    /// The requests that point a fresh connection at `queue`, one answer each.
    pub(crate) fn greetings(self, queue: &str, leases: bool) -> Vec<Vec<u8>> {
        match (self, leases) {
            (Self::Gearman, true) => vec![gearman::greeting(queue)],
            (Self::Beanstalkd, false) => vec![format!("use {queue}\r\n").into_bytes()],
            (Self::Beanstalkd, true) => {
                vec![format!("watch {queue}\r\n").into_bytes(), b"ignore default\r\n".to_vec()]
            }
            (Self::Workq | Self::Gearman | Self::Api | Self::Jobq, _) => vec![],
        }
    }

    /// What the submits of all jobs share.
    pub(crate) fn submit_parts(self, queue: &str, payload_bytes: usize) -> SubmitParts {
        match self {
            Self::Workq => SubmitParts {
                head: b"add ".to_vec(),
                tail: format!(" {queue} {TTR_MS} {TTL_MS} {payload_bytes}\r\n").into_bytes(),
                end: b"\r\n",
            },
            Self::Beanstalkd => SubmitParts {
                head: format!("put 0 0 {} {payload_bytes}\r\n", TTR_MS / 1000).into_bytes(),
                tail: vec![],
                end: b"\r\n",
            },
            Self::Gearman => SubmitParts {
                head: gearman::submit_head(queue, payload_bytes),
                tail: vec![],
                end: b"",
            },
            Self::Api => {
                let body = format!("{{\"queue\":\"{queue}\",\"payload\":\"");
                http::submit_parts("/api/v1/jobs", &body, payload_bytes)
            }
            Self::Jobq => http::submit_parts("/api/v0/job/create", "{\"d\":\"", payload_bytes),
        }
    }

    /// Appends a request for a job of `queue`. None is made over HTTP.
    pub(crate) fn encode_lease(self, queue: &str, out: &mut Vec<u8>) {
        match self {
            Self::Workq => out.extend_from_slice(format!("lease {queue} 60000\r\n").as_bytes()),
            Self::Beanstalkd => out.extend_from_slice(b"reserve\r\n"),
            Self::Gearman => gearman::encode_grab(out),
            Self::Api | Self::Jobq => {}
        }
    }

    /// Appends what a Gearman worker says before it waits to be woken.
    pub(crate) fn encode_sleep(self, out: &mut Vec<u8>) {
        gearman::encode_sleep(out);
    }

    /// Appends the request that finishes the job the server calls `id`. None is made over HTTP.
    pub(crate) fn encode_finish(self, id: &[u8], out: &mut Vec<u8>) {
        let (before, after): (&[u8], &[u8]) = match self {
            Self::Workq => (b"complete ", b" 0\r\n\r\n"),
            Self::Beanstalkd => (b"delete ", b"\r\n"),
            Self::Gearman => return gearman::encode_finish(id, out),
            Self::Api | Self::Jobq => return,
        };
        out.extend_from_slice(before);
        out.extend_from_slice(id);
        out.extend_from_slice(after);
    }
}

/// The bytes of a submit that all jobs of a family share.
pub(crate) struct SubmitParts {
    /// Up to where Workq's job id goes.
    pub(crate) head: Vec<u8>,
    /// From there to where the payload goes.
    pub(crate) tail: Vec<u8>,
    /// What follows the payload.
    pub(crate) end: &'static [u8],
}

/// The line that starts at `from`, without its end, and where the next one starts.
fn line(input: &[u8], from: usize) -> Result<Option<(&[u8], usize)>, WireError> {
    let rest = input.get(from..).unwrap_or_default();
    let Some(end) = rest.iter().take(LINE_BYTES_MAX).position(|&byte| byte == b'\n') else {
        return if rest.len() >= LINE_BYTES_MAX { Err(WireError::LineTooLong) } else { Ok(None) };
    };
    match rest[..end].strip_suffix(b"\r") {
        Some(line) => Ok(Some((line, from + end + 1))),
        None => Err(malformed(&rest[..end])),
    }
}

fn malformed(line: &[u8]) -> WireError {
    WireError::Malformed(String::from_utf8_lossy(line).into_owned())
}

/// The payload of `size` bytes and its line end that start at `from`.
fn body(input: &[u8], from: usize, size: usize) -> Result<Option<(&[u8], usize)>, WireError> {
    let Some(rest) = input.get(from..).filter(|rest| rest.len() >= size + 2) else {
        return Ok(None);
    };
    if &rest[size..size + 2] != b"\r\n" {
        return Err(malformed(b"a payload that goes on after its size"));
    }
    Ok(Some((&rest[..size], from + size + 2)))
}

/// Reads a payload size, which the text protocols write in decimal.
fn size(field: Option<&[u8]>, line: &[u8]) -> Result<usize, WireError> {
    field
        .and_then(|text| std::str::from_utf8(text).ok())
        .and_then(|text| text.parse().ok())
        .filter(|&size| size <= PAYLOAD_BYTES_MAX)
        .ok_or_else(|| malformed(line))
}

fn decode_workq(input: &[u8]) -> Decoded<'_> {
    // Nearly every answer is this one, so it is checked first.
    if input.starts_with(b"+OK\r\n") {
        return Ok(Some((Answer::Ok, 5)));
    }
    let Some((first, next)) = line(input, 0)? else { return Ok(None) };
    match first {
        b"+OK 1" => {
            let Some((second, next)) = line(input, next)? else { return Ok(None) };
            let mut fields = second.split(|&byte| byte == b' ');
            let id = fields.next().filter(|id| !id.is_empty());
            let id = id.ok_or_else(|| malformed(second))?;
            let size = size(fields.nth(2), second)?;
            let Some((payload, next)) = body(input, next, size)? else { return Ok(None) };
            Ok(Some((Answer::Leased { id, payload }, next)))
        }
        b"-TIMEOUT" => Ok(Some((Answer::TimedOut, next))),
        _ if first.starts_with(b"-") => Ok(Some((Answer::Refused(first), next))),
        _ => Err(malformed(first)),
    }
}

fn decode_beanstalkd(input: &[u8]) -> Decoded<'_> {
    let Some((first, next)) = line(input, 0)? else { return Ok(None) };
    let mut fields = first.split(|&byte| byte == b' ');
    let answer = match fields.next().unwrap_or_default() {
        b"INSERTED" | b"DELETED" | b"USING" | b"WATCHING" => Answer::Ok,
        b"TIMED_OUT" | b"DEADLINE_SOON" => Answer::TimedOut,
        b"RESERVED" => {
            let id = fields.next().filter(|id| !id.is_empty());
            let id = id.ok_or_else(|| malformed(first))?;
            let size = size(fields.next(), first)?;
            let Some((payload, next)) = body(input, next, size)? else { return Ok(None) };
            return Ok(Some((Answer::Leased { id, payload }, next)));
        }
        b"BURIED" | b"EXPECTED_CRLF" | b"JOB_TOO_BIG" | b"DRAINING" | b"NOT_FOUND"
        | b"OUT_OF_MEMORY" | b"INTERNAL_ERROR" | b"BAD_FORMAT" | b"UNKNOWN_COMMAND"
        | b"NOT_IGNORED" => Answer::Refused(first),
        _ => return Err(malformed(first)),
    };
    Ok(Some((answer, next)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds `bytes` one at a time: nothing may come out before the last one.
    fn check(wire: Wire, bytes: &[u8], expected: Answer<'_>) {
        for end in 0..bytes.len() {
            assert_eq!(wire.decode(&bytes[..end]), Ok(None), "after {end} bytes");
        }
        assert_eq!(wire.decode(bytes), Ok(Some((expected, bytes.len()))));
    }

    #[test]
    fn workq_answers_come_out_with_their_last_byte() {
        check(Wire::Workq, b"+OK\r\n", Answer::Ok);
        check(Wire::Workq, b"-TIMEOUT\r\n", Answer::TimedOut);
        check(Wire::Workq, b"-NOT-FOUND\r\n", Answer::Refused(b"-NOT-FOUND"));
        let id = b"61a444a0-6128-41c0-8078-cc757d3bd2d8".as_slice();
        check(
            Wire::Workq,
            b"+OK 1\r\n61a444a0-6128-41c0-8078-cc757d3bd2d8 ping 1000 6\r\n\r\n+OK\r\r\n",
            Answer::Leased { id, payload: b"\r\n+OK\r" },
        );
    }

    #[test]
    fn beanstalkd_answers_come_out_with_their_last_byte() {
        check(Wire::Beanstalkd, b"INSERTED 17\r\n", Answer::Ok);
        check(Wire::Beanstalkd, b"DELETED\r\n", Answer::Ok);
        check(Wire::Beanstalkd, b"USING a\r\n", Answer::Ok);
        check(Wire::Beanstalkd, b"WATCHING 2\r\n", Answer::Ok);
        check(Wire::Beanstalkd, b"TIMED_OUT\r\n", Answer::TimedOut);
        check(Wire::Beanstalkd, b"DRAINING\r\n", Answer::Refused(b"DRAINING"));
        check(
            Wire::Beanstalkd,
            b"RESERVED 9 4\r\n\r\n\r\n\r\n",
            Answer::Leased { id: b"9", payload: b"\r\n\r\n" },
        );
    }

    #[test]
    fn pipelined_answers_are_taken_one_by_one() {
        let mut input: &[u8] = b"+OK\r\n-CLIENT-ERROR Duplicate job\r\n+OK\r\n+O";
        let mut seen = vec![];
        while let Some((answer, used)) = Wire::Workq.decode(input).unwrap() {
            seen.push(answer);
            input = &input[used..];
        }
        let refusal = Answer::Refused(b"-CLIENT-ERROR Duplicate job");
        assert_eq!(seen, [Answer::Ok, refusal, Answer::Ok]);
        assert_eq!(input, b"+O");
    }

    #[test]
    fn answers_of_another_protocol_are_errors() {
        for (wire, bytes) in [
            (Wire::Workq, b"HTTP/1.1 400 Bad Request\r\n".as_slice()),
            (Wire::Workq, b"+OK 2\r\n"),
            (Wire::Workq, b"+OK 1\r\nid name 1 99999999\r\n"),
            (Wire::Workq, b"+OK 1\r\nid name 1\r\n"),
            (Wire::Workq, b"+OK 1\r\nid name 1 2\r\nabcd"),
            (Wire::Workq, b"-TIMEOUT\n"),
            (Wire::Beanstalkd, b"+OK\r\n"),
            (Wire::Beanstalkd, b"RESERVED 1 x\r\n"),
        ] {
            assert!(wire.decode(bytes).is_err(), "{}", String::from_utf8_lossy(bytes));
        }
        assert_eq!(Wire::Workq.decode(&[b'-'; 600]), Err(WireError::LineTooLong));
    }

    #[test]
    fn requests_are_spelled_as_the_protocols_ask() {
        let mut out = vec![];
        Wire::Workq.encode_lease("q", &mut out);
        Wire::Workq.encode_finish(b"ID", &mut out);
        assert_eq!(out, b"lease q 60000\r\ncomplete ID 0\r\n\r\n");
        out.clear();
        Wire::Beanstalkd.encode_lease("q", &mut out);
        Wire::Beanstalkd.encode_finish(b"7", &mut out);
        assert_eq!(out, b"reserve\r\ndelete 7\r\n");
    }
}
