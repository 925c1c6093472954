//! Several records on their way to a log that works by itself, such as one behind a network.
//!
//! A record departs as soon as something is decided and a place is free ([`Engine::submit_once`]),
//! and arrives when its answer is taken, the oldest first ([`Engine::take_ack_once`]). The two are
//! steps of two threads; the simulator and tests take them by hand. What is decided while all places
//! are taken stays in the batch, which grows meanwhile.
//!
//! ```text
//!   records    │ n │ n+1 │ n+2 │ n+3 │      all of them, oldest first; at most `places`
//!              ├───┘     │     │     │
//!              unknown   ┘     │     │      answered as Unknown: those behind will be, too
//!              submitted ──────┘     │      with the log, their answers to come
//!              the rest  ────────────┘      to be submitted (again)
//! ```
//!
//! Over some logs it is better to have one record on its way at a time ([`width`](super::width)). Then the thread that
//! has decided something commits it ([`Engine::commit_alone`]), as on a log that is not shared: no other thread has to
//! be woken for it.
//!
//! When all that was submitted behind an Unknown is answered, nothing counts as submitted any more,
//! and after a pause the identical records are submitted again, in order. Nothing new departs before.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use spindle_log::{Ack, Position, SubmitError};

use super::TimerBell;
use super::batch::Sealed;
use super::group::{Committed, Verdict};
use super::width::{Way, Width};
use crate::admission::Begun;
use crate::answer::Failure;
use crate::engine::Engine;
use crate::lead::{Began, Lead};
use crate::options::{Faults, Options};

/// After a lost answer the records are submitted again after this pause, after twice that when the
/// next one is lost, and so on.
const PAUSE_MIN: Duration = Duration::from_millis(1);
/// The longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// What [`Engine::submit_once`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Submitted {
    /// There is nothing to submit, or no place for it, or answers are to be taken first.
    Nothing,
    /// A record is on its way.
    Some,
    /// The log has no room for the record that comes next: it waits.
    Full,
    /// The log has failed; the process must stop.
    Failed,
}

/// The places of a log for records on their way, and the records that have them.
pub(crate) struct Flight {
    places: usize,
    departed: Mutex<Departed>,
    width: Mutex<Width>,
    /// Held by the thread that takes an answer.
    taking: Mutex<()>,
    /// Wakes the thread that submits.
    pub submits: TimerBell,
    /// Wakes the thread that takes answers.
    pub acks: TimerBell,
    faults: Faults,
}

/// All records that have a place, see [the module](self).
#[derive(Default)]
struct Departed {
    records: VecDeque<OnItsWay>,
    submitted: usize,
    unknown: usize,
    /// How often in a row all records were taken back.
    tries: u32,
    /// Nothing is submitted again before that.
    rests_until: Option<Instant>,
    /// The log had no room for the record that comes next.
    is_refused: bool,
}

/// What comes after a record that has arrived.
struct After {
    /// The log had no room for the next one.
    is_refused: bool,
    /// Others have a place.
    more: bool,
}

struct OnItsWay {
    record: Sealed,
    begun: Begun,
    /// When its append began, on a log that others share: the time of the first try. A later try may find the record in
    /// the log with another leader's records already behind it, and so proves nothing about its own time.
    append: Option<Began>,
    /// When it was submitted, the last time.
    since: Instant,
    /// Others were on their way then.
    had_company: bool,
}

impl Flight {
    /// None for a log that takes one commit at a time.
    pub fn of(places: usize, options: &Options) -> Option<Flight> {
        let width = Width::new(options.always_together, Instant::now());
        (places > 1).then(|| Flight {
            places,
            departed: Mutex::default(),
            width: Mutex::new(width),
            taking: Mutex::default(),
            submits: TimerBell::default(),
            acks: TimerBell::default(),
            faults: options.faults,
        })
    }

    /// How long the thread that submits is to wait before it tries again.
    pub fn rest(&self) -> Option<Duration> {
        let until = self.departed.lock().rests_until?;
        Some(until.saturating_duration_since(Instant::now())).filter(|rest| !rest.is_zero())
    }

    /// Whether the log's last answer about the records on their way was Unknown.
    pub fn is_unanswered(&self) -> bool {
        self.departed.lock().tries > 0
    }

    /// Whether one record at a time is on its way.
    pub fn goes_alone(&self) -> bool {
        self.width.lock().way() == Way::Alone
    }

    /// Whether nothing is on its way.
    pub fn is_empty(&self) -> bool {
        self.departed.lock().records.is_empty()
    }
}

