//! The door itself: opens a session for every connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::BytesMut;
use spindle_access::Access;
use spindle_engine::door::is_stranger;
use spindle_engine::{Caller, ConnectionId, Door, Engine, Mailbox, Peer, Session, Unread};

use crate::session::{Common, WorkqSession};
use crate::wire::Limits;
use crate::wire::encode::{client_error, server_error};

/// Workq's protocol over an engine.
pub struct WorkqDoor {
    engine: Engine,
    common: Arc<Common>,
    access: Access,
}

impl WorkqDoor {
    /// A door with these limits on what clients send.
    pub fn new(engine: Engine, limits: Limits) -> WorkqDoor {
        let started_ms = engine.now_ms();
        let common = Common { limits, started_ms, clients: AtomicU64::new(0) };
        WorkqDoor { engine, common: Arc::new(common), access: Access::open() }
    }

    /// The same door, only for clients that `access` lets in.
    #[must_use]
    pub fn with_access(self, access: Access) -> WorkqDoor {
        WorkqDoor { access, ..self }
    }

    /// The number of open connections.
    pub fn clients(&self) -> u64 {
        self.common.clients.load(Ordering::Relaxed)
    }
}

impl Door for WorkqDoor {
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
        self.common.clients.fetch_add(1, Ordering::Relaxed);
        let caller = Caller { connection, mailbox: mailbox.clone() };
        let login = self.access.login(peer.certificate.as_ref()).at(peer.address.ip());
        Box::new(WorkqSession::new(self.engine.clone(), self.common.clone(), caller, login))
    }

    fn refuse(&self, why: Unread, first: &[u8], out: &mut BytesMut) {
        refuse_unread(why, first, out);
    }
}

/// Appends the answer for a client of this protocol whose request is not read.
pub fn refuse_unread(why: Unread, first: &[u8], out: &mut BytesMut) {
    match why {
        _ if is_stranger(first) == Some(true) => {}
        Unread::Plain => client_error(out, why.text()),
        Unread::TooMuch => server_error(out, why.text()),
    }
}
