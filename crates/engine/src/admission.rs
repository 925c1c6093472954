//! Admission: when a change may be made.
//!
//! A request that changes something is dispatched only when the log has room for it: when not too much
//! is decided and not durable. On a full disk there is less room: what is left of the log, its reserve,
//! is used up by changes and by compaction, which alone gives room back. So changes leave what the round
//! under way needs, and wait for its trim. Without a round they may use an eighth of what is left, then
//! they wait until compaction has looked again whether a round pays now and fits. Only when it has, none
//! does, and nearly nothing is left, changes are refused: nothing that the server does makes room any
//! more.
//!
//! Nobody waits for ever: each look ends with a round, with more of the reserve, or with the refusal. The
//! thread that compacts looks ten times a second, and a round on a full disk is one segment long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use spindle_log::{Log, Space};

use crate::answer::{Answer, Refused};
use crate::door::Ticket;
use crate::engine::Engine;
use crate::inner::Inner;
use crate::wait::{Caller, Wait, WaitFor};

/// The part of the reserve that changes may use between two looks of compaction.
const SHARE: u64 = 8;

/// Whether one more change may be made now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Room {
    /// It may.
    There,
    /// It has to wait: for the disk, or on a full one for compaction.
    Later,
    /// The disk is full, its reserve is used up, and compaction can gain nothing.
    Exhausted,
}

/// How much may be decided.
#[derive(Debug)]
pub(crate) struct Admission {
    undurable_bytes: Arc<AtomicUsize>,
    undurable_bytes_max: usize,
    /// There is room while less than this is decided and not durable.
    room_below: AtomicUsize,
    exhausted: AtomicBool,
    full: Mutex<FullDisk>,
}

/// What is known of a disk that is full; nothing of one that is not.
#[derive(Debug, Default)]
struct FullDisk {
    /// Changes leave this much of the log's room. `None`: compaction has not looked yet.
    left: Option<u64>,
    /// What the round under way still needs of it.
    claimed: u64,
    /// Compaction can gain nothing, and nearly nothing is left.
    hopeless: bool,
}

impl Admission {
    pub fn new(undurable_bytes: Arc<AtomicUsize>, undurable_bytes_max: usize) -> Admission {
        Admission {
            undurable_bytes,
            undurable_bytes_max,
            room_below: AtomicUsize::new(undurable_bytes_max.saturating_add(1)),
            exhausted: AtomicBool::new(false),
            full: Mutex::default(),
        }
    }

    pub fn room(&self) -> Room {
        if self.undurable_bytes() < self.room_below.load(Ordering::Relaxed) {
            Room::There
        } else if self.exhausted.load(Ordering::Relaxed) {
            Room::Exhausted
        } else {
            Room::Later
        }
    }

    pub fn undurable_bytes(&self) -> usize {
        self.undurable_bytes.load(Ordering::Relaxed)
    }

    /// Whether those who wait for room may go on: half of it is there again, or none will be.
    fn has_again(&self) -> bool {
        self.undurable_bytes().saturating_mul(2) < self.room_below.load(Ordering::Relaxed)
            || self.exhausted.load(Ordering::Relaxed)
    }

    /// Counts anew how much may be decided: the log has less room than before, or more.
    pub fn renew(&self, log: &dyn Log) {
        self.renew_with(log, |_, _| {});
    }

    /// What a round of compaction needs of a full disk's reserve: changes leave it untouched.
    pub fn claim(&self, log: &dyn Log, needed: u64) {
        self.renew_with(log, |full, _| {
            *full = FullDisk { left: Some(needed), claimed: needed, hopeless: false };
        });
    }

    /// Compaction has looked and can gain nothing now. Changes may use a part of what is left, which
    /// may make a round pay or fit; `last` is left for what happens by itself.
    pub fn release(&self, log: &dyn Log, last: u64) {
        let undurable = self.undurable_bytes() as u64;
        self.renew_with(log, |full, room| {
            let room = room.saturating_sub(undurable);
            let left = (room - room / SHARE).max(last);
            *full = FullDisk { left: Some(left), claimed: 0, hopeless: room <= last };
        });
    }

