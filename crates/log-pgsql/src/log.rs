//! The log as its callers see it.

use std::io::ErrorKind;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use spindle_log::{
    ANNOUNCEMENT_BYTES_MAX, Ack, Log, LogError, LogHealth, OnAnnouncement, Opening, Position,
    ReadError, Record, SharedLog, Space, StoredRecords, SubmitError,
};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{mpsc, oneshot};
use tokio_postgres::types::Type;
use tracing::warn;

use crate::connect::Servers;
use crate::core::Core;
use crate::cursor::Cursor;
use crate::error::{Fault, OpenError, log_error, read_error};
use crate::health;
use crate::options::PgsqlLogOptions;
use crate::runs::{Runs, Span};
use crate::schema::{Tables, bigint};
use crate::session::Session;
use crate::signal::{ANNOUNCEMENTS_MAX, Signals, announcement};
use crate::state::{RECORD_BYTES_MAX, State, Tail};
use crate::sweep;
use crate::writer::{Pauses, Writer};

/// Records on their way: more of them wait in the queue than one transaction at a time is worth.
const IN_FLIGHT_MAX: usize = 16;
/// How often a process that hears nothing looks.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often an open that waits for the standby says so.
const SAY_EVERY: Duration = Duration::from_secs(10);

/// A log in PostgreSQL. The crate's page says how it works.
pub struct PgsqlLog {
    core: Arc<Core>,
    /// Dropped to end the thread.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl PgsqlLog {
    /// Opens a log for what the options say.
    ///
    /// Waits for as long as the server waits for its standby, and says so in the program's log.
    ///
    /// # Errors
    /// What is wrong, and what to do about it.
    pub fn open(options: &PgsqlLogOptions) -> Result<PgsqlLog, OpenError> {
        let failed = |error| OpenError::Thread(Arc::new(error));
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (stop, stopped) = oneshot::channel();
        let (opened, outcome) = std::sync::mpsc::sync_channel(1);
        let options = options.clone();
        let thread = std::thread::Builder::new().name("log-pgsql".to_owned()).spawn(move || {
            let made = runtime.block_on(begin(options, &runtime));
            let is_open = made.is_ok();
            // The caller waits for it.
            let _ = opened.send(made);
            if is_open {
                // An error says that the log was dropped, too.
                let _ = runtime.block_on(stopped);
            }
        });
        let thread = thread.map_err(failed)?;
        let ended = || OpenError::Refused("the thread of the log ended".to_owned());
        let core = outcome.recv().map_err(|_| ended())??;
        Ok(PgsqlLog { core, stop: Some(stop), thread: Some(thread) })
    }

    fn span_of(&self, position: Position) -> Result<Span, ReadError> {
        let state = self.core.state();
        let absent = ReadError::Absent { position, next: state.committed };
        if position < state.first {
            return Err(ReadError::Trimmed { position, first: state.first });
        }
        if position >= state.committed {
            return Err(absent);
        }
        state.runs.spans(position, position.next()).pop_front().ok_or(absent)
    }
}

async fn begin(options: PgsqlLogOptions, runtime: &Runtime) -> Result<Arc<Core>, OpenError> {
    let servers = Servers::new(&options)?;
    let tables = Tables::of(&options);
    let reads_only = options.opening == Opening::Reader;
    let session = servers.connect(None).await?;
    tables.ensure(&session).await?;
    let head = tables.read_head(&session).await?;
    let rows = tables.read_runs(&session, 0).await?;
    let Some(row) = rows.iter().find(|row| row.first == head.first) else {
        let reason = format!("no run in table `runs` begins at {}, as `head` says", head.first);
        return Err(tables.damaged(reason).into());
    };
    let news = tables.look(&session, row.number, row.first).await?;
    let mut state = State::new(&news, Runs::begin(row.number, row.first));
    state.learn(&news);
    // What is visible now is given out when a later commit is as safe as commits are on this server. A process that
    // only reads writes nothing for that.
    if !reads_only {
        confirm(&tables, &session, &options.name()).await?;
    }
    let last = Position(news.end.0.saturating_sub(1));
    if let Some(span) = state.runs.spans(last, news.end).front()
        && let Some(record) = tables.record(&session, span.number, last).await?
    {
        state.tail = Some(Tail::of(last, record.epoch, &record.bytes));
    }
    let (sender, receiver) = mpsc::channel(ANNOUNCEMENTS_MAX);
    let handle = runtime.handle().clone();
    let core = Arc::new(Core::new(options, servers, news.log_id, state, sender, handle));
    core.keep(session);
    if reads_only {
        return Ok(core);
    }
    tokio::spawn(Writer::new(Arc::clone(&core)).run());
    tokio::spawn(Signals::new(Arc::clone(&core), receiver).run());
    tokio::spawn(sweep::run(Arc::clone(&core)));
    tokio::spawn(health::look(Arc::clone(&core)));
    Ok(core)
}

