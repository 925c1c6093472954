//! How BullMQ keeps its jobs: for each queue keys that begin with `bull:QUEUE:`. The lists `wait` and
//! `paused` and the sorted sets `prioritized` and `delayed` hold ids; a job itself is the hash
//! `bull:QUEUE:ID`. A worker moves an id to the list `active` before it works the job.

use std::{collections::HashMap, fmt::Write};

use redis::Cmd;
use serde_json::{Map, Value, value::RawValue};

use super::{Entry, Found, Layout, Link, Place, Shape, script, wanted};
use crate::{
    cli::FromArgs,
    client::take_over::job::{Backoff, Job, Name, Stage, Tries, key_of},
};

const PREFIX: &str = "bull";
/// Every queue has this one.
const META: &str = ":meta";
const SCAN_COUNT: u32 = 1_000;
/// A delayed job's score is its time in milliseconds times this, and a number.
const SCORE_PER_MS: f64 = 4_096.0;
/// No wait between failures is longer. BullMQ has no limit.
const BACKOFF_MAX_MS: u64 = 365 * 24 * 3_600_000;

const IN_FLOW: &str = "parts of flows, which their workers have to finish";
const OF_SCHEDULER: &str = "made by job schedulers (`spindle cron` puts schedules here)";
const FOR_CHILDREN: &str = "waiting for other jobs of their flows";

/// The short names that some fields of a job have in its hash, with their long ones.
const NAMES: [(&str, &str); 6] = [
    ("atm", "attemptsMade"),
    ("ats", "attemptsStarted"),
    ("stc", "stalledCounter"),
    ("rjk", "repeatJobKey"),
    ("deid", "deduplicationId"),
    ("pb", "processedBy"),
];
/// Fields whose text is text even where it could be JSON.
const TEXTS: [&str; 6] =
    ["name", "failedReason", "parentKey", "repeatJobKey", "deduplicationId", "processedBy"];

/// Deletes held jobs as BullMQ removes jobs: with all of their keys, with their deduplication, and
/// with an event. Arguments: what the keys begin with, LREM or ZREM, the state, the ids. Returns how
/// many were there.
const REMOVE: &str = "\
local prefix, rem, state, count = ARGV[1], ARGV[2], ARGV[3], 0
for i = 4, #ARGV do
  local id, key = ARGV[i], ARGV[1] .. ARGV[i]
  local there
  if rem == 'LREM' then there = redis.call('LREM', KEYS[1], -1, id)
  else there = redis.call('ZREM', KEYS[1], id) end
  if there == 1 then
    count = count + 1
    local same = redis.call('HGET', key, 'deid')
    if same and redis.call('GET', prefix .. 'de:' .. same) == id then
      redis.call('DEL', prefix .. 'de:' .. same, prefix .. 'dn:' .. same)
    end
    redis.call('DEL', key, key .. ':logs', key .. ':dependencies', key .. ':processed',
      key .. ':failed', key .. ':unsuccessful')
    local most = redis.call('HGET', prefix .. 'meta', 'opts.maxLenEvents') or 10000
    redis.call('XADD', prefix .. 'events', 'MAXLEN', '~', most, '*', 'event', 'removed',
      'jobId', id, 'prev', state)
  end
end
return count";

/// BullMQ.
pub struct BullMq {
    /// What the keys of each queue begin with.
    queues: Vec<String>,
    prefix: String,
}

/// A job's hash.
type Fields = HashMap<String, Vec<u8>>;

impl Layout for BullMq {
    fn find(link: &mut Link, options: &FromArgs) -> anyhow::Result<(Self, Vec<Place>)> {
        let prefix = options.from_prefix.clone().unwrap_or_else(|| PREFIX.to_owned());
        let library = format!("BullMQ with the prefix {prefix}");
        let queues = wanted(find_queues(link, &prefix)?, options, &library, link);
        let places = queues.iter().flat_map(|queue| places_of(&prefix, queue)).collect();
        Ok((Self { queues, prefix }, places))
    }

