//! Records read in order, some at a time.

use std::collections::VecDeque;
use std::sync::Arc;

use spindle_log::{Position, ReadError, Stored};
use tokio_postgres::types::Type;

use crate::core::Core;
use crate::error::Fault;
use crate::runs::Span;
use crate::session::Session;
use crate::state::Tail;
use crate::sweep::lock_class;

/// Rows of the first portion: a short read costs little.
const ROWS_MIN: i64 = 64;
const ROWS_MAX: i64 = 4096;
const PORTION_BYTES: i64 = 4 * 1024 * 1024;

/// An iterator over the records of a log.
pub(crate) struct Cursor {
    core: Arc<Core>,
    portion: VecDeque<Stored>,
    /// What is left to read, with the connection for it, which holds a lock on the oldest run.
    rest: Option<Rest>,
}

struct Rest {
    session: Session,
    spans: VecDeque<Span>,
    rows: i64,
    /// The run whose lock is held.
    locked: Option<i64>,
}

/// Why a portion is not there.
enum Missing {
    Fault(Fault),
    /// Nothing stands at this position of a span, and the log begins here.
    Record(Position, Span, Position),
}

impl From<Fault> for Missing {
    fn from(fault: Fault) -> Missing {
        Missing::Fault(fault)
    }
}

impl Cursor {
    /// The records of these spans, of which the first portion is read now.
    pub fn open(core: &Arc<Core>, spans: VecDeque<Span>) -> Result<Cursor, ReadError> {
        let mut cursor = Cursor { core: Arc::clone(core), portion: VecDeque::new(), rest: None };
        let Some(from) = spans.front().map(|span| span.from) else { return Ok(cursor) };
        let shared = Arc::clone(core);
        let begun = core.call(async move {
            let session = shared.spare().await?;
            let mut rest = Rest { session, spans, rows: ROWS_MIN, locked: None };
            Ok(match rest.portion(&shared).await {
                Ok(portion) if rest.spans.is_empty() => Ok((portion, rest)),
                Ok(portion) => rest.hold(&shared, from).await.map(|()| (portion, rest)),
                Err(missing) => Err(missing),
            })
        })?;
        let (portion, rest) = begun.map_err(|missing| cursor.error(missing))?;
        cursor.accept(portion, rest);
        Ok(cursor)
    }

    fn accept(&mut self, portion: VecDeque<Stored>, rest: Rest) {
        if let Some(last) = portion.back() {
            let tail = Tail::of(last.position, last.epoch, &last.bytes);
            self.core.state().note_tail(tail);
        }
        self.portion = portion;
        if rest.spans.is_empty() {
            rest.give_back(&self.core);
        } else {
            self.rest = Some(rest);
        }
    }

    fn error(&self, missing: Missing) -> ReadError {
        match missing {
            Missing::Fault(fault) => {
                crate::error::read_error(&self.core.name, std::io::ErrorKind::Other, fault.text())
            }
            Missing::Record(position, span, first) => self.core.missing(position, span, first),
        }
    }
}

impl Iterator for Cursor {
    type Item = Result<Stored, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(stored) = self.portion.pop_front() {
            return Some(Ok(stored));
        }
        let mut rest = self.rest.take()?;
        let shared = Arc::clone(&self.core);
        let read = self
            .core
            .call(async move { Ok(rest.portion(&shared).await.map(|portion| (portion, rest))) });
        match read {
            Ok(Ok((portion, rest))) => self.accept(portion, rest),
            Ok(Err(missing)) => return Some(Err(self.error(missing))),
            Err(error) => return Some(Err(error)),
        }
        self.portion.pop_front().map(Ok)
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        if let Some(rest) = self.rest.take() {
            rest.give_back(&self.core);
        }
    }
}

impl Rest {
    /// The next records, checked to be the next ones.
    async fn portion(&mut self, core: &Core) -> Result<VecDeque<Stored>, Missing> {
        let Some(&span) = self.spans.front() else { return Ok(VecDeque::new()) };
        self.move_lock(core, span.number).await?;
        let fetched = core.tables.fetch(&self.session, span, self.rows, PORTION_BYTES).await;
        let portion = match fetched {
            Ok(portion) => VecDeque::from(portion),
            Err(Fault::NoTable(_)) => VecDeque::new(),
            Err(fault) => return Err(fault.into()),
        };
        let expected = (span.from.0..).map(Position);
        let gap = portion.iter().zip(expected).find(|(stored, at)| stored.position != *at);
        let gap = gap.map(|(_, at)| at).or(portion.is_empty().then_some(span.from));
        if let Some(at) = gap {
            let first = core.tables.read_head(&self.session).await?.first;
            return Err(Missing::Record(at, span, first));
        }
        let at = Position(span.from.0 + portion.len() as u64);
        match self.spans.front_mut() {
            Some(span) if at < span.until => span.from = at,
            _ => drop(self.spans.pop_front()),
        }
        self.rows = (self.rows * 4).min(ROWS_MAX);
        Ok(portion)
    }

    /// Keeps what is left from being dropped, unless it is trimmed already.
    async fn hold(&mut self, core: &Core, from: Position) -> Result<(), Missing> {
        let Some(number) = self.spans.front().map(|span| span.number) else { return Ok(()) };
        self.lock(core, "pg_advisory_lock_shared", number).await?;
        self.locked = Some(number);
        let first = core.tables.read_head(&self.session).await?.first;
        match self.spans.front() {
            Some(&span) if from < first => Err(Missing::Record(from, span, first)),
            _ => Ok(()),
        }
    }

    /// The older runs are not needed any more.
    async fn move_lock(&mut self, core: &Core, number: i64) -> Result<(), Fault> {
        match self.locked {
            Some(locked) if locked != number => {
                self.lock(core, "pg_advisory_lock_shared", number).await?;
                self.lock(core, "pg_advisory_unlock_shared", locked).await?;
                self.locked = Some(number);
            }
            _ => {}
        }
        Ok(())
    }

    async fn lock(&self, core: &Core, function: &str, number: i64) -> Result<(), Fault> {
        let statement = format!("SELECT FROM {function}($1, $2)");
        // Runs are counted from 0; there are never this many.
        let number = i32::try_from(number).unwrap_or(i32::MAX);
        let class = lock_class(&core.log_id);
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 2] =
            [(&class, Type::INT4), (&number, Type::INT4)];
        self.session.query_typed(&statement, &parameters).await?;
        Ok(())
    }

    fn give_back(self, core: &Arc<Core>) {
        let Some(_) = self.locked else { return core.keep(self.session) };
        let shared = Arc::clone(core);
        core.spawn(async move {
            let unlocked = self.session.batch_execute("SELECT pg_advisory_unlock_all()").await;
            if unlocked.is_ok() {
                shared.keep(self.session);
            }
        });
    }
}
