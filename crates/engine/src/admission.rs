//! Admission: when a change may be made.
//!
//! A request that changes something is dispatched only when the log has room for it: while not too many decided bytes
//! wait to become durable. On a full disk there is less room: changes and compaction both use up what is left of the
//! log, its reserve, and only compaction gives room back. So changes leave what the current round of compaction needs,
//! and wait for its trim. Without a round they may use an eighth of what is left; then they wait until compaction has
//! checked again whether a round now pays and fits. Changes are refused only when compaction has checked, no round pays
//! and fits, and nearly nothing is left: the server can then make no more room by itself. They are also refused once
//! the log has had no room for a record, because everything decided later stands behind that record, images and
//! deletions included. A job of many segments can cause this, if it is appended before the disk is known to be full.
//!
//! Changes that time causes (leases and TTLs that are over, schedules) are not admitted one by one. They, too, leave
//! what the current round needs, and the very last of the reserve; then they wait until there is room. They are late
//! then, but nothing is lost: any request that could see such a change, or be refused because of it, waits for the same
//! room.
//!
//! A log that cannot prepare another segment for a reason other than room ([`Space::CannotGrow`]) is treated like a
//! full disk in all of this. New jobs do not wait until it can, because nobody knows when that is: their clients would
//! get no answer, and what is left of the log would be spent on them instead of on changes that end jobs and free
//! segments, which a log that cannot make a file can still use again.
//!
//! A large change waits longer: until few other decided bytes wait to become durable. All that is decided goes to the
//! log in one order, so a change behind large payloads waits until they are written; since large changes go one after
//! the other, no change waits for more than one of them. Changes decided while a large one was written go to the disk
//! before the next: commits with large changes and without take turns. And while there are other changes, the log rests
//! from large ones for as long as it has just been busy with them: they take half of its time at most.
//!
//! No change waits for ever: each check by compaction ends with a round, with more of the reserve for changes, or with
//! their refusal. The compaction thread checks ten times a second, and a round on a full disk is one segment long.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use parking_lot::Mutex;
use spindle_log::{Log, Space};

use crate::answer::{Answer, Refused};
use crate::door::Ticket;
use crate::engine::Engine;
use crate::inner::Inner;
use crate::wait::{Caller, Wait, WaitFor};

/// The part of the reserve that changes may use between two checks by compaction.
const SHARE: u64 = 8;
/// A change that brings more bytes than this is a large one.
const SMALL_BYTES_MAX: usize = 64 * 1024;
/// A large change waits until no more than this part of the bytes that may be undurable is.
const BEHIND_LARGE: usize = 8;
/// There are other changes if a commit without a large one ended in this time.
const OTHERS_MS: u64 = 100;
/// The longest rest from large changes, on a slow disk.
const REST_MS_MAX: u64 = 100;

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
    large: LargeChanges,
    /// There is room while less than this is decided and not durable.
    room_below: AtomicUsize,
    exhausted: AtomicBool,
    /// What is due happens while less than this is decided and not durable.
    timers_below: AtomicUsize,
    /// The disk is full, and the log had no room for the record that comes next.
    blocked: AtomicBool,
    full: Mutex<FullDisk>,
}

/// What decides whether it is the turn of large changes or of others. A change decided while a
/// commit begins may count for that commit or for the next.
#[derive(Debug, Default)]
struct LargeChanges {
    /// There is one among the changes that are decided and in no commit yet.
    decided: AtomicBool,
    /// There was one in the last commit that ended.
    last: AtomicBool,
    /// When the next one may be decided, if there are others.
    rests_until_ms: AtomicU64,
    /// When the last commit without one ended.
    others_ms: AtomicU64,
}

/// A commit under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    has_large: bool,
    at_ms: u64,
}

impl LargeChanges {
    fn begin(&self, now_ms: u64) -> Begun {
        Begun { has_large: self.decided.swap(false, Ordering::Relaxed), at_ms: now_ms }
    }

