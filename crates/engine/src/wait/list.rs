//! The list of waits: for leases, results, ends of batches, news of a job, calls to work, room in the log, the feed.
//! Volatile: it is gone after a crash, as are the connections that waited.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use spindle_core::JobId;
use spindle_core::command::Lease;

use crate::answer::Answer;
use crate::door::{ConnectionId, Delivery, Mailbox, Ticket};
use crate::gate::Gated;

/// The client that asks, and where a deferred answer goes.
#[derive(Clone)]
pub struct Caller {
    /// The connection.
    pub connection: ConnectionId,
    /// Its reactor.
    pub mailbox: Arc<dyn Mailbox>,
}

impl Caller {
    /// Hands a deferred answer to the caller's reactor.
    pub(crate) fn deliver(&self, ticket: Ticket, answer: Gated<Answer>) {
        self.mailbox.deliver(Delivery { connection: self.connection, ticket, answer });
    }
}

impl std::fmt::Debug for Caller {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Caller({})", self.connection.0)
    }
}

/// What a ticket waits for.
#[derive(Debug)]
pub(crate) enum WaitFor {
    /// A job of some queues.
    Lease(Arc<Lease>),
    /// The end of a job.
    Result {
        job: JobId,
        /// The deadline counts only until somebody has leased the job (Workq's `run`).
        until_leased: bool,
    },
    /// The end of a batch.
    BatchEnd { batch: JobId },
    /// News of a job and its end, with several answers.
    Watch { job: JobId },
    /// Any change of a job, for a client that only looks on.
    Change { job: JobId },
    /// A call when there is something to lease. The call reserves it for a while (see
    /// [`super::wakeups`]), unless the sleeper did not come when it was called last.
    Sleep(Box<Sleep>),
    /// Room for more undurable bytes.
    Room,
    /// Its deadline, and nothing else.
    Time,
    /// A durable event in a record from this position on.
    Feed { position: u64 },
}

/// What a sleeper can be called for.
#[derive(Debug, Clone)]
pub(crate) struct Sleep {
    pub queues: BTreeSet<Bytes>,
    /// It could not carry larger payloads.
    pub payload_bytes_max: u32,
    /// It is served after all others.
    pub is_late: bool,
}

impl Sleep {
    fn rank(&self, ticket: Ticket) -> Rank {
        Rank { is_late: self.is_late, ticket }
    }
}

/// A wait's place in the line at a queue: late ones come last, otherwise the longest waiter comes
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    pub is_late: bool,
    pub ticket: Ticket,
}

/// What is done for a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Service {
    /// To be handed a job.
    Lease,
    /// To be called.
    Sleep,
}

#[derive(Debug)]
pub(crate) struct Wait {
    pub caller: Caller,
    pub request: WaitFor,
    pub deadline_ms: Option<u64>,
}

/// For each thing waited for, the waits for it in the order they are served. Sorted by the thing:
/// there may be a hundred thousand names of queues, and pages of queues show them in order.
#[derive(Debug)]
struct Lines<K, T>(BTreeMap<K, BTreeSet<T>>);

impl<K: Ord, T: Ord + Copy> Lines<K, T> {
    /// Adds somebody to a line, or removes them. `key` makes the line's key, if there is no line yet.
    fn set(&mut self, line: &K, waiter: T, is_there: bool, key: impl FnOnce() -> K) {
        match self.0.get_mut(line) {
            Some(waiters) if is_there => {
                waiters.insert(waiter);
            }
            Some(waiters) => {
                waiters.remove(&waiter);
                if waiters.is_empty() {
                    self.0.remove(line);
                }
            }
            None if is_there => {
                self.0.insert(key(), BTreeSet::from([waiter]));
            }
            None => {}
        }
    }

    fn all(&self, line: &K) -> Vec<T> {
        self.0.get(line).into_iter().flatten().copied().collect()
    }
}

impl<K, T> Default for Lines<K, T> {
    fn default() -> Self {
        Lines(BTreeMap::new())
    }
}

/// All waits. Tickets rise, so the smallest is the longest waiter.
#[derive(Debug, Default)]
pub(crate) struct WaitList {
    next_ticket: u64,
    waits: HashMap<Ticket, Wait>,
    by_queue: Lines<Bytes, Ticket>,
    /// As `by_queue`, of those who only want to be called.
    asleep: Lines<Bytes, Rank>,
    by_job: Lines<JobId, Ticket>,
    by_batch: Lines<JobId, Ticket>,
    followers: Lines<JobId, Ticket>,
    by_connection: Lines<ConnectionId, Ticket>,
    room: BTreeSet<Ticket>,
    feed: BTreeSet<(u64, Ticket)>,
    deadlines: BTreeSet<(u64, Ticket)>,
}

