//! How a job lies in memory: a slot while it waits or runs, a stub once it is finished.

use std::num::NonZeroU64;

use bytes::Bytes;

use crate::job::{Attempt, Backoff, JobId, Key, Label, Lease, Origin, Outcome, Scope, Status};
use crate::payload::Type;

/// `ttl_ms` of a job that has none: no TTL is 0, while all 64 bits may be one.
pub(crate) const NO_TTL: u64 = 0;
/// `ttr_ms` of a job that has none.
pub(crate) const NO_TTR: u32 = u32::MAX;

/// An unfinished job. A waiting one costs this much and its places in the indices, about 130 bytes;
/// what few jobs have is behind a pointer.
#[derive(Debug, Clone)]
pub(crate) struct Slot {
    pub id: NonZeroU64,
    /// Workq's UUID, if `has_uuid`.
    pub uuid: [u8; 16],
    /// The oldest record the job needs: its payload's, or without one its image's.
    pub home: u64,
    /// The position of its last event is `home` + this; saturated means: not known, take the tail.
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
    pub lease: Option<Lease>,
    pub history: Vec<Attempt>,
    pub rare: Option<Box<Rare>>,
}

/// What only few jobs have.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rare {
    pub run_at_ms: Option<u64>,
    pub scheduled_ms: Option<u64>,
    pub attempts_max: Option<u32>,
    pub fails_max: Option<u32>,
    pub backoff: Option<Backoff>,
    pub outcome: Option<Outcome>,
    pub keys: Vec<Key>,
    pub labels: Vec<Label>,
    pub tags: Vec<Bytes>,
    pub state: Option<Bytes>,
    pub events: Vec<Bytes>,
    pub keep_ms: Option<u64>,
    pub keep_read_ms: Option<u64>,
    pub drop_result: bool,
    pub inline: Option<Bytes>,
}

