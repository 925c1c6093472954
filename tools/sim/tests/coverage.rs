//! Seeds do all that the simulator counts: what it does no more, it checks no more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use spindle_sim::counts::Counts;
use spindle_sim::faults::Planted;
use spindle_sim::run::Run;

/// Seeds until everything was done, at most. What is rare takes some tens.
const SEEDS_MAX: u64 = 120;

fn missing(counts: &Counts) -> Vec<&'static str> {
    counts.named().into_iter().filter(|(_, count)| *count == 0).map(|(name, _)| name).collect()
}

/// In order, on all processors, until nothing is missing: a change of the server that makes something
/// rarer makes this longer, and does not fail it by chance.
#[test]
fn seeds_do_all_that_is_counted() {
    let next = AtomicU64::new(0);
    let all = Mutex::new(Counts::default());
    let lock = || all.lock().unwrap_or_else(PoisonError::into_inner);
    let search = || {
        while !missing(&lock()).is_empty() {
            let seed = next.fetch_add(1, Ordering::Relaxed);
            if seed >= SEEDS_MAX {
                return;
            }
            match Run::seed(seed, Planted::default(), false) {
                Ok(counts) => lock().add(counts),
                Err(violation) => panic!("seed {seed}: {violation}"),
            }
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(search);
        }
    });
    let all = lock();
    let missing = missing(&all);
    assert!(missing.is_empty(), "{missing:?} never came in {SEEDS_MAX} seeds: {all:?}");
}
