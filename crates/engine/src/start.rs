//! Opening an engine: fold the log, begin a new epoch, recover what the last one left.

use std::sync::Arc;
use std::sync::mpsc::sync_channel;

use spindle_core::{Command, Event, JobId, Place, Rejection, State};
use spindle_log::{Log, LogError, ReadError};

use crate::clock::Clock;
use crate::inner::{Inner, Stats};
use crate::options::Options;
use crate::record::{Entry, RecordError, RecordReader};

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
    /// Another server wrote meanwhile.
    #[error("another server writes to this log")]
    Conflict,
}

/// A decoded record on its way from the reader to the fold.
struct Decoded {
    position: u64,
    now_ms: u64,
    events: Vec<(Box<Event>, u32)>,
}

fn decode(stored: spindle_log::Stored) -> Result<Decoded, StartError> {
    let position = stored.position.0;
    let failed = |source| StartError::Record { position, source };
    let reader = RecordReader::new(stored.bytes).map_err(failed)?;
    let now_ms = reader.now_ms;
    let mut events = Vec::new();
    for entry in reader {
        if let Entry::Event(event, offset) = entry.map_err(failed)? {
            events.push((event, offset));
        }
    }
    Ok(Decoded { position, now_ms, events })
}

/// Folds everything the log holds. Reading and decoding go on in a thread of their own, so that a
/// long log costs the longer of the two, not their sum.
pub(crate) fn fold(log: &dyn Log, inner: &mut Inner) -> Result<(), StartError> {
    let records = log.read(log.first())?;
    inner.open_position = log.next().0;
    let (sender, receiver) = sync_channel::<Result<Decoded, StartError>>(64);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for stored in records {
                let decoded = stored.map_err(StartError::from).and_then(decode);
                let failed = decoded.is_err();
                if sender.send(decoded).is_err() || failed {
                    return;
                }
            }
        });
        for decoded in receiver {
            let decoded = decoded?;
            inner.now_ms = inner.now_ms.max(decoded.now_ms);
            for (event, offset) in &decoded.events {
                inner.fold_one(event, Place { position: decoded.position, offset: *offset });
            }
        }
        Ok(())
    })
}

/// The fold of a log alone, to compare with.
pub fn fold_state(log: &dyn Log, options: &Options) -> Result<State, StartError> {
    let state = State::new(options.seed, options.defaults.clone());
    let mut inner = Inner::new(state, options.clone(), log.record_bytes_max() as usize);
    fold(log, &mut inner)?;
    Ok(inner.state)
}

/// Builds the inside of an engine from its log: folded, with a new epoch begun and the leases of
/// older ones recovered. What that told is in the open batch; commit it before any door opens.
pub(crate) fn start(
    log: &Arc<dyn Log>,
    clock: &dyn Clock,
    options: Options,
) -> Result<Inner, StartError> {
    let mut state = State::new(options.seed, options.defaults.clone());
    state.plant(options.faults.core);
    let mut inner = Inner::new(state, options, log.record_bytes_max() as usize);
    fold(log.as_ref(), &mut inner)?;
    // What the fold counted was counted by servers before this one.
    inner.stats = Stats::default();
    clock.start_from(inner.now_ms);
    inner.now_ms = inner.now_ms.max(clock.now_ms());
    let epoch = inner.state.server().epoch + 1;
    inner.run(&Command::Start { epoch })?;
    inner.next_id = inner.state.server().ids_until;
    let first = inner.take_id();
    inner.return_id(first);
    let mut from = JobId(0);
    loop {
        let grace_ms = inner.options.grace_ms;
        inner.run(&Command::Recover { from, grace_ms })?;
        let told = inner.decision.events.len();
        let last = inner.decision.events.iter().rev().find_map(|(event, _)| job_of(event));
        match last {
            Some(last) if told >= spindle_core::EVENTS_MAX => from = JobId(last.0 + 1),
            _ => break,
        }
    }
    Ok(inner)
}

fn job_of(event: &Event) -> Option<JobId> {
    match event {
        Event::Requeued(requeued) => Some(JobId(requeued.id)),
        Event::Extended(extended) => Some(JobId(extended.id)),
        Event::Finished(image) => Some(JobId(image.id)),
        _ => None,
    }
}
