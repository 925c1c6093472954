//! How Sidekiq keeps its jobs: a list `queue:NAME` for each queue, whose names are in the set
//! `queues`; the sorted sets `schedule` and `retry`, by the time in seconds at which a job is to run.
//! An entry is the job itself, as JSON. A worker takes an entry out before it works it.

use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;

use super::{Entry, Found, Layout, Link, Place, Shape, script, wanted};
use crate::{
    cli::FromArgs,
    client::take_over::job::{Job, Name, Stage, Tries, key_of},
};

/// How often Sidekiq retries a job that asks for retries without a number.
const RETRIES: u64 = 25;

/// Deletes held entries of a list: how many were there.
const REMOVE_OF_LIST: &str = "\
local count = 0
for _, entry in ipairs(ARGV) do count = count + redis.call('LREM', KEYS[1], -1, entry) end
return count";

/// The same of a sorted set.
const REMOVE_OF_SORTED: &str = "\
local count = 0
for _, entry in ipairs(ARGV) do count = count + redis.call('ZREM', KEYS[1], entry) end
return count";

/// Sidekiq.
pub struct Sidekiq {
    /// What all of its keys begin with.
    prefix: String,
    queues: Vec<String>,
}

/// The parts of a job that matter for where it goes.
#[derive(Deserialize)]
struct Item {
    class: String,
    #[serde(rename = "args")]
    _args: Vec<IgnoredAny>,
    jid: String,
    queue: Option<String>,
    #[serde(default)]
    retry: Value,
    retry_count: Option<u64>,
    #[serde(default)]
    tags: Value,
    /// The class of an Active Job.
    #[serde(default)]
    wrapped: Value,
}

impl Layout for Sidekiq {
    fn find(link: &mut Link, options: &FromArgs) -> anyhow::Result<(Self, Vec<Place>)> {
        let prefix = options.from_prefix.as_ref().map(|prefix| format!("{prefix}:"));
        let sidekiq = Self { prefix: prefix.unwrap_or_default(), queues: options.queue.clone() };
        let queues = link.ask(redis::cmd("SMEMBERS").arg(sidekiq.key("queues")))?;
        let queues = wanted(queues, options, "Sidekiq", link);
        let mut places: Vec<Place> = queues
            .into_iter()
            .map(|queue| Place {
                key: sidekiq.key(&format!("queue:{queue}")),
                shape: Shape::List,
                queue: Some(queue),
                state: "ready",
            })
            .collect();
        for (set, state) in [("retry", "retry"), ("schedule", "scheduled")] {
            let (key, shape) = (sidekiq.key(set), Shape::Sorted);
            places.push(Place { key, shape, queue: None, state });
        }
        Ok((sidekiq, places))
    }

    fn read(&self, _: &mut Link, place: &Place, entries: &[Entry]) -> anyhow::Result<Vec<Found>> {
        Ok(entries.iter().map(|entry| found(place, entry)).collect())
    }

    fn wants(&self, queue: &[u8]) -> bool {
        self.queues.is_empty() || self.queues.iter().any(|wanted| wanted.as_bytes() == queue)
    }

    fn remove(&self, link: &mut Link, place: &Place, entries: &[Vec<u8>]) -> anyhow::Result<u64> {
        let text = if place.shape == Shape::List { REMOVE_OF_LIST } else { REMOVE_OF_SORTED };
        link.ask(&script(text, &[&place.held()], entries))
    }

    fn at_work(&self, link: &mut Link) -> anyhow::Result<u64> {
        let processes: Vec<Vec<u8>> =
            link.ask(redis::cmd("SMEMBERS").arg(self.key("processes")))?;
        let asked: Vec<_> = processes
            .iter()
            .map(|process| {
                let mut command = redis::cmd("HGET");
                command.arg([self.prefix.as_bytes(), process].concat()).arg("busy");
                command
            })
            .collect();
        let busy: Vec<Option<u64>> = link.ask_all(&asked)?;
        Ok(busy.into_iter().flatten().sum())
    }

    fn aside(&self, _: &mut Link) -> anyhow::Result<Vec<(&'static str, u64)>> {
        Ok(vec![])
    }
}

impl Sidekiq {
    fn key(&self, name: &str) -> Vec<u8> {
        format!("{}{name}", self.prefix).into_bytes()
    }
}

fn found(place: &Place, entry: &Entry) -> Found {
    let item: Item = match serde_json::from_slice(&entry.bytes) {
        Ok(item) => item,
        Err(error) => return Found::Unreadable(format!("an entry is no job ({error})")),
    };
    let queue = place.queue.clone().or(item.queue.clone());
    let queue = queue.unwrap_or_else(|| "default".to_owned());
    let job = Job {
        name: Name::Key(key_of(&[b"sidekiq", item.jid.as_bytes()])),
        queue: queue.into_bytes(),
        payload: entry.bytes.clone(),
        is_json: true,
        stage: match place.shape {
            Shape::List => Stage::Ready,
            Shape::Sorted => Stage::Scheduled { run_at_ms: (entry.score * 1_000.0) as i64 },
        },
        tries: item.tries(),
        tags: item.tags(),
        ..Job::default()
    };
    Found::Job(Box::new(job), item.jid)
}

impl Item {
    /// How often it may still fail.
    fn tries(&self) -> Tries {
        let retries = match &self.retry {
            Value::Bool(true) => RETRIES,
            other => other.as_u64().unwrap_or(0),
        };
        // The first failure sets the count to 0.
        let failed = self.retry_count.map_or(0, |count| count.saturating_add(1));
        Tries::of_fails(retries.saturating_add(1).saturating_sub(failed))
    }

    /// Its class, and the tags it has.
    fn tags(&self) -> Vec<String> {
        let class = self.wrapped.as_str().unwrap_or(&self.class);
        let tags = self.tags.as_array().into_iter().flatten().filter_map(Value::as_str);
        [class].into_iter().chain(tags).map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn item(more: &Value) -> Item {
        let mut item = json!({ "class": "Wrapper", "args": [1], "jid": "a" });
        item.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(item).unwrap()
    }

    #[test]
    fn a_job_may_fail_as_often_as_sidekiq_would_let_it() {
        for (more, fails, attempts) in [
            (json!({ "retry": true }), 26, 26),
            (json!({ "retry": true, "retry_count": 0 }), 25, 25),
            (json!({ "retry": 5, "retry_count": 2 }), 3, 25),
            (json!({ "retry": 5, "retry_count": 9 }), 1, 25),
            (json!({ "retry": 100 }), 101, 101),
            (json!({ "retry": false }), 1, 25),
            (json!({ "retry": "often" }), 1, 25),
            (json!({}), 1, 25),
        ] {
            let tries = item(&more).tries();
            let wanted = (Some(fails), Some(attempts));
            assert_eq!((tries.fails_max, tries.attempts_max), wanted, "{more}");
        }
    }

    #[test]
    fn an_active_job_is_found_by_its_own_class() {
        let tags = item(&json!({ "wrapped": "MailJob", "tags": ["eu", 7, "big"] })).tags();
        assert_eq!(tags, ["MailJob", "eu", "big"]);
        assert_eq!(item(&json!({ "tags": "eu" })).tags(), ["Wrapper"]);
    }
}
