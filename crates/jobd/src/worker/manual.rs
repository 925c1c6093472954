//! Clients that wait for the end of jobs that they named.

use std::collections::HashMap;

use serde_json::value::RawValue;
use spindle_jobd_master::{link::Responder, manual::ManualResults};

use crate::table::RowId;

#[derive(Debug)]
struct Ticket {
    responder: Responder,
    open: usize,
    results: ManualResults,
}

/// All open `run-manual` requests.
#[derive(Debug, Default)]
pub(super) struct Tickets {
    tickets: HashMap<u64, Ticket>,
    by_row: HashMap<RowId, u64>,
    next: u64,
}

impl Tickets {
    /// How many rows a client waits for.
    pub(super) fn len(&self) -> usize {
        self.by_row.len()
    }

    pub(super) fn is_awaited(&self, id: RowId) -> bool {
        self.by_row.contains_key(&id)
    }

    /// A client asks for these rows; each may be named more than once. Returns each row once. If
    /// another client waits for one of them already, answers with an error and returns no row.
    pub(super) fn open(&mut self, ids: &[i64], responder: Responder) -> Vec<RowId> {
        let mut rows: Vec<RowId> = ids.iter().copied().map(RowId).collect();
        rows.sort_unstable();
        rows.dedup();
        if let Some(taken) = rows.iter().find(|id| self.is_awaited(**id)) {
            responder.error(&format!("another client is already waiting for job {taken}"));
            return Vec::new();
        }
        let number = self.next;
        self.next += 1;
        self.by_row.extend(rows.iter().map(|id| (*id, number)));
        let ticket = Ticket { responder, open: rows.len(), results: ManualResults::default() };
        self.tickets.insert(number, ticket);
        rows
    }

    /// A job has ended like this.
    pub(super) fn done(&mut self, id: RowId, result: Box<RawValue>) {
        self.resolve(id, |results| drop(results.jobs.insert(id.0, result)));
    }

    /// A job was not run, for this reason.
    pub(super) fn failed(&mut self, id: RowId, reason: String) {
        self.resolve(id, |results| drop(results.errors.insert(id.0, reason)));
    }

    fn resolve(&mut self, id: RowId, note: impl FnOnce(&mut ManualResults)) {
        let Some(number) = self.by_row.remove(&id) else { return };
        let Some(ticket) = self.tickets.get_mut(&number) else { return };
        note(&mut ticket.results);
        ticket.open -= 1;
        if ticket.open == 0
            && let Some(ticket) = self.tickets.remove(&number)
        {
            ticket.responder.data(&ticket.results);
        }
    }

    /// None of these rows could be read: the requests that wait for one of them fail as a whole.
    pub(super) fn fail_whole(&mut self, ids: &[RowId], reason: &str) {
        for id in ids {
            let Some(number) = self.by_row.get(id).copied() else { continue };
            self.by_row.retain(|_, of| *of != number);
            if let Some(ticket) = self.tickets.remove(&number) {
                ticket.responder.error(reason);
            }
        }
    }
}
