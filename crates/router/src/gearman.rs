//! Clients of Gearman, whose queues are on several shards.
//!
//! | packet or line | goes to |
//! |---|---|
//! | SUBMIT_JOB*, `create function`, `drop function`, `maxqueue` | the function's shard |
//! | CAN_DO, CAN_DO_TIMEOUT, CANT_DO | the function's shard |
//! | GRAB_JOB* | shards with a function of the worker, one after another, until one has a job |
//! | PRE_SLEEP | shards with a function of the worker |
//! | WORK_*, GET_STATUS, `cancel job` | the shard that the handle says |
//! | GET_STATUS_UNIQUE | all, one after another, until one knows the unique |
//! | RESET_ABILITIES, SET_CLIENT_ID, OPTION_REQ, `auth` | all ways that are open, and each that is opened later |
//! | `status`, `prioritystatus`, `workers`, `show jobs`, `show unique jobs` | all, one after another |
//! | `version`, `getpid`, `verbose`, handles of no shard | the first shard |
//! | ECHO_REQ, ALL_YOURS, what is malformed | none: the router answers |
//!
//! - `owed.rs`: the answers that the client is owed, in the order of its requests.
//! - `channel.rs`: what comes on one way, and which request it answers.
//! - `introduction.rs`: what the client has said of itself, which is repeated at the beginning of each way.
//! - `round.rs`: a request for which one shard after another is asked.
//! - `session.rs`: the connection, its requests and answers; `route.rs`: where each request goes.
//!
//! **Errors without a place.** CAN_DO, PRE_SLEEP and WORK_* have no answer other than an ERROR, and an
//! ERROR does not say what it answers. So that no ERROR is taken for the answer to a later request, the
//! router sends an ECHO_REQ of its own between them on the way: a *fence*. An ERROR that comes before the
//! fence's answer belongs to a request that has no other answer. Every answer to the client, except to a
//! grab, waits for fences on all ways: so ECHO_RES still says that everything before it was done.
//!
//! **Sleep.** A worker sleeps at several shards at once. The first NOOP wakes it. Shards that it does not
//! ask then still take it to be asleep: their NOOPs are dropped, or wake it from its next sleep, in vain at
//! worst. A way that is lost while the worker sleeps counts as a NOOP too: its next grab opens the way again.
//!
//! **The draft** is refused, in its own format: it has other states than the published protocol (one job
//! at a time, reports without handles), and would need a router of its own.

mod channel;
mod introduction;
mod owed;
mod round;
mod route;
mod session;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use bytes::BytesMut;
use spindle_access::Access;
use spindle_engine::door::{ConnectionId, Door, Mailbox, Peer, Session, Unread};
use spindle_gearman::refuse_unread;
use spindle_gearman::wire::Limits;

use crate::{Network, Placement, Wake};
use session::GearmanRouterSession;

/// The door's name, here and at the shards.
const NAME: &str = "gearman";

/// Options of the Gearman door of a cluster with shards. What clients may do, how handles look and what
/// `version` says is decided at the shards.
#[derive(Clone, Debug)]
pub struct GearmanOptions {
    /// What clients and workers may send: the same as at the shards.
    pub limits: Limits,
    /// Clients that do not log in are closed, if this requires it.
    pub access: Access,
}

impl Default for GearmanOptions {
    fn default() -> GearmanOptions {
        GearmanOptions { limits: Limits::default(), access: Access::open() }
    }
}

/// Gearman's protocol over shards.
pub struct GearmanRouter {
    network: Arc<dyn Network>,
    placement: Placement,
    options: GearmanOptions,
}

impl GearmanRouter {
    /// A router to the shards of this placement.
    #[must_use]
    pub fn new(
        network: Arc<dyn Network>,
        placement: Placement,
        options: GearmanOptions,
    ) -> GearmanRouter {
        GearmanRouter { network, placement, options }
    }
}

impl Door for GearmanRouter {
    fn name(&self) -> &'static str {
        NAME
    }

    fn requires_identity(&self) -> bool {
        self.options.access.is_required()
    }

    fn open(
        &self,
        connection: ConnectionId,
        peer: &Peer,
        mailbox: &Arc<dyn Mailbox>,
    ) -> Box<dyn Session> {
        let ways = self.network.ways(NAME, peer, Wake::new(connection, mailbox));
        let GearmanOptions { limits, access } = &self.options;
        let login = access.login(peer.certificate.as_ref());
        Box::new(GearmanRouterSession::new(self.placement.clone(), *limits, ways, login))
    }

    fn refuse(&self, why: Unread, first: &[u8], out: &mut BytesMut) {
        refuse_unread(why, first, out);
    }
}
