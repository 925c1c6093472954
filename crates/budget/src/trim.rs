//! Memory goes back to the system after a flood.
//!
//! The allocator keeps freed memory for later requests; after a flood that is most of the memory
//! that the process has. Giving it back takes a walk through all free memory, under the allocator's
//! locks, so it is done once a flood has ended, not for each large buffer.

use std::io;
use std::sync::atomic::{AtomicIsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};

use crate::Budgets;

/// Gives memory back when one of the budgets has fallen to a quarter of its peak, which was at least
/// 32 MiB, or when others ring its [`Trimmer::bell`], on a thread of its own. Until then the thread
/// sleeps. Dropping it ends that thread.
///
/// Only with glibc; elsewhere the allocator decides.
pub struct Trimmer {
    bell: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
}

impl Trimmer {
    /// Starts the thread. A budget has one trimmer, its first.
    ///
    /// # Errors
    /// The system has no thread to give.
    pub fn start(budgets: &Budgets) -> io::Result<Trimmer> {
        let bell = Arc::<Bell>::default();
        for budget in budgets.all() {
            // A second trimmer would have nothing to do.
            let _ = budget.falls().listener.set(Arc::clone(&bell));
        }
        let heard = Arc::clone(&bell);
        let thread = thread::Builder::new().name("spindle-trim".to_owned());
        let thread = thread.spawn(move || {
            while heard.wait_for_fall() {
                // At the end of a flood, many threads let go of their bytes.
                if heard.is_over_within(SETTLING) {
                    return;
                }
                give_back();
                if heard.is_over_within(REST) {
                    return;
                }
            }
        })?;
        Ok(Trimmer { bell, thread: Some(thread) })
    }

    /// For those who know that much memory was let go of that no budget counts. It may be called at
    /// any time, and returns at once.
    pub fn bell(&self) -> impl Fn() + Send + Sync + use<> {
        let bell = Arc::clone(&self.bell);
        move || bell.ring(|rung| rung.fallen = true)
    }
}

impl Drop for Trimmer {
    fn drop(&mut self) {
        self.bell.ring(|rung| rung.over = true);
        if let Some(thread) = self.thread.take() {
            // A panic of it was reported when it happened.
            let _ = thread.join();
        }
    }
}

/// Notices that much was held and little of it is left.
#[derive(Default)]
pub(crate) struct Falls {
    /// The most that was held since the last fall.
    peak: AtomicIsize,
    listener: OnceLock<Arc<Bell>>,
}

impl Falls {
    pub(crate) fn rose_to(&self, total: isize) {
        if total > self.peak.load(Ordering::Relaxed) {
            self.peak.fetch_max(total, Ordering::Relaxed);
        }
    }

    pub(crate) fn fell_to(&self, total: isize) {
        let peak = self.peak.load(Ordering::Relaxed);
        if peak < PEAK_BYTES_MIN || total > peak / 4 {
            return;
        }
        let reset = self.peak.compare_exchange(peak, total, Ordering::Relaxed, Ordering::Relaxed);
        if let (Ok(_), Some(bell)) = (reset, self.listener.get()) {
            bell.ring(|rung| rung.fallen = true);
        }
    }
}

/// Wakes the thread.
#[derive(Default)]
struct Bell {
    rung: Mutex<Rung>,
    changed: Condvar,
}

#[derive(Default)]
struct Rung {
    fallen: bool,
    over: bool,
}

impl Bell {
    fn ring(&self, change: impl FnOnce(&mut Rung)) {
        change(&mut self.rung.lock());
        self.changed.notify_all();
    }

    /// False: it is over.
    fn wait_for_fall(&self) -> bool {
        let mut rung = self.rung.lock();
        self.changed.wait_while(&mut rung, |rung| !rung.fallen && !rung.over);
        rung.fallen = false;
        !rung.over
    }

    fn is_over_within(&self, time: Duration) -> bool {
        let mut rung = self.rung.lock();
        self.changed.wait_while_for(&mut rung, |rung| !rung.over, time);
        rung.over
    }
}

/// Gives the allocator's free pages back.
#[cfg(target_env = "gnu")]
fn give_back() {
    #[expect(unsafe_code, reason = "glibc has no other way, and the standard library none at all")]
    // SAFETY: it takes no pointers and may be called at any time from any thread (malloc_trim(3)).
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(not(target_env = "gnu"))]
fn give_back() {}

/// Less is not worth the walk.
const PEAK_BYTES_MIN: isize = 32 << 20;
/// From the fall to the trim.
const SETTLING: Duration = Duration::from_secs(1);
/// After a trim: a client that sends large jobs one by one causes a fall with each.
const REST: Duration = Duration::from_secs(10);
