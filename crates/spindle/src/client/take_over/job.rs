//! A job of another server, as this one takes jobs.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

/// Keys of the API have at most this many characters.
const KEY_CHARS_MAX: usize = 255;
/// A job has at most this many tags, of this many characters each.
const TAGS_MAX: usize = 64;
const TAG_CHARS_MAX: usize = 128;
/// How often a job may be leased at least, if only its failures are limited where it comes from: the
/// limit of the server's own jobs.
const ATTEMPTS_MIN: u32 = 25;

/// A job of another server.
#[derive(Default)]
pub struct Job {
    pub name: Name,
    pub queue: Vec<u8>,
    pub payload: Vec<u8>,
    /// The payload is JSON, not just bytes.
    pub is_json: bool,
    pub priority: i64,
    pub stage: Stage,
    /// None: the queue's.
    pub ttr_ms: Option<u64>,
    pub tries: Tries,
    pub backoff: Option<Backoff>,
    pub tags: Vec<String>,
}

/// The name by which this server recognizes a job that went over already.
pub enum Name {
    /// An idempotency key of the API. The job is one of the API.
    Key(String),
    /// The job's names in a door of this server. The job is one of that door.
    Door(DoorName),
}

impl Default for Name {
    fn default() -> Self {
        Self::Key(String::new())
    }
}

/// A job's names in a door.
pub struct DoorName {
    /// The API's word for the door.
    pub door: &'static str,
    /// Its number at the other server.
    pub number: u64,
    /// When it was made there, or else something that distinguishes runs of that server.
    pub made: String,
    pub uuid: Option<String>,
    /// A key that it has until it is finished, as the door keeps it.
    pub key: Option<Vec<u8>>,
    /// How long it is kept once it is done; none: as jobs of the door are.
    pub keep_ms: Option<u64>,
    /// When it is removed, whatever its status.
    pub expires_ms: Option<i64>,
}

/// Where a job stands.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Stage {
    #[default]
    Ready,
    /// It waits for its time.
    Scheduled { run_at_ms: i64 },
    /// Somebody put it aside.
    Parked,
}

/// How often a job is tried; none: as often as its queue says.
#[derive(Clone, Copy, Default)]
pub struct Tries {
    pub attempts_max: Option<u32>,
    pub fails_max: Option<u32>,
}

impl Tries {
    /// A job that may fail so often, and at least once. Lost workers, which count as attempts only,
    /// do not end it before.
    pub fn of_fails(fails: u64) -> Self {
        let fails = u32::try_from(fails.max(1)).unwrap_or(u32::MAX);
        Self { fails_max: Some(fails), attempts_max: Some(fails.max(ATTEMPTS_MIN)) }
    }
}

/// The wait between failures.
#[derive(Clone, Copy)]
pub struct Backoff {
    pub base_ms: u64,
    pub factor: u32,
    pub cap_ms: u64,
    /// In thousandths.
    pub jitter: u32,
}

impl Job {
    /// As the API takes jobs, or, with a door's name, as it imports them.
    pub fn to_json(&self) -> Value {
        let mut job = json!({
            "queue_base64": BASE64_STANDARD.encode(&self.queue),
            "payload_base64": BASE64_STANDARD.encode(&self.payload),
            "payload_type": if self.is_json { "json" } else { "bytes" },
            "priority": self.priority,
        });
        let numbers = [
            ("ttr_ms", self.ttr_ms),
            ("attempts_max", self.tries.attempts_max.map(u64::from)),
            ("fails_max", self.tries.fails_max.map(u64::from)),
        ];
        for (field, number) in numbers {
            if let Some(number) = number {
                job[field] = number.into();
            }
        }
        if let Some(backoff) = &self.backoff {
            job["backoff"] = json!({
                "base_ms": backoff.base_ms,
                "factor": backoff.factor,
                "cap_ms": backoff.cap_ms,
                "jitter": f64::from(backoff.jitter) / 1_000.0,
            });
        }
        if let Stage::Scheduled { run_at_ms } = self.stage {
            job["run_at"] = instant(run_at_ms).into();
        }
        match &self.name {
            Name::Key(key) => {
                job["idempotency_key"] = key.as_str().into();
                if self.stage == Stage::Parked {
                    job["parked"] = true.into();
                }
                job["tags"] = tags(&self.tags).into();
            }
            Name::Door(name) => name.put_into(&mut job, self.stage),
        }
        job
    }
}

