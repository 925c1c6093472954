//! How a job lies in memory: a [`LiveJob`] while it waits or runs, a [`FinishedJob`] from then on.

use std::num::NonZeroU64;

use bytes::Bytes;

use crate::job::{
    Attempt, HeldLease, JobId, JobOptions, Key, Label, NO_OPTIONS, Origin, Outcome, Scope, Status,
    UUID_NAMESPACE, ttl_end_ms,
};
use crate::payload::Type;

/// `ttl_ms` of a job that has none: no TTL is 0, while all 64 bits may be one.
pub(crate) const NO_TTL: u64 = 0;
/// `ttr_ms` of a job that has none.
pub(crate) const NO_TTR: u32 = u32::MAX;

/// An unfinished job. A waiting one costs this much and its places in the indices, about 130 bytes;
/// what few jobs have is behind a pointer.
#[derive(Debug, Clone)]
pub(crate) struct LiveJob {
    pub id: NonZeroU64,
    /// Its UUID, if `has_uuid`.
    pub uuid: [u8; 16],
    /// The oldest record the job needs: its payload's, or without one its image's.
    pub oldest_record: u64,
    /// The position of its last event is `oldest_record` + this. The highest value says that it is
    /// not known: then the tail is taken.
    pub last_delta: u32,
    pub payload_offset: u32,
    pub payload_len: u32,
    pub ttr_ms: u32,
    pub priority: i64,
    pub order: u64,
    pub created_ms: u64,
    pub ttl_ms: u64,
    pub queue: u32,
    pub revision: u32,
    pub attempts: u32,
    status: u8,
    origin: u8,
    payload_kind: u8,
    /// Bit 0: has a UUID; bit 1: foreground.
    flags: u8,
    pub extra: Option<Box<Extra>>,
}

/// What a job has that was leased at least once, or asked for something special.
#[derive(Debug, Clone, Default)]
pub(crate) struct Extra {
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
}

impl LiveJob {
    pub fn new(id: NonZeroU64, status: Status, origin: Origin, kind: Type) -> LiveJob {
        LiveJob {
            id,
            uuid: [0; 16],
            oldest_record: 0,
            last_delta: 0,
            payload_offset: 0,
            payload_len: 0,
            ttr_ms: NO_TTR,
            priority: 0,
            order: 0,
            created_ms: 0,
            ttl_ms: NO_TTL,
            queue: 0,
            revision: 0,
            attempts: 0,
            status: status as u8,
            origin: origin as u8,
            payload_kind: kind as u8,
            flags: 0,
            extra: None,
        }
    }

    pub fn job_id(&self) -> JobId {
        JobId(self.id.get())
    }

    pub fn status(&self) -> Status {
        Status::try_from(i32::from(self.status)).unwrap_or(Status::Parked)
    }

    pub fn set_status(&mut self, status: Status) {
        self.status = status as u8;
    }

    pub fn origin(&self) -> Origin {
        Origin::try_from(i32::from(self.origin)).unwrap_or(Origin::Api)
    }

    pub fn payload_kind(&self) -> Type {
        Type::try_from(i32::from(self.payload_kind)).unwrap_or(Type::Bytes)
    }

    pub fn has_uuid(&self) -> bool {
        self.flags & 1 != 0
    }

    pub fn set_uuid(&mut self, uuid: [u8; 16]) {
        self.uuid = uuid;
        self.flags |= 1;
    }

    pub fn is_foreground(&self) -> bool {
        self.flags & 2 != 0
    }

    pub fn is_logged(&self) -> bool {
        !self.is_foreground()
    }

    pub fn set_foreground(&mut self, foreground: bool) {
        self.flags = if foreground { self.flags | 2 } else { self.flags & !2 };
    }

    pub fn last(&self) -> Option<u64> {
        (self.last_delta != u32::MAX)
            .then(|| self.oldest_record.saturating_add(u64::from(self.last_delta)))
    }

    pub fn set_last(&mut self, position: u64) {
        let delta = position.saturating_sub(self.oldest_record);
        self.last_delta = u32::try_from(delta).unwrap_or(u32::MAX);
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
        let start = self.options().scheduled_ms.unwrap_or(self.created_ms);
        ttl_end_ms(start, (self.ttl_ms != NO_TTL).then_some(self.ttl_ms))
    }

    pub fn outcome(&self) -> Option<&Outcome> {
        self.extra.as_ref().and_then(|extra| extra.outcome.as_deref())
    }