impl Slot {
    pub fn new(id: NonZeroU64, status: Status, origin: Origin, kind: Type) -> Slot {
        Slot {
            id,
            uuid: [0; 16],
            home: 0,
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

    pub fn set_foreground(&mut self, foreground: bool) {
        self.flags = if foreground { self.flags | 2 } else { self.flags & !2 };
    }

    pub fn last(&self) -> Option<u64> {
        (self.last_delta != u32::MAX).then(|| self.home.saturating_add(u64::from(self.last_delta)))
    }

    pub fn set_last(&mut self, position: u64) {
        let delta = position.saturating_sub(self.home);
        self.last_delta = u32::try_from(delta).unwrap_or(u32::MAX);
    }

    pub fn extra(&mut self) -> &mut Extra {
        self.extra.get_or_insert_default()
    }

    pub fn rare(&mut self) -> &mut Rare {
        self.extra().rare.get_or_insert_default()
    }

    pub fn find_rare(&self) -> Option<&Rare> {
        self.extra.as_ref().and_then(|extra| extra.rare.as_deref())
    }

    pub fn lease(&self) -> Option<&Lease> {
        self.extra.as_ref().and_then(|extra| extra.lease.as_ref())
    }

    pub fn fails(&self) -> u32 {
        self.extra.as_ref().map_or(0, |extra| extra.fails)
    }

    pub fn labels(&self) -> &[Label] {
        self.find_rare().map_or(&[], |rare| &rare.labels)
    }

    pub fn run_at_ms(&self) -> Option<u64> {
        self.find_rare().and_then(|rare| rare.run_at_ms)
    }

    pub fn is_large(&self) -> bool {
        self.payload_len > super::LARGE_PAYLOAD_BYTES
    }

    /// When its TTL ends.
    pub fn expires_ms(&self) -> Option<u64> {
        let start = self.find_rare().and_then(|rare| rare.scheduled_ms).unwrap_or(self.created_ms);
        (self.ttl_ms != NO_TTL)
            .then(|| start.saturating_add(self.ttl_ms))
            .filter(|expires| *expires != u64::MAX)
    }

    /// Keys besides the UUID.
    pub fn other_keys(&self) -> &[Key] {
        self.find_rare().map_or(&[], |rare| &rare.keys)
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

/// A finished job: its name, where its image is, and when it goes. 47 bytes.
#[derive(Debug, Clone)]
pub(crate) struct Stub {
    uuid: [u8; 16],
    id: [u8; 7],
    position: [u8; 6],
    offset: [u8; 4],
    home_delta: [u8; 4],
    kept_until_ms: [u8; 6],
    queue: [u8; 3],
    kind: StubKind,
}

/// How a job ended and whether its name is a UUID; an enum, so that an absent stub costs nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StubKind {
    Done,
    DoneUuid,
    Dead,
    DeadUuid,
}

const FOREVER: u64 = (1 << 48) - 1;

impl Stub {
    pub fn new(
        id: JobId,
        status: Status,
        uuid: Option<[u8; 16]>,
        queue: u32,
        image: super::Place,
        home: u64,
        kept_until_ms: Option<u64>,
    ) -> Stub {
        let kind = match (status, uuid.is_some()) {
            (Status::Dead, true) => StubKind::DeadUuid,
            (Status::Dead, false) => StubKind::Dead,
            (_, true) => StubKind::DoneUuid,
            (_, false) => StubKind::Done,
        };
        let delta = u32::try_from(image.position.saturating_sub(home)).unwrap_or(u32::MAX);
        Stub {
            uuid: uuid.unwrap_or_default(),
            id: narrow(id.0),
            position: narrow(image.position),
            offset: image.offset.to_le_bytes(),
            home_delta: delta.to_le_bytes(),
            kept_until_ms: narrow(kept_until_ms.unwrap_or(FOREVER).min(FOREVER)),
            queue: narrow(u64::from(queue)),
            kind,
        }
    }

    pub fn job_id(&self) -> JobId {
        JobId(widen(self.id))
    }

    pub fn status(&self) -> Status {
        match self.kind {
            StubKind::Done | StubKind::DoneUuid => Status::Done,
            StubKind::Dead | StubKind::DeadUuid => Status::Dead,
        }
    }

    pub fn queue(&self) -> u32 {
        u32::from_le_bytes([self.queue[0], self.queue[1], self.queue[2], 0])
    }

    pub fn uuid(&self) -> Option<&[u8; 16]> {
        matches!(self.kind, StubKind::DoneUuid | StubKind::DeadUuid).then_some(&self.uuid)
    }

    pub fn image(&self) -> super::Place {
        super::Place { position: widen(self.position), offset: u32::from_le_bytes(self.offset) }
    }

    /// The oldest record it needs; a saturated distance means the very first.
    pub fn home(&self) -> u64 {
        let delta = u32::from_le_bytes(self.home_delta);
        if delta == u32::MAX { 0 } else { widen(self.position) - u64::from(delta) }
    }

    pub fn kept_until_ms(&self) -> Option<u64> {
        Some(widen(self.kept_until_ms)).filter(|until| *until != FOREVER)
    }

    pub fn set_kept_until(&mut self, until_ms: u64) {
        self.kept_until_ms = narrow(until_ms.min(FOREVER));
    }

    pub fn expiry_key(&self) -> u128 {
        (u128::from(widen(self.kept_until_ms)) << 64) | u128::from(widen(self.id))
    }
}

/// The low bytes of a number that is known to fit.
fn narrow<const N: usize>(value: u64) -> [u8; N] {
    let mut bytes = [0; N];
    bytes.copy_from_slice(&value.to_le_bytes()[..N]);
    bytes
}

fn widen<const N: usize>(bytes: [u8; N]) -> u64 {
    let mut wide = [0; 8];
    wide[..N].copy_from_slice(&bytes);
    u64::from_le_bytes(wide)
}

/// A key of Workq's kind is kept inside slots and stubs.
pub(crate) fn as_uuid(key: &Key) -> Option<[u8; 16]> {
    if key.namespace == Origin::Workq as i32 && key.scope == Scope::WhileKept as i32 {
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
        assert_eq!(size_of::<Option<Slot>>(), 104);
        assert_eq!(size_of::<Option<Stub>>(), 47);
    }

    #[test]
    fn a_stub_returns_what_it_was_given() {
        let place = crate::state::Place { position: 1 << 40, offset: u32::MAX };
        let stub = Stub::new(
            JobId((1 << 53) - 1),
            Status::Dead,
            Some([7; 16]),
            (1 << 24) - 1,
            place,
            (1 << 40) - 9,
            Some(1 << 41),
        );
        assert_eq!((stub.status(), stub.queue()), (Status::Dead, (1 << 24) - 1));
        assert_eq!(stub.job_id(), JobId((1 << 53) - 1));
        assert_eq!((stub.image(), stub.home()), (place, (1 << 40) - 9));
        assert_eq!((stub.uuid(), stub.kept_until_ms()), (Some(&[7; 16]), Some(1 << 41)));
        let far = Stub::new(JobId(1), Status::Done, None, 0, place, 0, None);
        assert_eq!((far.home(), far.kept_until_ms(), far.uuid()), (0, None, None));
    }
}