    fn renew_with(&self, log: &dyn Log, note: impl FnOnce(&mut FullDisk, u64)) {
        let mut full = self.full.lock();
        let max = self.undurable_bytes_max.saturating_add(1);
        let mut room_below = max;
        if log.space() == Space::ReserveOnly {
            let room = log.room_bytes();
            note(&mut full, room);
            let left = *full.left.get_or_insert(room - room / SHARE);
            room_below =
                usize::try_from(room.saturating_sub(left)).map_or(max, |room| room.min(max));
        } else {
            *full = FullDisk::default();
        }
        self.room_below.store(room_below, Ordering::Relaxed);
        self.exhausted.store(full.hopeless, Ordering::Relaxed);
    }
}

impl Engine {
    /// Whether one more change may be made now.
    pub fn room(&self) -> Room {
        self.shared.admission.room()
    }

    /// Whether one more change may be made now. Long loops ask between their steps.
    pub fn has_room(&self) -> bool {
        self.room() == Room::There
    }

    /// How much is decided and not durable.
    pub(crate) fn undurable_bytes(&self) -> usize {
        self.shared.admission.undurable_bytes()
    }

    /// Waits for room, if there is none now: [`Answer::Room`] says when to ask again. A change that
    /// will have none is refused.
    pub fn wait_for_room(&self, caller: &Caller) -> Result<Option<Ticket>, Refused> {
        match self.room() {
            Room::There => return Ok(None),
            Room::Exhausted => return Err(Refused::DiskFull),
            Room::Later => {}
        }
        let mut inner = self.shared.inner.lock();
        // The room may have come before the wait.
        if self.shared.admission.has_again() {
            let refused = self.room() == Room::Exhausted;
            return if refused { Err(Refused::DiskFull) } else { Ok(None) };
        }
        let wait = Wait { caller: caller.clone(), request: WaitFor::Room, deadline_ms: None };
        Ok(Some(inner.waiting.list.add(wait)))
    }

    /// The log has more room than before, or less: answers those who waited for it, if there is some.
    pub(crate) fn answer_room(&self, inner: &mut Inner) {
        if self.shared.admission.has_again() {
            let tickets = inner.waiting.list.for_room();
            inner.waiting.answer_all(tickets, &Answer::Room);
        }
    }

    /// On a full disk a large result, state or event may take half of what is left of the reserve and
    /// not needed by compaction: a record that does not fit would keep all behind it waiting, the
    /// deletes that make room included.
    pub(crate) fn check_reserve(&self, inner: &Inner, len: usize) -> Result<(), Refused> {
        const SMALL_BYTES: usize = 4096;
        let log = &self.shared.log;
        let fits = || {
            let claimed = self.shared.admission.full.lock().claimed;
            let room = log.room_bytes().saturating_sub(claimed);
            (inner.batch.undurable_bytes() + len) as u64 <= room / 2
        };
        if len > SMALL_BYTES && log.space() == Space::ReserveOnly && !fits() {
            return Err(Refused::DiskFull);
        }
        Ok(())
    }

    /// New jobs are refused on a full disk: what is left is for what frees room. So they are while the
    /// log is as long as it may be.
    pub(crate) fn check_space(&self) -> Result<(), Refused> {
        if self.shared.log.space() == Space::ReserveOnly {
            return Err(Refused::DiskFull);
        }
        if self.is_log_full() { Err(Refused::LogFull) } else { Ok(()) }
    }

    /// Whether the log is as long as it may be.
    pub(crate) fn is_log_full(&self) -> bool {
        let (max, undurable) = (self.shared.log_bytes_max, self.undurable_bytes() as u64);
        max < u64::MAX && self.shared.log.bytes_on_disk().saturating_add(undurable) >= max
    }

    /// Whether compaction should drop all it can, to let new jobs in.
    pub(crate) fn is_log_nearly_full(&self) -> bool {
        let max = self.shared.log_bytes_max;
        self.shared.log.bytes_on_disk() >= max - max / 8
    }
}