impl DoorName {
    fn put_into(&self, job: &mut Value, stage: Stage) {
        job["id"] = self.number.into();
        job["created_at"] = self.made.as_str().into();
        job["door"] = self.door.into();
        job["status"] = match stage {
            Stage::Ready => "ready",
            Stage::Scheduled { .. } => "scheduled",
            Stage::Parked => "parked",
        }
        .into();
        if let Some(uuid) = &self.uuid {
            job["uuid"] = uuid.as_str().into();
        }
        if let Some(key) = &self.key {
            let name = BASE64_STANDARD.encode(key);
            let key = json!({ "door": self.door, "name_base64": name, "while_unfinished": true });
            job["keys"] = json!([key]);
        }
        if let Some(keep_ms) = self.keep_ms {
            job["keep_ms"] = keep_ms.into();
        }
        if let Some(expires_ms) = self.expires_ms {
            job["expires_at"] = instant(expires_ms).into();
        }
    }
}

fn instant(ms: i64) -> String {
    jiff::Timestamp::from_millisecond(ms).unwrap_or(jiff::Timestamp::MAX).to_string()
}

/// The tags that the API takes.
fn tags(wished: &[String]) -> Vec<&str> {
    let mut tags: Vec<&str> = Vec::new();
    for tag in wished {
        let fits = (1..=TAG_CHARS_MAX).contains(&tag.chars().count());
        if fits && tags.len() < TAGS_MAX && !tags.contains(&tag.as_str()) {
            tags.push(tag);
        }
    }
    tags
}

/// An idempotency key of these parts: the parts themselves, if a key can hold them, or else their
/// checksum.
pub fn key_of(parts: &[&[u8]]) -> String {
    let whole = parts.join(&b':');
    let text = str::from_utf8(&whole).ok();
    let fits = |text: &&str| {
        text.len() <= KEY_CHARS_MAX && text.bytes().all(|byte| byte.is_ascii_graphic())
    };
    text.filter(fits).map_or_else(|| hash_key(parts), str::to_owned)
}

fn hash_key(parts: &[&[u8]]) -> String {
    let kind = parts.first().map(|kind| String::from_utf8_lossy(kind)).unwrap_or_default();
    format!("{kind}:{}", digest(parts))
}

/// The SHA-256 of these parts, in hexadecimal digits.
pub fn digest(parts: &[&[u8]]) -> String {
    let mut sum = Sha256::new();
    for part in parts {
        // Without the lengths, parts that are cut elsewhere would have the same digest.
        sum.update((part.len() as u64).to_be_bytes());
        sum.update(part);
    }
    sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_its_parts_if_it_can_hold_them() {
        assert_eq!(key_of(&[b"sidekiq", b"a1b2"]), "sidekiq:a1b2");
        let long = key_of(&[b"bullmq", &[b'q'; 300], b"1"]);
        assert_eq!((long.len(), &long[..7]), (7 + 64, "bullmq:"));
        assert_ne!(long, key_of(&[b"bullmq", &[b'q'; 300], b"2"]));
        assert_ne!(key_of(&[b"k", b"a b", b"c"]), key_of(&[b"k", b"a ", b"bc"]));
    }

    #[test]
    fn only_tags_that_the_api_takes_go_over() {
        let mut job = Job { tags: vec!["a".into(), String::new(), "a".into()], ..Job::default() };
        job.tags.push("x".repeat(129));
        job.tags.extend((0..100).map(|number| number.to_string()));
        let tags = job.to_json()["tags"].as_array().unwrap().clone();
        assert_eq!((tags.len(), &tags[0], &tags[1]), (64, &json!("a"), &json!("0")));
    }
}
