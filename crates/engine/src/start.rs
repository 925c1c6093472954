//! Opening an engine: fold the log, begin a new epoch, recover what the last one left.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use spindle_core::seat::Seat;
use spindle_core::{Command, Event, EventReader, JobId, Place, Rejection, State, Type};
use spindle_log::{Log, LogError, OpenError, Position, ReadError, Space, Stored};

use crate::clock::Clock;
use crate::commit::record::{FIRST_VERSION, Places, RecordError, RecordReader, VERSION};
use crate::commit::{Flight, Payload};
use crate::damage::{DamageFinder, DamagedBytes, DamagedJob};
use crate::engine::Engine;
use crate::fence::Fence;
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
    /// The log has no room left and can prepare no segment, for a reason other than room: the log's own messages say
    /// which.
    #[error("the log cannot grow: no segment could be prepared to begin in")]
    LogCannotGrow,
    /// The log does not say whether the first record of the new epoch is in it.
    #[error("the log does not answer: whether it can be begun in is not known")]
    Unanswered,
    /// Another server wrote meanwhile.
    #[error("another server writes to this log")]
    Conflict,
    /// The follower of the log has stopped; the reason is known to it.
    #[error("the log is not followed any more")]
    GivenUp,
}

/// Decoded events on their way from the reader to the fold, many at a time: waking the other thread
/// for each record would cost more than folding it.
#[derive(Default)]
struct Decoded {
    /// The newest record's time.
    now_ms: u64,
    /// Those after the first `len` were folded before; their places are used again.
    events: Vec<(Event, Place)>,
    len: usize,
    /// The record that is read.
    position: u64,
    /// There are no more for now.
    caught_up: bool,
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

/// Decodes the log, record by record, and hands the events over.
struct Decoder {
    events: EventReader,
    damage: DamageFinder,
    fence: Fence,
    decoded: Decoded,
    /// None behind the last record.
    full: Option<SyncSender<Decoded>>,
    emptied: Receiver<Decoded>,
    /// Why a record cannot be folded. None behind it is looked at.
    failed: Option<StartError>,
    /// The newest version of records that can be folded, and the format in force: the highest that one needs.
    newest: u8,
    format: u8,
    /// Which log it is meant to be, and which one its records say it is.
    expected: Seat,
    seat: Option<Seat>,
    /// A planted fault.
    takes_late: bool,
}

impl Decoder {
    fn new(fence: Fence, full: SyncSender<Decoded>, emptied: Receiver<Decoded>) -> Decoder {
        Decoder {
            events: EventReader::default(),
            damage: DamageFinder::default(),
            fence,
            decoded: Decoded::default(),
            full: Some(full),
            emptied,
            failed: None,
            newest: VERSION,
            format: FIRST_VERSION,
            expected: Seat::default(),
            seat: None,
            takes_late: false,
        }
    }

    /// Takes the next record. After the last one the fold may come to its end.
    fn take(&mut self, shown: Option<Stored>) {
        match shown {
            Some(stored) if self.failed.is_none() => self.failed = self.judge(stored).err(),
            Some(_) => {}
            None => {
                if self.failed.is_none() {
                    self.failed = self.end_head().err();
                }
                self.hand_over();
                self.full = None;
            }
        }
    }

    /// Decodes a record, if it counts.
    fn judge(&mut self, stored: Stored) -> Result<(), StartError> {
        if self.takes_late {
            return self.decode(stored);
        }
        let mut fence = std::mem::take(&mut self.fence);
        let judged = fence.take(stored, |stored| self.decode(stored));
        self.fence = fence;
        judged
    }

    fn end_head(&mut self) -> Result<(), StartError> {
        let mut fence = std::mem::take(&mut self.fence);
        let judged = fence.end(|stored| self.decode(stored));
        self.fence = fence;
        judged
    }

