//! Who waits for what: leases, results, news of a job, calls to work, room in the log, the feed.
//! Volatile: a crash forgets it, and so may the connections it belonged to.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Bound;
use std::sync::Arc;

use bytes::Bytes;
use spindle_core::JobId;
use spindle_core::command::Lease;

use crate::door::{ConnectionId, Mailbox, Ticket};

/// Who asks, and where a deferred answer goes.
#[derive(Clone)]
pub struct Caller {
    /// The connection.
    pub connection: ConnectionId,
    /// Its reactor.
    pub mailbox: Arc<dyn Mailbox>,
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
    /// News of a job and its end, with several answers.
    Watch { job: JobId },
    /// A call when there is something to lease; nothing is reserved.
    Sleep(Box<Sleep>),
    /// Room for more undurable bytes.
    Room,
    /// A durable event in a record from this position on.
    Feed { position: u64 },
}

/// What a sleeper can be called for.
#[derive(Debug, Clone)]
pub(crate) struct Sleep {
    pub queues: BTreeSet<Bytes>,
    /// It could not carry larger payloads.
    pub payload_bytes_max: u32,
    /// Its turn comes after all others'.
    pub is_late: bool,
}

/// When somebody's turn at a queue comes: those who are late come last, and the longest waiter
/// first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    pub is_late: bool,
    pub ticket: Ticket,
}

/// What somebody waits for at its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
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

/// Those who wait for queues. There may be a hundred thousand names, and lists show them in order.
type Lines<T> = BTreeMap<Bytes, BTreeSet<T>>;

/// All waits. Tickets rise, so the smallest is the longest waiter.
#[derive(Debug, Default)]
pub(crate) struct Waits {
    next_ticket: u64,
    waits: HashMap<Ticket, Wait>,
    by_queue: Lines<Ticket>,
    /// As `by_queue`, of those who only want to be called.
    asleep: Lines<Turn>,
    by_job: HashMap<JobId, BTreeSet<Ticket>>,
    by_connection: HashMap<ConnectionId, BTreeSet<Ticket>>,
    room: BTreeSet<Ticket>,
    feed: BTreeSet<(u64, Ticket)>,
    deadlines: BTreeSet<(u64, Ticket)>,
}