    fn end(&self, begun: Begun, now_ms: u64) {
        self.last.store(begun.has_large, Ordering::Relaxed);
        if begun.has_large {
            let took_ms = now_ms.saturating_sub(begun.at_ms);
            let rest_ms = took_ms.min(REST_MS_MAX);
            self.rests_until_ms.store(now_ms.saturating_add(rest_ms), Ordering::Relaxed);
        } else {
            self.others_ms.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Until when there is a rest, if there is one.
    fn rest(&self, now_ms: u64) -> Option<u64> {
        let until_ms = self.rests_until_ms.load(Ordering::Relaxed);
        let others_ms = self.others_ms.load(Ordering::Relaxed);
        let has_others = now_ms.saturating_sub(others_ms) <= OTHERS_MS;
        // A clock that was set leaves no rest behind.
        let is_near = until_ms.saturating_sub(now_ms) <= REST_MS_MAX;
        (now_ms < until_ms && has_others && is_near).then_some(until_ms)
    }
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
            large: LargeChanges::default(),
            room_below: AtomicUsize::new(undurable_bytes_max.saturating_add(1)),
            exhausted: AtomicBool::new(false),
            timers_below: AtomicUsize::new(usize::MAX),
            blocked: AtomicBool::new(false),
            full: Mutex::default(),
        }
    }

    /// Whether a change that brings so many bytes may be made now.
    pub fn room(&self, bytes: usize, now_ms: impl FnOnce() -> u64) -> Room {
        let (undurable, is_large) = (self.undurable_bytes(), bytes > SMALL_BYTES_MAX);
        let is_turn = !is_large || self.is_turn_of_large(undurable, now_ms());
        if undurable < self.room_below.load(Ordering::Relaxed) && is_turn {
            if is_large {
                self.large.decided.store(true, Ordering::Relaxed);
            }
            Room::There
        } else if self.exhausted.load(Ordering::Relaxed) {
            Room::Exhausted
        } else {
            Room::Later
        }
    }

    fn is_turn_of_large(&self, undurable: usize, now_ms: u64) -> bool {
        let is_turn_of_others = undurable > 0 && self.large.last.load(Ordering::Relaxed);
        undurable <= self.undurable_bytes_max / BEHIND_LARGE
            && !is_turn_of_others
            && self.large.rest(now_ms).is_none()
    }

    pub fn undurable_bytes(&self) -> usize {
        self.undurable_bytes.load(Ordering::Relaxed)
    }

    /// Whether requests that wait for room may go on: half of it is there again, or there will be
    /// none.
    fn has_again(&self) -> bool {
        self.undurable_bytes().saturating_mul(2) < self.room_below.load(Ordering::Relaxed)
            || self.exhausted.load(Ordering::Relaxed)
    }

    /// Whether what is due may happen now.
    pub fn lets_timers(&self) -> bool {
        self.undurable_bytes() < self.timers_below.load(Ordering::Relaxed)
    }

    /// Whether what is decided from now on cannot become durable before there is room on the disk.
    pub fn is_blocked(&self) -> bool {
        self.blocked.load(Ordering::Relaxed)
    }

    /// What is decided goes to the log.
    pub fn begin_commit(&self, now_ms: u64) -> Begun {
        self.large.begin(now_ms)
    }

    /// Records are in the log, the rest found no room if `has_refused`.
    pub fn note_commit(&self, log: &dyn Log, begun: Begun, has_refused: bool, now_ms: u64) {
        self.blocked.store(has_refused, Ordering::Relaxed);
        self.large.end(begun, now_ms);
        self.renew(log);
    }

    /// The log has no room for the record that comes next.
    pub fn note_refused(&self, log: &dyn Log) {
        self.blocked.store(true, Ordering::Relaxed);
        self.renew(log);
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
    /// may make a round pay or fit; the last of it is left for what happens by itself.
    pub fn release(&self, log: &dyn Log) {
        let (undurable, last) = (self.undurable_bytes() as u64, kept_back(log) / 8);
        self.renew_with(log, |full, room| {
            let room = room.saturating_sub(undurable);
            let left = (room - room / SHARE).max(last);
            let hopeless = room <= last || self.is_blocked();
            *full = FullDisk { left: Some(left), claimed: 0, hopeless };
        });
    }

    fn renew_with(&self, log: &dyn Log, note: impl FnOnce(&mut FullDisk, u64)) {
        let mut full = self.full.lock();
        let max = self.undurable_bytes_max.saturating_add(1);
        let (mut room_below, mut timers_below) = (max, usize::MAX);
        if log.space().is_reserve() {
            let room = log.room_bytes();
            note(&mut full, room);
            let left = *full.left.get_or_insert(room - room / SHARE);
            room_below =
                usize::try_from(room.saturating_sub(left)).map_or(max, |room| room.min(max));
            let kept_back = kept_back(log);
            let left = full.claimed.saturating_sub(kept_back) + kept_back / 16;
            let room = if self.is_blocked() { 0 } else { room.saturating_sub(left) };
            timers_below = usize::try_from(room).unwrap_or(usize::MAX);
        } else {
            *full = FullDisk::default();
            self.blocked.store(false, Ordering::Relaxed);
        }
        self.room_below.store(room_below, Ordering::Relaxed);
        self.timers_below.store(timers_below, Ordering::Relaxed);
        self.exhausted.store(full.hopeless, Ordering::Relaxed);
    }
}

/// The part of the reserve that compaction leaves to clients: an eighth of a segment.
pub(crate) fn kept_back(log: &dyn Log) -> u64 {
    let first = log.first();
    let segment_end = log.segment_end_before(first).unwrap_or(first);
    log.bytes_between(first, segment_end) / 8
}

impl Engine {
    /// Whether one more change may be made now that brings so many bytes.
    pub fn room(&self, bytes: usize) -> Room {
        self.shared.admission.room(bytes, || self.now_ms())
    }

