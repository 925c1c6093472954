//! Troubles of a disk and of a clock that the settings impose on the process.

use std::env;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// Writes of fewer bytes are never cut short: a block, the least that a direct write may take.
pub(crate) const SHORT_BYTES_MIN: usize = 4096;
/// Calls of the clock between two reads of its offset.
const LOOK_EVERY: u64 = 64;

/// What may go wrong, and when.
#[derive(Default)]
pub(crate) struct Troubles {
    /// While this file is there, syncs fail.
    broken: Option<PathBuf>,
    /// While this file is there, overwriting existing bytes fails.
    unwritable: Option<PathBuf>,
    /// While this file is there, files get no longer and no new ones are made.
    full: Option<PathBuf>,
    /// While this file is there, nothing more can be opened and nobody accepted.
    no_descriptors: Option<PathBuf>,
    /// Writes may accept only a part of their bytes. This is the state of the random generator.
    short: Option<AtomicU64>,
    clock: Option<Clock>,
}

/// How far the wall clock is off.
struct Clock {
    file: PathBuf,
    asked: AtomicU64,
    seconds: AtomicI64,
}

impl Troubles {
    /// What the environment asks for.
    pub(crate) fn from_environment() -> Result<Troubles, &'static str> {
        let path = |name| env::var_os(name).map(PathBuf::from);
        let short = match env::var("SPINDLE_POWERCUT_SHORT") {
            Ok(seed) => Some(AtomicU64::new(seed.parse().map_err(|_| "SPINDLE_POWERCUT_SHORT")?)),
            Err(_) => None,
        };
        let clock = path("SPINDLE_POWERCUT_CLOCK").map(|file| {
            let seconds = AtomicI64::new(seconds_in(&file));
            Clock { file, asked: AtomicU64::new(0), seconds }
        });
        Ok(Troubles {
            broken: path("SPINDLE_POWERCUT_BROKEN"),
            unwritable: path("SPINDLE_POWERCUT_UNWRITABLE"),
            full: path("SPINDLE_POWERCUT_FULL"),
            no_descriptors: path("SPINDLE_POWERCUT_NO_DESCRIPTORS"),
            short,
            clock,
        })
    }

    pub(crate) fn is_broken(&self) -> bool {
        is_marked(self.broken.as_deref())
    }

    pub(crate) fn is_unwritable(&self) -> bool {
        is_marked(self.unwritable.as_deref())
    }

    pub(crate) fn is_full(&self) -> bool {
        is_marked(self.full.as_deref())
    }

    pub(crate) fn is_out_of_descriptors(&self) -> bool {
        is_marked(self.no_descriptors.as_deref())
    }

    /// How much of a write the disk takes now: whole blocks, and all of most writes.
    pub(crate) fn taken(&self, len: usize) -> usize {
        let Some(short) = &self.short else { return len };
        if len <= SHORT_BYTES_MIN {
            return len;
        }
        // Each draw is one step of a Weyl sequence, mixed: threads draw without a lock.
        let drawn = short.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::Relaxed);
        let mixed = (drawn ^ (drawn >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32;
        let blocks = (len / SHORT_BYTES_MIN) as u64;
        match mixed % 4 {
            0 => SHORT_BYTES_MIN * (1 + (mixed / 4 % blocks) as usize),
            _ => len,
        }
        .min(len)
    }

    /// How many seconds the wall clock is off, and whether it has just been set. The file is read
    /// only now and then.
    pub(crate) fn clock_seconds(&self) -> (i64, bool) {
        let Some(clock) = &self.clock else { return (0, false) };
        if !clock.asked.fetch_add(1, Ordering::Relaxed).is_multiple_of(LOOK_EVERY) {
            return (clock.seconds.load(Ordering::Relaxed), false);
        }
        let seconds = seconds_in(&clock.file);
        (seconds, clock.seconds.swap(seconds, Ordering::Relaxed) != seconds)
    }
}

fn is_marked(mark: Option<&Path>) -> bool {
    mark.is_some_and(Path::exists)
}

/// The number in a file of eight bytes; 0 if there is none.
fn seconds_in(file: &Path) -> i64 {
    let mut bytes = [0; 8];
    let read = File::open(file).and_then(|file| file.read_exact_at(&mut bytes, 0));
    read.map_or(0, |()| i64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_writes_take_whole_blocks_and_never_nothing() {
        let troubles = Troubles { short: Some(AtomicU64::new(7)), ..Troubles::default() };
        assert_eq!(troubles.taken(SHORT_BYTES_MIN), SHORT_BYTES_MIN);
        let len = 10 * SHORT_BYTES_MIN + 5;
        let taken: Vec<usize> = (0..1000).map(|_| troubles.taken(len)).collect();
        let cut = taken.iter().filter(|taken| **taken < len).count();
        assert!((100..500).contains(&cut), "{cut} of 1000");
        assert!(
            taken.iter().all(|taken| *taken == len || (*taken > 0 && taken % SHORT_BYTES_MIN == 0))
        );
        assert_eq!(Troubles::default().taken(len), len);
    }
}
