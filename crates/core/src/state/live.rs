//! How a job lies in memory while it waits or runs.

use std::num::NonZeroU64;

use bytes::Bytes;

use crate::job::{
    After, Attempt, Deletion, HeldLease, JOB_ID_END, JobId, JobOptions, Key, Label, NO_OPTIONS,
    Origin, Outcome, Scope, Status, UUID_NAMESPACE, ttl_end_ms,
};
use crate::payload::Type;

/// `ttl_ms` of a job that has none. No real TTL is 0, but one may have all 64 bits set.
pub(crate) const NO_TTL: u64 = 0;
/// `ttr_ms` of a job that has none.
pub(crate) const NO_TTR: u32 = u32::MAX;

/// An unfinished job. A waiting one costs its 80 bytes and its places in the indices, about a
/// hundred bytes; what few jobs have is behind a pointer.
///
/// ```text
/// names    number 53 | status 3 | door 3 | payload's type 2 | UUID 1 | foreground 1 | wide 1
/// record   oldest record 44 | last event, low 20        created  when 44 | offset, low 20
/// order    age 48 | offset, high 8 | last event, high 8      home     TTL 40 | queue 24
/// ```
///
/// The offset is the payload's in its record. The last event is counted in records from the oldest
/// one; the highest number says that it is not known, and the tail is used instead. For a wide job,
/// priority, age, time and TTL are behind the pointer, because one of them does not fit.
#[derive(Debug, Clone)]
pub(crate) struct LiveJob {
    names: NonZeroU64,
    /// Its UUID, if it has one.
    uuid: [u8; 16],
    record: u64,
    created: u64,
    order: u64,
    home: u64,
    pub payload_len: u32,
    pub ttr_ms: u32,
    priority: i32,
    pub revision: u32,
    pub extra: Option<Box<Extra>>,
}

/// Numbers of a job that clients choose freely, or that may outgrow their bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Wide {
    pub priority: i64,
    /// Age among equals; 0 before it was ready the first time.
    pub order: u64,
    pub created_ms: u64,
    /// [`NO_TTL`] if it has none.
    pub ttl_ms: u64,
}

/// What is kept of a job only once it was leased, or if it asked for something special.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extra {
    pub attempts: u32,
    pub fails: u32,
    pub started_ms: Option<u64>,
    pub lease: Option<HeldLease>,
    pub history: Vec<Attempt>,
    pub outcome: Option<Box<Outcome>>,
    /// Where the payload is, if that is not `oldest_record`: its last result lies before it.
    pub payload_position: Option<u64>,
    /// A foreground job's payload.
    pub inline: Option<Bytes>,
    pub options: Option<Box<JobOptions>>,
    wide: Option<Box<Wide>>,
}

impl LiveJob {
    pub fn new(id: NonZeroU64, status: Status, origin: Origin, kind: Type) -> LiveJob {
        debug_assert!(id.get() < JOB_ID_END, "ids end there");
        let status = (status as u64) << STATUS_SHIFT;
        let kinds = (origin as u64) << ORIGIN_SHIFT | (kind as u64) << KIND_SHIFT;
        LiveJob {
            names: id | status | kinds,
            uuid: [0; 16],
            record: 0,
            created: 0,
            order: 0,
            home: NO_TTL,
            payload_len: 0,
            ttr_ms: NO_TTR,
            priority: 0,
            revision: 0,
            extra: None,
        }
    }

    /// Its number.
    pub fn id(&self) -> u64 {
        self.names.get() & low(53)
    }

    pub fn job_id(&self) -> JobId {
        JobId(self.id())
    }

    fn names_at(&self, shift: u32, bits: u32) -> i32 {
        ((self.names.get() >> shift) & low(bits)) as i32
    }

    pub fn status(&self) -> Status {
        Status::try_from(self.names_at(STATUS_SHIFT, 3)).unwrap_or(Status::Parked)
    }

    pub fn set_status(&mut self, status: Status) {
        let without = self.names.get() & !(low(3) << STATUS_SHIFT);
        self.set_names(without | (status as u64) << STATUS_SHIFT);
    }

    pub fn origin(&self) -> Origin {
        Origin::try_from(self.names_at(ORIGIN_SHIFT, 3)).unwrap_or(Origin::Api)
    }

    pub fn payload_kind(&self) -> Type {
        Type::try_from(self.names_at(KIND_SHIFT, 2)).unwrap_or(Type::Bytes)
    }

    fn has(&self, flag: u64) -> bool {
        self.names.get() & flag != 0
    }

    fn set(&mut self, flag: u64, on: bool) {
        let names = self.names.get();
        self.set_names(if on { names | flag } else { names & !flag });
    }

