//! Offers: leases that count only once they are taken.
//!
//! A client that asks several servers at once gets more jobs than it can work on. An offer is a
//! lease that is undone, as if it had never been, unless its client's next request takes it: when
//! the client passes, when it asks for something else, and when its connection ends.

use spindle_engine::{Outbox, Ticket};

use super::{Waiting, WorkqSession};
use crate::refusal::client_error;
use crate::wire::{ErrorText, Uuid, encode};

impl WorkqSession {
    /// A client that sends something no longer waits for an offer.
    pub(super) fn end_offer(&mut self, out: &mut Outbox) {
        let is_offer = |(_, waiting): &mut (Ticket, Waiting)| waiting.is_for_offer();
        if let Some((ticket, _)) = self.waiting.take_if(is_offer) {
            self.engine.waits().cancel(&self.caller, ticket);
            out.put(encode::timeout);
            self.log.end(|| "timeout");
        }
    }

    /// Undoes the lease of a job that was offered, unless it is this one.
    pub(super) fn give_back_unless(&mut self, taken: Option<Uuid>) {
        if let Some((_, lease)) = self.offered.take_if(|(id, _)| taken != Some(*id)) {
            self.engine.leases().undo(lease);
        }
    }

    pub(super) fn take(&mut self, id: Uuid, out: &mut Outbox) {
        match self.offered.take_if(|(offered, _)| *offered == id) {
            Some(_) => out.put(encode::ok),
            None => client_error(out, ErrorText::NotLeased),
        }
    }
}

impl Waiting {
    pub(super) fn is_for_offer(&self) -> bool {
        matches!(self, Waiting::Lease(leasing) if leasing.is_offer)
    }
}
