//! How the work is shared among threads. The one place that asks how many cores there are.

use std::num::NonZeroUsize;
use std::thread::available_parallelism;

/// What the number of cores decides.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Threading {
    /// Threads that own connections. The engine's lock is the limit beyond four.
    pub reactors: usize,
    /// After so many connections of a turn were read, the log thread is woken for what they asked
    /// for, so that the disk works while the reactor still reads.
    pub reads_per_commit: usize,
    /// See [`Options::turn_entries_max`](crate::Options::turn_entries_max).
    pub turn_entries_max: usize,
}

/// On so few cores a reactor, or the HTTP thread, and the log's thread would only take turns on a
/// core: there a turn is read to its end, and whoever ends a large one commits it.
const FEW_CORES: usize = 2;

impl Threading {
    /// For this machine, or the part of it that this process may use.
    #[must_use]
    pub fn here() -> Threading {
        Threading::on(available_parallelism().map_or(1, NonZeroUsize::get))
    }

    /// For so many cores.
    #[must_use]
    pub fn on(cores: usize) -> Threading {
        /// A submit is two entries: what more than eight connections ask for in a turn is large.
        const TURN_ENTRIES_MAX: usize = 16;
        const READS_PER_COMMIT: usize = 8;
        if cores <= FEW_CORES {
            return Threading {
                reactors: 1,
                reads_per_commit: usize::MAX,
                turn_entries_max: TURN_ENTRIES_MAX,
            };
        }
        Threading {
            reactors: (cores / 2).min(4),
            reads_per_commit: READS_PER_COMMIT,
            turn_entries_max: usize::MAX,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reactor_commits_exactly_where_waking_the_log_thread_would_not_help() {
        for cores in 1..64 {
            let threading = Threading::on(cores);
            let commits = threading.turn_entries_max < usize::MAX;
            assert_eq!(commits, threading.reads_per_commit == usize::MAX, "{cores} cores");
            assert_eq!(commits, cores <= 2, "{cores} cores");
            assert!((1..=4).contains(&threading.reactors), "{cores} cores");
        }
    }
}