    /// The number is among the names, so they are never zero.
    fn set_names(&mut self, names: u64) {
        self.names = NonZeroU64::new(names).unwrap_or(self.names);
    }

    pub fn has_uuid(&self) -> bool {
        self.has(LIVE_UUID)
    }

    pub fn uuid(&self) -> Option<[u8; 16]> {
        self.has_uuid().then_some(self.uuid)
    }

    pub fn set_uuid(&mut self, uuid: [u8; 16]) {
        self.uuid = uuid;
        self.set(LIVE_UUID, true);
    }

    pub fn is_foreground(&self) -> bool {
        self.has(FOREGROUND)
    }

    pub fn is_logged(&self) -> bool {
        !self.is_foreground()
    }

    pub fn set_foreground(&mut self, foreground: bool) {
        self.set(FOREGROUND, foreground);
    }

    pub fn queue(&self) -> u32 {
        (self.home >> TTL_BITS) as u32
    }

    pub fn set_queue(&mut self, queue: u32) {
        self.home = self.home & low(TTL_BITS) | u64::from(queue) << TTL_BITS;
    }

    // ---- places in the log ----

    /// The oldest record the job needs: its payload's, or without one its image's.
    pub fn oldest_record(&self) -> u64 {
        self.record & low(POSITION_BITS)
    }

    /// Where in its record the payload begins.
    pub fn payload_offset(&self) -> u32 {
        let high = (self.order >> ORDER_BITS) & 0xff;
        ((self.created >> CREATED_BITS) | high << LOW_BITS) as u32
    }

    /// The position of the last event, if that is known.
    pub fn last(&self) -> Option<u64> {
        let away = (self.record >> POSITION_BITS) | (self.order >> LAST_HIGH_SHIFT) << LOW_BITS;
        (away != LAST_UNKNOWN).then(|| self.oldest_record() + away)
    }

    /// Sets where the job's bytes are, and the last event as the oldest record.
    pub fn set_place(&mut self, oldest_record: u64, payload_offset: u32) {
        let offset = u64::from(payload_offset) & low(OFFSET_BITS);
        self.record = oldest_record & low(POSITION_BITS);
        self.created = self.created & low(CREATED_BITS) | (offset & low(LOW_BITS)) << CREATED_BITS;
        self.order = self.order & low(ORDER_BITS) | (offset >> LOW_BITS) << ORDER_BITS;
    }

    pub fn set_last(&mut self, position: u64) {
        let away = position.saturating_sub(self.oldest_record()).min(LAST_UNKNOWN);
        self.record = self.oldest_record() | (away & low(LOW_BITS)) << POSITION_BITS;
        self.order = self.order & low(LAST_HIGH_SHIFT) | (away >> LOW_BITS) << LAST_HIGH_SHIFT;
    }

    // ---- numbers that may be wide ----

    #[inline]
    fn numbers(&self) -> Wide {
        if self.has(WIDE)
            && let Some(wide) = self.extra.as_ref().and_then(|extra| extra.wide.as_deref())
        {
            return *wide;
        }
        Wide {
            priority: i64::from(self.priority),
            order: self.order & low(ORDER_BITS),
            created_ms: self.created & low(CREATED_BITS),
            ttl_ms: self.home & low(TTL_BITS),
        }
    }

    pub fn priority(&self) -> i64 {
        self.numbers().priority
    }

    /// Age among equals; 0 before it was ready the first time.
    pub fn order(&self) -> u64 {
        self.numbers().order
    }

    pub fn created_ms(&self) -> u64 {
        self.numbers().created_ms
    }

    /// [`NO_TTL`] if it has none.
    pub fn ttl_ms(&self) -> u64 {
        self.numbers().ttl_ms
    }

    pub fn set_rank(&mut self, priority: i64, order: u64) {
        self.set_numbers(Wide { priority, order, ..self.numbers() });
    }

    pub fn set_numbers(&mut self, numbers: Wide) {
        let Wide { priority, order, created_ms, ttl_ms } = numbers;
        let fits =
            order <= low(ORDER_BITS) && created_ms <= low(CREATED_BITS) && ttl_ms <= low(TTL_BITS);
        if let Ok(priority) = i32::try_from(priority)
            && fits
        {
            self.priority = priority;
            self.order = self.order & !low(ORDER_BITS) | order;
            self.created = self.created & !low(CREATED_BITS) | created_ms;
            self.home = self.home & !low(TTL_BITS) | ttl_ms;
            if self.has(WIDE) {
                self.extra().wide = None;
                self.set(WIDE, false);
            }
        } else {
            self.extra().wide = Some(Box::new(numbers));
            self.set(WIDE, true);
        }
    }

