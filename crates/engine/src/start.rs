//! Opening an engine: fold the log, begin a new epoch, recover what the last one left.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use spindle_core::{Command, Event, EventReader, JobId, Place, Rejection, State};
use spindle_log::{Log, LogError, OpenError, ReadError, Space, Stored};

use crate::clock::Clock;
use crate::commit::record::{Places, RecordError, RecordReader};
use crate::damage::{DamageFinder, DamagedBytes, DamagedJob};
use crate::engine::Engine;
use crate::inner::Inner;
use crate::observe::Stats;
use crate::options::Options;

/// Why an engine does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The log cannot be opened.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The log cannot be read.
    #[error("cannot read the log: {0}")]
    Read(#[from] ReadError),
    /// A record cannot be folded.
    #[error("record {position} of the log: {source}")]
    Record {
        /// Which record.
        position: u64,
        /// What is wrong with it.
        source: RecordError,
    },
    /// The core refuses to begin.
    #[error("the log cannot be taken over: {0}")]
    Refused(#[from] Rejection),
    /// The first record of the new epoch could not be written.
    #[error("cannot write to the log: {0}")]
    Log(#[from] LogError),
    /// The disk is full, the log's reserve included.
    #[error("the disk is full: there is no room to begin in the log")]
    Full,
    /// The log has no room left and can prepare no segment, for another reason than room: its own messages say which.
    #[error("the log cannot grow: no segment could be prepared to begin in")]
    LogCannotGrow,
    /// Another server wrote meanwhile.
    #[error("another server writes to this log")]
    Conflict,
}

/// Decoded events on their way from the reader to the fold, many at a time: waking the other thread
/// for each record would cost more than folding it.
#[derive(Default)]
struct Decoded {
    /// The newest record's time.
    now_ms: u64,
    /// Those behind the first `len` are folded ones, whose places are used again.
    events: Vec<(Event, Place)>,
    len: usize,
    /// The record that is read.
    position: u64,
}

impl Decoded {
    fn events(&self) -> &[(Event, Place)] {
        &self.events[..self.len]
    }
}

impl Places for Decoded {
    fn next(&mut self, offset: u32) -> &mut Event {
        let place = Place { position: self.position, offset };
        if self.len == self.events.len() {
            self.events.push((Event::default(), place));
        }
        let next = &mut self.events[self.len];
        self.len += 1;
        next.1 = place;
        &mut next.0
    }
}

/// Events handed over at once; the list goes back to be filled again.
const EVENTS_AT_ONCE: usize = 512;
/// Lists that wait to be folded.
const LISTS_AHEAD: usize = 2;

/// What decodes the log, record by record, and hands the events over.
struct Decoder {
    events: EventReader,
    damage: DamageFinder,
    decoded: Decoded,
    /// None behind the last record.
    full: Option<SyncSender<Decoded>>,
    emptied: Receiver<Decoded>,
    /// Why a record cannot be folded. None behind it is looked at.
    failed: Option<StartError>,
}

impl Decoder {
    fn new(full: SyncSender<Decoded>, emptied: Receiver<Decoded>) -> Decoder {
        Decoder {
            events: EventReader::default(),
            damage: DamageFinder::default(),
            decoded: Decoded::default(),
            full: Some(full),
            emptied,
            failed: None,
        }
    }

    /// Takes the next record. After the last one the fold may come to its end.
    fn take(&mut self, shown: Option<Stored>) {
        match shown {
            Some(stored) if self.failed.is_none() => self.failed = self.decode(stored).err(),
            Some(_) => {}
            None => {
                self.hand_over();
                self.full = None;
            }
        }
        if self.decoded.len >= EVENTS_AT_ONCE {
            self.hand_over();
        }
    }

    fn decode(&mut self, stored: Stored) -> Result<(), StartError> {
        self.damage.record(&stored);
        let position = stored.position.0;
        let failed = |source| StartError::Record { position, source };
        let reader = RecordReader::new(stored.bytes).map_err(failed)?;
        let decoded = &mut self.decoded;
        decoded.now_ms = decoded.now_ms.max(reader.now_ms);
        decoded.position = position;
        let from = decoded.len;
        reader.read_events(&mut self.events, decoded).map_err(failed)?;
        if !self.damage.is_empty() {
            decoded.events()[from..].iter().for_each(|(event, at)| self.damage.event(event, *at));
        }
        Ok(())
    }

    /// Hands over what is decoded, and begins another list.
    fn hand_over(&mut self) {
        // Folded events are used again here, where their names came from: two threads that count who
        // shares a name would wait for each other at every event.
        let mut next = self.emptied.try_recv().unwrap_or_default();
        next.len = 0;
        // Of a long record there were more, and they may hold on to its bytes.
        next.events.truncate(EVENTS_AT_ONCE);
        let decoded = std::mem::replace(&mut self.decoded, next);
        if let Some(full) = &self.full {
            // Nobody takes it if the fold panicked, which its own thread reports.
            full.send(decoded).ok();
        }
    }

    fn finish(self) -> Result<DamageFinder, StartError> {
        self.failed.map_or(Ok(self.damage), Err)
    }
}

/// Takes the records of a log one by one, oldest first, and `None` behind the last one.
pub type Each<'a> = &'a mut dyn FnMut(Option<Stored>);

/// Folds all records that `open` shows, and gives back what it returns. Reading and decoding go on in a thread of their
/// own, so that a long log costs the longer of the two, not their sum.
fn fold<T: Send>(
    inner: &mut Inner,
    open: impl FnOnce(Each<'_>) -> Result<T, StartError> + Send,
) -> Result<(T, DamageFinder), StartError> {
    // Of a churned log most jobs are gone at its end: their names need not come and go.
    inner.state.defer_keys();
    let (full, filled) = sync_channel(LISTS_AHEAD);
    let (empty, emptied) = sync_channel(2 * LISTS_AHEAD);
    std::thread::scope(|scope| {
        let opener = scope.spawn(move || {
            let mut decoder = Decoder::new(full, emptied);
            let opened = open(&mut |shown| decoder.take(shown))?;
            Ok((opened, decoder.finish()?))
        });
        for decoded in filled {
            inner.now_ms = inner.now_ms.max(decoded.now_ms);
            for (event, place) in decoded.events() {
                inner.fold_one(event, *place);
            }
            empty.try_send(decoded).ok();
        }
        inner.state.index_keys(|one, other| {
            std::thread::scope(|scope| {
                scope.spawn(other);
                one();
            });
        });
        if inner.options.faults.keys_forgotten {
            inner.state.forget_keys();
        }
        if inner.options.faults.expiry_forgotten {
            inner.state.forget_expiry();
        }
        if inner.options.faults.flows_forgotten {
            inner.state.forget_flows();
        }
        if inner.options.faults.schedules_forgotten {
            inner.state.forget_schedule_timers();
        }
        opener.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Shows all records of a log that is open.
fn show(log: &dyn Log, each: Each<'_>) -> Result<(), StartError> {
    for stored in log.read(log.first())? {
        each(Some(stored?));
    }
    each(None);
    Ok(())
}

/// The fold of a log alone, to compare with.
pub fn fold_state(log: &dyn Log, options: &Options) -> Result<State, StartError> {
    let state = State::new(options.seed, options.defaults.clone());
    let mut inner = Inner::new(state, options.clone());
    fold(&mut inner, |each| show(log, each))?;
    Ok(inner.state)
}

impl Engine {
    /// Folds a log that is open, begins a new epoch and commits that. No thread runs yet: see
    /// [`Engine::spawn`].
    pub fn open(
        log: Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<Engine, StartError> {
        Engine::open_with(clock, options, |each| show(&*log, each).map(|()| log))
    }

    /// As [`Engine::open`], and folds the log while it is opened: `open` shows every record that it reads, as
    /// [`FileLog::open_with`](spindle_log::FileLog::open_with) does, and returns the log. What was folded of a log that
    /// cannot be opened is dropped.
    pub fn open_with(
        clock: Arc<dyn Clock>,
        options: Options,
        open: impl FnOnce(Each<'_>) -> Result<Arc<dyn Log>, StartError> + Send,
    ) -> Result<Engine, StartError> {
        let (inner, log) = start(clock.as_ref(), options, open)?;
        let engine = Engine::new(inner, log, clock);
        engine.flush()?;
        if engine.failure().is_some() {
            return Err(StartError::Conflict);
        }
        // On a full disk it may wait for room. An epoch that a crash forgets would begin again, and
        // tokens of its leases would be given twice.
        if engine.durable() < engine.shared.inner.lock().tail() {
            let cannot_grow = engine.shared.log.space() == Space::CannotGrow;
            return Err(if cannot_grow { StartError::LogCannotGrow } else { StartError::Full });
        }
        Ok(engine)
    }
}

/// Builds the inside of an engine from its log: folded, with a new epoch begun and the leases of
/// older ones recovered. What that decided is in the open batch; commit it before any door opens.
fn start(
    clock: &dyn Clock,
    options: Options,
    open: impl FnOnce(Each<'_>) -> Result<Arc<dyn Log>, StartError> + Send,
) -> Result<(Inner, Arc<dyn Log>), StartError> {
    let mut state = State::new(options.seed, options.defaults.clone());
    state.plant(options.faults.core);
    let mut inner = Inner::new(state, options);
    let (log, damage) = fold(&mut inner, open)?;
    inner.batch.begin_at(log.next().0, log.record_bytes_max() as usize);
    // What the fold counted was counted by servers before this one.
    inner.numbers.stats = Stats::default();
    inner.begin_time(clock);
    let epoch = inner.state.server().epoch + 1;
    inner.run(&Command::Start { epoch })?;
    inner.begin_ids();
    // First: whose lease ends now, and who has no tries left, would else die of that and be retried
    // with the damaged payload.
    end_damaged(&damage, &mut inner)?;
    let mut from = JobId(0);
    loop {
        let grace_ms = inner.options.grace_ms;
        inner.run(&Command::Recover { from, grace_ms })?;
        let Some(last) = inner.cut_off_at(job_of) else { return Ok((inner, log)) };
        from = JobId(last.0 + 1);
    }
}

/// Ends unfinished jobs with a damaged payload as dead now, not when a worker would be handed one.
fn end_damaged(damage: &DamageFinder, inner: &mut Inner) -> Result<(), StartError> {
    let jobs = damage.jobs(&inner.state);
    if jobs.is_empty() && !damage.is_empty() {
        tracing::warn!("bytes in the log are damaged that no job needs any more");
    }
    for DamagedJob { id, finished, bytes } in jobs {
        inner.numbers.stats.payloads_damaged += 1;
        match bytes {
            DamagedBytes::Payload if !finished => {
                tracing::error!("job {id} is dead: its payload is damaged in the log");
                inner.run(&Command::PayloadDamaged { id })?;
            }
            DamagedBytes::Payload => {
                tracing::error!("the payload of finished job {id} is damaged in the log");
            }
            DamagedBytes::Result => {
                tracing::error!("the result of job {id} is damaged in the log");
            }
        }
    }
    Ok(())
}

fn job_of(event: &Event) -> Option<JobId> {
    match event {
        Event::Requeued(requeued) => Some(JobId(requeued.id)),
        Event::Extended(extended) => Some(JobId(extended.id)),
        Event::Finished(image) => Some(JobId(image.id)),
        _ => None,
    }
}
