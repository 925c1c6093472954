//! A connection whose protocol is not known yet: the published one, the draft, or neither.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::BytesMut;
use spindle_engine::{Answer, Caller, Engine, Flow, Gated, LeaseRef, Outbox, Session, Ticket};

use super::GearmanSession;
use crate::draft::DraftSession;
use crate::shared::Common;
use crate::wire::Protocol;

/// One connection of this door. Its first bytes decide which session goes on with it.
pub(crate) struct Opening {
    engine: Engine,
    common: Arc<Common>,
    caller: Caller,
    /// Its number among the connections of this door.
    number: u64,
    session: Option<Box<dyn Session>>,
}

impl Opening {
    pub fn new(engine: Engine, common: Arc<Common>, caller: Caller, address: IpAddr) -> Opening {
        let number = common.registry.lock().connect(address);
        Opening { engine, common, caller, number, session: None }
    }

    /// The session of the protocol that the input begins with; `None` while more input is needed.
    fn begin(&mut self, input: &BytesMut) -> Result<Option<&mut Box<dyn Session>>, Stranger> {
        if self.session.is_none() {
            let (engine, common) = (self.engine.clone(), self.common.clone());
            let caller = self.caller.clone();
            self.session = match Protocol::of(input) {
                None => return Ok(None),
                Some(Protocol::Stranger) => return Err(Stranger),
                Some(Protocol::Published) => {
                    Some(Box::new(GearmanSession::new(engine, common, caller, self.number)))
                }
                Some(Protocol::Draft) => {
                    Some(Box::new(DraftSession::new(engine, common, caller, self.number)))
                }
            };
        }
        Ok(self.session.as_mut())
    }
}

/// A browser or the like: the connection closes at once.
struct Stranger;

impl Session for Opening {
    fn on_bytes(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        match self.begin(input) {
            Ok(Some(session)) => session.on_bytes(input, out),
            Ok(None) => Flow::Continue,
            Err(Stranger) => Flow::Abort,
        }
    }

    fn on_answer(&mut self, ticket: Ticket, answer: Gated<Answer>, out: &mut Outbox) -> Flow {
        match &mut self.session {
            Some(session) => session.on_answer(ticket, answer, out),
            None => Flow::Continue,
        }
    }

    fn on_end_of_input(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        match self.begin(input) {
            Ok(Some(session)) => session.on_end_of_input(input, out),
            Ok(None) | Err(Stranger) => Flow::Close,
        }
    }

    fn on_shutdown(&mut self, last: bool, out: &mut Outbox) -> Flow {
        match &mut self.session {
            Some(session) => session.on_shutdown(last, out),
            None => Flow::Close,
        }
    }

    fn on_closed(&mut self, unsent: &[LeaseRef]) {
        if let Some(session) = &mut self.session {
            session.on_closed(unsent);
        }
        self.common.registry.lock().disconnect(self.number);
    }

    fn input_bytes_max(&self) -> usize {
        let none_yet = self.common.limits.input_bytes_max();
        self.session.as_ref().map_or(none_yet, |session| session.input_bytes_max())
    }
}
