//! Names of jobs and queues, as they stand in paths and bodies.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use spindle_core::command::Claim;
use spindle_core::{JobId, address};
use spindle_engine::JobRef;
use uuid::Uuid;

use spindle_http::{Answered, Problem};

/// The job a text names: a number, any door's UUID, or a Gearman handle.
pub(crate) fn job(text: &str) -> Answered<JobRef> {
    if let Some(id) = address::from_decimal(text.as_bytes()) {
        return Ok(JobRef::Id(id));
    }
    if let Some(id) = address::from_gearman_handle(text.as_bytes()) {
        return Ok(JobRef::Id(id));
    }
    let uuid = Uuid::try_parse(text).map_err(|_| {
        let detail = "a job is named by its number, its UUID or its Gearman handle";
        Problem::out_of_range(detail)
    })?;
    let uuid = uuid.into_bytes();
    Ok(match address::foreign_job(&uuid) {
        Some(id) => JobRef::ForeignId(id),
        None => JobRef::Uuid(uuid),
    })
}

/// The UUID by which Workq's clients name a job.
pub(crate) fn uuid_of(id: JobId, own: Option<[u8; 16]>) -> String {
    Uuid::from_bytes(own.unwrap_or_else(|| address::foreign_uuid(id))).to_string()
}

/// A queue's name from a body: text, or base64 for one that is no UTF-8.
pub(crate) fn queue(name: Option<&str>, base64: Option<&str>) -> Answered<Bytes> {
    match (name, base64) {
        (Some(name), None) => checked(Bytes::copy_from_slice(name.as_bytes())),
        (None, Some(text)) => checked(from_base64("queue_base64", text)?),
        (Some(_), Some(_)) => {
            Err(Problem::bad_field("give either queue or queue_base64, not both"))
        }
        (None, None) => Err(Problem::bad_field("queue is missing")),
    }
}

/// A name within its limits.
pub(crate) fn checked(name: Bytes) -> Answered<Bytes> {
    if (1..=spindle_core::queue::QUEUE_NAME_BYTES_MAX).contains(&name.len()) {
        return Ok(name);
    }
    Err(Problem::out_of_range("a queue's name has 1 to 512 bytes"))
}

/// Standard base64, padded.
pub(crate) fn from_base64(field: &str, text: &str) -> Answered<Bytes> {
    let bytes = STANDARD
        .decode(text)
        .map_err(|error| Problem::out_of_range(format!("{field} is not base64: {error}")))?;
    Ok(Bytes::from(bytes))
}

/// Standard base64, padded.
pub(crate) fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// A name as text if it is UTF-8, and else in base64.
pub(crate) fn text_or_base64(name: &[u8]) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(name) {
        Ok(text) => (Some(text.to_owned()), None),
        Err(_) => (None, Some(to_base64(name))),
    }
}

/// A lease's token: its holder may end the lease. Opaque to clients.
pub(crate) fn token(job: JobId, epoch: u64, attempt: u32) -> String {
    let mut bytes = [0; 20];
    bytes[..8].copy_from_slice(&job.0.to_be_bytes());
    bytes[8..16].copy_from_slice(&epoch.to_be_bytes());
    bytes[16..].copy_from_slice(&attempt.to_be_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The lease a token names.
pub(crate) fn claim(token: &str) -> Answered<Claim> {
    let read = || {
        let bytes: [u8; 20] = URL_SAFE_NO_PAD.decode(token).ok()?.try_into().ok()?;
        let number = |at: usize| {
            let part: [u8; 8] = bytes.get(at..at + 8)?.try_into().ok()?;
            Some(u64::from_be_bytes(part))
        };
        let attempt = u32::from_be_bytes(bytes.get(16..)?.try_into().ok()?);
        Some(Claim::Token { id: JobId(number(0)?), epoch: number(8)?, attempt })
    };
    read().ok_or_else(|| {
        Problem::out_of_range("that is no lease token; it stands in the lease's answer")
    })
}

#[cfg(test)]
mod tests {
    use spindle_http::Code;

    use super::*;

    #[test]
    fn jobs_go_by_the_names_of_every_door() {
        let uuid = "6ba7b810-9dad-11d1-80b4-00c04fd430c4";
        let own = JobRef::Uuid(*Uuid::parse_str(uuid).unwrap().as_bytes());
        for text in [uuid, &uuid.to_uppercase(), &format!("{{{uuid}}}")] {
            assert_eq!(job(text), Ok(own), "{text}");
        }
        assert_eq!(job("42"), Ok(JobRef::Id(JobId(42))));
        assert_eq!(job("H:db1:42"), Ok(JobRef::Id(JobId(42))));
        assert_eq!(job(&uuid_of(JobId(42), None)), Ok(JobRef::ForeignId(JobId(42))));
        for text in ["", "0", "-1", "H:db1:", "9007199254740992", "x", "7370696e-646c"] {
            assert_eq!(job(text).unwrap_err().code, Code::OutOfRange, "{text}");
        }
    }

    #[test]
    fn a_token_names_the_lease_it_was_made_for() {
        let made = token(JobId(7), 3, 2);
        assert_eq!(claim(&made), Ok(Claim::Token { id: JobId(7), epoch: 3, attempt: 2 }));
        for text in ["", "x", &made[1..], &format!("{made}A"), &"=".repeat(27)] {
            assert_eq!(claim(text).unwrap_err().code, Code::OutOfRange, "{text}");
        }
    }
}
