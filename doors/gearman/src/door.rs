//! The door itself: opens a session for every connection.

mod roll;

use std::net::SocketAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use spindle_engine::{Caller, ConnectionId, Door, Engine, Gate, Mailbox, Session};

use crate::session::Opening;
use crate::wire::{HandlePrefix, Limits};
pub(crate) use roll::Roll;

/// What a Gearman door is told at its start.
#[derive(Clone, Debug)]
pub struct Options {
    /// What clients and workers may send.
    pub limits: Limits,
    /// The machine's name, which stands in the handles of jobs.
    pub host: String,
    /// What `verbose` answers: the log's level, in capitals.
    pub verbose: &'static str,
    /// Clients get WORK_EXCEPTION whether they have asked for it or not.
    pub exceptions: bool,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            limits: Limits::default(),
            host: "localhost".to_owned(),
            verbose: "ERROR",
            exceptions: false,
        }
    }
}

/// What all sessions of the door share.
#[derive(Debug)]
pub(crate) struct Common {
    pub limits: Limits,
    pub handles: HandlePrefix,
    pub verbose: &'static str,
    pub exceptions: bool,
    /// Who is here, and which functions are known.
    pub roll: Mutex<Roll>,
}

impl Common {
    /// Larger payloads are passed over by this door's leases: its packets cannot carry them.
    pub fn payload_bytes_max(&self) -> u32 {
        let room = self.limits.packet_bytes_max.saturating_sub(ASSIGNMENT_BYTES_MAX);
        u32::try_from(room).unwrap_or(u32::MAX)
    }
}

/// Handle, function, unique and reducer of an assignment, with the NULs between them, take less.
const ASSIGNMENT_BYTES_MAX: usize = 1024;

/// Gearman's protocols over an engine.
pub struct GearmanDoor {
    engine: Engine,
    common: Arc<Common>,
}

impl GearmanDoor {
    /// A door with these options.
    pub fn new(engine: Engine, options: Options) -> GearmanDoor {
        let common = Common {
            limits: options.limits,
            handles: HandlePrefix::of_host(&options.host),
            verbose: options.verbose,
            exceptions: options.exceptions,
            roll: Mutex::default(),
        };
        GearmanDoor { engine, common: Arc::new(common) }
    }
}

impl Door for GearmanDoor {
    fn name(&self) -> &'static str {
        "gearman"
    }

    fn attach(&self, mailbox: &Arc<dyn Mailbox>) {
        self.engine.attach(mailbox);
    }

    fn durable(&self) -> Gate {
        self.engine.durable()
    }

    fn end_turn(&self) {
        self.engine.end_turn();
    }

    fn open(
        &self,
        connection: ConnectionId,
        peer: SocketAddr,
        mailbox: &Arc<dyn Mailbox>,
    ) -> Box<dyn Session> {
        let caller = Caller { connection, mailbox: mailbox.clone() };
        Box::new(Opening::new(self.engine.clone(), self.common.clone(), caller, peer.ip()))
    }
}