    fn read(
        &self,
        link: &mut Link,
        place: &Place,
        entries: &[Entry],
    ) -> anyhow::Result<Vec<Found>> {
        let prefix = prefix_of(place);
        let keys = entries.iter().map(|entry| [prefix, &entry.bytes].concat());
        let (hashes, flows): (Vec<Cmd>, Vec<Cmd>) = keys.map(|key| asked_of(&key)).unzip();
        let hashes: Vec<Fields> = link.ask_all(&hashes)?;
        let flows: Vec<u64> = link.ask_all(&flows)?;
        let found = entries.iter().zip(hashes.iter().zip(flows));
        let found =
            found.map(|(entry, (fields, related))| self.found(place, entry, fields, related));
        Ok(found.collect())
    }

    fn wants(&self, queue: &[u8]) -> bool {
        self.queues.iter().any(|wanted| wanted.as_bytes() == queue)
    }

    fn remove(&self, link: &mut Link, place: &Place, entries: &[Vec<u8>]) -> anyhow::Result<u64> {
        let rem = if place.shape == Shape::List { "LREM" } else { "ZREM" };
        let mut arguments =
            vec![prefix_of(place).to_vec(), rem.as_bytes().to_vec(), place.state.into()];
        arguments.extend_from_slice(entries);
        link.ask(&script(REMOVE, &[&place.held()], &arguments))
    }

    fn at_work(&self, link: &mut Link) -> anyhow::Result<u64> {
        self.sum(link, "LLEN", "active")
    }

    fn aside(&self, link: &mut Link) -> anyhow::Result<Vec<(&'static str, u64)>> {
        Ok(vec![(FOR_CHILDREN, self.sum(link, "ZCARD", "waiting-children")?)])
    }
}

/// The commands that show a job, and count the keys it has about other jobs of its flow.
fn asked_of(key: &[u8]) -> (Cmd, Cmd) {
    let (mut hash, mut flow) = (redis::cmd("HGETALL"), redis::cmd("EXISTS"));
    hash.arg(key);
    for of in [":dependencies", ":processed", ":failed", ":unsuccessful"] {
        flow.arg([key, of.as_bytes()].concat());
    }
    (hash, flow)
}

fn find_queues(link: &mut Link, prefix: &str) -> anyhow::Result<Vec<String>> {
    let (mut queues, mut cursor) = (vec![], 0_u64);
    loop {
        let mut command = redis::cmd("SCAN");
        let pattern = format!("{}:*{META}", escaped(prefix));
        command.arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(SCAN_COUNT);
        let (next, keys): (u64, Vec<Vec<u8>>) = link.ask(&command)?;
        for key in keys.into_iter().filter_map(|key| String::from_utf8(key).ok()) {
            let name = key.strip_prefix(prefix).and_then(|key| key.strip_prefix(':'));
            queues.extend(name.and_then(|name| name.strip_suffix(META)).map(str::to_owned));
        }
        if next == 0 {
            break;
        }
        cursor = next;
    }
    Ok(queues)
}

/// A text that stands for itself in a pattern.
fn escaped(text: &str) -> String {
    let special = |letter| matches!(letter, '*' | '?' | '[' | ']' | '\\' | '^');
    let mut escaped = String::new();
    for letter in text.chars() {
        if special(letter) {
            escaped.push('\\');
        }
        escaped.push(letter);
    }
    escaped
}

fn places_of(prefix: &str, queue: &str) -> [Place; 4] {
    let kinds = [
        ("wait", Shape::List),
        ("paused", Shape::List),
        ("prioritized", Shape::Sorted),
        ("delayed", Shape::Sorted),
    ];
    kinds.map(|(state, shape)| Place {
        key: format!("{prefix}:{queue}:{state}").into_bytes(),
        shape,
        queue: Some(queue.to_owned()),
        state,
    })
}

/// What all keys of its queue begin with.
fn prefix_of(place: &Place) -> &[u8] {
    place.key.strip_suffix(place.state.as_bytes()).unwrap_or(&place.key)
}

