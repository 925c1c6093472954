//! Segments prepared before they are needed, so that no append waits for one, and so that the
//! space for it is there.
//!
//! One spare is always kept. When the open segment ends and no further one could be prepared, the
//! disk is full and the segment just begun is the reserve. Its second half is written only when it
//! is known whether it is one: otherwise what the disk has no room for could use the reserve up
//! before the full disk is noticed.
//!
//! Where a spare cannot be prepared for another reason (no file descriptors, say), the disk is not
//! called full: it is tried again, and what needs the spare waits.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

use crate::{
    contract::Space,
    disk::{Disk, DiskFile},
    folder::{create_zeroed, filling_name, spare_name},
};

/// Spares to keep: one to move on to, and one more when a trim gives it for nothing.
const SPARES_MAX: usize = 2;
/// How long to wait before trying a full disk again.
const RETRY: Duration = Duration::from_secs(1);

/// After keeping the disk busy for a while, the thread that prepares rests this many times as long,
/// so that few of the log's own syncs meet one of its.
const REST_FACTOR: u32 = 4;
const REST_MAX: Duration = Duration::from_millis(20);

/// A file that can become a segment.
pub(super) struct Spare {
    pub(super) name: String,
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) capacity: u32,
}

type Rest<'a> = &'a mut dyn FnMut(Duration) -> io::Result<()>;

pub(super) struct Spares {
    state: Mutex<State>,
    changed: Condvar,
    pub(super) capacity: u32,
    /// On a disk with no room for a whole segment, shorter ones are made down to this.
    capacity_min: u32,
    /// A spare will be needed before long: no rest now.
    hurry: AtomicBool,
}

struct State {
    ready: Vec<Spare>,
    next_number: u64,
    outlook: Outlook,
    /// Something changed that may have made room.
    retry: bool,
    stopping: bool,
}

/// How the last attempt to prepare a spare ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outlook {
    Good,
    /// For want of room.
    Full,
    /// For another reason.
    Failing,
}

impl Spares {
    pub(super) fn new(
        ready: Vec<Spare>,
        next_number: u64,
        capacity: u32,
        capacity_min: u32,
    ) -> Self {
        let state =
            State { ready, next_number, outlook: Outlook::Good, retry: false, stopping: false };
        let (state, changed, hurry) = (Mutex::new(state), Condvar::new(), AtomicBool::new(false));
        Self { state, changed, capacity, capacity_min, hurry }
    }

    pub(super) fn space(&self) -> Space {
        let state = self.state.lock();
        let is_full = state.outlook == Outlook::Full && state.ready.is_empty();
        if is_full { Space::ReserveOnly } else { Space::Ample }
    }

    /// What the spares hold together.
    pub(super) fn bytes(&self) -> u64 {
        self.state.lock().ready.iter().map(|spare| u64::from(spare.capacity)).sum()
    }

    /// Takes a spare: waits for the thread that prepares them, or prepares one here. `None` when
    /// none can be prepared now.
    pub(super) fn take(&self, disk: &dyn Disk, background: bool) -> Option<Spare> {
        if !background {
            self.prepare_if_short(disk);
        }
        let mut state = self.state.lock();
        loop {
            if let Some(spare) = state.ready.pop() {
                // Whoever was in a hurry wanted this one.
                self.hurry.store(false, Ordering::Relaxed);
                self.changed.notify_all();
                return Some(spare);
            }
            if state.outlook != Outlook::Good || state.stopping || !background {
                return None;
            }
            self.hurry_locked();
            self.changed.wait(&mut state);
        }
    }

    /// Waits until it is known whether there is another segment to go on in.
    pub(super) fn await_outlook(&self) {
        let mut state = self.state.lock();
        while state.ready.is_empty() && state.outlook == Outlook::Good && !state.stopping {
            self.hurry_locked();
            self.changed.wait(&mut state);
        }
    }

    /// The number of a new spare, if another one may be kept.
    pub(super) fn room_for_one(&self, capacity: u32) -> Option<u64> {
        let mut state = self.state.lock();
        if state.ready.len() >= SPARES_MAX || capacity != self.capacity {
            return None;
        }
        state.next_number += 1;
        Some(state.next_number - 1)
    }

    /// Keeps a file that a trim freed.
    pub(super) fn put(&self, spare: Spare) {
        let mut state = self.state.lock();
        state.ready.push(spare);
        state.outlook = Outlook::Good;
        self.changed.notify_all();
    }