impl Departed {
    /// Whether something was submitted whose answer was not taken.
    fn awaits_answer(&self) -> bool {
        self.submitted > self.unknown
    }

    /// Whether a log that goes on there has taken back what is on its way: its answer is Unknown, and the thread that
    /// takes it has not noted it yet.
    fn is_taken_back_to(&self, next: Position) -> bool {
        self.awaits_answer() && self.records.front().is_some_and(|it| it.record.position == next.0)
    }

    fn arrive(&mut self) -> Option<OnItsWay> {
        let arrived = self.records.pop_front();
        self.submitted -= 1;
        self.tries = 0;
        arrived
    }

    /// One more answer is Unknown. Behind the last one all is to be submitted again.
    fn note_unknown(&mut self) {
        self.unknown += 1;
        if !self.awaits_answer() {
            (self.submitted, self.unknown) = (0, 0);
            self.rests_until = Some(Instant::now() + pause_after(self.tries));
            self.tries = self.tries.saturating_add(1);
        }
    }
}

/// How long to wait after so many tries that came to nothing.
pub(super) fn pause_after(tries: u32) -> Duration {
    PAUSE_MIN.saturating_mul(1 << tries.min(20)).min(PAUSE_MAX)
}

impl Engine {
    /// Submits the next record, if something is decided and there is a place for it; or one that
    /// has to be submitted again. Only for logs that take several records at a time
    /// ([`Log::in_flight_max`](spindle_log::Log::in_flight_max)); of others it submits nothing.
    pub fn submit_once(&self) -> Submitted {
        let Some(flight) = &self.shared.flight else { return Submitted::Nothing };
        let submitted = self.submit_next(flight);
        if submitted == Submitted::Some {
            flight.acks.ring();
        }
        submitted
    }

    fn submit_next(&self, flight: &Flight) -> Submitted {
        // Records go to the log in their order, and the thread that takes an answer must know which
        // records the log has: so the lock is held until that is noted.
        let mut departed = flight.departed.lock();
        if self.failure().is_some() {
            return Submitted::Failed;
        }
        let is_draining = departed.unknown > 0;
        if is_draining || !self.has_next(flight, &mut departed) {
            return Submitted::Nothing;
        }
        let next = departed.submitted;
        (departed.records[next].since, departed.records[next].had_company) =
            (Instant::now(), next > 0);
        if flight.faults.later_try_proves {
            departed.records[next].append = self.shared.lead.as_ref().map(Lead::begins);
        }
        match self.submit_record(&departed.records[next].record) {
            Ok(()) => {
                departed.submitted += 1;
                departed.is_refused = false;
                departed.rests_until = None;
                Submitted::Some
            }
            Err(SubmitError::Full) => {
                departed.is_refused = true;
                drop(departed);
                self.shared.admission.note_refused(&*self.shared.log);
                self.answer_room(&mut self.shared.inner.lock());
                Submitted::Full
            }
            Err(SubmitError::Conflict { next, .. }) if departed.is_taken_back_to(next) => {
                Submitted::Nothing
            }
            Err(error) => {
                drop(departed);
                self.fail(error.into());
                Submitted::Failed
            }
        }
    }

    /// Makes sure that a record that is not submitted yet has a place. Returns whether there is
    /// one.
    fn has_next(&self, flight: &Flight, departed: &mut Departed) -> bool {
        if departed.submitted < departed.records.len() {
            return true;
        }
        if departed.records.len() >= flight.places {
            return false;
        }
        let Some(record) = self.shared.inner.lock().batch.take_next() else { return false };
        let begun = self.shared.admission.begin_commit(self.now_ms());
        let append = self.shared.lead.as_ref().map(Lead::begins);
        let (since, had_company) = (Instant::now(), false);
        departed.records.push_back(OnItsWay { record, begun, append, since, had_company });
        true
    }