impl BullMq {
    fn sum(&self, link: &mut Link, command: &str, name: &str) -> anyhow::Result<u64> {
        let asked: Vec<Cmd> = self
            .queues
            .iter()
            .map(|queue| {
                let mut command = redis::cmd(command);
                command.arg(format!("{}:{queue}:{name}", self.prefix));
                command
            })
            .collect();
        Ok(link.ask_all::<u64>(&asked)?.iter().sum())
    }

    fn found(&self, place: &Place, entry: &Entry, fields: &Fields, related: u64) -> Found {
        // Before version 5 there are markers among the ids.
        if place.shape == Shape::List && entry.bytes.starts_with(b"0:") {
            return Found::Nothing;
        }
        if fields.is_empty() {
            return Found::Unreadable("an id has no job".to_owned());
        }
        if fields.contains_key("parentKey") || related > 0 {
            return Found::Stays(IN_FLOW);
        }
        if fields.contains_key("rjk") {
            return Found::Stays(OF_SCHEDULER);
        }
        let Ok(id) = str::from_utf8(&entry.bytes) else {
            return Found::Unreadable("an id is no text".to_owned());
        };
        match self.job(place, entry, id, fields) {
            Ok(job) => Found::Job(Box::new(job), id.to_owned()),
            Err(why) => Found::Unreadable(format!("job {id} cannot be read ({why})")),
        }
    }

