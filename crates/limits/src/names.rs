//! How much a worker may declare: the names of what it can do.
//!
//! A server keeps these names for as long as the worker is there, and for each worker apart. So the
//! limit on connections, or on workers, limits all names only if one worker's have a limit, too.

/// The most names that one worker declares: as many as a lease may name.
pub const WORKER_NAMES_MAX: usize = 1024;

/// The most bytes that the names of one worker have, all together.
pub const WORKER_NAMES_BYTES_MAX: usize = 64 * 1024;

/// Counts the names of one worker.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerNames {
    count: usize,
    bytes: usize,
}

impl WorkerNames {
    /// Counts one more name, of this many bytes. False: that is over a limit, and it is not counted.
    #[must_use]
    pub fn add(&mut self, bytes: usize) -> bool {
        let (count, bytes) = (self.count + 1, self.bytes.saturating_add(bytes));
        if count > WORKER_NAMES_MAX || bytes > WORKER_NAMES_BYTES_MAX {
            return false;
        }
        *self = WorkerNames { count, bytes };
        true
    }

    /// A name of this many bytes, which was counted, is gone.
    pub fn remove(&mut self, bytes: usize) {
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
    }

    /// Whether one worker may declare all of these.
    #[must_use]
    pub fn allow(names: impl IntoIterator<Item = impl AsRef<[u8]>>) -> bool {
        let mut counted = WorkerNames::default();
        names.into_iter().all(|name| counted.add(name.as_ref().len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_has_so_many_names_and_not_one_more() {
        let mut names = WorkerNames::default();
        assert!((0..WORKER_NAMES_MAX).all(|_| names.add(1)));
        assert!(!names.add(1));
        names.remove(1);
        assert!(names.add(1) && !names.add(1));
    }

    #[test]
    fn they_have_so_many_bytes_and_not_one_more() {
        let most = vec![b'n'; WORKER_NAMES_BYTES_MAX];
        let (first, rest) = most.split_at(512);
        assert!(WorkerNames::allow([first, rest]));
        assert!(!WorkerNames::allow([first, rest, b"n"]));
        let mut names = WorkerNames::default();
        assert!(names.add(most.len()) && !names.add(1));
        names.remove(most.len());
        assert!(names.add(most.len()));
    }

    /// As `docs/limits.md` says.
    #[test]
    fn the_page_of_limits_says_what_a_worker_may_declare() {
        const ROW: &str =
            "| names that one worker declares; the bytes of all of them | fixed | 1,024; 64 KiB |";
        assert!(include_str!("../../../docs/limits.md").lines().any(|line| line.starts_with(ROW)));
        assert_eq!((WORKER_NAMES_MAX, WORKER_NAMES_BYTES_MAX), (1024, 64 * 1024));
    }
}
