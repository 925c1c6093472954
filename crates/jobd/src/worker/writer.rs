//! Writes starts and ends of jobs. Changes that gather while one transaction is under way share the
//! next one, so the busier the worker, the fewer commits a job costs.

use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use tokio::{
    sync::{mpsc, oneshot},
    time::sleep,
};
use tracing::{error, warn};

use super::daemon::Event;
use crate::table::{Finish, JobTable, Mark, RowId, TableError, Written};

/// How many starts and how many ends go into one transaction.
const CHANGES_MAX: usize = 256;
/// How many bytes of output go into one transaction, the last row's not counted.
const OUTPUT_BYTES_MAX: usize = 8 * 1024 * 1024;

/// How long to wait after a failed try: doubled each time, between two bounds.
#[derive(Debug)]
pub(super) struct Pause(Duration);

impl Pause {
    const LEAST: Duration = Duration::from_millis(100);
    const MOST: Duration = Duration::from_secs(10);

    pub(super) fn new() -> Self {
        Self(Self::LEAST)
    }

    pub(super) fn next(&mut self) -> Duration {
        let now = self.0;
        self.0 = (now * 2).min(Self::MOST);
        now
    }

    pub(super) fn reset(&mut self) {
        self.0 = Self::LEAST;
    }
}

/// Seconds since 1970, as the table's times count.
pub(super) fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// What the daemon wants written.
#[derive(Debug)]
pub(super) enum Write {
    /// A row is to become `running`.
    Start(RowId),
    /// A row is to become `done`.
    Finish(Finish),
    /// Starts that are not written yet are called off.
    NoMoreStarts,
}

/// What became of a write.
#[derive(Debug, Default)]
pub(super) struct Report {
    /// Rows that are `running` now: their processes may start.
    pub(super) started: Vec<RowId>,
    /// Rows that did not become `running`, because they were changed or deleted meanwhile.
    pub(super) refused: Vec<RowId>,
    /// Rows whose start was called off.
    pub(super) called_off: Vec<RowId>,
    /// Rows whose end needs nothing more.
    pub(super) finished: Vec<RowId>,
    /// Those of them whose end this write did not bring into the table.
    pub(super) unwritten: Vec<RowId>,
}

#[derive(Debug)]
pub(super) struct Writer {
    table: Arc<dyn JobTable>,
    mark: Mark,
    incoming: mpsc::UnboundedReceiver<Write>,
    events: mpsc::UnboundedSender<Event>,
    starts: Vec<RowId>,
    finishes: Vec<Finish>,
    may_start: bool,
    pause: Pause,
}

impl Writer {
    pub(super) fn new(
        table: Arc<dyn JobTable>,
        mark: Mark,
        incoming: mpsc::UnboundedReceiver<Write>,
        events: mpsc::UnboundedSender<Event>,
    ) -> Self {
        Self {
            table,
            mark,
            incoming,
            events,
            starts: Vec::new(),
            finishes: Vec::new(),
            may_start: true,
            pause: Pause::new(),
        }
    }

    /// Writes until `halt` comes or is dropped; returns the ends that are not known to be written.
    pub(super) async fn run(mut self, halt: oneshot::Receiver<()>) -> Vec<Finish> {
        tokio::select! {
            () = self.work() => {}
            // Also ready when the other side is gone.
            _ = halt => {}
        }
        while let Ok(write) = self.incoming.try_recv() {
            if let Write::Finish(finish) = write {
                self.finishes.push(finish);
            }
        }
        self.finishes
    }

    async fn work(&mut self) {
        loop {
            if self.starts.is_empty() && self.finishes.is_empty() {
                let Some(write) = self.incoming.recv().await else { return };
                self.absorb(write);
            }
            while !self.is_full() {
                let Ok(write) = self.incoming.try_recv() else { break };
                self.absorb(write);
            }
            match self.write_batch().await {
                Ok(()) => self.pause.reset(),
                Err(error) => self.wait_after(&error).await,
            }
        }
    }

