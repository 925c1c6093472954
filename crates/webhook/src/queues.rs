//! When a queue needs attention. Queues are looked at now and then, in bounded steps; an alert is
//! sent once when it begins and once when it is over.

use std::{collections::BTreeMap, time::Duration};

use serde_json::json;
use spindle_core::Status;
use spindle_engine::{Engine, QueueView};

use crate::{
    alert::{Alert, put_name},
    hook::Hook,
};

/// Queues looked at in one hold of the lock.
const STEP_QUEUES: usize = 256;
/// Queues that are watched by one hook; what lies beyond, in the order of names, is not.
const QUEUES_MAX: usize = 10_000;

/// What is seen of a queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Seen {
    ready: usize,
    /// How long ago the ready job whose turn is next was submitted.
    next_age_ms: u64,
    /// A worker waits for its jobs, or runs one.
    is_attended: bool,
}

/// What is known of a queue that needs attention, or may soon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct KnownQueue {
    is_older: bool,
    is_without_worker: bool,
    unattended_since_ms: Option<u64>,
}

/// Whether something begins or is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    Begins,
    Ends,
}

/// The queues that need attention.
#[derive(Debug, Default)]
pub struct Queues(BTreeMap<Vec<u8>, KnownQueue>);

impl Queues {
    /// Looks at all queues that a hook is about. Returns what has changed since the last look.
    pub fn look(&mut self, engine: &Engine, hook: &Hook) -> Vec<Alert> {
        let now_ms = engine.now_ms();
        let mut alerts = Vec::new();
        let mut seen = see(engine, hook, now_ms);
        // A queue that went has no ready job.
        for name in self.0.keys() {
            seen.entry(name.clone()).or_default();
        }
        for (name, seen) in seen {
            let known = self.0.remove(&name).unwrap_or_default();
            let (known, changes) = judge(hook, known, seen, now_ms);
            for (event, threshold, turn) in changes {
                alerts.push(alert(&name, event, turn, threshold, seen, now_ms));
            }
            if known != KnownQueue::default() {
                self.0.insert(name, known);
            }
        }
        alerts
    }
}

fn see(engine: &Engine, hook: &Hook, now_ms: u64) -> BTreeMap<Vec<u8>, Seen> {
    let mut all = BTreeMap::new();
    let mut after: Option<Vec<u8>> = None;
    loop {
        let step = engine.queues().views(after.as_deref(), STEP_QUEUES);
        let last = step.get(STEP_QUEUES - 1).map(|view| view.listing.name.to_vec());
        for QueueView { listing, next_ready_ms, .. } in step {
            let count = |status: Status| listing.counts[status as usize];
            let (name, ready) = (listing.name.to_vec(), count(Status::Ready));
            if ready == 0 || !hook.is_about(&name) {
                continue;
            }
            let numbers = engine.observe();
            let is_attended = count(Status::Leased) > 0
                || numbers.waiting_leases(&name) > 0
                || numbers.has_sleepers(&name);
            let next_age_ms = next_ready_ms.map_or(0, |ms| now_ms.saturating_sub(ms));
            all.insert(name, Seen { ready, next_age_ms, is_attended });
        }
        match last {
            Some(last) if all.len() < QUEUES_MAX => after = Some(last),
            _ => return all,
        }
    }
}

type Change = (&'static str, Duration, Turn);

fn judge(hook: &Hook, old: KnownQueue, seen: Seen, now_ms: u64) -> (KnownQueue, Vec<Change>) {
    let mut changes = Vec::new();
    let mut new = KnownQueue::default();
    if let Some(threshold) = hook.older {
        new.is_older = seen.ready > 0 && passed(seen.next_age_ms, threshold);
        changes
            .extend(turn(old.is_older, new.is_older).map(|turn| ("queue_older", threshold, turn)));
    }
    if let Some(threshold) = hook.no_worker {
        if seen.ready > 0 && !seen.is_attended {
            let since_ms = old.unattended_since_ms.unwrap_or(now_ms);
            new.unattended_since_ms = Some(since_ms);
            new.is_without_worker = passed(now_ms.saturating_sub(since_ms), threshold);
        }
        let turn = turn(old.is_without_worker, new.is_without_worker);
        changes.extend(turn.map(|turn| ("queue_no_worker", threshold, turn)));
    }
    (new, changes)
}

fn passed(ms: u64, threshold: Duration) -> bool {
    u128::from(ms) >= threshold.as_millis()
}

fn turn(was: bool, is: bool) -> Option<Turn> {
    match (was, is) {
        (false, true) => Some(Turn::Begins),
        (true, false) => Some(Turn::Ends),
        _ => None,
    }
}

fn alert(
    name: &[u8],
    event: &'static str,
    turn: Turn,
    threshold: Duration,
    seen: Seen,
    now_ms: u64,
) -> Alert {
    let state = match turn {
        Turn::Begins => "begins",
        Turn::Ends => "ends",
    };
    let mut more = json!({
        "state": state,
        "ready": seen.ready,
        "next_ready_age_ms": seen.next_age_ms,
        "threshold_s": threshold.as_secs(),
    });
    put_name(&mut more, name);
    let id = format!("{event}:{}:{state}:{now_ms}", String::from_utf8_lossy(name));
    Alert::new(id, event, now_ms, more)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hook(text: &str) -> Hook {
        format!("http://localhost/ {text}").parse().unwrap()
    }

    #[test]
    fn a_queue_that_gets_too_old_is_told_once_and_so_is_its_end() {
        let hook = hook("older=10s");
        let seen = |next_age_ms| Seen { ready: 1, next_age_ms, is_attended: true };
        let (known, changes) = judge(&hook, KnownQueue::default(), seen(9_999), 0);
        assert!(changes.is_empty());
        let (known, changes) = judge(&hook, known, seen(10_000), 0);
        let ten = Duration::from_secs(10);
        assert_eq!(changes, [("queue_older", ten, Turn::Begins)]);
        let (known, changes) = judge(&hook, known, seen(20_000), 0);
        assert!(changes.is_empty());
        let (known, changes) = judge(&hook, known, Seen::default(), 0);
        assert_eq!(changes, [("queue_older", ten, Turn::Ends)]);
        assert_eq!(known, KnownQueue::default());
    }

    #[test]
    fn a_queue_is_without_worker_when_nobody_was_seen_for_long_enough() {
        let hook = hook("no-worker=1m");
        let seen = |is_attended| Seen { ready: 3, next_age_ms: 0, is_attended };
        let (known, changes) = judge(&hook, KnownQueue::default(), seen(false), 1_000);
        assert!(changes.is_empty());
        // A worker was seen: the minute begins again.
        let (known, _) = judge(&hook, known, seen(true), 30_000);
        let (known, _) = judge(&hook, known, seen(false), 40_000);
        let (known, changes) = judge(&hook, known, seen(false), 99_999);
        assert!(changes.is_empty());
        let (known, changes) = judge(&hook, known, seen(false), 100_000);
        let minute = Duration::from_secs(60);
        assert_eq!(changes, [("queue_no_worker", minute, Turn::Begins)]);
        let (_, changes) = judge(&hook, known, seen(true), 110_000);
        assert_eq!(changes, [("queue_no_worker", minute, Turn::Ends)]);
    }
}