    /// Space was given back to the disk.
    pub(super) fn retry(&self) {
        let mut state = self.state.lock();
        state.retry = true;
        self.changed.notify_all();
    }

    pub(super) fn stop(&self) {
        self.state.lock().stopping = true;
        self.changed.notify_all();
    }

    /// Waits; says `false` when the log ends.
    pub(super) fn wait_unless_stopped(&self, time: Duration) -> bool {
        let mut state = self.state.lock();
        let stopping = |state: &mut State| !state.stopping;
        !state.stopping && self.changed.wait_while_for(&mut state, stopping, time).timed_out()
    }

    /// The work of the thread that prepares spares.
    pub(super) fn keep_preparing(&self, disk: &dyn Disk) {
        loop {
            let mut state = self.state.lock();
            while !state.stopping && !state.ready.is_empty() {
                self.changed.wait(&mut state);
            }
            if state.outlook != Outlook::Good {
                // A trim may give a spare meanwhile, and somebody take it: then nobody knows whether
                // the disk is still full, and space() must not go on saying that it is not.
                let idle = |state: &mut State| {
                    !state.stopping && !state.retry && state.outlook != Outlook::Good
                };
                self.changed.wait_while_for(&mut state, idle, RETRY);
            }
            if state.stopping {
                return;
            }
            state.retry = false;
            drop(state);
            self.prepare_with(disk, &mut |busy| self.rest(busy));
        }
    }

    /// The next segment will be needed soon: whoever prepares it must not rest.
    pub(super) fn hurry(&self) {
        if !self.hurry.load(Ordering::Relaxed) {
            let _no_wakeup_is_lost = self.state.lock();
            self.hurry_locked();
        }
    }

    fn hurry_locked(&self) {
        if !self.hurry.swap(true, Ordering::Relaxed) {
            self.changed.notify_all();
        }
    }

    fn rest(&self, busy: Duration) -> io::Result<()> {
        let mut state = self.state.lock();
        let idle = |state: &mut State| !state.stopping && !self.hurry.load(Ordering::Relaxed);
        self.changed.wait_while_for(&mut state, idle, REST_MAX.min(busy * REST_FACTOR));
        if state.stopping { Err(io::Error::other("the log ends")) } else { Ok(()) }
    }

    /// Prepares a spare if there is none.
    pub(super) fn prepare_if_short(&self, disk: &dyn Disk) {
        self.prepare_with(disk, &mut |_| Ok(()));
    }

    fn prepare_with(&self, disk: &dyn Disk, rest: Rest) {
        let number = {
            let mut state = self.state.lock();
            if !state.ready.is_empty() {
                return;
            }
            state.next_number += 1;
            state.next_number - 1
        };
        let prepared = self.prepare(disk, number, rest);
        let mut state = self.state.lock();
        self.hurry.store(false, Ordering::Relaxed);
        match prepared {
            Ok(spare) => {
                state.ready.push(spare);
                state.outlook = Outlook::Good;
            }
            Err(error) => {
                let (outlook, what) = if is_full(&error) {
                    (Outlook::Full, "no room for another segment")
                } else {
                    (Outlook::Failing, "cannot prepare another segment; trying again")
                };
                if state.outlook != outlook && !state.stopping {
                    tracing::warn!(folder = disk.folder(), %error, "{what}");
                }
                state.outlook = outlook;
            }
        }
        self.changed.notify_all();
    }

    /// Makes a file of zeros under a name that says it is not ready, then says that it is. The
    /// names need no sync: a spare that a crash forgets is no loss.
    fn prepare(&self, disk: &dyn Disk, number: u64, rest: Rest) -> io::Result<Spare> {
        let filling = filling_name(number);
        let mut capacity = self.capacity;
        let file = loop {
            match create_zeroed(disk, &filling, u64::from(capacity), rest) {
                Ok(file) => break file,
                Err(error) if is_full(&error) => {
                    if capacity == self.capacity_min {
                        return Err(error);
                    }
                    capacity = (capacity / 2).max(self.capacity_min);
                }
                Err(error) => return Err(error),
            }
        };
        let name = spare_name(number);
        disk.rename(&filling, &name)?;
        Ok(Spare { name, file, capacity })
    }
}

pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}