    // ---- what few jobs have ----

    pub fn attempts(&self) -> u32 {
        self.extra.as_ref().map_or(0, |extra| extra.attempts)
    }

    pub fn set_attempts(&mut self, attempts: u32) {
        if self.attempts() != attempts {
            self.extra().attempts = attempts;
        }
    }

    pub fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    pub fn options(&self) -> &JobOptions {
        let options = self.extra.as_ref().and_then(|extra| extra.options.as_deref());
        options.unwrap_or(&NO_OPTIONS)
    }

    pub fn options_mut(&mut self) -> &mut JobOptions {
        self.extra().options.get_or_insert_default()
    }

    pub fn lease(&self) -> Option<&HeldLease> {
        self.extra.as_ref().and_then(|extra| extra.lease.as_ref())
    }

    /// The lease of a job that is leased.
    pub fn live_lease(&self) -> Option<&HeldLease> {
        self.lease().filter(|_| self.status() == Status::Leased)
    }

    pub fn fails(&self) -> u32 {
        self.extra.as_ref().map_or(0, |extra| extra.fails)
    }

    pub fn labels(&self) -> &[Label] {
        &self.options().labels
    }

    pub fn run_at_ms(&self) -> Option<u64> {
        self.options().run_at_ms
    }

    pub fn set_run_at(&mut self, run_at_ms: Option<u64>) {
        if self.run_at_ms() != run_at_ms {
            self.options_mut().run_at_ms = run_at_ms;
        }
    }

    pub fn is_large(&self) -> bool {
        self.payload_len > super::LARGE_PAYLOAD_BYTES
    }

    /// When its TTL ends.
    pub fn expires_ms(&self) -> Option<u64> {
        let Wide { created_ms, ttl_ms, .. } = self.numbers();
        let start = self.options().scheduled_ms.unwrap_or(created_ms);
        ttl_end_ms(start, Some(ttl_ms).filter(|ttl| *ttl != NO_TTL))
    }

    /// Its deletion, if it is deleted.
    pub fn deletion(&self) -> Option<&Deletion> {
        self.options().deletion.as_deref()
    }

    /// The jobs it waits for, or waited for.
    pub fn after(&self) -> Option<&After> {
        self.options().after.as_deref()
    }

    /// The jobs it still waits for.
    pub fn open(&self) -> &[u64] {
        self.options().open()
    }

    /// Where it stands when no worker has it.
    pub fn waiting(&self, parked: bool, is_ahead: bool) -> Status {
        Status::waiting(parked, !self.open().is_empty(), is_ahead)
    }

    /// When it goes by itself: its TTL ends, or the time to undo its deletion.
    pub fn goes_ms(&self) -> Option<u64> {
        let deleted_ms = self.deletion().map(|deletion| deletion.gone_ms);
        self.expires_ms().into_iter().chain(deleted_ms).min()
    }

    pub fn outcome(&self) -> Option<&Outcome> {
        self.extra.as_ref().and_then(|extra| extra.outcome.as_deref())
    }

    /// When it becomes ready by itself, or its lease runs out.
    pub fn due_ms(&self) -> Option<u64> {
        match self.status() {
            Status::Scheduled => Some(self.run_at_ms().unwrap_or(0)),
            Status::Leased => self.lease().and_then(|lease| lease.deadline_ms),
            Status::Ready | Status::Parked | Status::Done | Status::Dead | Status::Blocked => None,
        }
    }

    /// Orders by what is due first, and by number what is due at the same time.
    pub fn due_key(&self) -> u128 {
        (u128::from(self.due_ms().unwrap_or(u64::MAX)) << 64) | u128::from(self.id())
    }

    /// Keys besides the UUID.
    pub fn other_keys(&self) -> &[Key] {
        &self.options().keys
    }

    /// Whether no index of names has it but those of ids and of UUIDs, and it waits for no job.
    pub fn is_found_by_id_and_uuid_only(&self) -> bool {
        self.other_keys().is_empty() && self.deletion().is_none() && self.open().is_empty()
    }

    /// Whose share of a fair queue it takes; empty if it has no key.
    pub fn fair_key(&self) -> &Bytes {
        static NONE: Bytes = Bytes::new();
        self.options().fair_key.as_ref().unwrap_or(&NONE)
    }

    /// Smaller comes first. Without aging (0): higher priority, then age. With it, waiting for this
    /// long counts as much as one step of priority; which of two jobs comes first never changes
    /// while both wait.
    pub fn ready_key(&self, aging_ms: u64) -> u128 {
        let Wide { priority, order, created_ms, .. } = self.numbers();
        let urgency = if aging_ms == 0 {
            !((priority as u64) ^ SIGN)
        } else {
            let options = self.options();
            let since_ms = options.waits_since_ms.or(options.scheduled_ms).unwrap_or(0);
            let since_ms = i128::from(since_ms.max(created_ms));
            let start = since_ms - i128::from(priority) * i128::from(aging_ms);
            let start = start.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64;
            (start as u64) ^ SIGN
        };
        (u128::from(urgency) << 64) | u128::from(order)
    }