    fn decode(&mut self, stored: Stored) -> Result<(), StartError> {
        self.damage.record(&stored);
        let position = stored.position.0;
        let failed = |source| StartError::Record { position, source };
        let reader = RecordReader::knowing(self.newest, stored.bytes).map_err(failed)?;
        self.format = self.format.max(reader.needed);
        let decoded = &mut self.decoded;
        decoded.now_ms = decoded.now_ms.max(reader.now_ms);
        decoded.position = position;
        let from = decoded.len;
        reader.read_events(&mut self.events, decoded).map_err(failed)?;
        if !self.damage.is_empty() {
            decoded.events()[from..].iter().for_each(|(event, at)| self.damage.event(event, *at));
        }
        let said = decoded.events()[from..].iter().rev().find_map(|(event, _)| seat_of(event));
        if let Some(seat) = said {
            if seat != self.expected {
                return Err(Rejection::OtherSeat(seat).into());
            }
            self.seat = said;
        }
        if self.decoded.len >= EVENTS_AT_ONCE {
            self.hand_over();
        }
        Ok(())
    }

    /// Hands over what is decoded, and begins another list.
    fn hand_over(&mut self) {
        // Folded events are used again in this thread, which made their names: two threads that
        // count the users of a name would wait for each other at every event.
        let mut next = self.emptied.try_recv().unwrap_or_default();
        (next.len, next.caught_up) = (0, false);
        // A long record leaves more events than that, and they may hold on to its bytes.
        next.events.truncate(EVENTS_AT_ONCE);
        let decoded = std::mem::replace(&mut self.decoded, next);
        if let Some(full) = &self.full {
            // It is not received if the fold panicked, which that thread reports.
            full.send(decoded).ok();
        }
    }

    fn finish(self) -> Result<Folded, StartError> {
        let (damage, fenced, format) = (self.damage, self.fence.into_fenced(), self.format);
        self.failed.map_or(Ok(Folded { damage, fenced, format }), Err)
    }
}

/// Which log it is, if an event says so.
fn seat_of(event: &Event) -> Option<Seat> {
    match event {
        Event::Started(started) => Some(started.seat()),
        Event::ServerCompacted(server) => server.seat(),
        _ => None,
    }
}

/// What a fold found out besides the state.
struct Folded {
    damage: DamageFinder,
    /// Where records stand that do not count.
    fenced: Vec<u64>,
    /// The format in force.
    format: u8,
}

/// A fold that goes on for as long as another server leads: see [`Engine::follow`].
pub struct Fold<'a>(&'a mut Decoder);

impl Fold<'_> {
    /// Says where the log begins, before the first record is taken.
    pub fn begin(&mut self, first: Position) {
        self.0.fence = Fence::shared(first.0);
    }

    /// Takes the next record.
    ///
    /// # Errors
    ///
    /// When it cannot be folded: this program cannot follow that log.
    pub fn record(&mut self, stored: Stored) -> Result<(), StartError> {
        self.0.judge(stored)
    }

    /// There are no more for now: what was taken is folded without waiting for more.
    ///
    /// # Errors
    ///
    /// As [`Fold::record`], of a record that was held back.
    pub fn caught_up(&mut self) -> Result<(), StartError> {
        self.0.end_head()?;
        self.0.decoded.caught_up = true;
        self.0.hand_over();
        Ok(())
    }

    /// The highest epoch so far.
    pub fn epoch(&self) -> u64 {
        self.0.fence.epoch()
    }

    /// Which log it is, by what was taken; none of one that no server has begun on.
    pub fn seat(&self) -> Option<Seat> {
        self.0.seat
    }
}

/// A log to take over, all of which was folded.
pub struct Takeover {
    /// The log.
    pub log: Arc<dyn Log>,
    /// The position behind the last record that was folded: there the new epoch begins, or nowhere.
    pub next: Position,
}

/// Takes the records of a log one by one, oldest first, and `None` behind the last one.
pub type Each<'a> = &'a mut dyn FnMut(Option<Stored>);

