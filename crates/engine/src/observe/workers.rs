//! The workers: every worker that has asked for jobs, through any door. Volatile: after a restart a
//! worker is known again once it asks again.
//!
//! A worker is identified by its connection, if its door binds leases to connections or names
//! workers by them, and otherwise by its door and the name it gives; all that give no name count as
//! one worker.
//!
//! A worker without a connection is gone when it waits for nothing and was silent for a minute: it
//! did not ask, and neither extended nor ended a lease. It is remembered for longer, because the
//! caller that lists workers may know of a job that it still has.

use std::collections::HashMap;

use bytes::Bytes;
use spindle_core::State;
use spindle_core::command::{Claim, Lease};
use spindle_core::job::{HeldLease, Origin};

/// Workers known at once. Those above are not listed, and get their jobs all the same.
const WORKERS_MAX: usize = 10_000;
/// Queues remembered of what a worker asked for last, and their bytes.
const QUEUES_MAX: usize = 32;
const NAMES_BYTES_MAX: usize = 2048;
/// A worker without a connection is gone when it was silent for this long.
const GONE_MS: u64 = 60_000;
/// It is forgotten when it was silent for this long.
const FORGOTTEN_MS: u64 = 3_600_000;
/// Places looked at for forgotten ones when a new worker comes.
const SWEPT: usize = 8;
/// Places looked at in one hold of the lock.
const PLACES_PER_HOLD: usize = 256;

/// A worker.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkerView {
    /// The door it comes through.
    pub door: Origin,
    /// Its connection, if it is identified by that; 0 otherwise. Its leases have the same value.
    pub holder: u64,
    /// Its name, as far as it gave one.
    pub name: Bytes,
    /// When it asked first.
    pub first_asked_ms: u64,
    /// When it last asked, waited, extended a lease or ended one.
    pub last_seen_ms: u64,
    /// How many of its requests wait for a job now.
    pub waits: u32,
    /// What it asked for last, as far as that is remembered.
    pub queues: Vec<Bytes>,
    /// How many queues it asked for.
    pub queues_count: usize,
}

impl WorkerView {
    /// Whether it is gone, unless it has a job. A connection that is gone is not listed at all.
    pub fn is_gone(&self, now_ms: u64) -> bool {
        self.is_silent_for(GONE_MS, now_ms)
    }

    fn is_silent_for(&self, ms: u64, now_ms: u64) -> bool {
        self.holder == 0 && self.waits == 0 && now_ms.saturating_sub(self.last_seen_ms) > ms
    }
}

/// What identifies a worker.
#[derive(PartialEq, Eq, Hash, Debug)]
enum Key {
    Connection(u64),
    Name(Origin, Bytes),
}

