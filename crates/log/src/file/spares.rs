//! Segments prepared before they are needed, so that no append waits for one, and so that the
//! space for it is there.
//!
//! One spare is always kept. When the open segment ends and no further one could be prepared, the
//! disk is full and the segment just begun is the reserve. Its second half is written only when it
//! is known whether it is the reserve: otherwise records that the disk has no room for could use it
//! up before the full disk is noticed.
//!
//! A spare is filled with zeros beforehand, where that pays: zeros save each commit the file system's journal (a tenth
//! of a millisecond, in the worst case tens), and cost as much writing again as the data written over them. A log that
//! grows by large batches gets spares with their space claimed but not zeroed; so does one that grows faster than
//! spares can be filled, since waiting would take longer than zeros save.
//!
//! A spare that is too short for the record that comes next is made longer before it is used, by as much as the record
//! takes: behind the record there is then as much room as in any other segment, which may have to be the reserve.
//!
//! Where a spare cannot be prepared for another reason (no file descriptors, an error of the disk),
//! the disk is not called full. What is left is a reserve all the same, because it is not known how long it has to
//! last: a trim needs no new file, so changes that free space help here, too, and must find room. Preparing is tried
//! again every second.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::{
    contract::Space,
    disk::{Disk, DiskFile},
    folder::{Next, Rest, create_zeroed, filling_name, spare_name},
    frame::SEGMENT_HEADER_BYTES,
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

pub(super) struct Spares {
    state: Mutex<State>,
    changed: Condvar,
    pub(super) capacity: u32,
    /// On a disk with no room for a whole segment, shorter ones are made down to this.
    capacity_min: u32,
    /// A spare will be needed soon: the thread must not rest now.
    hurry: AtomicBool,
    /// Whether zeros pay.
    fills: AtomicBool,
}

