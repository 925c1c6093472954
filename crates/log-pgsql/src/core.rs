//! What all parts of a log share, and how the caller's threads reach the log's own thread.

use std::io::ErrorKind;
use std::sync::{Arc, mpsc};
use std::time::Instant;

use parking_lot::{Condvar, Mutex, MutexGuard};
use spindle_log::{LogHealth, OnAnnouncement, Position, ReadError};
use tokio::runtime::Handle;
use tokio::sync::{Notify, mpsc as tokio_mpsc};

use crate::connect::Servers;
use crate::error::{Fault, log_error, read_error};
use crate::options::PgsqlLogOptions;
use crate::runs::Span;
use crate::schema::Tables;
use crate::session::Session;
use crate::state::State;

/// Connections that are kept for the next reader.
const SPARE_SESSIONS_MAX: usize = 2;

/// The parts of a log.
pub(crate) struct Core {
    pub name: String,
    pub options: PgsqlLogOptions,
    pub tables: Tables,
    pub servers: Servers,
    pub log_id: String,
    state: Mutex<State>,
    /// There is news: an answer, an end, a failure.
    changed: Condvar,
    /// There is something for the writer.
    pub work: Notify,
    /// There is something to tell others, for the task of notifications.
    pub news: Notify,
    pub announcements: tokio_mpsc::Sender<String>,
    pub listener: Mutex<Option<Arc<OnAnnouncement>>>,
    pub health: Mutex<LogHealth>,
    /// There are tables to make or to drop.
    pub tables_due: Notify,
    /// For short questions of all threads.
    queries: tokio::sync::Mutex<Option<Arc<Session>>>,
    spares: Mutex<Vec<Session>>,
    handle: Handle,
}

impl Core {
    pub fn new(
        options: PgsqlLogOptions,
        servers: Servers,
        log_id: String,
        state: State,
        announcements: tokio_mpsc::Sender<String>,
        handle: Handle,
    ) -> Core {
        Core {
            name: options.name(),
            tables: Tables::of(&options),
            options,
            servers,
            log_id,
            state: Mutex::new(state),
            changed: Condvar::new(),
            work: Notify::new(),
            news: Notify::new(),
            announcements,
            listener: Mutex::new(None),
            health: Mutex::default(),
            tables_due: Notify::new(),
            queries: tokio::sync::Mutex::new(None),
            spares: Mutex::new(Vec::new()),
            handle,
        }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Changes the state, and wakes the threads that wait for a change.
    pub fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state.lock());
        self.changed.notify_all();
        changed
    }

    /// Waits for a change, until `deadline` if there is one. False when it has passed.
    pub fn wait(&self, state: &mut MutexGuard<'_, State>, deadline: Option<Instant>) -> bool {
        match deadline {
            None => self.changed.wait(state),
            Some(deadline) => return !self.changed.wait_until(state, deadline).timed_out(),
        }
        true
    }

    /// The log cannot go on.
    pub fn fail(&self, reason: &impl ToString) {
        let error = log_error(&self.name, reason.to_string());
        self.change(|state| state.fail(&error));
    }

    /// Runs something on the log's thread and waits for it, at most as long as an answer may take. The
    /// caller may be a thread of another runtime: nothing of tokio is used to wait.
    pub fn call<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Fault>> + Send + 'static,
    ) -> Result<T, ReadError> {
        let (sender, receiver) = mpsc::sync_channel(1);
        let within = self.options.answer_within;
        self.handle.spawn(async move {
            let done = tokio::time::timeout(within, work).await;
            // The caller does not wait any more if its thread has ended.
            let _ = sender.send(done);
        });
        match receiver.recv() {
            Ok(Ok(Ok(done))) => Ok(done),
            Ok(Ok(Err(fault))) => Err(read_error(&self.name, ErrorKind::Other, fault.text())),
            Ok(Err(_)) => {
                // The next questions must not wait behind one that the server does not answer.
                if let Ok(mut queries) = self.queries.try_lock() {
                    *queries = None;
                }
                let reason = format!("the server did not answer within {within:?}");
                Err(read_error(&self.name, ErrorKind::TimedOut, reason))
            }
            Err(_) => Err(read_error(&self.name, ErrorKind::NotConnected, "the log was closed")),
        }
    }

    /// Why there is no record at a position of this span, of a log that begins at `first`.
    pub fn missing(&self, position: Position, span: Span, first: Position) -> ReadError {
        self.change(|state| state.begin_at(first));
        if position < first {
            return ReadError::Trimmed { position, first };
        }
        let file = format!("table {} of {}", self.tables.records(span.number), self.name);
        ReadError::Damaged { position, file, offset: 0, reason: "the record is missing" }
    }

    pub fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(work);
    }

    /// The connection for short questions.
    pub async fn queries(&self) -> Result<Arc<Session>, Fault> {
        let mut queries = self.queries.lock().await;
        if let Some(session) = queries.as_ref().filter(|session| !session.is_closed()) {
            return Ok(Arc::clone(session));
        }
        let session = Arc::new(self.connected().await?);
        Ok(Arc::clone(queries.insert(session)))
    }

    /// A connection for the caller alone, to be given back by [`keep`](Self::keep).
    pub async fn spare(&self) -> Result<Session, Fault> {
        let kept = || self.spares.lock().pop();
        while let Some(session) = kept() {
            if !session.is_closed() {
                return Ok(session);
            }
        }
        self.connected().await
    }

    async fn connected(&self) -> Result<Session, Fault> {
        self.servers.connect(None).await.map_err(|error| Fault::Away(error.to_string()))
    }

    pub fn keep(&self, session: Session) {
        let mut spares = self.spares.lock();
        if spares.len() < SPARE_SESSIONS_MAX && !session.is_closed() {
            spares.push(session);
        }
    }

    /// Asks for a confirmation, and waits for it until `deadline`: false when it was not made by then.
    /// It is made later all the same.
    pub fn confirm(&self, trim_to: Position, deadline: Instant) -> bool {
        let mut state = self.state();
        state.trim_to = state.trim_to.max(trim_to);
        let number = state.ask();
        self.work.notify_one();
        while !state.is_confirmed(number) {
            if state.failure().is_some() || !self.wait(&mut state, Some(deadline)) {
                return state.is_confirmed(number);
            }
        }
        true
    }
}