impl Key {
    /// Cheap: the name is shared.
    fn new(door: Origin, holder: u64, name: &Bytes) -> Key {
        if holder != 0 { Key::Connection(holder) } else { Key::Name(door, name.clone()) }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Workers {
    places: Vec<Option<Box<WorkerView>>>,
    free: Vec<usize>,
    by_key: HashMap<Key, usize, foldhash::quality::RandomState>,
    sweep_at: usize,
}

impl Workers {
    fn known(&mut self, door: Origin, holder: u64, name: &Bytes) -> Option<&mut WorkerView> {
        let place = *self.by_key.get(&Key::new(door, holder, name))?;
        self.places[place].as_deref_mut()
    }

    /// A worker asks for a job.
    pub fn asked(&mut self, request: &Lease, now_ms: u64) {
        let key = Key::new(request.door, request.holder, &request.worker);
        let known = self.by_key.get(&key).copied();
        let Some(place) = known.or_else(|| self.place_for(request, now_ms)) else { return };
        let Some(worker) = self.places[place].as_mut() else { return };
        worker.last_seen_ms = now_ms;
        let is_same = worker.queues_count == request.queues.len()
            && worker.queues.iter().zip(&request.queues).all(|(old, new)| old == new);
        if !is_same {
            worker.queues_count = request.queues.len();
            worker.queues = remembered(&request.queues);
        }
        if worker.name != request.worker {
            worker.name = Bytes::copy_from_slice(&request.worker);
        }
    }

    fn place_for(&mut self, request: &Lease, now_ms: u64) -> Option<usize> {
        self.sweep(now_ms);
        if self.is_full() {
            return None;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        let name = Bytes::copy_from_slice(&request.worker);
        self.by_key.insert(Key::new(request.door, request.holder, &name), place);
        self.places[place] = Some(Box::new(WorkerView {
            door: request.door,
            holder: request.holder,
            name,
            first_asked_ms: now_ms,
            last_seen_ms: now_ms,
            waits: 0,
            queues: remembered(&request.queues),
            queues_count: request.queues.len(),
        }));
        Some(place)
    }

    /// It waits for a job from now on.
    pub fn begins_to_wait(&mut self, request: &Lease) {
        if let Some(worker) = self.known(request.door, request.holder, &request.worker) {
            worker.waits += 1;
        }
    }

    /// It does not wait for that any more.
    pub fn waited(&mut self, request: &Lease, now_ms: u64) {
        if let Some(worker) = self.known(request.door, request.holder, &request.worker) {
            worker.waits = worker.waits.saturating_sub(1);
            worker.last_seen_ms = now_ms;
        }
    }

    /// A worker extends or ends its lease: it is not silent. Those that are known by their connection
    /// need no such sign.
    pub fn claimed(&mut self, claim: Claim, state: &State, now_ms: u64) {
        let Claim::Token { id, attempt, .. } = claim else { return };
        let Some(job) = state.live(id) else { return };
        let is_own = |lease: &&HeldLease| lease.holder == 0 && job.attempts() == attempt;
        if let Some(lease) = job.lease().filter(is_own)
            && let Some(worker) = self.known(lease.door(), lease.holder, &lease.worker)
        {
            worker.last_seen_ms = now_ms;
        }
    }

    /// Workers from a place of the list on, as far as one hold of the lock may see, and the place
    /// where the next step begins; none at the end. Some may be gone: see [`WorkerView::is_gone`].
    pub fn list(&self, from: usize, now_ms: u64) -> (Vec<WorkerView>, Option<usize>) {
        let end = self.places.len().min(from.saturating_add(PLACES_PER_HOLD));
        let known = self.places.get(from..end).unwrap_or_default().iter().flatten();
        let seen = known.filter(|worker| !worker.is_silent_for(FORGOTTEN_MS, now_ms));
        let mut workers: Vec<WorkerView> = seen.map(|worker| (**worker).clone()).collect();
        for worker in workers.iter_mut().filter(|worker| worker.waits > 0) {
            worker.last_seen_ms = now_ms;
        }
        (workers, (end < self.places.len()).then_some(end))
    }

    /// A connection is gone, and the worker with it.
    pub fn gone(&mut self, holder: u64) {
        if let Some(place) = self.by_key.remove(&Key::Connection(holder)) {
            self.places[place] = None;
            self.free.push(place);
        }
    }

    fn is_full(&self) -> bool {
        self.by_key.len() >= WORKERS_MAX
    }

    /// Forgets some of those that have been silent for long; where room is needed, some that
    /// are gone.
    fn sweep(&mut self, now_ms: u64) {
        let silence_ms = if self.is_full() { GONE_MS } else { FORGOTTEN_MS };
        for _ in 0..SWEPT.min(self.places.len()) {
            self.sweep_at = (self.sweep_at + 1) % self.places.len();
            let Some(worker) = &self.places[self.sweep_at] else { continue };
            if worker.is_silent_for(silence_ms, now_ms) {
                self.by_key.remove(&Key::new(worker.door, worker.holder, &worker.name));
                self.places[self.sweep_at] = None;
                self.free.push(self.sweep_at);
            }
        }
    }
}

/// Copies: names may be small parts of large reads.
fn remembered(queues: &[Bytes]) -> Vec<Bytes> {
    let mut left = NAMES_BYTES_MAX;
    let fitting = queues.iter().take(QUEUES_MAX).take_while(|name| {
        let fits = name.len() <= left;
        left = left.saturating_sub(name.len());
        fits
    });
    fitting.map(|name| Bytes::copy_from_slice(name)).collect()
}

#[cfg(test)]
mod tests {
    use spindle_core::command::Select;

    use super::*;

    fn request(holder: u64, worker: &str, queues: &[&str]) -> Lease {
        Lease {
            queues: queues.iter().map(|name| Bytes::copy_from_slice(name.as_bytes())).collect(),
            select: Select::ByPriority,
            holder,
            bound: holder != 0,
            timeout_ms: None,
            door: Origin::Api,
            worker: Bytes::copy_from_slice(worker.as_bytes()),
            payload_bytes_max: u32::MAX,
        }
    }

    fn known(workers: &Workers) -> Vec<(u64, &[u8], usize)> {
        let known = workers.places.iter().flatten();
        known.map(|worker| (worker.holder, &worker.name[..], worker.queues.len())).collect()
    }

    #[test]
    fn a_worker_is_one_however_often_it_asks_and_goes_with_its_connection() {
        let mut workers = Workers::default();
        workers.asked(&request(7, "", &["a"]), 1);
        workers.asked(&request(7, "", &["a", "b"]), 2);
        workers.asked(&request(0, "ann", &["a"]), 3);
        workers.asked(&request(0, "ann", &["a"]), 4);
        workers.asked(&request(0, "", &["a"]), 5);
        assert_eq!(known(&workers), [(7, &b""[..], 2), (0, b"ann", 1), (0, b"", 1)]);
        workers.gone(7);
        workers.gone(7);
        assert_eq!(known(&workers), [(0, &b"ann"[..], 1), (0, b"", 1)]);
    }

    #[test]
    fn those_that_are_gone_make_room() {
        let mut workers = Workers::default();
        for n in 0..WORKERS_MAX + 10 {
            workers.asked(&request(0, &format!("worker {n}"), &["a"]), 1);
        }
        assert_eq!(known(&workers).len(), WORKERS_MAX);
        workers.asked(&request(0, "early", &["a"]), 1 + GONE_MS);
        assert!(!known(&workers).iter().any(|(_, name, _)| *name == b"early"));
        let later = 2 + GONE_MS;
        for n in 0..100 {
            workers.asked(&request(0, &format!("new {n}"), &["a"]), later);
        }
        let new = workers.places.iter().flatten().filter(|worker| worker.first_asked_ms == later);
        assert_eq!(new.count(), 100);
        assert!(workers.by_key.len() <= WORKERS_MAX);
    }

    #[test]
    fn with_room_enough_a_worker_is_remembered_for_an_hour() {
        let mut workers = Workers::default();
        let ann = |workers: &Workers| known(workers).iter().any(|(_, name, _)| *name == b"ann");
        workers.asked(&request(0, "ann", &["a"]), 1);
        workers.asked(&request(0, "bob", &["a"]), 1 + FORGOTTEN_MS);
        assert!(ann(&workers));
        workers.asked(&request(0, "cem", &["a"]), 2 + FORGOTTEN_MS);
        assert!(!ann(&workers));
    }

    #[test]
    fn who_waits_or_has_a_connection_is_not_gone_however_long_ago_it_asked() {
        let mut workers = Workers::default();
        let (ann, perl) = (request(0, "ann", &["a"]), request(7, "perl", &["a"]));
        let is_gone = |workers: &Workers, place: usize, now_ms| {
            workers.places[place].as_ref().expect("it asked").is_gone(now_ms)
        };
        workers.asked(&ann, 1);
        workers.asked(&perl, 1);
        assert!(!is_gone(&workers, 0, 1 + GONE_MS) && is_gone(&workers, 0, 2 + GONE_MS));
        workers.begins_to_wait(&ann);
        workers.begins_to_wait(&ann);
        assert!(!is_gone(&workers, 0, FORGOTTEN_MS) && !is_gone(&workers, 1, FORGOTTEN_MS));
        workers.waited(&ann, 300_000);
        assert!(!is_gone(&workers, 0, FORGOTTEN_MS));
        workers.waited(&ann, 400_000);
        assert!(!is_gone(&workers, 0, 400_000 + GONE_MS));
        assert!(is_gone(&workers, 0, 400_001 + GONE_MS));
    }

    #[test]
    fn what_is_remembered_of_a_worker_is_bounded() {
        let mut workers = Workers::default();
        let names: Vec<String> = (0..1024).map(|n| format!("{n:0>512}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        workers.asked(&request(0, "ann", &names), 1);
        let ann = workers.places[0].as_ref().expect("she asked");
        assert_eq!(ann.queues_count, 1024);
        assert!(ann.queues.iter().map(Bytes::len).sum::<usize>() <= NAMES_BYTES_MAX);
    }
}
