//! The one task that commits: records in groups, and confirmations.

use std::sync::Arc;
use std::time::Duration;

use spindle_log::{Position, Record};
use tokio_postgres::Statement;
use tracing::{debug, info, warn};

use crate::core::Core;
use crate::error::{Fault, OpenError};
use crate::session::Session;
use crate::state::Pending;

/// Between two tries.
const PAUSE_MIN: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);
/// How many tries in vain are worth a warning.
const WARN_AFTER: u32 = 3;

pub(crate) struct Writer {
    core: Arc<Core>,
    session: Option<Session>,
    /// Appends to the run of this number.
    append: Option<(i64, Statement)>,
}

/// Pauses that grow.
pub(crate) struct Pauses {
    next: Duration,
}

impl Pauses {
    pub fn new() -> Pauses {
        Pauses { next: PAUSE_MIN }
    }

    pub fn reset(&mut self) {
        self.next = PAUSE_MIN;
    }

    pub async fn pause(&mut self) {
        tokio::time::sleep(self.next).await;
        self.next = (self.next * 2).min(PAUSE_MAX);
    }
}

/// Nothing that matters was under way: the step was not done.
fn not_done(fault: Fault) -> Fault {
    match fault {
        Fault::InDoubt(reason) => Fault::Away(reason),
        Fault::Taken => Fault::Away("somebody else is changing the tables".to_owned()),
        other => other,
    }
}

impl Writer {
    pub fn new(core: Arc<Core>) -> Writer {
        Writer { core, session: None, append: None }
    }

    /// Works until the log fails.
    pub async fn run(mut self) {
        let mut pauses = Pauses::new();
        let mut in_vain = 0;
        loop {
            while !self.has_work() {
                self.core.work.notified().await;
            }
            let fault = match self.turn().await {
                Ok(()) => {
                    if in_vain >= WARN_AFTER {
                        info!(log = self.core.name, "goes on");
                    }
                    in_vain = 0;
                    pauses.reset();
                    continue;
                }
                Err(fault) => fault,
            };
            self.session = None;
            match fault {
                Fault::Final(error) => return self.core.fail(&error),
                Fault::NoTable(reason) => return self.core.fail(&self.gone(reason)),
                Fault::Away(reason) | Fault::InDoubt(reason) => {
                    in_vain += 1;
                    if in_vain == WARN_AFTER {
                        warn!(log = self.core.name, reason, "cannot append now, and tries again");
                    } else {
                        debug!(log = self.core.name, reason, "cannot append now");
                    }
                }
                Fault::Taken => {}
            }
            let within = self.core.options.answer_within;
            self.core.change(|state| state.give_up_late(within));
            pauses.pause().await;
        }
    }

    fn has_work(&self) -> bool {
        let state = self.core.state();
        state.has_pending() || state.asked().is_some()
    }

    async fn turn(&mut self) -> Result<(), Fault> {
        if self.session.as_ref().is_none_or(|session| session.is_closed()) {
            self.connect().await.map_err(not_done)?;
        }
        let batch = self.core.state().take_batch();
        if !batch.is_empty() {
            self.append(batch).await?;
        }
        let asked = self.core.state().asked();
        if let Some(number) = asked
            && self.session.is_some()
        {
            self.confirm(number).await.map_err(not_done)?;
        }
        Ok(())
    }

    fn session(&self) -> Result<&Session, Fault> {
        self.session.as_ref().ok_or_else(|| Fault::Away("there is no connection".to_owned()))
    }

    fn gone(&self, reason: String) -> OpenError {
        let schema = self.core.tables.schema.clone();
        OpenError::Damaged { schema, reason: format!("its tables were taken away: {reason}") }
    }

