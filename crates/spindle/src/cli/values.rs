//! What values on the command line look like.

use std::{fmt, str::FromStr};

use spindle_core::{JobId, address, queue::QUEUE_NAME_BYTES_MAX};
use spindle_workq::wire::Uuid;

use crate::quantity::{parse_duration_ms, parse_duration_to_a_day};

/// A job as any door names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum JobName {
    /// Its number, which is in its Gearman handle too.
    Number(JobId),
    /// The UUID by which Workq's clients know it.
    Uuid(Uuid),
}

impl FromStr for JobName {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let number = address::from_decimal(text.as_bytes());
        if let Some(id) = number.or_else(|| address::from_gearman_handle(text.as_bytes())) {
            return Ok(Self::Number(id));
        }
        Uuid::parse(text.as_bytes()).map(Self::Uuid).ok_or(
            "a job is named by its number (42), its UUID \
             (6ba7b810-9dad-41d1-80b4-00c04fd430c4) or its Gearman handle (H:host:42)",
        )
    }
}

impl fmt::Display for JobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(id) => id.fmt(f),
            Self::Uuid(uuid) => uuid.fmt(f),
        }
    }
}

pub(super) const PRIORITY_MIN: i64 = i32::MIN as i64;
/// What every door takes and shows.
pub(super) const PRIORITY_MAX: i64 = i32::MAX as i64;

pub(super) fn parse_ttr(text: &str) -> Result<u32, String> {
    parse_duration_to_a_day(text, 1).map_err(|error| error.to_string())
}

pub(super) fn parse_wait(text: &str) -> Result<u32, String> {
    parse_duration_to_a_day(text, 0).map_err(|error| error.to_string())
}

pub(super) fn parse_ttl(text: &str) -> Result<u64, String> {
    match parse_duration_ms(text) {
        Ok(0) => Err("it must be at least 1ms".to_owned()),
        Ok(ms) => Ok(ms),
        Err(error) => Err(error.to_string()),
    }
}

pub(super) fn parse_queue(text: &str) -> Result<String, String> {
    if (1..=QUEUE_NAME_BYTES_MAX).contains(&text.len()) {
        return Ok(text.to_owned());
    }
    Err(format!("a queue's name has 1 to {QUEUE_NAME_BYTES_MAX} bytes"))
}

pub(super) fn parse_uuid(text: &str) -> Result<Uuid, String> {
    Uuid::parse(text.as_bytes())
        .ok_or_else(|| "write a UUID, such as 6ba7b810-9dad-41d1-80b4-00c04fd430c4".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_goes_by_the_names_of_every_door() {
        let number = JobName::Number(JobId(42));
        assert_eq!("42".parse(), Ok(number));
        assert_eq!("H:db1:42".parse(), Ok(number));
        let text = "6ba7b810-9dad-41d1-80b4-00c04fd430c4";
        let uuid: JobName = text.to_uppercase().parse().unwrap();
        assert_eq!(uuid.to_string(), text);
        for text in ["", "0", "x", "-1", "9007199254740992", "H:db1:", "6ba7b810-9dad"] {
            assert!(text.parse::<JobName>().is_err(), "{text}");
        }
    }
}