async fn confirm(tables: &Tables, session: &Session, name: &str) -> Result<(), Fault> {
    let mut pauses = Pauses::new();
    loop {
        let confirmation = tables.confirm(session, Position(0));
        tokio::pin!(confirmation);
        let done = loop {
            match tokio::time::timeout(SAY_EVERY, &mut confirmation).await {
                Ok(done) => break done,
                Err(_) => warn!(
                    log = name,
                    server = session.server,
                    "the server waits for its synchronous standby (synchronous_standby_names): \
                     start the standby, or name others"
                ),
            }
        };
        if done?.is_some() {
            return Ok(());
        }
        pauses.pause().await;
    }
}

impl Drop for PgsqlLog {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It can only have panicked, which was reported.
            let _ = thread.join();
        }
    }
}

impl Log for PgsqlLog {
    fn first(&self) -> Position {
        self.core.state().first
    }

    fn next(&self) -> Position {
        self.core.state().next
    }

    fn submit(&self, at: Position, record: &Record) -> Result<(), SubmitError> {
        self.core.state().submit(at, record)?;
        self.core.work.notify_one();
        Ok(())
    }

    fn next_ack(&self) -> Ack {
        let mut state = self.core.state();
        loop {
            if let Some(ack) = state.next_ack() {
                return ack;
            }
            self.core.wait(&mut state, None);
        }
    }

    fn in_flight_max(&self) -> usize {
        IN_FLIGHT_MAX
    }

    fn read(&self, from: Position) -> Result<StoredRecords, ReadError> {
        let spans = {
            let state = self.core.state();
            if from < state.first {
                return Err(ReadError::Trimmed { position: from, first: state.first });
            }
            if from > state.next {
                return Err(ReadError::Absent { position: from, next: state.committed });
            }
            state.runs.spans(from, state.committed)
        };
        Ok(Box::new(Cursor::open(&self.core, spans)?))
    }

    fn read_at(&self, position: Position, offset: u32, len: u32) -> Result<Bytes, ReadError> {
        let span = self.span_of(position)?;
        let statement = format!(
            "SELECT octet_length(bytes), substring(bytes FROM $2 FOR $3) FROM {} WHERE position = $1",
            self.core.tables.records(span.number)
        );
        let core = Arc::clone(&self.core);
        // Nothing is longer than a record may be, and the server counts from 1 with a sign.
        let (from, count) = (offset.min(RECORD_BYTES_MAX) + 1, len.min(RECORD_BYTES_MAX));
        let slice = self.core.call(async move {
            let (from, count) = (from.cast_signed(), count.cast_signed());
            let at = bigint(position);
            let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
                [(&at, Type::INT8), (&from, Type::INT4), (&count, Type::INT4)];
            let session = core.queries().await?;
            let rows = match session.query_typed(&statement, &parameters).await.map_err(Fault::from)
            {
                Err(Fault::NoTable(_)) => Vec::new(),
                // The server was restarted: that is no reason to give no answer.
                Err(Fault::InDoubt(_)) => {
                    core.queries().await?.query_typed(&statement, &parameters).await?
                }
                rows => rows?,
            };
            let Some(row) = rows.first() else {
                return Ok(Err(core.tables.read_head(&*core.queries().await?).await?.first));
            };
            let bytes: i32 = row.try_get(0)?;
            Ok(Ok((bytes.unsigned_abs(), Bytes::copy_from_slice(row.try_get(1)?))))
        })?;
        let (bytes, slice) = slice.map_err(|first| self.core.missing(position, span, first))?;
        if u64::from(offset) + u64::from(len) > u64::from(bytes) {
            return Err(ReadError::OutOfRange { position, offset, len, bytes });
        }
        Ok(slice)
    }

