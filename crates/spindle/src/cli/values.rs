//! What values on the command line look like.

use std::{fmt, str::FromStr};

use clap::ValueEnum;
use spindle_core::{JobId, address, queue::QUEUE_NAME_BYTES_MAX};
use spindle_workq::wire::Uuid;

use crate::{
    quantity::{parse_duration_ms, parse_duration_to_a_day},
    queue_name::QueueName,
};

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

/// What the bytes of a payload are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum PayloadType {
    /// Any bytes
    Bytes,
    /// JSON
    Json,
    /// MessagePack
    Msgpack,
}

/// So many in a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// So many.
    pub count: u64,
    /// The time.
    pub per_ms: u64,
}

impl FromStr for Rate {
    type Err = String;

    /// Reads `10/s`, `600/1h` or `5/500ms`.
    fn from_str(text: &str) -> Result<Self, String> {
        let bad = || "write COUNT/TIME, such as 10/s or 600/1h".to_owned();
        let (count, time) = text.split_once('/').ok_or_else(bad)?;
        let count = count.trim().parse().map_err(|_| bad())?;
        let time = time.trim();
        let one = if time.starts_with(|letter: char| letter.is_ascii_digit()) { "" } else { "1" };
        let per_ms = parse_duration_ms(&format!("{one}{time}")).map_err(|e| e.to_string())?;
        Ok(Self { count, per_ms })
    }
}

/// What a list is sorted by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SortKey {
    /// Its number, and with it its age: the server's own order.
    Id,
    /// Its queue's name.
    Queue,
    /// Its status, in the order of a job's life.
    Status,
    /// Its priority.
    Priority,
    /// Leases given.
    Attempts,
    /// Failures.
    Fails,
    /// When it runs, or else was added.
    Time,
}

impl SortKey {
    /// All, with their names.
    pub const ALL: [(&'static str, Self); 7] = [
        ("id", Self::Id),
        ("queue", Self::Queue),
        ("status", Self::Status),
        ("priority", Self::Priority),
        ("attempts", Self::Attempts),
        ("fails", Self::Fails),
        ("time", Self::Time),
    ];
}

/// How a list is sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sort {
    /// By what.
    pub key: SortKey,
    /// The largest first.
    pub is_descending: bool,
}

impl FromStr for Sort {
    type Err = String;

    /// Reads `priority` or `-priority`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (name, is_descending) = match text.strip_prefix('-') {
            Some(name) => (name, true),
            None => (text, false),
        };
        let found = SortKey::ALL.into_iter().find(|(known, _)| *known == name);
        let key = found.map(|(_, key)| key).ok_or_else(|| {
            let names: Vec<&str> = SortKey::ALL.iter().map(|(known, _)| *known).collect();
            format!("use one of {}, with - before it for the largest first", names.join(", "))
        })?;
        Ok(Self { key, is_descending })
    }
}

impl fmt::Display for Sort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = SortKey::ALL.iter().find(|(_, key)| *key == self.key);
        f.write_str(known.map_or("", |(name, _)| name))
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

pub(super) fn parse_queue(text: &str) -> Result<QueueName, String> {
    text.parse()
}

/// A pattern of queues' names, which are texts.
pub(super) fn parse_pattern(text: &str) -> Result<String, String> {
    if (1..=QUEUE_NAME_BYTES_MAX).contains(&text.len()) {
        return Ok(text.to_owned());
    }
    Err(format!("it has 1 to {QUEUE_NAME_BYTES_MAX} bytes"))
}

/// How often a list is shown anew.
pub(super) fn parse_interval(text: &str) -> Result<u32, String> {
    parse_duration_to_a_day(text, 100).map_err(|error| error.to_string())
}

pub(super) fn parse_uuid(text: &str) -> Result<Uuid, String> {
    Uuid::parse(text.as_bytes())
        .ok_or_else(|| "write a UUID, such as 6ba7b810-9dad-41d1-80b4-00c04fd430c4".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_count_and_a_time() {
        for (text, count, per_ms) in
            [("10/s", 10, 1_000), ("600/1h", 600, 3_600_000), ("5 / 500ms", 5, 500), ("0/0", 0, 0)]
        {
            assert_eq!(text.parse(), Ok(Rate { count, per_ms }), "{text}");
        }
        for text in ["", "10", "/s", "10/", "x/s", "-1/s", "10/5", "10/1w", "1/99999999999999999d"]
        {
            assert!(text.parse::<Rate>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_list_is_sorted_by_a_known_column_either_way() {
        let sort = |key, is_descending| Ok(Sort { key, is_descending });
        assert_eq!("priority".parse(), sort(SortKey::Priority, false));
        assert_eq!("-id".parse(), sort(SortKey::Id, true));
        for text in ["", "-", "--id", "size", "Priority"] {
            assert!(text.parse::<Sort>().is_err(), "{text}");
        }
    }

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
