//! Work on large bodies, beside the threads that serve.
//!
//! Decoding, building or reading a body of 15 MiB takes tens of milliseconds. On a serving thread
//! every other connection of the thread would wait for that. So work whose time grows with the number of
//! bytes is done by [`work_on_bytes`].

use std::future::pending;
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::sync::LazyLock;
use std::thread::available_parallelism;

use rustix::process::setpriority_process;
use rustix::thread::gettid;
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

/// Up to so many bytes are worked on by the serving thread itself: less than a millisecond.
pub const SMALL_BYTES_MAX: usize = 64 * 1024;

/// The permits to work: one for every two cores. More would take cores from the threads that serve, and
/// each piece of work holds memory for its bodies.
static TURNS: LazyLock<Semaphore> = LazyLock::new(|| {
    let cores = available_parallelism().map_or(1, NonZeroUsize::get);
    Semaphore::new((cores / 2).max(1))
});

/// Lowers the priority of the calling thread, one of the blocking pool, below those that serve: its work
/// takes long, and small requests should not wait for a processor behind it.
pub(crate) fn give_way() {
    if let Err(error) = setpriority_process(Some(gettid()), NICENESS) {
        tracing::debug!(%error, "a thread for long work has the priority of all others");
    }
}

/// The niceness of threads that do long work: about a quarter of the weight of a thread that serves.
const NICENESS: i32 = 5;

/// Does work whose time grows with a number of bytes: here and now if they are few, else on a thread
/// of the blocking pool, after the work of others that came before.
///
/// Dropping this future does not stop work that has begun; its result is dropped then.
pub async fn work_on_bytes<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes <= SMALL_BYTES_MAX {
        return work();
    }
    let Ok(turn) = TURNS.acquire().await else {
        unreachable!("nobody closes it");
    };
    let working = spawn_blocking(move || {
        let _turn = turn;
        work()
    });
    match working.await {
        Ok(done) => done,
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            // The runtime ends, and this request with it.
            Err(_) => pending().await,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::thread;

    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn much_work_is_done_on_another_thread_and_little_here() {
        let thread = || thread::current().id();
        assert_eq!(work_on_bytes(SMALL_BYTES_MAX, thread).await, thread());
        assert_ne!(work_on_bytes(SMALL_BYTES_MAX + 1, thread).await, thread());
    }

    #[tokio::test]
    async fn others_go_on_meanwhile_and_few_work_at_once() {
        let (at_once, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let mut works = JoinSet::new();
        let (begun, begins) = std::sync::mpsc::channel();
        let (let_go, held) = std::sync::mpsc::channel::<()>();
        let held = Arc::new(parking_lot::Mutex::new(held));
        for _ in 0..20 {
            let (at_once, most) = (Arc::clone(&at_once), Arc::clone(&most));
            let (begun, held) = (begun.clone(), Arc::clone(&held));
            works.spawn(work_on_bytes(usize::MAX, move || {
                most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                begun.send(()).unwrap();
                // Until this test has seen that its own thread goes on.
                let _ = held.lock().recv();
                at_once.fetch_sub(1, Ordering::SeqCst);
            }));
        }
        while begins.try_recv().is_err() {
            tokio::task::yield_now().await;
        }
        drop(let_go);
        while let Some(worked) = works.join_next().await {
            worked.unwrap();
        }
        let cores = available_parallelism().map_or(1, NonZeroUsize::get);
        assert!(most.load(Ordering::SeqCst) <= (cores / 2).max(1));
    }

    #[tokio::test]
    #[should_panic(expected = "as it was")]
    async fn a_panic_is_that_of_whoever_asked() {
        work_on_bytes(usize::MAX, || panic!("as it was")).await;
    }
}