    /// Takes the answer of the oldest record on its way, and lets go what waited for it. Waits for
    /// that answer; does nothing when no record is on its way.
    pub fn take_ack_once(&self) -> Committed {
        let Some(flight) = &self.shared.flight else { return Committed::Nothing };
        let _taking = flight.taking.lock();
        if self.failure().is_some() {
            return Committed::Failed;
        }
        if !flight.departed.lock().awaits_answer() {
            return Committed::Nothing;
        }
        let ack = self.shared.log.next_ack();
        if self.failure().is_some() {
            // Another thread found out meanwhile that the log is lost.
            return Committed::Failed;
        }
        let mut departed = flight.departed.lock();
        let is_behind_unknown = departed.unknown > 0;
        let verdict = match &ack {
            Ack::Fatal(error) => Verdict::Failed(Failure::Log(error.clone())),
            _ if is_behind_unknown => Verdict::Unknown,
            Ack::Committed(position) if flight.faults.acknowledged_out_of_order => {
                departed.bring_forward(*position);
                Verdict::Durable
            }
            _ => Verdict::of(ack, &departed.records[0].record),
        };
        match verdict {
            Verdict::Unknown if !flight.faults.unknown_is_committed => {
                departed.note_unknown();
                drop(departed);
                flight.submits.ring();
                Committed::Unknown
            }
            Verdict::Durable | Verdict::Unknown => {
                let Some(arrived) = departed.arrive() else { return Committed::Nothing };
                let after =
                    After { is_refused: departed.is_refused, more: !departed.records.is_empty() };
                let mut durable = arrived.record.position + 1;
                if flight.faults.gate_opened_by_earlier_batch {
                    durable += departed.submitted as u64;
                }
                drop(departed);
                self.note_arrival(flight, &arrived, durable, after);
                Committed::Some
            }
            Verdict::Failed(failure) => {
                drop(departed);
                self.fail(failure);
                Committed::Failed
            }
        }
    }

    fn note_arrival(&self, flight: &Flight, arrived: &OnItsWay, durable: u64, after: After) {
        let now = Instant::now();
        let took = now - arrived.since;
        let went_alone = flight.goes_alone();
        flight.width.lock().note(took, arrived.had_company, now);
        // How long another record would wait for a place, if all are taken.
        let places = if went_alone { 1 } else { flight.places };
        self.shared.sync_time.note(took / u32::try_from(places).unwrap_or(u32::MAX));
        self.shared.meters.note_commit(took, arrived.record.bytes.len());
        if let (Some(lead), Some(append)) = (&self.shared.lead, arrived.append) {
            lead.committed(append);
        }
        self.publish_durable(durable);
        self.after_commit(
            std::slice::from_ref(&arrived.record),
            &[],
            arrived.begun,
            after.is_refused,
        );
        // When records go alone, the thread that has decided something commits it, or has rung.
        if !went_alone || after.is_refused || after.more {
            flight.submits.ring();
        }
    }

    /// Commits all that is decided as one record, when what is on its way has arrived. For records that go
    /// [alone](Flight::goes_alone): any thread may call it, and waits. Records that it does not commit, because answers
    /// were lost or there is no room, are left to the thread that submits.
    pub(crate) fn commit_alone(&self, flight: &Flight) -> Submitted {
        let _committing = self.shared.committing.lock();
        // Until just now they may have gone together.
        while self.take_ack_once() == Committed::Some {}
        if flight.rest().is_some() {
            return Submitted::Nothing;
        }
        loop {
            let is_again = flight.is_unanswered();
            let submitted = self.submit_next(flight);
            // If the answer is that of a record which the other thread has just submitted, then that thread has also
            // rung for the taker of the remaining answers.
            let has_arrived =
                submitted == Submitted::Some && self.take_ack_once() == Committed::Some;
            // Behind the records submitted again are those decided since.
            if !(is_again && has_arrived) {
                return submitted;
            }
        }
    }

    /// As [`Engine::commit_once`]: submits all that is decided, as places get free, and takes all
    /// answers. When they are lost it ends, and the next call submits the same again.
    pub(super) fn commit_in_flight(&self) -> Committed {
        let mut outcome = Committed::Nothing;
        loop {
            let submitted = loop {
                match self.submit_once() {
                    Submitted::Some => {}
                    other => break other,
                }
            };
            match self.take_ack_once() {
                Committed::Nothing if submitted == Submitted::Full => return Committed::Full,
                Committed::Nothing => return outcome,
                Committed::Unknown => break,
                Committed::Failed => return Committed::Failed,
                other => outcome = other,
            }
        }
        while self.take_ack_once() == Committed::Unknown {}
        if self.failure().is_some() { Committed::Failed } else { Committed::Unknown }
    }
}

impl Departed {
    /// A planted fault: the record that was acknowledged is taken for the oldest.
    fn bring_forward(&mut self, acknowledged: Position) {
        let at = self.records.iter().position(|it| it.record.position == acknowledged.0);
        if let Some(record) = at.and_then(|at| self.records.remove(at)) {
            self.records.push_front(record);
        }
    }
}

impl From<SubmitError> for Failure {
    fn from(error: SubmitError) -> Failure {
        match error {
            SubmitError::Poisoned(error) => Failure::Log(error),
            SubmitError::Conflict { .. } => Failure::Conflict,
            other => Failure::Refused(other.to_string()),
        }
    }
}
