//! The native API and Workq: both are sessions of the commands.

use bytes::Bytes;

use super::{Addresses, Submitter, TAKE_WAIT, Taken, Task, Worker};
use crate::{
    cli::{IfTaken, PayloadType},
    client::{
        Line,
        server::Server,
        session::{AskError, Leased, NewJob, Report, Session},
        web::WebSession,
    },
    demo::{route::Door, task::TTR_MS},
    queue_name::QueueName,
};

/// How long a job lives: longer than any demo is watched.
const TTL_MS: u64 = 7 * 24 * 3_600_000;
/// What Workq answers to an id that it knows.
const DUPLICATE: &str = "Duplicate job";

/// A session that is opened when it is needed.
struct Reopened {
    door: Door,
    server: Server,
    worker: &'static str,
    session: Option<Box<dyn Session>>,
}

impl Reopened {
    fn new(node: &Addresses, door: Door, worker: &'static str) -> Self {
        Self { door, server: node.server(door), worker, session: None }
    }

    fn move_to(&mut self, node: &Addresses) {
        *self = Self::new(node, self.door, self.worker);
    }

    fn open(&self) -> Result<Box<dyn Session>, AskError> {
        match &self.server {
            Server::Web(base) => {
                Ok(Box::new(WebSession::new(base, &Line::default()).named(self.worker)))
            }
            workq => workq.try_open(&Line::default()),
        }
    }

    /// Asks; a session whose connection failed is of no further use.
    fn ask<T>(
        &mut self,
        asks: impl FnOnce(&mut dyn Session) -> Result<T, AskError>,
    ) -> Result<T, AskError> {
        let mut session = match self.session.take() {
            Some(session) => session,
            None => self.open()?,
        };
        let answer = asks(&mut *session);
        if answer.as_ref().err().is_none_or(AskError::is_answer) {
            self.session = Some(session);
        }
        answer
    }
}

/// Submits through the native API or Workq.
pub struct SessionSubmitter(Reopened);

impl SessionSubmitter {
    /// At this door.
    pub fn new(node: &Addresses, door: Door) -> Self {
        Self(Reopened::new(node, door, ""))
    }
}

impl Submitter for SessionSubmitter {
    fn submit(&mut self, task: &Task) -> Result<String, AskError> {
        let is_workq = matches!(self.0.server, Server::Workq(_));
        let job = NewJob {
            queue: QueueName::of(task.queue),
            payload: Bytes::from(task.payload.to_string()),
            payload_type: if is_workq { PayloadType::Bytes } else { PayloadType::Json },
            ttr_ms: TTR_MS,
            ttl_ms: TTL_MS,
            priority: 0,
            attempts_max: None,
            fails_max: None,
            backoff: None,
            run_at_ms: None,
            tags: Vec::new(),
            after: Vec::new(),
            on_dead: None,
            batch: None,
            fair_key: None,
            unique: (!is_workq).then(|| (task.key(), IfTaken::Existing)),
            id: is_workq.then(|| spindle_workq::wire::Uuid::from_bytes(task.uuid().into_bytes())),
        };
        match self.0.ask(|session| session.add(&job)) {
            Err(AskError::Refused { text, .. }) if text == DUPLICATE => Ok(task.uuid().to_string()),
            answer => answer,
        }
    }

    fn move_to(&mut self, node: &Addresses) {
        self.0.move_to(node);
    }
}

/// Works through the native API or Workq.
pub struct SessionWorker {
    session: Reopened,
    queue: QueueName,
    held: Option<Leased>,
}

impl SessionWorker {
    /// The jobs of a queue, at this door. Workq's workers have no name.
    pub fn new(node: &Addresses, door: Door, queue: &'static str, name: &'static str) -> Self {
        let session = Reopened::new(node, door, name);
        Self { session, queue: QueueName::of(queue), held: None }
    }
}

impl Worker for SessionWorker {
    fn take(&mut self) -> Result<Option<Taken>, AskError> {
        let queues = std::slice::from_ref(&self.queue);
        let wait_ms = TAKE_WAIT.as_millis() as u32;
        self.held = self.session.ask(|session| session.lease(queues, wait_ms))?;
        Ok(self
            .held
            .as_ref()
            .map(|leased| Taken { claim: leased.id.clone(), payload: leased.payload.to_vec() }))
    }

    fn finish(&mut self, _: &Taken) -> Result<(), AskError> {
        let Some(leased) = &self.held else { return Err(AskError::NotFound) };
        let result = Bytes::from_static(br#"{"done":true}"#);
        let report = Report { success: true, result, ..Report::default() };
        self.session.ask(|session| session.finish(leased, &report))
    }

    fn move_to(&mut self, node: &Addresses) {
        self.session.move_to(node);
    }
}