    fn job(&self, place: &Place, entry: &Entry, id: &str, fields: &Fields) -> Result<Job, String> {
        let queue = place.queue.clone().unwrap_or_default();
        let opts: Value = match fields.get("opts") {
            Some(opts) => serde_json::from_slice(opts).map_err(|error| format!("opts: {error}"))?,
            None => Value::Null,
        };
        let number = |field: &str| -> u64 {
            let text = fields.get(field).and_then(|text| str::from_utf8(text).ok());
            text.and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        let timestamp = fields.get("timestamp").map_or(&b""[..], Vec::as_slice);
        let failed = number("atm").max(number("attemptsMade"));
        let parts = [b"bullmq", self.prefix.as_bytes(), queue.as_bytes(), &entry.bytes, timestamp];
        let name = fields.get("name").map(|name| String::from_utf8_lossy(name).into_owned());
        Ok(Job {
            name: Name::Key(key_of(&parts)),
            queue: queue.into_bytes(),
            payload: whole(id, fields)?,
            is_json: true,
            // The lowest number goes first there, and jobs without a number go before all others.
            priority: -i64::try_from(number("priority")).unwrap_or(i64::MAX),
            stage: match place.state {
                "delayed" => {
                    Stage::Scheduled { run_at_ms: (entry.score / SCORE_PER_MS).floor() as i64 }
                }
                _ => Stage::Ready,
            },
            tries: tries(&opts, failed),
            backoff: Some(backoff(&opts["backoff"], failed)),
            tags: name.into_iter().collect(),
            ..Job::default()
        })
    }
}

/// The whole job as JSON, with its data and options as they are.
fn whole(id: &str, fields: &Fields) -> Result<Vec<u8>, String> {
    let mut job: Map<String, Value> = Map::new();
    job.insert("id".to_owned(), id.into());
    let mut raw: Vec<(String, Box<RawValue>)> = vec![];
    let mut names: Vec<&String> = fields.keys().collect();
    names.sort_unstable();
    for field in names {
        let name =
            NAMES.iter().find(|(short, _)| short == field).map_or(&**field, |(_, name)| *name);
        let text = str::from_utf8(&fields[field]).map_err(|_| format!("{field} is no text"))?;
        let is_json = !TEXTS.contains(&name);
        match serde_json::from_str::<Box<RawValue>>(text) {
            Ok(value) if is_json => raw.push((name.to_owned(), value)),
            Err(error) if name == "data" => return Err(format!("data: {error}")),
            _ => drop(job.insert(name.to_owned(), text.into())),
        }
    }
    let mut text = Value::Object(job).to_string();
    text.pop();
    for (name, value) in raw {
        // Writing into a string cannot fail.
        let _ = write!(text, ",{}:{value}", Value::from(name));
    }
    text.push('}');
    Ok(text.into_bytes())
}

/// How often it may still fail: once, if it says nothing.
fn tries(opts: &Value, failed: u64) -> Tries {
    let wished = opts["attempts"].as_u64().unwrap_or(1);
    Tries::of_fails(wished.saturating_sub(failed))
}

/// The wait between failures: none, if it says nothing, and none that its queue's own code computes.
fn backoff(said: &Value, failed: u64) -> Backoff {
    // Lua writes long numbers with an exponent.
    let delay = said.as_f64().or(said["delay"].as_f64()).unwrap_or(0.0) as u64;
    let jitter = said["jitter"].as_f64().unwrap_or(0.0).clamp(0.0, 1.0);
    let is_exponential = said["type"] == "exponential";
    // Earlier failures have lengthened the wait already.
    let grown = if is_exponential { failed.min(40) as u32 } else { 0 };
    Backoff {
        base_ms: delay.saturating_mul(1 << grown).min(BACKOFF_MAX_MS),
        factor: if is_exponential { 2 } else { 1 },
        cap_ms: BACKOFF_MAX_MS,
        jitter: (jitter * 1_000.0) as u32,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_wait_between_failures_is_that_of_bullmq() {
        for (said, failed, wanted) in [
            (json!(null), 3, (0, 1, 0)),
            (json!(700), 3, (700, 1, 0)),
            (json!({ "type": "fixed", "delay": 700, "jitter": 0.25 }), 0, (700, 1, 250)),
            (json!({ "type": "exponential", "delay": 700 }), 0, (700, 2, 0)),
            (json!({ "type": "exponential", "delay": 700, "jitter": 9 }), 2, (2_800, 2, 1_000)),
            (json!({ "type": "exponential", "delay": 1e3 }), 1, (2_000, 2, 0)),
            (json!({ "type": "exponential", "delay": 1_000 }), 99, (BACKOFF_MAX_MS, 2, 0)),
            (json!({ "type": "ours" }), 0, (0, 1, 0)),
        ] {
            let found = backoff(&said, failed);
            assert_eq!((found.base_ms, found.factor, found.jitter), wanted, "{said}");
        }
    }

    #[test]
    fn a_job_may_fail_as_often_as_bullmq_would_let_it() {
        for (attempts, failed, fails) in [(0, 0, 1), (1, 0, 1), (3, 1, 2), (3, 7, 1), (40, 0, 40)] {
            let tries = tries(&json!({ "attempts": attempts }), failed);
            assert_eq!(tries.fails_max, Some(fails), "{attempts}, {failed}");
            assert_eq!(tries.attempts_max, Some(fails.max(25)), "{attempts}, {failed}");
        }
    }

    #[test]
    fn a_prefix_with_stars_finds_its_own_queues_only() {
        assert_eq!(escaped("{b}[1]*?"), "{b}\\[1\\]\\*\\?");
    }

    #[test]
    fn a_job_is_shown_whole_with_its_data_as_it_is() {
        let fields: Fields = [
            ("name", "7"),
            ("data", r#"{"n":1.50,"n":[ ]}"#),
            ("opts", r#"{"attempts":3}"#),
            ("atm", "1"),
            ("timestamp", "1795459296792"),
            ("failedReason", r#""no""#),
            ("progress", "half"),
        ]
        .map(|(field, text)| (field.to_owned(), text.as_bytes().to_vec()))
        .into();
        let text = String::from_utf8(whole("9", &fields).unwrap()).unwrap();
        assert_eq!(
            text,
            r#"{"failedReason":"\"no\"","id":"9","name":"7","progress":"half","attemptsMade":1,"#
                .to_owned()
                + r#""data":{"n":1.50,"n":[ ]},"opts":{"attempts":3},"timestamp":1795459296792}"#
        );
        let broken: Fields = [("data".to_owned(), b"{no".to_vec())].into();
        assert!(whole("9", &broken).unwrap_err().starts_with("data: "));
    }
}
