//! Long requests compute in slices, one after the other.
//!
//! A request that looks at a hundred thousand jobs does so in slices of less than a millisecond, and
//! yields between two of them. That alone would put a slice of every such request into each pass of a
//! serving thread, and small requests would wait for all of them. So the long requests of a thread share
//! one turn: between two slices everything else that is ready goes on, and the sockets are asked,
//! however many requests want a slice.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::yield_now;

thread_local! {
    /// The turn that the long requests of this thread share.
    static TURN: Arc<Semaphore> = Arc::new(Semaphore::new(1));
}

/// The right to compute for one slice, until it is dropped.
#[must_use = "the next slice of another request begins when it is dropped"]
#[derive(Debug)]
pub struct SliceTurn {
    _permit: Option<OwnedSemaphorePermit>,
}

/// Waits for everything else on this thread that is ready, and for the slices of requests that asked
/// before.
pub async fn slice_turn() -> SliceTurn {
    let turn = TURN.with(Arc::clone);
    // Nobody closes it.
    let permit = turn.acquire_owned().await.ok();
    // The next request gets the turn only when this one gives it up: one slice per pass.
    yield_now().await;
    SliceTurn { _permit: permit }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;

    /// On a runtime of one thread, as serving threads have.
    #[tokio::test]
    async fn others_go_on_between_two_slices_however_many_want_one() {
        const LONG: usize = 20;
        const SLICES: usize = 5;
        let seen = Arc::new(Mutex::new(Vec::new()));
        let other = tokio::spawn({
            let seen = Arc::clone(&seen);
            async move {
                while seen.lock().iter().flatten().count() < LONG * SLICES {
                    seen.lock().push(None);
                    yield_now().await;
                }
            }
        });
        for number in 0..LONG {
            let seen = Arc::clone(&seen);
            tokio::spawn(async move {
                for _ in 0..SLICES {
                    let _turn = slice_turn().await;
                    seen.lock().push(Some(number));
                }
            });
        }
        other.await.unwrap();
        let seen = seen.lock();
        assert!(
            seen.windows(2).all(|pair| pair[0].is_none() || pair[1].is_none()),
            "two slices in one pass: {seen:?}"
        );
        // In turn: nobody has a second slice before all have had their first.
        let slices: Vec<usize> = seen.iter().flatten().copied().collect();
        for round in slices.chunks(LONG) {
            assert_eq!(round, (0..LONG).collect::<Vec<_>>());
        }
    }
}