    /// When it becomes ready by itself, or its lease runs out.
    pub fn due_ms(&self) -> Option<u64> {
        match self.status() {
            Status::Scheduled => Some(self.run_at_ms().unwrap_or(0)),
            Status::Leased => self.lease().and_then(|lease| lease.deadline_ms),
            Status::Ready | Status::Parked | Status::Done | Status::Dead => None,
        }
    }

    /// Orders by what is due first, and by number what is due at the same time.
    pub fn due_key(&self) -> u128 {
        (u128::from(self.due_ms().unwrap_or(u64::MAX)) << 64) | u128::from(self.id.get())
    }

    /// Keys besides the UUID.
    pub fn other_keys(&self) -> &[Key] {
        &self.options().keys
    }

    /// Smaller comes first: higher priority, then age.
    pub fn ready_key(&self) -> u128 {
        let urgency = !((self.priority as u64) ^ (1 << 63));
        (u128::from(urgency) << 64) | u128::from(self.order)
    }

    pub fn expiry_key(&self) -> u128 {
        (u128::from(self.expires_ms().unwrap_or(u64::MAX)) << 64) | u128::from(self.id.get())
    }
}

/// A finished job: its name, where its image is, when it ended and when it goes. 48 bytes.
///
/// ```text
/// names    number 53 | ended how 2 | size 8        image    position 44 | oldest record, low half 20
/// record   offset 28 | oldest record, high half 4 | ended at 32        goes    after 40 | queue 24
/// ```
#[derive(Debug, Clone)]
pub(crate) struct FinishedJob {
    uuid: [u8; 16],
    names: NonZeroU64,
    image: u64,
    record: u64,
    goes: u64,
}

/// What a [`FinishedJob`] is made of.
pub(crate) struct FinishedParts {
    pub id: NonZeroU64,
    pub status: Status,
    pub uuid: Option<[u8; 16]>,
    pub queue: u32,
    pub image: super::Place,
    /// The oldest record it needs.
    pub oldest_record: u64,
    pub finished_ms: u64,
    pub kept_until_ms: Option<u64>,
    /// What it takes on disk.
    pub bytes: u64,
}

const DEAD: u64 = 1 << 53;
const HAS_UUID: u64 = 1 << 54;
const SIZE_SHIFT: u32 = 55;
const POSITION_BITS: u32 = 44;
const OFFSET_BITS: u32 = 28;
const AWAY_LOW_BITS: u32 = 20;
/// The distance to its oldest record does not fit: the very first record is taken.
const FAR: u64 = (1 << 24) - 1;
const KEPT_BITS: u32 = 40;
/// Kept until it is deleted. Also what is to be kept longer than 34 years.
const FOREVER: u64 = low(KEPT_BITS);

const fn low(bits: u32) -> u64 {
    (1 << bits) - 1
}

impl FinishedJob {
    pub fn new(parts: FinishedParts) -> FinishedJob {
        let FinishedParts { id, status, uuid, queue, image, oldest_record, .. } = parts;
        let kind = if status == Status::Dead { DEAD } else { 0 }
            | if uuid.is_some() { HAS_UUID } else { 0 };
        let away = image.position.saturating_sub(oldest_record).min(FAR);
        let ended_s = (parts.finished_ms / 1000).min(u64::from(u32::MAX));
        let offset = u64::from(image.offset) & low(OFFSET_BITS);
        let position = image.position & low(POSITION_BITS);
        let mut finished = FinishedJob {
            uuid: uuid.unwrap_or_default(),
            names: id | kind | (u64::from(size_class(parts.bytes)) << SIZE_SHIFT),
            image: position | (away & low(AWAY_LOW_BITS)) << POSITION_BITS,
            record: offset | (away >> AWAY_LOW_BITS) << OFFSET_BITS | ended_s << 32,
            goes: u64::from(queue) << KEPT_BITS,
        };
        finished.set_kept_until(parts.kept_until_ms);
        finished
    }

    pub fn job_id(&self) -> JobId {
        JobId(self.names.get() & low(53))
    }

    pub fn status(&self) -> Status {
        if self.names.get() & DEAD == 0 { Status::Done } else { Status::Dead }
    }

    pub fn queue(&self) -> u32 {
        (self.goes >> KEPT_BITS) as u32
    }

    pub fn uuid(&self) -> Option<&[u8; 16]> {
        (self.names.get() & HAS_UUID != 0).then_some(&self.uuid)
    }

    pub fn image(&self) -> super::Place {
        let offset = (self.record & low(OFFSET_BITS)) as u32;
        super::Place { position: self.image & low(POSITION_BITS), offset }
    }

