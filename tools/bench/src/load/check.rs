//! Whether every job was delivered and finished exactly once.

use thiserror::Error;

/// Remembers, in two bits a job, what happened to each.
#[derive(Default)]
pub(crate) struct Checker {
    delivered: Bitmap,
    finished: Bitmap,
    found: Mismatch,
}

/// What was wrong in a run. A run with any of it is no measurement.
#[derive(Clone, Copy, Debug, Default, Error, PartialEq, Eq)]
#[error(
    "jobs were not delivered and finished exactly once: {missing} never finished, \
     {delivered_twice} delivered twice, {finished_twice} finished twice, \
     {unknown} with a payload nobody submitted"
)]
pub(crate) struct Mismatch {
    /// Jobs that had to be finished and were not.
    pub(crate) missing: u64,
    /// Deliveries of a job that had been delivered before.
    pub(crate) delivered_twice: u64,
    /// Finishes of a job that had been finished before.
    pub(crate) finished_twice: u64,
    /// Deliveries of bytes that are no job's.
    pub(crate) unknown: u64,
}

impl Checker {
    /// A worker was handed job `number`.
    pub(crate) fn delivered(&mut self, number: u64) {
        self.found.delivered_twice += u64::from(!self.delivered.insert(number));
    }

    /// A worker was handed bytes that are not a submitted job's.
    pub(crate) fn delivered_unknown(&mut self) {
        self.found.unknown += 1;
    }

    /// The server acknowledged that job `number` is finished.
    pub(crate) fn finished(&mut self, number: u64) {
        self.found.finished_twice += u64::from(!self.finished.insert(number));
    }

    /// Judges a run after which `expected` different jobs must have been finished.
    pub(crate) fn verdict(&self, expected: u64) -> Result<(), Mismatch> {
        let missing = expected.saturating_sub(self.finished.count);
        let mismatch = Mismatch { missing, ..self.found };
        if mismatch == Mismatch::default() { Ok(()) } else { Err(mismatch) }
    }
}

#[derive(Default)]
struct Bitmap {
    words: Vec<u64>,
    count: u64,
}

impl Bitmap {
    /// Adds `number`; false when it was there.
    fn insert(&mut self, number: u64) -> bool {
        let (word, bit) = ((number / 64) as usize, 1 << (number % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let fresh = self.words[word] & bit == 0;
        self.words[word] |= bit;
        self.count += u64::from(fresh);
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn worked(numbers: impl IntoIterator<Item = u64>) -> Checker {
        let mut checker = Checker::default();
        for number in numbers {
            checker.delivered(number);
            checker.finished(number);
        }
        checker
    }

    #[test]
    fn each_job_once_in_any_order_is_sound() {
        assert_eq!(worked((0..1000).rev()).verdict(1000), Ok(()));
    }

    #[test]
    fn a_missing_job_is_reported() {
        let mismatch = worked((0..1000).filter(|&number| number != 63)).verdict(1000);
        assert_eq!(mismatch.unwrap_err().missing, 1);
    }

    #[test]
    fn a_duplicate_is_reported_even_when_the_count_is_right() {
        let mismatch = worked((0..999).chain([500])).verdict(1000).unwrap_err();
        assert_eq!(
            mismatch,
            Mismatch { missing: 1, delivered_twice: 1, finished_twice: 1, unknown: 0 }
        );
    }

    #[test]
    fn a_second_delivery_alone_is_reported() {
        let mut checker = worked(0..10);
        checker.delivered(3);
        assert_eq!(checker.verdict(10).unwrap_err().delivered_twice, 1);
    }

    #[test]
    fn foreign_bytes_are_reported() {
        let mut checker = worked(0..10);
        checker.delivered_unknown();
        assert_eq!(checker.verdict(10).unwrap_err().unknown, 1);
    }
}
