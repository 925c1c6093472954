//! All finished jobs, and which of them go first.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::chunk::{Chunk, Order, SLOTS, Slot};
use super::firsts::{First, Firsts};
use super::job::FinishedJob;
use crate::state::slab::Slab;

/// The number of a job has to leave the highest bit of its handle free, which says that it is finished; so
/// there are 2^31 numbers. Above three quarters of the chunks, finished jobs go before their time. A call
/// adds some hundred chunks at most before the next tick, so the rest is never used.
const CHUNKS_MAX: usize = (1 << 31) / SLOTS / 4 * 3;

/// Up to so many empty slots, moving jobs is not worth it.
const SPARE_SLOTS: usize = 1024;

/// Finished jobs by number: that of a chunk, and a slot in it. A job keeps its number until
/// somebody moves it.
#[derive(Debug, Clone)]
pub(crate) struct FinishedJobs {
    chunks: Slab<Chunk>,
    len: usize,
    /// Slots that have memory and no job.
    empty_slots: usize,
    /// Chunks with at most as many jobs as empty slots.
    sparse: BTreeSet<u32>,
    /// All chunks, by the first of their jobs in each order.
    firsts: [Firsts; 2],
    chunks_max: usize,
}

impl Default for FinishedJobs {
    fn default() -> FinishedJobs {
        FinishedJobs {
            chunks: Slab::default(),
            len: 0,
            empty_slots: 0,
            sparse: BTreeSet::new(),
            firsts: Default::default(),
            chunks_max: CHUNKS_MAX,
        }
    }
}

/// What a queue knows of its finished jobs.
#[derive(Debug, Clone, Default)]
pub(crate) struct FinishedOfQueue {
    len: usize,
    /// The chunk that takes the next one.
    open: Option<u32>,
    /// Its chunks, by the oldest of their jobs.
    oldest: Firsts,
}

impl FinishedOfQueue {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }
}

fn chunk_of(number: u32) -> u32 {
    number / SLOTS as u32
}

fn slot_of(number: u32) -> u8 {
    (number % SLOTS as u32) as u8
}

fn number_of(chunk: u32, slot: u8) -> u32 {
    chunk * SLOTS as u32 + u32::from(slot)
}