impl WaitList {
    pub fn add(&mut self, wait: Wait) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.index(ticket, &wait, true);
        self.waits.insert(ticket, wait);
        ticket
    }

    pub fn find(&self, ticket: Ticket) -> Option<&Wait> {
        self.waits.get(&ticket)
    }

    pub fn remove(&mut self, ticket: Ticket) -> Option<Wait> {
        let wait = self.waits.remove(&ticket)?;
        self.index(ticket, &wait, false);
        Some(wait)
    }

    /// Adds a wait to everything it is found by, or removes it.
    fn index(&mut self, ticket: Ticket, wait: &Wait, is_there: bool) {
        match &wait.request {
            WaitFor::Lease(lease) => {
                for queue in &lease.queues {
                    self.by_queue.set(queue, ticket, is_there, || owned(queue));
                }
            }
            WaitFor::Sleep(sleep) => {
                for queue in &sleep.queues {
                    self.asleep.set(queue, sleep.rank(ticket), is_there, || owned(queue));
                }
            }
            WaitFor::Result { job, .. } | WaitFor::Watch { job } => {
                self.by_job.set(job, ticket, is_there, || *job);
            }
            WaitFor::BatchEnd { batch } => {
                self.by_batch.set(batch, ticket, is_there, || *batch);
            }
            WaitFor::Change { job } => {
                self.followers.set(job, ticket, is_there, || *job);
            }
            WaitFor::Room => set(&mut self.room, ticket, is_there),
            WaitFor::Feed { position } => set(&mut self.feed, (*position, ticket), is_there),
            WaitFor::Time => {}
        }
        if let Some(deadline_ms) = wait.deadline_ms {
            set(&mut self.deadlines, (deadline_ms, ticket), is_there);
        }
        let connection = wait.caller.connection;
        self.by_connection.set(&connection, ticket, is_there, || connection);
    }

    /// Stops those deadlines of waits for this job that only count until it is leased, or, when it
    /// was given back, starts them again.
    pub fn stop_deadlines(&mut self, job: JobId, stop: bool) {
        for ticket in self.by_job.0.get(&job).into_iter().flatten() {
            if let Some(Wait {
                request: WaitFor::Result { until_leased: true, .. },
                deadline_ms: Some(deadline_ms),
                ..
            }) = self.waits.get(ticket)
            {
                set(&mut self.deadlines, (*deadline_ms, *ticket), !stop);
            }
        }
    }

    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(due, _)| *due)
    }

    pub fn due(&self, now_ms: u64) -> Option<Ticket> {
        self.deadlines.first().filter(|(due, _)| *due <= now_ms).map(|(_, ticket)| *ticket)
    }

    /// How many wait for a job of a queue.
    pub fn count_for_queue(&self, queue: &[u8]) -> usize {
        self.by_queue.0.get(queue).map_or(0, BTreeSet::len)
    }

    pub fn for_job(&self, job: JobId) -> Vec<Ticket> {
        self.by_job.all(&job)
    }

    /// How many wait for a job's end, or watch it.
    pub fn count_for_job(&self, job: JobId) -> usize {
        self.by_job.0.get(&job).map_or(0, BTreeSet::len)
    }

    /// Those who wait for a batch's end.
    pub fn for_batch(&self, batch: JobId) -> Vec<Ticket> {
        self.by_batch.all(&batch)
    }

    /// The followers of a job: they do not keep the job from being dropped.
    pub fn followers(&self, job: JobId) -> Vec<Ticket> {
        self.followers.all(&job)
    }

    /// Whether anybody follows a job.
    pub fn has_followers(&self) -> bool {
        !self.followers.0.is_empty()
    }

    pub fn of_connection(&self, connection: ConnectionId) -> Vec<Ticket> {
        self.by_connection.all(&connection)
    }

    pub fn for_room(&self) -> Vec<Ticket> {
        self.room.iter().copied().collect()
    }

    /// Tickets that wait for an event in a record below `end`.
    pub fn for_feed(&self, end: u64) -> Vec<Ticket> {
        self.feed.range(..(end, Ticket(0))).map(|(_, ticket)| *ticket).collect()
    }

    /// Tickets that wait for leases, for results or for the ends of batches, but not those that wait
    /// for a job they submitted themselves (`until_leased`).
    pub fn leases_and_results(&self) -> Vec<Ticket> {
        let is_one = |wait: &Wait| match &wait.request {
            WaitFor::Lease(_) | WaitFor::BatchEnd { .. } => true,
            WaitFor::Result { until_leased, .. } => !until_leased,
            WaitFor::Watch { .. }
            | WaitFor::Change { .. }
            | WaitFor::Sleep(_)
            | WaitFor::Room
            | WaitFor::Time
            | WaitFor::Feed { .. } => false,
        };
        let found = self.waits.iter().filter(|(_, wait)| is_one(wait));
        let mut tickets: Vec<Ticket> = found.map(|(ticket, _)| *ticket).collect();
        tickets.sort_unstable();
        tickets
    }

    /// Queues somebody waits for behind `after`, or all, in order of their names.
    pub fn queues(&self, after: Option<&[u8]>) -> impl Iterator<Item = &Bytes> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.by_queue.0.range::<[u8], _>((from, Bound::Unbounded)).map(|(queue, _)| queue)
    }

    pub fn has_queue(&self, queue: &[u8]) -> bool {
        self.by_queue.0.contains_key(queue)
    }

    /// The next one for a service at a queue, behind `after`.
    pub fn next_rank(&self, service: Service, queue: &[u8], after: Option<Rank>) -> Option<Rank> {
        match service {
            Service::Lease => {
                let ticket = behind(self.by_queue.0.get(queue)?, after.map(|rank| rank.ticket))?;
                Some(Rank { is_late: false, ticket })
            }
            Service::Sleep => behind(self.asleep.0.get(queue)?, after),
        }
    }

    /// A sleeper is to be called for one more queue.
    pub fn add_queue(&mut self, ticket: Ticket, queue: Bytes) {
        let Some(Wait { request: WaitFor::Sleep(sleep), .. }) = self.waits.get_mut(&ticket) else {
            return;
        };
        self.asleep.set(&queue, sleep.rank(ticket), true, || owned(&queue));
        sleep.queues.insert(queue);
    }

    /// A sleeper is no longer to be called for a queue.
    pub fn remove_queue(&mut self, ticket: Ticket, queue: &Bytes) {
        let Some(Wait { request: WaitFor::Sleep(sleep), .. }) = self.waits.get_mut(&ticket) else {
            return;
        };
        if sleep.queues.remove(queue) {
            self.asleep.set(queue, sleep.rank(ticket), false, || owned(queue));
        }
    }

    pub fn has_asleep(&self, queue: &[u8]) -> bool {
        self.asleep.0.contains_key(queue)
    }

    pub fn len(&self) -> usize {
        self.waits.len()
    }
}