    /// When the server does not confirm the trim in time, it is made later, and this returns with
    /// nothing dropped.
    fn trim_before(&self, position: Position) -> Result<(), LogError> {
        let boundary = {
            let state = self.core.state();
            if let Some(error) = state.failure() {
                return Err(error.clone());
            }
            state.runs.boundary(position.min(state.committed))
        };
        if boundary > self.first() {
            let deadline = Instant::now() + self.core.options.answer_within;
            self.core.confirm(boundary, deadline);
        }
        Ok(())
    }

    /// A lost connection is no failure: it is made anew.
    fn check(&self) -> Result<(), LogError> {
        self.core.state().failure().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn record_bytes_max(&self) -> u32 {
        RECORD_BYTES_MAX
    }

    fn is_exclusive(&self) -> bool {
        false
    }

    /// The server cannot be asked how much room it has. A server with a full disk refuses appends, which are tried
    /// again, and answered as Unknown in the end.
    fn space(&self) -> Space {
        Space::Ample
    }

    fn room_bytes(&self) -> u64 {
        u64::MAX
    }

    fn bytes_on_disk(&self) -> u64 {
        self.core.state().runs.bytes()
    }

    fn segment_end_before(&self, from: Position) -> Option<Position> {
        self.core.state().runs.end_before(from)
    }

    fn bytes_between(&self, from: Position, to: Position) -> u64 {
        self.core.state().runs.bytes_between(from, to)
    }
}

impl SharedLog for PgsqlLog {
    fn refresh(&self) -> Result<Position, ReadError> {
        let within = self.core.options.answer_within;
        let is_confirmed = self.core.confirm(Position(0), Instant::now() + within);
        let mut state = self.core.state();
        let failed = |kind, reason: String| read_error(&self.core.name, kind, reason);
        if let Some(error) = state.failure() {
            return Err(failed(ErrorKind::Other, error.to_string()));
        }
        if !is_confirmed {
            let reason = format!(
                "the server has not confirmed where the log ends within {within:?}: it cannot be \
                 reached, or waits for its synchronous standby"
            );
            return Err(failed(ErrorKind::TimedOut, reason));
        }
        Ok(state.follow())
    }

    fn wait_beyond(&self, position: Position, timeout: Duration) -> Result<Position, ReadError> {
        let deadline = Instant::now() + timeout;
        loop {
            let look_at = (Instant::now() + LOOK_EVERY).min(deadline);
            let mut state = self.core.state();
            loop {
                if let Some(error) = state.failure() {
                    let reason = error.to_string();
                    return Err(read_error(&self.core.name, ErrorKind::Other, reason));
                }
                let end = state.follow();
                if end > position {
                    return Ok(end);
                }
                if !self.core.wait(&mut state, Some(look_at)) {
                    break;
                }
            }
            if Instant::now() >= deadline {
                return Ok(state.follow());
            }
            let (open, end) = (state.runs.open().0, state.heard);
            drop(state);
            let core = Arc::clone(&self.core);
            let look = self.core.call(async move {
                core.tables.has_more(&*core.queries().await?, open, end).await
            });
            if look? {
                self.core.confirm(Position(0), deadline);
            }
        }
    }

    fn announce(&self, bytes: &[u8]) {
        if bytes.len() <= ANNOUNCEMENT_BYTES_MAX {
            // A hint: one that does not fit is dropped.
            let _ = self.core.announcements.try_send(announcement(bytes));
        }
    }

    fn on_announcement(&self, listener: OnAnnouncement) {
        *self.core.listener.lock() = Some(Arc::new(listener));
    }

    fn log_id(&self) -> String {
        self.core.log_id.clone()
    }

    fn health(&self) -> LogHealth {
        self.core.health.lock().clone()
    }

    fn end_restore(&self) -> Result<(), LogError> {
        let core = Arc::clone(&self.core);
        let ended = self.core.call(async move {
            let session = core.spare().await?;
            core.tables.end_restore(&session).await
        });
        let unconfirmed = "the wait for the synchronous standby was cancelled";
        let failed = |reason: String| log_error(&self.core.name, reason);
        ended
            .map_err(|error| failed(error.to_string()))?
            .ok_or_else(|| failed(unconfirmed.to_owned()))
    }
}