    pub fn expiry_key(&self) -> u128 {
        (u128::from(self.goes_ms().unwrap_or(u64::MAX)) << 64) | u128::from(self.id())
    }
}

/// Makes signed numbers compare as unsigned ones.
const SIGN: u64 = 1 << 63;
const STATUS_SHIFT: u32 = 53;
const ORIGIN_SHIFT: u32 = 56;
const KIND_SHIFT: u32 = 59;
const LIVE_UUID: u64 = 1 << 61;
const FOREGROUND: u64 = 1 << 62;
const WIDE: u64 = 1 << 63;
const CREATED_BITS: u32 = 44;
const ORDER_BITS: u32 = 48;
const TTL_BITS: u32 = 40;
/// Bits of the offset and of the last event that stand beside a position or a time.
const LOW_BITS: u32 = 20;
const LAST_HIGH_SHIFT: u32 = 56;
const LAST_UNKNOWN: u64 = (1 << 28) - 1;

const POSITION_BITS: u32 = 44;
const OFFSET_BITS: u32 = 28;

const fn low(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// A key that is a UUID is kept inside the job itself.
pub(crate) fn as_uuid(key: &Key) -> Option<[u8; 16]> {
    if key.namespace == UUID_NAMESPACE as i32 && key.scope == Scope::WhileKept as i32 {
        <[u8; 16]>::try_from(&key.name[..]).ok()
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_stay_small() {
        assert_eq!(size_of::<Option<LiveJob>>(), 80);
    }

    fn live() -> LiveJob {
        let id = NonZeroU64::new(JOB_ID_END - 1).expect("not zero");
        LiveJob::new(id, Status::Leased, Origin::Jobq, Type::Msgpack)
    }

    fn numbers_of(job: &LiveJob) -> Wide {
        Wide {
            priority: job.priority(),
            order: job.order(),
            created_ms: job.created_ms(),
            ttl_ms: job.ttl_ms(),
        }
    }

    #[test]
    fn a_live_job_returns_what_it_was_given() {
        let narrow = Wide {
            priority: i64::from(i32::MIN),
            order: (1 << 48) - 1,
            created_ms: (1 << 44) - 1,
            ttl_ms: (1 << 40) - 1,
        };
        let all_kinds = [
            narrow,
            Wide { priority: 0, order: 0, created_ms: 0, ttl_ms: 0 },
            Wide { priority: i64::from(i32::MIN) - 1, ..narrow },
            Wide { order: 1 << 48, ..narrow },
            Wide { created_ms: u64::MAX, ..narrow },
            Wide { ttl_ms: u64::MAX, ..narrow },
        ];
        let mut job = live();
        let place = ((1 << 44) - 1, (1 << 28) - 1);
        job.set_queue((1 << 24) - 1);
        job.set_place(place.0 - 5, place.1);
        job.set_last(place.0);
        for numbers in all_kinds {
            job.set_numbers(numbers);
            assert_eq!(numbers_of(&job), numbers);
            job.set_rank(7, numbers.order);
            assert_eq!(numbers_of(&job), Wide { priority: 7, ..numbers });
            assert_eq!((job.oldest_record(), job.payload_offset()), (place.0 - 5, place.1));
            assert_eq!((job.last(), job.queue()), (Some(place.0), (1 << 24) - 1));
        }
        job.set_uuid([0; 16]);
        job.set_foreground(true);
        job.set_status(Status::Parked);
        assert_eq!((job.id(), job.status()), (JOB_ID_END - 1, Status::Parked));
        assert_eq!((job.origin(), job.payload_kind()), (Origin::Jobq, Type::Msgpack));
        assert_eq!((job.uuid(), job.is_foreground()), (Some([0; 16]), true));
    }

    #[test]
    fn a_last_event_far_behind_its_job_is_not_known() {
        let mut job = live();
        job.set_place(3, 77);
        for (last, known) in [(3, true), (1 << 28, true), (2 + (1 << 28), false), (9, true)] {
            job.set_last(last);
            assert_eq!(job.last(), known.then_some(last));
            assert_eq!((job.oldest_record(), job.payload_offset()), (3, 77));
        }
        job.set_place(4, 1 << 27);
        assert_eq!((job.last(), job.payload_offset()), (Some(4), 1 << 27));
    }
}