/// The first of a line behind `after`.
fn behind<T: Ord + Copy>(line: &BTreeSet<T>, after: Option<T>) -> Option<T> {
    let after = after.map_or(Bound::Unbounded, Bound::Excluded);
    line.range((after, Bound::Unbounded)).next().copied()
}

fn set<T: Ord>(items: &mut BTreeSet<T>, item: T, is_there: bool) {
    if is_there {
        items.insert(item);
    } else {
        items.remove(&item);
    }
}

/// A copy: the name may be a small part of a large read.
fn owned(queue: &Bytes) -> Bytes {
    Bytes::copy_from_slice(queue)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Deaf;

    impl Mailbox for Deaf {
        fn deliver(&self, _: Delivery) {}
        fn durable_moved(&self) {}
    }

    #[test]
    fn only_what_lies_below_the_end_of_the_feed_is_due_and_what_is_removed_is_not() {
        let mut waits = WaitList::default();
        let mut add = |position| {
            let caller = Caller { connection: ConnectionId(1), mailbox: Arc::new(Deaf) };
            waits.add(Wait { caller, request: WaitFor::Feed { position }, deadline_ms: None })
        };
        let (early, gone, late) = (add(6), add(6), add(7));
        waits.remove(gone);
        assert_eq!(waits.for_feed(6), []);
        assert_eq!(waits.for_feed(7), [early]);
        assert_eq!(waits.for_feed(8), [early, late]);
    }
}
