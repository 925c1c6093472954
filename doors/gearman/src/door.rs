//! The door itself: opens a session for every connection.

use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use spindle_access::Access;
use spindle_engine::{Caller, ConnectionId, Door, Engine, Mailbox, Peer, Session, Unread};

use crate::session::Opening;
use crate::shared::Common;
use crate::wire::draft::{ErrorCode, Reply};
use crate::wire::{HandlePrefix, Limits, Protocol, Response};

/// Options of a Gearman door.
#[derive(Clone, Debug)]
pub struct Options {
    /// Which clients are let in.
    pub access: Access,
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
            access: Access::open(),
            limits: Limits::default(),
            host: "localhost".to_owned(),
            verbose: "ERROR",
            exceptions: false,
        }
    }
}

/// Gearman's protocols over an engine.
pub struct GearmanDoor {
    engine: Engine,
    common: Arc<Common>,
}

impl GearmanDoor {
    /// A door with these options.
    pub fn new(engine: Engine, options: Options) -> GearmanDoor {
        let common = Common {
            access: options.access,
            limits: options.limits,
            handles: HandlePrefix::of_host(&options.host),
            verbose: options.verbose,
            exceptions: options.exceptions,
            registry: Default::default(),
        };
        GearmanDoor { engine, common: Arc::new(common) }
    }
}

impl Door for GearmanDoor {
    fn name(&self) -> &'static str {
        "gearman"
    }

    fn requires_identity(&self) -> bool {
        self.common.access.is_required()
    }

    fn open(
        &self,
        connection: ConnectionId,
        peer: &Peer,
        mailbox: &Arc<dyn Mailbox>,
    ) -> Box<dyn Session> {
        let caller = Caller { connection, mailbox: mailbox.clone() };
        let address = peer.address.ip();
        let login = self.common.access.login(peer.certificate.as_ref()).at(address);
        let (engine, common) = (self.engine.clone(), self.common.clone());
        Box::new(Opening::new(engine, common, caller, login, address))
    }

    fn refuse(&self, why: Unread, first: &[u8], out: &mut BytesMut) {
        refuse_unread(why, first, out);
    }
}

/// Appends the error that a client of this door gets whose request is not read (see [`Door::refuse`]).
pub fn refuse_unread(why: Unread, first: &[u8], out: &mut BytesMut) {
    let text = why.text();
    let code = match why {
        Unread::Plain => "TLS_REQUIRED",
        Unread::TooMuch => "SERVER_ERROR",
    };
    match Protocol::of(first) {
        Some(Protocol::Stranger) => {}
        Some(Protocol::Draft) => {
            let text = Bytes::from_static(text.as_bytes());
            Reply::Error { code: ErrorCode::Refused.to_byte(), text }.encode(out);
        }
        // A binary packet begins with a zero, a text command with a letter.
        _ if first.first() == Some(&0) => Response::Error { code, text }.encode(out),
        _ => out.put_slice(format!("ERR {code} {}\r\n", text.replace(' ', "+")).as_bytes()),
    }
}