    /// Whether one more small change may be made now. Long loops ask between their steps.
    pub fn has_room(&self) -> bool {
        self.room(0) == Room::There
    }

    /// How much is decided and not durable.
    pub(crate) fn undurable_bytes(&self) -> usize {
        self.shared.admission.undurable_bytes()
    }

    /// Waits for room, if there is none now: [`Answer::Room`] says when to ask again. A change that
    /// will have none is refused. `bytes` is what it brings: payloads and results.
    pub fn wait_for_room(&self, caller: &Caller, bytes: usize) -> Result<Option<Ticket>, Refused> {
        match self.room(bytes) {
            Room::There => return Ok(None),
            Room::Exhausted => return Err(self.no_room()),
            Room::Later => {}
        }
        let mut inner = self.shared.inner.lock();
        // The room may have come before the wait.
        if self.shared.admission.has_again() {
            match self.room(bytes) {
                Room::Exhausted => return Err(self.no_room()),
                Room::Later if bytes > SMALL_BYTES_MAX => {
                    if let Some(until_ms) = self.shared.admission.large.rest(self.now_ms()) {
                        let deadline_ms = Some(until_ms);
                        let caller = caller.clone();
                        let wait = Wait { caller, request: WaitFor::Time, deadline_ms };
                        let ticket = inner.waiting.list.add(wait);
                        // A caller that asks for room has no turn yet, whose end would tell the
                        // timer.
                        self.shared.timer.ring_if_before(deadline_ms);
                        return Ok(Some(ticket));
                    }
                    // A large change gets its turn after a commit. With nothing to commit, it had to wait for a rest
                    // only, which has just ended.
                    if self.undurable_bytes() == 0 {
                        return Ok(None);
                    }
                }
                Room::There | Room::Later => return Ok(None),
            }
        }
        let wait = Wait { caller: caller.clone(), request: WaitFor::Room, deadline_ms: None };
        Ok(Some(inner.waiting.list.add(wait)))
    }

    /// The log has more room than before, or less: answers the requests that waited for it, if there is some.
    pub(crate) fn answer_room(&self, inner: &mut Inner) {
        if self.shared.admission.has_again() {
            let tickets = inner.waiting.list.for_room();
            inner.waiting.answer_all(tickets, &Answer::Room);
        }
    }

    /// On a full disk a large result, state or event may take half of the reserve that is left and that compaction does
    /// not need: a record that does not fit would keep everything behind it waiting, including the deletes that make
    /// room.
    pub(crate) fn check_reserve(&self, inner: &Inner, len: usize) -> Result<(), Refused> {
        const SMALL_BYTES: usize = 4096;
        let log = &self.shared.log;
        let fits = || {
            let claimed = self.shared.admission.full.lock().claimed;
            let room = log.room_bytes().saturating_sub(claimed);
            (inner.batch.undurable_bytes() + len) as u64 <= room / 2
        };
        if len > SMALL_BYTES && log.space().is_reserve() && !fits() {
            return Err(self.no_room());
        }
        Ok(())
    }

    /// New jobs are refused on a full disk: what is left is for changes that free room. They are also refused while the
    /// log is as long as it may be.
    pub(crate) fn check_space(&self) -> Result<(), Refused> {
        if self.shared.log.space().is_reserve() {
            return Err(self.no_room());
        }
        self.check_length()
    }

    /// What stays in the log until somebody removes it is refused while the log is as long as it may be: compaction
    /// could not make it shorter again.
    pub(crate) fn check_length(&self) -> Result<(), Refused> {
        if self.is_log_full() { Err(Refused::LogFull) } else { Ok(()) }
    }

    /// Why nothing more may be appended.
    fn no_room(&self) -> Refused {
        match self.shared.log.space() {
            Space::CannotGrow => Refused::LogCannotGrow,
            Space::ReserveOnly | Space::Ample => Refused::DiskFull,
        }
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