    /// Connects to a primary, and looks whether it has what is known to be committed.
    async fn connect(&mut self) -> Result<(), Fault> {
        self.append = None;
        self.session = None;
        let core = &self.core;
        let session = core.servers.connect(None).await;
        let session = session.map_err(|error| Fault::Away(error.to_string()))?;
        let ((open, end), tail) = {
            let state = core.state();
            let tail = state.tail.map(|tail| (tail, state.runs.spans(tail.at, tail.at.next())));
            (state.runs.known(), tail)
        };
        let lost = |what: String| core.tables.lost(format!("{what} on {}", session.server));
        if let Some((tail, spans)) = tail
            && let Some(span) = spans.front()
        {
            let stored = match core.tables.record(&session, span.number, tail.at).await {
                Err(Fault::NoTable(_)) => None,
                stored => stored?,
            };
            let head = core.tables.read_head(&session).await?;
            match stored {
                Some(stored) if tail.is(&stored) => {}
                Some(_) => return Err(lost(format!("record {} is another one", tail.at))),
                None if head.first > tail.at => {}
                None => return Err(lost(format!("record {} is missing", tail.at))),
            }
        }
        let news = core.tables.look(&session, open, end).await?;
        if news.log_id != core.log_id {
            return Err(lost("there is another log".to_owned()));
        }
        core.change(|state| state.learn(&news));
        debug!(log = core.name, server = session.server, "connected");
        self.session = Some(session);
        Ok(())
    }

    async fn append(&mut self, batch: Vec<Pending>) -> Result<(), Fault> {
        let core = Arc::clone(&self.core);
        let put_back = |batch| core.change(|state| state.put_back(batch));
        if let Err(fault) = self.make_ready(&batch).await {
            put_back(batch);
            return Err(not_done(fault));
        }
        match self.insert(&batch).await {
            Ok(true) => {
                core.change(|state| state.commit(&batch));
                core.news.notify_one();
                Ok(())
            }
            Ok(false) | Err(Fault::Taken) => self.resolve(batch).await,
            Err(Fault::InDoubt(reason)) => {
                warn!(log = core.name, reason, "the answer to an append was lost");
                self.session = None;
                core.change(|state| state.unknown(batch));
                Ok(())
            }
            // The server said no: the transaction was rolled back.
            Err(fault) => {
                put_back(batch);
                Err(fault)
            }
        }
    }

    /// A run that is open and not full, and the statement for it.
    async fn make_ready(&mut self, batch: &[Pending]) -> Result<(), Fault> {
        let core = Arc::clone(&self.core);
        let (mut number, first, bytes, end) = {
            let runs = &core.state().runs;
            let (number, first, bytes) = runs.open();
            (number, first, bytes, runs.end())
        };
        let (records, options) = (end.0 - first.0, &core.options);
        // If the batch does not belong at the end, resolving finds out why.
        let is_next = batch.first().is_some_and(|oldest| oldest.at == end);
        let is_full = records >= options.run_records || bytes >= options.run_bytes;
        if is_next && is_full && records > 0 {
            let session = self.session()?;
            if core.tables.close_run(session, number, end, bytes).await? {
                number += 1;
                let news = core.tables.look(session, number - 1, end).await?;
                core.change(|state| state.learn(&news));
            }
        } else if records >= options.run_records / 2 || bytes >= options.run_bytes / 2 {
            core.tables_due.notify_one();
        }
        if self.append.as_ref().is_none_or(|(run, _)| *run != number) {
            let statement = core.tables.append_statement(number);
            let statement = self.session()?.prepare(&statement).await?;
            self.append = Some((number, statement));
        }
        Ok(())
    }

    /// Whether the batch was inserted.
    async fn insert(&self, batch: &[Pending]) -> Result<bool, Fault> {
        let (Some((number, statement)), Some(oldest)) = (&self.append, batch.first()) else {
            return Ok(false);
        };
        let session = self.session()?;
        let at = crate::schema::bigint(oldest.at);
        let epochs: Vec<i64> =
            batch.iter().map(|pending| pending.record.epoch.cast_signed()).collect();
        let bytes: Vec<&[u8]> = batch.iter().map(|pending| &*pending.record.bytes).collect();
        session.take_unconfirmed();
        let rows = session.execute(statement, &[number, &at, &epochs, &bytes]).await?;
        if session.take_unconfirmed() {
            // It is committed here, and perhaps not on the standby.
            return Err(Fault::InDoubt("the wait for the standby was cancelled".to_owned()));
        }
        Ok(rows == batch.len() as u64)
    }

