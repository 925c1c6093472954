//! Opening an engine: fold the log, begin a new epoch, recover what the last one left.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use spindle_core::{Command, Event, EventReader, JobId, Place, Rejection, State};
use spindle_log::{Log, LogError, ReadError, Stored, StoredRecords};

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

/// What reads and decodes the log.
struct Decoder {
    records: StoredRecords,
    events: EventReader,
    damage: DamageFinder,
}

impl Decoder {
    fn new(records: StoredRecords) -> Decoder {
        Decoder { records, events: EventReader::default(), damage: DamageFinder::default() }
    }

    /// Reads on, up to many events. Returns whether there may be more.
    fn fill(&mut self, decoded: &mut Decoded) -> Result<bool, StartError> {
        // Folded ones are used again here, where their names came from: two threads that count who
        // shares a name would wait for each other at every event.
        decoded.len = 0;
        // Of a long record there were more, and they may hold on to its bytes.
        decoded.events.truncate(EVENTS_AT_ONCE);
        while decoded.len < EVENTS_AT_ONCE {
            let Some(stored) = self.records.next() else { return Ok(false) };
            self.decode(stored?, decoded)?;
        }
        Ok(true)
    }

    fn decode(&mut self, stored: Stored, decoded: &mut Decoded) -> Result<(), StartError> {
        self.damage.record(&stored);
        let position = stored.position.0;
        let failed = |source| StartError::Record { position, source };
        let reader = RecordReader::new(stored.bytes).map_err(failed)?;
        decoded.now_ms = decoded.now_ms.max(reader.now_ms);
        decoded.position = position;
        let from = decoded.len;
        reader.read_events(&mut self.events, decoded).map_err(failed)?;
        if !self.damage.is_empty() {
            decoded.events()[from..].iter().for_each(|(event, at)| self.damage.event(event, *at));
        }
        Ok(())
    }
}

/// Folds everything the log holds. Reading and decoding go on in a thread of their own, so that a
/// long log costs the longer of the two, not their sum.
fn fold(log: &dyn Log, inner: &mut Inner) -> Result<DamageFinder, StartError> {
    let mut decoder = Decoder::new(log.read(log.first())?);
    inner.batch.begin_at(log.next().0);
    // Of a churned log most jobs are gone at its end: their names need not come and go.
    inner.state.defer_keys();
    let (full, filled) = sync_channel::<Result<Decoded, StartError>>(2);
    let (empty, emptied) = sync_channel::<Decoded>(4);
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut more = true;
            while more {
                let mut decoded = emptied.try_recv().unwrap_or_default();
                let filled = decoder.fill(&mut decoded);
                more = matches!(filled, Ok(true));
                if full.send(filled.map(|_| decoded)).is_err() {
                    break;
                }
            }
            decoder.damage
        });
        for decoded in filled {
            let decoded = decoded?;
            inner.now_ms = inner.now_ms.max(decoded.now_ms);
            for (event, place) in decoded.events() {
                inner.fold_one(event, *place);
            }
            empty.try_send(decoded).ok();
        }
        inner.state.index_keys();
        Ok(reader.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
    })
}

/// The fold of a log alone, to compare with.
pub fn fold_state(log: &dyn Log, options: &Options) -> Result<State, StartError> {
    let state = State::new(options.seed, options.defaults.clone());
    let mut inner = Inner::new(state, options.clone(), log.record_bytes_max() as usize);
    fold(log, &mut inner)?;
    Ok(inner.state)
}

impl Engine {
    /// Folds the log, begins a new epoch and commits that. No thread runs yet: see
    /// [`Engine::spawn`].
    pub fn open(
        log: Arc<dyn Log>,
        clock: Arc<dyn Clock>,
        options: Options,
    ) -> Result<Engine, StartError> {
        let inner = start(&log, clock.as_ref(), options)?;
        let engine = Engine::new(inner, log, clock);
        engine.flush()?;
        if engine.failure().is_some() {
            return Err(StartError::Conflict);
        }
        // On a full disk it may wait for room. An epoch that a crash forgets would begin again, and
        // tokens of its leases would be given twice.
        if engine.durable() < engine.shared.inner.lock().tail() {
            return Err(StartError::Full);
        }
        Ok(engine)
    }
}

/// Builds the inside of an engine from its log: folded, with a new epoch begun and the leases of
/// older ones recovered. What that decided is in the open batch; commit it before any door opens.
fn start(log: &Arc<dyn Log>, clock: &dyn Clock, options: Options) -> Result<Inner, StartError> {
    let mut state = State::new(options.seed, options.defaults.clone());
    state.plant(options.faults.core);
    let mut inner = Inner::new(state, options, log.record_bytes_max() as usize);
    let damage = fold(log.as_ref(), &mut inner)?;
    // What the fold counted was counted by servers before this one.
    inner.numbers.stats = Stats::default();
    clock.start_from(inner.now_ms);
    inner.set_now(clock.now_ms());
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
        let Some(last) = inner.cut_off_at(job_of) else { return Ok(inner) };
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
