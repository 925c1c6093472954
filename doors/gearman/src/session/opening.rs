//! A connection whose protocol is not known yet: the published one, the draft, or neither.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::BytesMut;
use memchr::memchr;
use spindle_access::Login;
use spindle_engine::{Answer, Caller, Engine, Flow, Gated, LeaseRef, Outbox, Session, Ticket};

use super::GearmanSession;
use crate::draft::DraftSession;
use crate::shared::Common;
use crate::wire::admin::{self, Presented};
use crate::wire::{AdminCommand, AdminError, Protocol};

/// One connection of this door. Its first bytes decide which session goes on with it.
pub(crate) struct Opening {
    engine: Engine,
    common: Arc<Common>,
    caller: Caller,
    /// Who its client is, as far as it has said so.
    login: Login,
    /// Its number among the connections of this door.
    number: u64,
    /// A token that was presented too early: it is looked at when it is its turn.
    held: Option<(Ticket, Presented)>,
    session: Option<Box<dyn Session>>,
}

impl Opening {
    pub fn new(
        engine: Engine,
        common: Arc<Common>,
        caller: Caller,
        login: Login,
        address: IpAddr,
    ) -> Opening {
        let number = common.registry.lock().connect(address);
        Opening { engine, common, caller, login, number, held: None, session: None }
    }

    /// Takes lines `auth TOKEN` off the input: either protocol may follow. Returns false if such a
    /// line is incomplete or has to wait for its turn.
    fn take_auth_lines(&mut self, input: &mut BytesMut, out: &mut Outbox) -> bool {
        loop {
            let start = input.get(..AUTH.len()).unwrap_or(input);
            if input.is_empty() || !AUTH[..start.len()].eq_ignore_ascii_case(start) {
                return true;
            }
            let line_bytes_max = self.common.limits.line_bytes_max;
            let Some(at) = memchr(b'\n', input).filter(|at| *at < line_bytes_max) else {
                return input.len() >= line_bytes_max;
            };
            let line = input.split_to(at + 1).freeze();
            let Ok(AdminCommand::Auth { token }) = AdminCommand::parse(&line) else { continue };
            if let Some(delay) = self.login.delay() {
                self.held = Some((self.engine.waits().after(&self.caller, delay), token));
                return false;
            }
            answer_auth(&mut self.login, &token, out);
        }
    }

    /// The session of the protocol that the input begins with; `None` while more input is needed.
    fn begin(
        &mut self,
        input: &mut BytesMut,
        out: &mut Outbox,
    ) -> Result<Option<&mut Box<dyn Session>>, Stranger> {
        if self.held.is_some() {
            return Ok(None);
        }
        if self.session.is_none() {
            if !self.take_auth_lines(input, out) {
                return Ok(None);
            }
            let login = self.login.clone();
            let (engine, common) = (self.engine.clone(), self.common.clone());
            let caller = self.caller.clone();
            self.session = match Protocol::of(input) {
                None => return Ok(None),
                Some(Protocol::Stranger) => return Err(Stranger),
                Some(Protocol::Published) => {
                    Some(Box::new(GearmanSession::new(engine, common, caller, login, self.number)))
                }
                Some(Protocol::Draft) => {
                    Some(Box::new(DraftSession::new(engine, common, caller, login, self.number)))
                }
            };
        }
        Ok(self.session.as_mut())
    }
}

/// The beginning of a line that presents a token.
const AUTH: &[u8] = b"auth ";

/// Presents a token, and answers as to a text command.
pub(super) fn answer_auth(login: &mut Login, token: &Presented, out: &mut Outbox) {
    match login.present(&token.0) {
        Ok(()) => out.put(admin::ok),
        Err(denied) => out.put(|out| AdminError::Denied(denied).encode(out)),
    }
}

/// A browser or a similar client: the connection closes at once.
struct Stranger;

impl Session for Opening {
    fn on_bytes(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        match self.begin(input, out) {
            Ok(Some(session)) => return session.on_bytes(input, out),
            Ok(None) => {}
            Err(Stranger) => return Flow::Abort,
        }
        if self.held.is_some() { Flow::Wait } else { Flow::Continue }
    }

    fn on_answer(&mut self, ticket: Ticket, answer: Gated<Answer>, out: &mut Outbox) -> Flow {
        match &mut self.session {
            Some(session) => session.on_answer(ticket, answer, out),
            None => {
                if let Some((_, token)) = self.held.take_if(|(expected, _)| *expected == ticket) {
                    answer_auth(&mut self.login, &token, out);
                }
                if self.held.is_some() { Flow::Wait } else { Flow::Continue }
            }
        }
    }

    fn on_end_of_input(&mut self, input: &mut BytesMut, out: &mut Outbox) -> Flow {
        if let Ok(Some(session)) = self.begin(input, out) {
            return session.on_end_of_input(input, out);
        }
        if self.held.is_some() { Flow::Wait } else { Flow::Close }
    }

    fn on_shutdown(&mut self, last: bool, out: &mut Outbox) -> Flow {
        match &mut self.session {
            Some(session) => session.on_shutdown(last, out),
            None => Flow::Close,
        }
    }

    fn on_closed(&mut self, unsent: &[LeaseRef]) {
        match &mut self.session {
            Some(session) => session.on_closed(unsent),
            None => self.engine.waits().connection_gone(self.caller.connection, None),
        }
        self.common.registry.lock().disconnect(self.number);
    }

    fn input_bytes_max(&self) -> usize {
        if self.held.is_some() {
            return 0;
        }
        let none_yet = self.common.limits.input_bytes_max();
        self.session.as_ref().map_or(none_yet, |session| session.input_bytes_max())
    }

    fn is_engaged(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.is_engaged())
    }

    fn lacks_identity(&mut self) -> bool {
        match &mut self.session {
            Some(session) => session.lacks_identity(),
            None => self.login.lacks_identity(),
        }
    }
}
