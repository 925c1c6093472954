//! The Workq router.
//!
//! - A request about a queue goes to the queue's shard, and its answer passes as it is.
//! - A request about a job goes to the shard that has it, if that is known: the session has added or leased
//!   it there, or its UUID says the number of a job. Otherwise all shards are asked.
//! - `auth` is sent on every way; `inspect server` and `inspect queues` join the answers of all shards.
//! - A `lease` of queues on several shards asks one shard after the other, then waits at all of them for an
//!   *offer*, a lease that is undone unless it is taken: if several shards offer a job at once, nothing is lost
//!   and no attempt is counted.
//!
//! A queue that is moving between shards has jobs on several: a new job is offered to one shard after the
//! other, so that no UUID is taken twice, and leases ask all of them.
//!
//! Requests with a short answer are sent on as they come, many at a time. A request that waits, may have a long
//! answer, or goes to several shards is *alone*: it is sent when no answer is owed, and nothing is sent after
//! it before its answer. So the bytes held for a client are bounded, and no job is leased to a client that
//! cannot see it yet.
//!
//! `route.rs` says where a request goes, `lines.rs` has the conversations with shards, `places.rs` the order of
//! the answers, `task.rs` and its kinds (`joined.rs`, `listing.rs`, `hunt.rs`, `seek.rs`) the requests that are
//! alone, `session.rs` the connection.

mod hunt;
mod joined;
mod known;
mod lines;
mod listing;
mod places;
mod route;
mod seek;
mod session;
mod task;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::BytesMut;
use spindle_access::Access;
use spindle_engine::door::{ConnectionId, Door, Mailbox, Peer, Session, Unread};
use spindle_workq::refuse_unread;
use spindle_workq::wire::Limits;

use crate::{Network, Placement, Wake};
use session::WorkqSession;

/// Workq's protocol in front of shards.
pub struct WorkqRouter {
    network: Arc<dyn Network>,
    placement: Placement,
    limits: Limits,
    access: Access,
}

impl WorkqRouter {
    /// A router with these limits on what clients send.
    #[must_use]
    pub fn new(network: Arc<dyn Network>, placement: Placement, limits: Limits) -> WorkqRouter {
        WorkqRouter { network, placement, limits, access: Access::open() }
    }

    /// The same, which closes clients that do not log in, if `access` requires that. What clients may do
    /// is decided at the shards.
    #[must_use]
    pub fn with_access(self, access: Access) -> WorkqRouter {
        WorkqRouter { access, ..self }
    }
}

impl Door for WorkqRouter {
    fn name(&self) -> &'static str {
        "workq"
    }

    fn requires_identity(&self) -> bool {
        self.access.is_required()
    }

    fn open(
        &self,
        connection: ConnectionId,
        peer: &Peer,
        mailbox: &Arc<dyn Mailbox>,
    ) -> Box<dyn Session> {
        let wake = Wake::new(connection, mailbox);
        let ways = self.network.ways(self.name(), peer, wake);
        let login = self.access.login(peer.certificate.as_ref());
        Box::new(WorkqSession::new(ways, self.placement.clone(), self.limits, login))
    }

    fn refuse(&self, why: Unread, first: &[u8], out: &mut BytesMut) {
        refuse_unread(why, first, out);
    }
}