impl FinishedJobs {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The job with this number.
    #[inline]
    pub fn job(&self, number: u32) -> FinishedJob<Slot<'_>> {
        self.chunks[chunk_of(number)].job(slot_of(number))
    }

    /// Puts a job of a queue in a place and returns its number.
    pub fn insert(&mut self, queue: u32, list: &mut FinishedOfQueue, job: &FinishedJob) -> u32 {
        let chunks = &mut self.chunks;
        let chunk = *list.open.get_or_insert_with(|| chunks.insert(Chunk::new(queue)));
        list.len += 1;
        self.len += 1;
        let slot = self.change(chunk, list, |chunk| chunk.insert(job));
        if !self.chunks[chunk].is_open() {
            list.open = None;
        }
        number_of(chunk, slot)
    }

    /// Takes a job of a queue out.
    pub fn remove(&mut self, number: u32, list: &mut FinishedOfQueue) {
        let chunk = chunk_of(number);
        list.len -= 1;
        self.len -= 1;
        self.change(chunk, list, |chunk| chunk.remove(slot_of(number)));
        if self.chunks[chunk].len() == 0 {
            self.empty_slots -= self.chunks[chunk].empty_slots();
            self.chunks.remove(chunk);
            list.open.take_if(|open| *open == chunk);
        }
    }

    /// Changes a chunk, and its places in the indices.
    fn change<T>(
        &mut self,
        number: u32,
        list: &mut FinishedOfQueue,
        change: impl FnOnce(&mut Chunk) -> T,
    ) -> T {
        let chunk = &mut self.chunks[number];
        let (firsts_before, empty_before) = (chunk.firsts(), chunk.empty_slots());
        let done = change(chunk);
        let (firsts, empty) = (chunk.firsts(), chunk.empty_slots());
        self.empty_slots = self.empty_slots + empty - empty_before;
        if (1..=empty).contains(&chunk.len()) {
            self.sparse.insert(number);
        } else if empty_before > 0 {
            self.sparse.remove(&number);
        }
        for order in Order::ALL {
            let (old, new) = (firsts_before[order as usize], firsts[order as usize]);
            if old == new {
                continue;
            }
            // The slot of a job that went still has its numbers.
            let entry = |slot| Some((chunk.key(order, slot)?, number_of(number, slot)));
            let (old, new) = (old.and_then(entry), new.and_then(entry));
            let of_queue = (order == Order::Age).then_some(&mut list.oldest);
            for index in [Some(&mut self.firsts[order as usize]), of_queue].into_iter().flatten() {
                index.exchange(old, new);
            }
        }
        done
    }

    /// Allows fewer chunks, for tests.
    #[cfg(test)]
    pub fn allow_chunks(&mut self, max: usize) {
        self.chunks_max = max;
    }

    /// How many chunks there are beyond what there may be.
    pub fn surplus_chunks(&self) -> usize {
        self.chunks.len().saturating_sub(self.chunks_max)
    }

    /// A chunk whose jobs should be moved to where new ones go, so that most slots have a job, and
    /// its queue.
    pub fn sparse(&self) -> Option<(u32, u32)> {
        let chunk =
            *self.sparse.first().filter(|_| self.empty_slots > SPARE_SLOTS + self.len / 4)?;
        Some((chunk, self.chunks[chunk].queue))
    }

    /// A chunk takes no more jobs. Returns the numbers of those in it.
    pub fn close(&mut self, chunk: u32, list: &mut FinishedOfQueue) -> Vec<u32> {
        list.open.take_if(|open| *open == chunk);
        self.chunks[chunk].slots().map(|slot| number_of(chunk, slot)).collect()
    }

    /// The numbers of all jobs, those that ended first come first.
    pub fn oldest(&self) -> impl Iterator<Item = u32> + '_ {
        self.in_order(Order::Age, &self.firsts[Order::Age as usize])
    }

    /// Jobs of a queue, those that ended first come first.
    pub fn oldest_of<'a>(&'a self, list: &'a FinishedOfQueue) -> impl Iterator<Item = u32> + 'a {
        self.in_order(Order::Age, &list.oldest)
    }

    /// Jobs that do not stay until they are deleted, those that go first come first.
    pub fn expiring(&self) -> impl Iterator<Item = u32> + '_ {
        self.in_order(Order::Expiry, &self.firsts[Order::Expiry as usize])
    }

    /// The jobs of some chunks. A chunk is read only when another job is asked for after its first
    /// one.
    fn in_order<'a>(&'a self, order: Order, firsts: &'a Firsts) -> impl Iterator<Item = u32> + 'a {
        let mut firsts = firsts.iter().peekable();
        let mut others: BinaryHeap<Reverse<First>> = BinaryHeap::new();
        let mut unread: Option<u32> = None;
        std::iter::from_fn(move || {
            if let Some(first) = unread.take() {
                let (at, first) = (chunk_of(first), slot_of(first));
                let rest = self.chunks[at].keys(order).filter(|(_, slot)| *slot != first);
                others.extend(rest.map(|(key, slot)| Reverse((key, number_of(at, slot)))));
            }
            let is_next = |first: &First| others.peek().is_none_or(|other| *first < other.0);
            if let Some(first) = firsts.next_if(is_next) {
                unread = Some(first.1);
                return Some(first.1);
            }
            others.pop().map(|other| other.0.1)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::num::NonZeroU64;

    use super::*;
    use crate::job::Status;
    use crate::state::finished::FinishedParts;
    use crate::state::{FINISHED, Place};

    const QUEUES: usize = 3;

    /// The store beside a map of what is in it.
    #[derive(Default)]
    struct Both {
        jobs: FinishedJobs,
        lists: [FinishedOfQueue; QUEUES],
        /// By id: queue, number, and the job.
        known: BTreeMap<u64, (usize, u32, FinishedJob)>,
        draws: u64,
        moved: usize,
    }

    impl Both {
        fn draw(&mut self, below: u64) -> u64 {
            self.draws = self.draws.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            (self.draws >> 33) % below
        }

        /// Ids come in no order, several jobs end in a second, some are kept for good.
        fn insert(&mut self, step: u64) {
            let id = step * 8 + 1 + self.draw(300);
            if self.known.contains_key(&id) {
                return;
            }
            let until_ms = 5_000_000 + self.draw(1_000_000);
            let job = FinishedJob::new(&FinishedParts {
                id: NonZeroU64::new(id).expect("not zero"),
                status: if self.draw(2) == 0 { Status::Done } else { Status::Dead },
                uuid: (self.draw(5) > 0).then(|| u128::from(self.draws).to_ne_bytes()),
                image: Place { position: step / 7, offset: self.draw(5_000) as u32 },
                oldest_record: (step / 7).saturating_sub(self.draw(100)),
                finished_ms: step * 10,
                kept_until_ms: (self.draw(4) > 0).then_some(until_ms),
                deletion: None,
                bytes: self.draw(100_000),
            });
            let queue = self.draw(QUEUES as u64) as usize;
            let number = self.jobs.insert(queue as u32, &mut self.lists[queue], &job);
            self.known.insert(id, (queue, number, job));
        }

        fn remove(&mut self, id: u64) {
            let Some((queue, number, _)) = self.known.remove(&id) else { return };
            self.jobs.remove(number, &mut self.lists[queue]);
            let Some((chunk, queue)) = self.jobs.sparse() else { return };
            let list = &mut self.lists[queue as usize];
            for old in self.jobs.close(chunk, list) {
                let job = self.jobs.job(old).alone();
                let new = self.jobs.insert(queue, list, &job);
                self.jobs.remove(old, list);
                self.known.entry(job.id()).and_modify(|known| known.1 = new);
                self.moved += 1;
            }
        }

        fn sorted(&self, key: impl Fn(usize, &FinishedJob) -> Option<u128>) -> Vec<u32> {
            let jobs = self.known.values();
            let mut keys: Vec<(u128, u32)> = jobs
                .filter_map(|(queue, number, job)| Some((key(*queue, job)?, *number)))
                .collect();
            keys.sort_unstable();
            keys.into_iter().map(|(_, number)| number).collect()
        }

        fn check(&self) {
            assert_eq!(self.jobs.len(), self.known.len());
            for (queue, number, job) in self.known.values() {
                let slot = self.jobs.job(*number);
                assert_eq!((slot.alone().0, slot.queue()), (job.0, *queue as u32));
            }
            let oldest = self.sorted(|_, job| Some(job.age_key()));
            assert_eq!(self.jobs.oldest().collect::<Vec<_>>(), oldest);
            let expiring = self.sorted(|_, job| job.expiry_key());
            assert_eq!(self.jobs.expiring().collect::<Vec<_>>(), expiring);
            for (queue, list) in self.lists.iter().enumerate() {
                let oldest = self.sorted(|of, job| (of == queue).then(|| job.age_key()));
                assert_eq!(self.jobs.oldest_of(list).collect::<Vec<_>>(), oldest);
                assert_eq!(list.len(), oldest.len());
            }
        }
    }

    #[test]
    fn jobs_are_found_and_ordered_as_in_a_sorted_list_under_any_mix_of_steps() {
        let mut both = Both::default();
        for step in 0..30_000 {
            both.insert(step);
            let phase = (step / 5_000) % 3;
            let oldest = both.jobs.oldest().next().filter(|_| phase > 0);
            let expiring = both.jobs.expiring().next().filter(|_| phase == 2);
            let id = |number: u32| both.jobs.job(number).id();
            let gone = [oldest.map(id), expiring.map(id)];
            gone.into_iter().flatten().for_each(|id| both.remove(id));
            let any = both.draw(step * 8 + 1);
            let any = both.known.range(any..).next().map(|(id, _)| *id);
            any.filter(|_| phase != 1).into_iter().for_each(|id| both.remove(id));
            if step % 499 == 0 {
                both.check();
            }
        }
        let ids: Vec<u64> = both.known.keys().copied().collect();
        ids.into_iter().for_each(|id| both.remove(id));
        both.check();
        assert_eq!((both.jobs.empty_slots, both.jobs.sparse.len()), (0, 0));
        assert!(both.jobs.firsts.iter().all(|firsts| firsts.iter().next().is_none()));
        assert!(both.jobs.chunks.find(0).is_none() && both.lists[0].open.is_none());
    }

    #[test]
    fn few_slots_stay_empty_however_jobs_go() {
        let mut both = Both::default();
        (0..40_000).for_each(|step| both.insert(step));
        let ids: Vec<u64> = both.known.keys().copied().collect();
        let mut left: Vec<u64> = ids.iter().copied().filter(|id| id % 100 < 99).collect();
        while !left.is_empty() {
            let at = both.draw(left.len() as u64) as usize;
            let id = left.swap_remove(at);
            both.remove(id);
            let (empty, len) = (both.jobs.empty_slots, both.jobs.len());
            assert!(empty <= SPARE_SLOTS + len / 4 || empty < len, "{empty} empty beside {len}");
        }
        both.check();
        assert!(both.known.len() > 200 && both.moved > 1_000, "{} were moved", both.moved);
    }

    #[test]
    fn a_chunk_too_many_is_a_surplus_until_it_is_empty() {
        let mut both = Both::default();
        both.jobs.allow_chunks(QUEUES);
        for step in 0.. {
            if both.jobs.chunks.len() > QUEUES {
                break;
            }
            assert_eq!(both.jobs.surplus_chunks(), 0);
            both.insert(step);
        }
        assert_eq!(both.jobs.surplus_chunks(), 1);
        while both.jobs.surplus_chunks() > 0 {
            let oldest = both.jobs.oldest().next().expect("there are some");
            both.remove(both.jobs.job(oldest).id());
        }
        assert_eq!(both.jobs.chunks.len(), QUEUES);
        both.check();
    }

    #[test]
    fn the_highest_number_is_none_of_a_handle() {
        let highest = number_of((CHUNKS_MAX / 3 * 4 - 1) as u32, SLOTS as u8 - 1);
        assert_eq!((highest, highest & FINISHED), (u32::MAX >> 1, 0));
    }

    #[test]
    fn jobs_that_go_as_they_came_are_never_moved() {
        let mut both = Both::default();
        for step in 0..20_000 {
            both.insert(step);
            if both.jobs.len() > 5_000 {
                let oldest = both.jobs.oldest().next().expect("there are some");
                both.remove(both.jobs.job(oldest).id());
            }
        }
        assert_eq!((both.jobs.len(), both.moved), (5_000, 0));
    }
}