    /// The batch was not inserted. The writer's own records that stand there already are committed once that is
    /// confirmed; another writer's record is a conflict; the rest is tried again.
    async fn resolve(&mut self, mut batch: Vec<Pending>) -> Result<(), Fault> {
        let core = Arc::clone(&self.core);
        let found = match self.look_at(&batch).await {
            Ok(found) => found,
            Err(fault) => {
                core.change(|state| state.put_back(batch));
                return Err(not_done(fault));
            }
        };
        let own = batch.iter().zip(&found).take_while(|(pending, stored)| {
            pending.record.epoch == stored.epoch && pending.record.bytes == stored.bytes
        });
        let own = own.count();
        let confirmed = match (own, self.session()) {
            (0, _) => Ok(()),
            (_, Ok(session)) => confirmed(&core, session, Position(0)).await.map(drop),
            (_, Err(fault)) => Err(fault),
        };
        if let Err(fault) = confirmed {
            core.change(|state| state.put_back(batch));
            return Err(not_done(fault));
        }
        let rest = batch.split_off(own);
        let anothers = found.into_iter().nth(own);
        let is_again = anothers.is_none() && !rest.is_empty();
        core.change(|state| {
            state.commit(&batch);
            match anothers {
                Some(stored) => state.conflict(rest, Some(stored)),
                None => state.put_back(rest),
            }
        });
        if is_again && own == 0 {
            return Err(Fault::Away("the open run was another one".to_owned()));
        }
        Ok(())
    }

    /// What stands where the batch wants to.
    async fn look_at(&self, batch: &[Pending]) -> Result<Vec<Record>, Fault> {
        let core = &self.core;
        let session = self.session()?;
        let Some(from) = batch.first().map(|oldest| oldest.at) else { return Ok(Vec::new()) };
        let (open, end) = core.state().runs.known();
        let news = core.tables.look(session, open, end).await?;
        let until = Position(from.0 + batch.len() as u64);
        let spans = core.change(|state| {
            state.learn(&news);
            state.runs.spans(from, until)
        });
        let mut found = Vec::new();
        for mut span in spans {
            while span.from < span.until {
                let some = core.tables.fetch(session, span, 1024, 16 << 20).await?;
                if some.is_empty() {
                    return Err(core.tables.damaged(format!("record {} is missing", span.from)));
                }
                span.from = Position(span.from.0 + some.len() as u64);
                let some = some.into_iter();
                found
                    .extend(some.map(|stored| Record { epoch: stored.epoch, bytes: stored.bytes }));
            }
        }
        Ok(found)
    }

    /// What is there now is safe once a later transaction is.
    async fn confirm(&mut self, number: u64) -> Result<(), Fault> {
        let core = &self.core;
        let ((open, end), trim_to) = {
            let state = core.state();
            (state.runs.known(), state.trim_to)
        };
        let session = self.session()?;
        let news = core.tables.look(session, open, end).await?;
        core.change(|state| state.learn(&news));
        let first = confirmed(core, session, trim_to).await?;
        core.change(|state| state.confirm(number, news.end, first));
        if first > news.first {
            core.tables_due.notify_one();
        }
        Ok(())
    }
}

async fn confirmed(core: &Core, session: &Session, trim_to: Position) -> Result<Position, Fault> {
    let first = core.tables.confirm(session, trim_to).await?;
    first.ok_or_else(|| Fault::Away("the wait for the standby was cancelled".to_owned()))
}
