//! Checks that seeds do everything that the simulator counts: an event that no longer occurs is no
//! longer checked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use spindle_sim::counts::Counts;
use spindle_sim::faults::Planted;
use spindle_sim::nodes;
use spindle_sim::run::Run;
use spindle_sim::workload::Profile;

/// The most seeds until everything was done. Rare events take some tens.
const SEEDS_MAX: u64 = 120;
/// One seed in so many has several records on their way.
const IN_FLIGHT_EVERY: u64 = 8;

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
            // Events that need several records on their way do not occur without them.
            let is_in_flight = seed.is_multiple_of(IN_FLIGHT_EVERY);
            let profile = if is_in_flight { Profile::InFlight } else { Profile::Mixed };
            match Run::seed_of(profile, seed, Planted::default(), false) {
                Ok(counts) => lock().add(counts),
                Err(violation) => panic!("seed {seed}: {violation}"),
            }
            match nodes::run(seed, Planted::default(), false) {
                Ok(counts) => lock().add(counts),
                Err(why) => panic!("seed {seed} of nodes: {why}"),
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

/// With one seed of the other profile, a search of a hundred sees a million.
#[test]
fn a_seed_of_schedules_fires_thousands_of_times_over_crashes_and_clocks() {
    let counts = Run::seed_of(Profile::Schedules, 1, Planted::default(), false);
    let counts = counts.unwrap_or_else(|violation| panic!("{violation}"));
    assert!(counts.firings + counts.firings_made_up >= 4_000, "{counts:?}");
    let outcomes = [counts.firings_missed, counts.firings_overlapped, counts.firings_refused];
    assert!(outcomes.iter().all(|count| *count > 0), "{counts:?}");
    let clocks = counts.clocks_ahead + counts.clocks_behind + counts.clocks_set_right;
    assert!(counts.crashes >= 3 && counts.trims >= 1 && clocks > 0, "{counts:?}");
}