struct State {
    ready: Vec<Spare>,
    next_number: u64,
    outlook: Outlook,
    /// How the last attempt ended, as the server's log says. A spare from a trim is no attempt.
    logged: Outlook,
    /// The last attempt was to make a spare longer for a record that waits: the spares are no room for it.
    is_short: bool,
    /// A thread waits for a spare that is being prepared.
    is_awaited: bool,
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
        let state = State {
            ready,
            next_number,
            outlook: Outlook::Good,
            logged: Outlook::Good,
            is_short: false,
            is_awaited: false,
            retry: false,
            stopping: false,
        };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            capacity,
            capacity_min,
            hurry: AtomicBool::new(false),
            fills: AtomicBool::new(true),
        }
    }

    pub(super) fn space(&self) -> Space {
        let state = self.state.lock();
        match state.outlook {
            _ if !state.ready.is_empty() && !state.is_short => Space::Ample,
            Outlook::Good => Space::Ample,
            Outlook::Full => Space::ReserveOnly,
            Outlook::Failing => Space::CannotGrow,
        }
    }

    /// What the spares hold together.
    pub(super) fn bytes(&self) -> u64 {
        self.state.lock().ready.iter().map(|spare| u64::from(spare.capacity)).sum()
    }

    /// Takes a spare that has room for a frame of so many bytes: waits for the thread that prepares them, or prepares
    /// one here. `None` when none can be prepared now, or made long enough.
    pub(super) fn take(
        &self,
        disk: &dyn Disk,
        background: bool,
        frame_bytes: u32,
    ) -> Option<Spare> {
        if !background {
            self.prepare_if_short(disk);
        }
        let mut state = self.state.lock();
        loop {
            if let Some(spare) = state.ready.pop() {
                // The hurry was for this one.
                self.hurry.store(false, Ordering::Relaxed);
                self.changed.notify_all();
                return self.fit(disk, &mut state, spare, frame_bytes);
            }
            if state.outlook != Outlook::Good || state.stopping || !background {
                return None;
            }
            self.await_one(&mut state);
        }
    }

    /// Makes a spare longer if a frame does not fit into it.
    fn fit(
        &self,
        disk: &dyn Disk,
        state: &mut MutexGuard<'_, State>,
        mut spare: Spare,
        frame_bytes: u32,
    ) -> Option<Spare> {
        if SEGMENT_HEADER_BYTES as u32 + frame_bytes > spare.capacity {
            let mut lengthened = MutexGuard::unlocked(state, || spare.lengthen(frame_bytes));
            if matches!(&lengthened, Err(NotLengthened { error, .. }) if is_full(error)) {
                // The record that waits needs the room more than another spare does.
                let others = std::mem::take(&mut state.ready);
                lengthened = MutexGuard::unlocked(state, || {
                    for other in others {
                        // Left behind, it is taken for a spare by the next opening.
                        let _ = disk.remove(&other.name);
                    }
                    spare.lengthen(frame_bytes)
                });
            }
            if let Err(NotLengthened { error, is_sound }) = lengthened {
                if is_sound {
                    state.ready.push(spare);
                } else {
                    let _ = disk.remove(&spare.name);
                }
                state.is_short = true;
                state.note(disk, Some(&error));
                return None;
            }
        }
        if std::mem::take(&mut state.is_short) {
            state.note(disk, None);
        }
        Some(spare)
    }

    /// Waits until it is known whether there is another segment to go on in.
    pub(super) fn await_outlook(&self) {
        let mut state = self.state.lock();
        while state.ready.is_empty() && state.outlook == Outlook::Good && !state.stopping {
            self.await_one(&mut state);
        }
    }

    fn await_one(&self, state: &mut MutexGuard<'_, State>) {
        state.is_awaited = true;
        self.hurry_locked();
        self.changed.wait(state);
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

    /// Notes how the last segment was filled: the next one is likely to be filled in the same way.
    pub(super) fn note_large_bytes(&self, large: u64) {
        self.fills.store(large < u64::from(self.capacity) / 2, Ordering::Relaxed);
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
                // A trim may give a spare meanwhile, which is then taken: then it is not known
                // whether the disk is still full, and space() must not go on saying that it is not.
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

    /// The next segment will be needed soon: the thread that prepares it must not rest.
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

    fn rest(&self, busy: Duration) -> io::Result<Next> {
        let mut state = self.state.lock();
        if !self.fills.load(Ordering::Relaxed) && !state.stopping {
            return Ok(Next::Suffice);
        }
        let idle = |state: &mut State| !state.stopping && !self.hurry.load(Ordering::Relaxed);
        self.changed.wait_while_for(&mut state, idle, REST_MAX.min(busy * REST_FACTOR));
        match (state.stopping, state.is_awaited) {
            (true, _) => Err(io::Error::other("the log ends")),
            (_, true) => Ok(Next::Suffice),
            (_, false) => Ok(Next::Fill),
        }
    }

    /// Prepares a spare if there is none.
    pub(super) fn prepare_if_short(&self, disk: &dyn Disk) {
        self.prepare_with(disk, &mut |_| Ok(Next::Fill));
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
        state.is_awaited = false;
        state.note(disk, prepared.as_ref().err());
        state.ready.extend(prepared);
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

impl State {
    /// Notes how an attempt has ended.
    fn note(&mut self, disk: &dyn Disk, error: Option<&io::Error>) {
        self.outlook = match error {
            None => Outlook::Good,
            Some(error) if is_full(error) => Outlook::Full,
            Some(_) => Outlook::Failing,
        };
        if self.outlook != self.logged && !self.stopping {
            self.logged = self.outlook;
            report(disk.folder(), self.outlook, error);
        }
    }
}

/// Why a spare is as short as before, and whether what it had is still as durable.
struct NotLengthened {
    error: io::Error,
    is_sound: bool,
}

impl Spare {
    /// Makes room for a frame of so many bytes besides what there is, as durable as the rest.
    fn lengthen(&mut self, frame_bytes: u32) -> Result<(), NotLengthened> {
        let capacity = self.capacity + frame_bytes;
        let (from, upto) = (u64::from(self.capacity), u64::from(capacity));
        let lengthened = self.file.claim(upto).and_then(|is_claimed| {
            if is_claimed { Ok(()) } else { self.file.write_zeros(from, upto - from) }
        });
        lengthened.map_err(|error| NotLengthened { error, is_sound: true })?;
        self.file.sync().map_err(|error| NotLengthened { error, is_sound: false })?;
        self.capacity = capacity;
        Ok(())
    }
}

/// Writes to the server's log that attempts to prepare a segment end otherwise than before.
fn report(folder: String, outlook: Outlook, error: Option<&io::Error>) {
    let error = error.map(tracing::field::display);
    match outlook {
        Outlook::Good => tracing::info!(folder, "another segment could be prepared again"),
        Outlook::Full => tracing::warn!(folder, error, "no room for another segment"),
        Outlook::Failing => tracing::warn!(
            folder,
            error,
            "cannot prepare another segment: the log cannot grow; trying again every second"
        ),
    }
}

pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests {
    use std::{sync::atomic::AtomicU64, thread};

    use super::*;
    use crate::disk::{FolderLock, LockError};

    const CAPACITY: u32 = 8 << 20;

    #[test]
    fn a_disk_is_full_without_room_or_quota_and_by_nothing_else() {
        use nix::errno::Errno::{EDQUOT, EFBIG, EIO, EMFILE, ENFILE, ENOSPC, EROFS};
        let of = |number: nix::errno::Errno| is_full(&io::Error::from(number));
        assert!(of(ENOSPC) && of(EDQUOT));
        for other in [EFBIG, EIO, EMFILE, ENFILE, EROFS] {
            assert!(!of(other), "{other}");
        }
    }

    /// Makes files that count what is written to them.
    struct CountingDisk {
        can_claim: bool,
        files: Mutex<Vec<Arc<CountingFile>>>,
    }

    struct CountingFile {
        can_claim: bool,
        written: AtomicU64,
        synced: AtomicU64,
    }

    impl Disk for CountingDisk {
        fn folder(&self) -> String {
            "counted".to_owned()
        }
        fn lock(&self) -> Result<FolderLock, LockError> {
            unreachable!()
        }
        fn list(&self) -> io::Result<Vec<String>> {
            unreachable!()
        }
        fn list_aside(&self, _: &str) -> io::Result<Vec<String>> {
            unreachable!()
        }
        fn open(&self, _: &str, _: bool) -> io::Result<Arc<dyn DiskFile>> {
            unreachable!()
        }
        fn create(&self, _: &str) -> io::Result<Arc<dyn DiskFile>> {
            let (written, synced) = (AtomicU64::new(0), AtomicU64::new(0));
            let file = Arc::new(CountingFile { can_claim: self.can_claim, written, synced });
            self.files.lock().push(file.clone());
            Ok(file)
        }
        fn rename(&self, _: &str, _: &str) -> io::Result<()> {
            Ok(())
        }
        fn move_aside(&self, _: &str, _: &str, _: &str) -> io::Result<()> {
            unreachable!()
        }
        fn remove(&self, _: &str) -> io::Result<()> {
            Ok(())
        }
        fn sync_folder(&self) -> io::Result<()> {
            unreachable!()
        }
        fn salt(&self) -> u32 {
            unreachable!()
        }
    }

    impl DiskFile for CountingFile {
        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
            unreachable!()
        }
        fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
            let before = self.written.fetch_add(bytes.len() as u64, Ordering::SeqCst);
            assert_eq!(before, offset, "in order");
            Ok(())
        }
        fn claim(&self, _: u64) -> io::Result<bool> {
            Ok(self.can_claim)
        }
        fn sync(&self) -> io::Result<()> {
            self.synced.store(self.written.load(Ordering::SeqCst), Ordering::SeqCst);
            Ok(())
        }
        fn len(&self) -> io::Result<u64> {
            unreachable!()
        }
    }

    /// How much of a spare is filled, when somebody waits for it from the beginning or nobody does, and
    /// so many bytes of the segment before came in large batches.
    fn filled(can_claim: bool, is_awaited: bool, large: Option<u64>) -> u64 {
        let disk = CountingDisk { can_claim, files: Mutex::default() };
        let spares = Spares::new(vec![], 0, CAPACITY, CAPACITY);
        if let Some(large) = large {
            spares.note_large_bytes(large);
        }
        thread::scope(|scope| {
            if is_awaited {
                scope.spawn(|| spares.await_outlook());
                while !spares.state.lock().is_awaited {
                    thread::yield_now();
                }
            }
            scope.spawn(|| spares.keep_preparing(&disk));
            while spares.state.lock().ready.is_empty() {
                thread::yield_now();
            }
            spares.stop();
        });
        let files = disk.files.into_inner();
        assert_eq!(files.len(), 1);
        let written = files[0].written.load(Ordering::SeqCst);
        assert_eq!(written, files[0].synced.load(Ordering::SeqCst), "all is synced");
        assert_eq!(spares.bytes(), u64::from(CAPACITY));
        written
    }

    #[test]
    fn who_waits_for_a_spare_gets_its_space_and_not_all_of_its_zeros() {
        let step = filled(true, true, None);
        assert!((1..u64::from(CAPACITY)).contains(&step), "{step}");
        assert_eq!(filled(true, false, None), u64::from(CAPACITY));
    }

    #[test]
    fn spares_are_not_filled_for_large_batches() {
        let half = u64::from(CAPACITY) / 2;
        assert!(filled(true, false, Some(half)) < u64::from(CAPACITY));
        assert_eq!(filled(true, false, Some(half - 1)), u64::from(CAPACITY));
    }

    #[test]
    fn where_space_cannot_be_claimed_zeros_are_what_claims_it() {
        for is_awaited in [true, false] {
            assert_eq!(filled(false, is_awaited, Some(u64::from(CAPACITY))), u64::from(CAPACITY));
        }
    }
}