    fn is_full(&self) -> bool {
        let output = |finish: &Finish| finish.stdout.len() + finish.stderr.len();
        self.starts.len() >= CHANGES_MAX
            || self.finishes.len() >= CHANGES_MAX
            || self.finishes.iter().map(output).sum::<usize>() >= OUTPUT_BYTES_MAX
    }

    fn absorb(&mut self, write: Write) {
        match write {
            Write::Start(id) if self.may_start => self.starts.push(id),
            Write::Start(id) => self.report(Report { called_off: vec![id], ..Report::default() }),
            Write::Finish(finish) => self.finishes.push(finish),
            Write::NoMoreStarts => {
                self.may_start = false;
                let called_off = std::mem::take(&mut self.starts);
                self.report(Report { called_off, ..Report::default() });
            }
        }
    }

    fn report(&self, report: Report) {
        // The daemon is gone only when the process ends.
        let _ = self.events.send(Event::Written(report));
    }

    /// Writes these changes. The inner error is why the table refuses one of them.
    async fn write(
        &self,
        starts: &[RowId],
        finishes: &[Finish],
    ) -> Result<Result<Written, String>, TableError> {
        match self.table.write(&self.mark, starts, now_s(), finishes).await {
            Ok(written) => Ok(Ok(written)),
            Err(TableError::Refused { reason, .. }) => Ok(Err(reason)),
            Err(error) => Err(error),
        }
    }

    async fn write_batch(&mut self) -> Result<(), TableError> {
        if self.starts.is_empty() && self.finishes.is_empty() {
            return Ok(());
        }
        match self.write(&self.starts, &self.finishes).await? {
            Ok(written) => {
                let starts = std::mem::take(&mut self.starts);
                let finishes = std::mem::take(&mut self.finishes);
                self.report(report_of(starts, finishes, &written));
                Ok(())
            }
            Err(reason) => {
                warn!(reason, "a write was refused; its rows are written one by one");
                self.write_singly().await
            }
        }
    }

    /// Finds out which row the table cannot take, so that it does not delay the others.
    async fn write_singly(&mut self) -> Result<(), TableError> {
        while let Some(finish) = self.finishes.first() {
            let id = finish.id;
            let mut outcome = self.write(&[], std::slice::from_ref(finish)).await?;
            if let (Err(reason), Some(finish)) = (&outcome, self.finishes.first_mut()) {
                warn!(%id, reason, "the output was refused; written without it");
                finish.stdout.clear();
                finish.stderr.clear();
                outcome = self.write(&[], &self.finishes[..1]).await?;
            }
            let written = outcome.unwrap_or_else(|reason| {
                error!(%id, reason, "the result of a job could not be written");
                Written::default()
            });
            let finish = self.finishes.remove(0);
            self.report(report_of(Vec::new(), vec![finish], &written));
        }
        if self.starts.is_empty() {
            return Ok(());
        }
        let written = self.write(&self.starts, &[]).await?.unwrap_or_else(|reason| {
            error!(reason, "jobs cannot be marked as running; they are not started");
            Written::default()
        });
        let starts = std::mem::take(&mut self.starts);
        self.report(report_of(starts, Vec::new(), &written));
        Ok(())
    }

    async fn wait_after(&mut self, error: &TableError) {
        let pause = self.pause.next();
        warn!(%error, retry_in_ms = pause.as_millis(), "cannot write to the job table");
        let _ = self.events.send(Event::TableTrouble(error.to_string()));
        let waited = sleep(pause);
        tokio::pin!(waited);
        loop {
            tokio::select! {
                () = &mut waited => return,
                Some(write) = self.incoming.recv() => self.absorb(write),
            }
        }
    }
}

fn report_of(starts: Vec<RowId>, finishes: Vec<Finish>, written: &Written) -> Report {
    let (started, refused) = starts.into_iter().partition(|id| written.started.contains(id));
    let mut report = Report { started, refused, ..Report::default() };
    for finish in finishes {
        if !written.finished.contains(&finish.id) {
            warn!(
                id = %finish.id,
                "not written now: the row was deleted, is another worker's by now, was written by \
                 an earlier try, or the table refuses it"
            );
            report.unwritten.push(finish.id);
        }
        report.finished.push(finish.id);
    }
    report
}