/// Folds all records that `open` gives to the decoder, and gives back what it returns. Reading and decoding go on in a
/// thread of their own, so that a long log costs the longer of the two, not their sum.
fn fold<T: Send>(
    inner: &mut Inner,
    fence: Fence,
    open: impl FnOnce(&mut Decoder) -> Result<T, StartError> + Send,
) -> Result<(T, Folded), StartError> {
    // Most jobs of a churned log are gone at its end: their names need not be indexed and removed
    // again.
    inner.state.defer_keys();
    let mut is_indexed = false;
    let takes_late = inner.options.faults.late_append_taken;
    let (newest, seat) = (inner.options.format, inner.options.seat);
    let (full, filled) = sync_channel(LISTS_AHEAD);
    let (empty, emptied) = sync_channel(2 * LISTS_AHEAD);
    std::thread::scope(|scope| {
        let opener = scope.spawn(move || {
            let mut decoder = Decoder::new(fence, full, emptied);
            (decoder.takes_late, decoder.newest) = (takes_late, newest);
            decoder.expected = seat;
            let opened = open(&mut decoder)?;
            // There are no more records after a followed log either.
            decoder.take(None);
            Ok((opened, decoder.finish()?))
        });
        for decoded in filled {
            inner.now_ms = inner.now_ms.max(decoded.now_ms);
            for (event, place) in decoded.events() {
                inner.fold_one(event, *place);
            }
            // A follower has to be ready to take over at any time from here on.
            if decoded.caught_up && !std::mem::replace(&mut is_indexed, true) {
                index_keys(inner);
            }
            if decoded.caught_up {
                inner.options.board.show(&inner.state.server().places);
            }
            empty.try_send(decoded).ok();
        }
        if !is_indexed {
            index_keys(inner);
        }
        forget(inner);
        opener.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

fn index_keys(inner: &mut Inner) {
    inner.state.index_keys(|one, other| {
        std::thread::scope(|scope| {
            scope.spawn(other);
            one();
        });
    });
}

/// What planted faults make a start forget.
fn forget(inner: &mut Inner) {
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
}

/// Shows all records of a log that is open.
fn show(log: &dyn Log, decoder: &mut Decoder) -> Result<(), StartError> {
    let first = log.first();
    if !log.is_exclusive() {
        decoder.fence = Fence::shared(first.0);
    }
    for stored in log.read(first)? {
        decoder.take(Some(stored?));
    }
    Ok(())
}

/// The fold of a log alone, to compare with.
pub fn fold_state(log: &dyn Log, options: &Options) -> Result<State, StartError> {
    let state = State::new(options.seed, options.defaults.clone());
    let mut inner = Inner::new(state, options.clone());
    fold(&mut inner, Fence::exclusive(), |decoder| show(log, decoder))?;
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
        Engine::begin(clock, options, |decoder| {
            show(&*log, decoder)?;
            Ok(Takeover { next: log.next(), log })
        })
    }

    /// As [`Engine::open`], and folds the log while it is opened: `open` shows every record that it reads, as
    /// [`FileLog::open_with`](spindle_log::FileLog::open_with) does, and returns the log. What was folded of a log that
    /// cannot be opened is dropped.
    pub fn open_with(
        clock: Arc<dyn Clock>,
        options: Options,
        open: impl FnOnce(Each<'_>) -> Result<Arc<dyn Log>, StartError> + Send,
    ) -> Result<Engine, StartError> {
        Engine::begin(clock, options, |decoder| {
            let log = open(&mut |shown| decoder.take(shown))?;
            Ok(Takeover { next: log.next(), log })
        })
    }

    /// Follows a log that another server leads, until it is to be taken over: `follow` gives every committed record to
    /// the fold as it comes, and returns when it is this server's turn. So the engine is built while others lead, and
    /// is ready at once. Then a new epoch is begun, at exactly the position behind the last record that was folded:
    /// [`StartError::Conflict`] when another server was faster. After an epoch was begun in vain the fold is of no more
    /// use: a caller that gets that error opens the log anew and follows it from its beginning. That takes as long as a
    /// start, during which another server leads.
    pub fn follow(
        clock: Arc<dyn Clock>,
        options: Options,
        follow: impl FnOnce(&mut Fold<'_>) -> Result<Takeover, StartError> + Send,
    ) -> Result<Engine, StartError> {
        Engine::begin(clock, options, |decoder| follow(&mut Fold(decoder)))
    }

    fn begin(
        clock: Arc<dyn Clock>,
        options: Options,
        open: impl FnOnce(&mut Decoder) -> Result<Takeover, StartError> + Send,
    ) -> Result<Engine, StartError> {
        let (inner, log, fenced) = start(clock.as_ref(), options, open)?;
        let engine = Engine::new(inner, log, fenced, clock);
        if let Some(lead) = engine.shared.lead.as_ref().filter(|_| engine.is_hasty()) {
            lead.committed(lead.begins());
            lead.epoch_committed();
            return Ok(engine);
        }
        engine.flush()?;
        if engine.failure().is_some() {
            return Err(StartError::Conflict);
        }
        // On a full disk the epoch record may wait for room. If a crash forgot the epoch, it would
        // begin again, and tokens of its leases would be given twice.
        if engine.durable() < engine.shared.inner.lock().tail() {
            if engine.shared.flight.as_ref().is_some_and(Flight::is_unanswered) {
                return Err(StartError::Unanswered);
            }
            let cannot_grow = engine.shared.log.space() == Space::CannotGrow;
            return Err(if cannot_grow { StartError::LogCannotGrow } else { StartError::Full });
        }
        if let Some(lead) = &engine.shared.lead {
            lead.epoch_committed();
        }
        Ok(engine)
    }

    /// A planted fault.
    fn is_hasty(&self) -> bool {
        self.shared.inner.lock().options.faults.epoch_not_awaited
    }
}

/// The inside of an engine, its log, and the positions of records in it that do not count.
type Started = (Inner, Arc<dyn Log>, Vec<u64>);

/// Builds the inside of an engine from its log: folded, with a new epoch begun and the leases of
/// older ones recovered. The events decided by that are in the open batch; commit it before any
/// door opens.
fn start(
    clock: &dyn Clock,
    options: Options,
    open: impl FnOnce(&mut Decoder) -> Result<Takeover, StartError> + Send,
) -> Result<Started, StartError> {
    let mut state = State::new(options.seed, options.defaults.clone());
    state.plant(options.faults.core);
    let mut inner = Inner::new(state, options);
    let (Takeover { log, next }, folded) = fold(&mut inner, Fence::exclusive(), open)?;
    let Folded { damage, fenced, format } = folded;
    inner.batch.begin_at(next.0, log.record_bytes_max() as usize);
    // An exclusive log has no other readers.
    let known = if log.is_exclusive() { inner.options.format } else { FIRST_VERSION };
    inner.batch.begin_format(format.max(known));
    // The fold counted events of servers before this one.
    inner.numbers.stats = Stats::default();
    inner.begin_time(clock);
    if !log.is_exclusive() {
        inner.numbers.stats.records_fenced = fenced.len() as u64;
        // A worker that holds a job must be known to the next leader, too.
        inner.options.durable_leases = true;
        // Equal records of two processes would count as one.
        let nonce = inner.options.nonce.to_vec();
        inner.batch.put_payload(&Payload::new(nonce, Type::Bytes));
    }
    let epoch = inner.state.server().epoch + 1;
    let seat = inner.options.seat;
    inner.run(&Command::Start { epoch, seat })?;
    inner.begin_ids();
    // This comes first: otherwise a job whose lease ends now and that has no tries left would die
    // of that, and be retried with the damaged payload.
    end_damaged(&damage, &mut inner)?;
    let mut from = JobId(0);
    loop {
        let grace_ms = inner.options.grace_ms;
        inner.run(&Command::Recover { from, grace_ms })?;
        let Some(last) = inner.cut_off_at(job_of) else { return Ok((inner, log, fenced)) };
        from = JobId(last.0 + 1);
    }
}

/// Ends unfinished jobs with a damaged payload as dead now, not only when one is about to be handed
/// to a worker.
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