impl Waits {
    pub fn add(&mut self, wait: Wait) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        match &wait.request {
            WaitFor::Lease(lease) => add_to_lines(&mut self.by_queue, &lease.queues, ticket),
            WaitFor::Sleep(sleep) => {
                let turn = Turn { is_late: sleep.is_late, ticket };
                add_to_lines(&mut self.asleep, &sleep.queues, turn);
            }
            WaitFor::Result { job, .. } | WaitFor::Watch { job } => {
                self.by_job.entry(*job).or_default().insert(ticket);
            }
            WaitFor::Room => {
                self.room.insert(ticket);
            }
            WaitFor::Feed { position } => {
                self.feed.insert((*position, ticket));
            }
        }
        if let Some(deadline_ms) = wait.deadline_ms {
            self.deadlines.insert((deadline_ms, ticket));
        }
        self.by_connection.entry(wait.caller.connection).or_default().insert(ticket);
        self.waits.insert(ticket, wait);
        ticket
    }

    pub fn find(&self, ticket: Ticket) -> Option<&Wait> {
        self.waits.get(&ticket)
    }

    pub fn remove(&mut self, ticket: Ticket) -> Option<Wait> {
        let wait = self.waits.remove(&ticket)?;
        match &wait.request {
            WaitFor::Lease(lease) => {
                for queue in &lease.queues {
                    remove_from_line(&mut self.by_queue, queue, ticket);
                }
            }
            WaitFor::Sleep(sleep) => {
                let turn = Turn { is_late: sleep.is_late, ticket };
                for queue in &sleep.queues {
                    remove_from_line(&mut self.asleep, queue, turn);
                }
            }
            WaitFor::Result { job, .. } | WaitFor::Watch { job } => {
                remove_from(&mut self.by_job, job, ticket);
            }
            WaitFor::Room => {
                self.room.remove(&ticket);
            }
            WaitFor::Feed { position } => {
                self.feed.remove(&(*position, ticket));
            }
        }
        if let Some(deadline_ms) = wait.deadline_ms {
            self.deadlines.remove(&(deadline_ms, ticket));
        }
        remove_from(&mut self.by_connection, &wait.caller.connection, ticket);
        Some(wait)
    }

    /// The deadlines of those who wait for this job until it is leased count no more (it is
    /// leased), or count again (it was given back).
    pub fn set_leased(&mut self, job: JobId, leased: bool) {
        for ticket in self.by_job.get(&job).into_iter().flatten() {
            let Some(Wait { request, deadline_ms: Some(deadline_ms), .. }) = self.waits.get(ticket)
            else {
                continue;
            };
            if !matches!(request, WaitFor::Result { until_leased: true, .. }) {
                continue;
            }
            if leased {
                self.deadlines.remove(&(*deadline_ms, *ticket));
            } else {
                self.deadlines.insert((*deadline_ms, *ticket));
            }
        }
    }

    pub fn next_deadline(&self) -> Option<u64> {
        self.deadlines.first().map(|(due, _)| *due)
    }

    pub fn due(&self, now_ms: u64) -> Option<Ticket> {
        self.deadlines.first().filter(|(due, _)| *due <= now_ms).map(|(_, ticket)| *ticket)
    }

    /// The longest waiter for a queue behind `after`.
    pub fn for_queue(&self, queue: &[u8], after: Option<Ticket>) -> Option<Ticket> {
        let line = self.by_queue.get(queue)?;
        match after {
            Some(after) => line.range(Ticket(after.0 + 1)..).next().copied(),
            None => line.first().copied(),
        }
    }

    pub fn for_job(&self, job: JobId) -> Vec<Ticket> {
        self.by_job.get(&job).map(|line| line.iter().copied().collect()).unwrap_or_default()
    }

    /// How many wait for a job's end, or watch it.
    pub fn count_for_job(&self, job: JobId) -> usize {
        self.by_job.get(&job).map_or(0, BTreeSet::len)
    }

    pub fn has_any_for_job(&self, job: JobId) -> bool {
        self.by_job.contains_key(&job)
    }

    pub fn of_connection(&self, connection: ConnectionId) -> Vec<Ticket> {
        self.by_connection
            .get(&connection)
            .map(|line| line.iter().copied().collect())
            .unwrap_or_default()
    }

    pub fn for_room(&self) -> Vec<Ticket> {
        self.room.iter().copied().collect()
    }

    /// Tickets that wait for an event in a record below `end`.
    pub fn for_feed(&self, end: u64) -> Vec<Ticket> {
        self.feed.range(..(end, Ticket(0))).map(|(_, ticket)| *ticket).collect()
    }

    /// Tickets that wait for leases, and those that wait for results.
    pub fn leases_and_results(&self) -> Vec<Ticket> {
        let mut tickets: Vec<Ticket> = self
            .waits
            .iter()
            .filter(|(_, wait)| match &wait.request {
                WaitFor::Lease(_) => true,
                WaitFor::Result { until_leased, .. } => !until_leased,
                WaitFor::Watch { .. }
                | WaitFor::Sleep(_)
                | WaitFor::Room
                | WaitFor::Feed { .. } => false,
            })
            .map(|(ticket, _)| *ticket)
            .collect();
        tickets.sort_unstable();
        tickets
    }

    /// Queues somebody waits for, in order of their names.
    pub fn queues(&self) -> impl Iterator<Item = &Bytes> {
        self.by_queue.keys()
    }

    pub fn has_queue(&self, queue: &[u8]) -> bool {
        self.by_queue.contains_key(queue)
    }

    /// The next turn of a kind at a queue, behind `after`.
    pub fn next_turn(&self, kind: Kind, queue: &[u8], after: Option<Turn>) -> Option<Turn> {
        match kind {
            Kind::Lease => {
                let ticket = self.for_queue(queue, after.map(|turn| turn.ticket))?;
                Some(Turn { is_late: false, ticket })
            }
            Kind::Sleep => {
                let line = self.asleep.get(queue)?;
                let behind = after.map_or(Bound::Unbounded, Bound::Excluded);
                line.range((behind, Bound::Unbounded)).next().copied()
            }
        }
    }

    /// A sleeper is to be called for one more queue.
    pub fn add_queue(&mut self, ticket: Ticket, queue: Bytes) {
        let Some(Wait { request: WaitFor::Sleep(sleep), .. }) = self.waits.get_mut(&ticket) else {
            return;
        };
        let turn = Turn { is_late: sleep.is_late, ticket };
        add_to_lines(&mut self.asleep, [&queue], turn);
        sleep.queues.insert(queue);
    }

    /// A sleeper is no longer to be called for a queue.
    pub fn remove_queue(&mut self, ticket: Ticket, queue: &Bytes) {
        let Some(Wait { request: WaitFor::Sleep(sleep), .. }) = self.waits.get_mut(&ticket) else {
            return;
        };
        if sleep.queues.remove(queue) {
            let turn = Turn { is_late: sleep.is_late, ticket };
            remove_from_line(&mut self.asleep, queue, turn);
        }
    }

    pub fn has_asleep(&self, queue: &[u8]) -> bool {
        self.asleep.contains_key(queue)
    }

    pub fn len(&self) -> usize {
        self.waits.len()
    }
}

fn add_to_lines<'a, T: Ord + Copy>(
    lines: &mut Lines<T>,
    queues: impl IntoIterator<Item = &'a Bytes>,
    place: T,
) {
    for queue in queues {
        match lines.get_mut(queue) {
            Some(line) => {
                line.insert(place);
            }
            None => {
                lines.insert(Bytes::copy_from_slice(queue), BTreeSet::from([place]));
            }
        }
    }
}

fn remove_from_line<T: Ord>(lines: &mut Lines<T>, queue: &Bytes, place: T) {
    if let Some(line) = lines.get_mut(queue) {
        line.remove(&place);
        if line.is_empty() {
            lines.remove(queue);
        }
    }
}

fn remove_from<K: std::hash::Hash + Eq>(
    map: &mut HashMap<K, BTreeSet<Ticket>>,
    key: &K,
    ticket: Ticket,
) {
    if let Some(line) = map.get_mut(key) {
        line.remove(&ticket);
        if line.is_empty() {
            map.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Deaf;

    impl Mailbox for Deaf {
        fn deliver(&self, _: crate::door::Delivery) {}
        fn durable_moved(&self) {}
    }

    #[test]
    fn only_what_lies_below_the_end_of_the_feed_is_due_and_what_is_removed_is_not() {
        let mut waits = Waits::default();
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
