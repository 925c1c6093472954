//! Which sleepers were called for which jobs, and which of those are reserved.

use std::collections::{BTreeSet, HashMap, HashSet};

use bytes::Bytes;
use spindle_core::Reservations;
use spindle_core::job::Label;

use crate::door::ConnectionId;

/// How long a called sleeper has to come for the job.
const CALL_MS: u64 = 100;

/// Sleepers that were called and have not come yet.
#[derive(Debug, Default)]
pub(crate) struct Calls {
    by_connection: HashMap<ConnectionId, Call>,
    due: BTreeSet<(u64, ConnectionId)>,
    /// What they all come for: others are not called for it.
    called: Reservations,
    /// The part of `called` that is reserved: leases that wait leave it.
    reserved: Reservations,
    /// Connections whose last call was in vain.
    missed: HashSet<ConnectionId>,
    /// Queues in which a job was left for a called sleeper.
    left: BTreeSet<Bytes>,
}

/// What a sleeper was called for.
#[derive(Debug)]
struct Call {
    job: Callable,
    reserves: bool,
    due_ms: u64,
}

/// A job that could be leased: its queue, and the labels it would start under.
#[derive(Debug)]
pub(crate) struct Callable {
    pub queue: Bytes,
    pub labels: Vec<Label>,
}

/// What a lease leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spare {
    /// Nothing: it takes any job.
    Nothing,
    /// The jobs reserved for called sleepers.
    Reserved,
    /// All jobs that sleepers were called for.
    Called,
}

impl Calls {
    /// A sleeper is called for a job.
    pub fn add(&mut self, connection: ConnectionId, job: Callable, reserves: bool, now_ms: u64) {
        self.called.add(&job.queue, &job.labels);
        if reserves {
            self.reserved.add(&job.queue, &job.labels);
        }
        let due_ms = now_ms.saturating_add(CALL_MS);
        self.due.insert((due_ms, connection));
        self.by_connection.insert(connection, Call { job, reserves, due_ms });
    }

    /// Ends a connection's call. Returns the queues in which there is something for others now;
    /// none if it was not called.
    pub fn end(&mut self, connection: ConnectionId) -> Option<BTreeSet<Bytes>> {
        // Most workers never sleep: then this is all it costs.
        if self.by_connection.is_empty() {
            return None;
        }
        let call = self.by_connection.remove(&connection)?;
        self.due.remove(&(call.due_ms, connection));
        self.called.remove(&call.job.queue, &call.job.labels);
        if call.reserves {
            self.reserved.remove(&call.job.queue, &call.job.labels);
        }
        let mut queues = std::mem::take(&mut self.left);
        queues.insert(call.job.queue);
        Some(queues)
    }

    /// The last call of a connection was in vain, or not: it came.
    pub fn set_missed(&mut self, connection: ConnectionId, missed: bool) {
        if missed {
            self.missed.insert(connection);
        } else if !self.missed.is_empty() {
            self.missed.remove(&connection);
        }
    }

    /// Whether a connection's last call was in vain.
    pub fn has_missed(&self, connection: ConnectionId) -> bool {
        self.missed.contains(&connection)
    }

    /// Jobs of these queues were left for called sleepers.
    pub fn leave(&mut self, queues: impl IntoIterator<Item = Bytes>) {
        self.left.extend(queues);
    }

    /// What a lease has to leave.
    pub fn reservations(&self, spare: Spare) -> &Reservations {
        static NONE: Reservations = Reservations::NONE;
        match spare {
            Spare::Nothing => &NONE,
            Spare::Reserved => &self.reserved,
            Spare::Called => &self.called,
        }
    }

    /// A called sleeper whose time to come has passed.
    pub fn due(&self, now_ms: u64) -> Option<ConnectionId> {
        self.due.first().filter(|(due, _)| *due <= now_ms).map(|(_, connection)| *connection)
    }

    /// Whether leases that wait have to leave something.
    pub fn reserves_any(&self) -> bool {
        !self.reserved.is_empty()
    }

    pub fn next_due(&self) -> Option<u64> {
        self.due.first().map(|(due, _)| *due)
    }
}
