//! Who works: every worker that has asked for jobs, through whichever door. Volatile: after a
//! restart a worker is known again once it asks again.
//!
//! A worker is known by its connection, where its door binds leases to one or names it by one, and
//! else by its door and the name it gives; those that give none are one worker without a name.

use std::collections::HashMap;

use bytes::Bytes;
use spindle_core::command::Lease;
use spindle_core::job::Origin;

use crate::engine::Engine;
use crate::inner::Inner;

/// Workers known at once. Those above are not told of, and get their jobs all the same.
const WORKERS_MAX: usize = 10_000;
/// Queues remembered of what a worker asked for last, and their bytes.
const QUEUES_MAX: usize = 32;
const NAMES_BYTES_MAX: usize = 2048;
/// A worker without a connection is forgotten when it has not asked for so long.
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
    /// Its connection, where that is what it is known by; 0 otherwise. Its leases say the same.
    pub holder: u64,
    /// Its name, as far as it gave one.
    pub name: Bytes,
    /// When it asked first.
    pub first_asked_ms: u64,
    /// When it asked last.
    pub last_asked_ms: u64,
    /// What it asked for last, as far as that is remembered.
    pub queues: Vec<Bytes>,
    /// How many queues it asked for.
    pub queues_count: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Workers {
    places: Vec<Option<Box<WorkerView>>>,
    free: Vec<usize>,
    by_holder: HashMap<u64, usize, foldhash::quality::RandomState>,
    by_name: HashMap<(i32, Bytes), usize, foldhash::quality::RandomState>,
    sweep_at: usize,
}

impl Workers {
    /// A worker asks for a job.
    pub fn asked(&mut self, wish: &Lease, now_ms: u64) {
        let known = if wish.holder != 0 {
            self.by_holder.get(&wish.holder).copied()
        } else {
            // Cheap: the name is shared.
            self.by_name.get(&(wish.door as i32, wish.worker.clone())).copied()
        };
        let Some(place) = known.or_else(|| self.place_for(wish, now_ms)) else { return };
        let Some(worker) = self.places[place].as_mut() else { return };
        worker.last_asked_ms = now_ms;
        let is_same = worker.queues_count == wish.queues.len()
            && worker.queues.iter().zip(&wish.queues).all(|(old, new)| old == new);
        if !is_same {
            worker.queues_count = wish.queues.len();
            worker.queues = remembered(&wish.queues);
        }
        if worker.name != wish.worker {
            worker.name = Bytes::copy_from_slice(&wish.worker);
        }
    }

    fn place_for(&mut self, wish: &Lease, now_ms: u64) -> Option<usize> {
        self.sweep(now_ms);
        if self.by_holder.len() + self.by_name.len() >= WORKERS_MAX {
            return None;
        }
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        let name = Bytes::copy_from_slice(&wish.worker);
        if wish.holder != 0 {
            self.by_holder.insert(wish.holder, place);
        } else {
            self.by_name.insert((wish.door as i32, name.clone()), place);
        }
        self.places[place] = Some(Box::new(WorkerView {
            door: wish.door,
            holder: wish.holder,
            name,
            first_asked_ms: now_ms,
            last_asked_ms: now_ms,
            queues: remembered(&wish.queues),
            queues_count: wish.queues.len(),
        }));
        Some(place)
    }

    /// A connection is gone, and the worker with it.
    pub fn gone(&mut self, holder: u64) {
        if let Some(place) = self.by_holder.remove(&holder) {
            self.places[place] = None;
            self.free.push(place);
        }
    }

    /// Forgets some of those that have not been seen for long.
    fn sweep(&mut self, now_ms: u64) {
        for _ in 0..SWEPT.min(self.places.len()) {
            self.sweep_at = (self.sweep_at + 1) % self.places.len();
            let Some(worker) = &self.places[self.sweep_at] else { continue };
            if worker.holder == 0 && is_forgotten(worker, now_ms) {
                self.by_name.remove(&(worker.door as i32, worker.name.clone()));
                self.places[self.sweep_at] = None;
                self.free.push(self.sweep_at);
            }
        }
    }
}

fn is_forgotten(worker: &WorkerView, now_ms: u64) -> bool {
    now_ms.saturating_sub(worker.last_asked_ms) > FORGOTTEN_MS
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

impl Inner {
    /// A worker asks for a job: it is seen, and so are its queues.
    pub(crate) fn note_worker(&mut self, wish: &Lease) {
        self.workers.asked(wish, self.now_ms);
        self.note_asked(&wish.queues);
    }
}

impl Engine {
    /// Workers from a place of the list on, as far as one hold of the lock may see, and the place
    /// where the next step begins; none at the end.
    pub fn workers(&self, from: usize) -> (Vec<WorkerView>, Option<usize>) {
        let inner = self.shared.inner.lock();
        let now_ms = self.shared.clock.now_ms();
        let places = &inner.workers.places;
        let end = places.len().min(from.saturating_add(PLACES_PER_HOLD));
        let known = places.get(from..end).unwrap_or_default().iter().flatten();
        let seen = known.filter(|worker| worker.holder != 0 || !is_forgotten(worker, now_ms));
        let workers = seen.map(|worker| (**worker).clone()).collect();
        (workers, (end < places.len()).then_some(end))
    }
}

#[cfg(test)]
mod tests {
    use spindle_core::command::Select;

    use super::*;

    fn wish(holder: u64, worker: &str, queues: &[&str]) -> Lease {
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
        let told = workers.places.iter().flatten();
        told.map(|worker| (worker.holder, &worker.name[..], worker.queues.len())).collect()
    }

    #[test]
    fn a_worker_is_one_however_often_it_asks_and_goes_with_its_connection() {
        let mut workers = Workers::default();
        workers.asked(&wish(7, "", &["a"]), 1);
        workers.asked(&wish(7, "", &["a", "b"]), 2);
        workers.asked(&wish(0, "ann", &["a"]), 3);
        workers.asked(&wish(0, "ann", &["a"]), 4);
        workers.asked(&wish(0, "", &["a"]), 5);
        assert_eq!(known(&workers), [(7, &b""[..], 2), (0, b"ann", 1), (0, b"", 1)]);
        workers.gone(7);
        workers.gone(7);
        assert_eq!(known(&workers), [(0, &b"ann"[..], 1), (0, b"", 1)]);
    }

    #[test]
    fn those_not_seen_for_long_make_room() {
        let mut workers = Workers::default();
        for n in 0..WORKERS_MAX + 10 {
            workers.asked(&wish(0, &format!("worker {n}"), &["a"]), 1);
        }
        assert_eq!(known(&workers).len(), WORKERS_MAX);
        let later = 2 + FORGOTTEN_MS;
        for n in 0..100 {
            workers.asked(&wish(0, &format!("new {n}"), &["a"]), later);
        }
        let new = workers.places.iter().flatten().filter(|worker| worker.first_asked_ms == later);
        assert_eq!(new.count(), 100);
        assert!(workers.by_name.len() <= WORKERS_MAX);
    }

    #[test]
    fn what_is_remembered_of_a_worker_is_bounded() {
        let mut workers = Workers::default();
        let names: Vec<String> = (0..1024).map(|n| format!("{n:0>512}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        workers.asked(&wish(0, "ann", &names), 1);
        let ann = workers.places[0].as_ref().expect("she asked");
        assert_eq!(ann.queues_count, 1024);
        assert!(ann.queues.iter().map(Bytes::len).sum::<usize>() <= NAMES_BYTES_MAX);
    }
}