    /// The oldest record it needs.
    pub fn oldest_record(&self) -> u64 {
        let high = (self.record >> OFFSET_BITS) & 0xf;
        let away = (self.image >> POSITION_BITS) | high << AWAY_LOW_BITS;
        if away == FAR { 0 } else { (self.image & low(POSITION_BITS)).saturating_sub(away) }
    }

    /// A little more than it takes on disk.
    pub fn bytes(&self) -> u64 {
        size_of_class((self.names.get() >> SIZE_SHIFT) as u8)
    }

    fn ended_s(&self) -> u64 {
        self.record >> 32
    }

    pub fn kept_until_ms(&self) -> Option<u64> {
        let after = self.goes & FOREVER;
        (after != FOREVER).then(|| self.ended_s() * 1000 + after)
    }

    pub fn set_kept_until(&mut self, until_ms: Option<u64>) {
        let after = until_ms.map_or(FOREVER, |until| until.saturating_sub(self.ended_s() * 1000));
        self.goes = self.goes & !FOREVER | after.min(FOREVER);
    }

    /// Orders by what goes first.
    pub fn expiry_key(&self) -> u128 {
        let until = self.kept_until_ms().unwrap_or(u64::MAX);
        (u128::from(until) << 64) | u128::from(self.job_id().0)
    }

    /// Orders by what ended first, to the second, then by number.
    pub fn age_key(&self) -> u128 {
        (u128::from(self.ended_s()) << 64) | u128::from(self.job_id().0)
    }
}

/// Sizes are kept in eight bits: a power of two and three bits behind it, rounded up. So the sum is
/// never too small, and at most an eighth too large.
fn size_class(bytes: u64) -> u8 {
    let bytes = bytes.max(8);
    let power = bytes.ilog2() - 3;
    let eighths = bytes.div_ceil(1 << power) - 8;
    u8::try_from(u64::from(power) * 8 + eighths).unwrap_or(u8::MAX)
}

fn size_of_class(class: u8) -> u64 {
    (8 + u64::from(class % 8)) << (class / 8)
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
    fn slots_and_stubs_stay_small() {
        assert_eq!(size_of::<Option<LiveJob>>(), 104);
        assert_eq!(size_of::<Option<FinishedJob>>(), 48);
    }

    fn parts() -> FinishedParts {
        FinishedParts {
            id: NonZeroU64::new((1 << 53) - 1).expect("not zero"),
            status: Status::Dead,
            uuid: Some([7; 16]),
            queue: (1 << 24) - 1,
            image: crate::state::Place { position: (1 << 44) - 1, offset: (1 << 28) - 1 },
            oldest_record: (1 << 44) - (1 << 24) + 1,
            finished_ms: 1_700_000_000_999,
            kept_until_ms: Some(1_700_000_000_999 + (1 << 39)),
            bytes: 1 << 26,
        }
    }

    #[test]
    fn a_stub_returns_what_it_was_given() {
        let finished = FinishedJob::new(parts());
        assert_eq!((finished.status(), finished.queue()), (Status::Dead, parts().queue));
        assert_eq!(finished.job_id(), JobId(parts().id.get()));
        assert_eq!(
            (finished.image(), finished.oldest_record()),
            (parts().image, parts().oldest_record)
        );
        assert_eq!(
            (finished.uuid(), finished.kept_until_ms()),
            (Some(&[7; 16]), parts().kept_until_ms)
        );
        assert_eq!(finished.bytes(), 1 << 26);
        let mut far = FinishedJob::new(FinishedParts {
            status: Status::Done,
            uuid: None,
            oldest_record: 0,
            kept_until_ms: None,
            ..parts()
        });
        assert_eq!((far.oldest_record(), far.kept_until_ms(), far.uuid()), (0, None, None));
        assert_eq!((far.status(), far.queue()), (Status::Done, parts().queue));
        far.set_kept_until(Some(1_700_000_000_005));
        assert_eq!((far.kept_until_ms(), far.queue()), (Some(1_700_000_000_005), parts().queue));
    }

    #[test]
    fn sizes_are_rounded_up_by_an_eighth_at_most() {
        for bytes in (0..5_000).chain([65_536, 65_537, 1 << 26, (1 << 30) - 1]) {
            let kept = size_of_class(size_class(bytes));
            assert!(kept >= bytes && kept <= bytes.max(8) + bytes / 8 + 1, "{bytes} as {kept}");
        }
    }
}
