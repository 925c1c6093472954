//! What one holder has.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};

use crate::FREE_BYTES;
use crate::registry::{Budget, CLOSED, Entry, Holder};

/// How much one holder has of a budget. Dropping it returns that.
///
/// All methods may be called from any thread; they return at once.
pub struct Account {
    budget: Budget,
    holder: Arc<dyn Holder>,
    number: u64,
    /// There since it counted for the first time.
    entry: OnceLock<Arc<Entry>>,
}

impl Account {
    pub(crate) fn new(budget: Budget, holder: Arc<dyn Holder>, number: u64) -> Account {
        Account { budget, holder, number, entry: OnceLock::new() }
    }

    /// The holder has this many bytes now.
    #[inline]
    pub fn set(&self, bytes: usize) {
        let bytes = if bytes <= FREE_BYTES { 0 } else { bytes };
        if bytes > 0 || self.entry.get().is_some() {
            self.change(|_| bytes);
        }
    }

    /// The holder has this many bytes more. A few are not counted, neither here nor when they are
    /// [removed](Account::remove).
    pub fn add(&self, bytes: usize) {
        if bytes > FREE_BYTES {
            self.change(|held| held.saturating_add(bytes).min(CLOSED - 1));
        }
    }

    /// The holder has this many bytes fewer.
    pub fn remove(&self, bytes: usize) {
        if bytes > FREE_BYTES {
            self.spend(bytes);
        }
    }

    /// As [`Account::remove`], for parts of what was added, however small.
    pub fn spend(&self, bytes: usize) {
        if self.entry.get().is_some() {
            self.change(|held| held.saturating_sub(bytes));
        }
    }

    /// Whether it was closed because it held the most.
    pub fn is_closed(&self) -> bool {
        self.entry.get().is_some_and(|entry| entry.bytes.load(Ordering::Relaxed) == CLOSED)
    }

    fn change(&self, to: impl Fn(usize) -> usize) {
        let entry = self.entry.get_or_init(|| self.budget.enter(&self.holder, self.number));
        let change = |held| (held != CLOSED).then(|| to(held)).filter(|bytes| *bytes != held);
        let changed = entry.bytes.try_update(Ordering::Relaxed, Ordering::Relaxed, change);
        if let Ok(before) = changed {
            self.budget.moved(before, to(before));
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        if let Some(entry) = self.entry.get() {
            self.budget.leave(entry);
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::Kind;

    /// Notes who was asked to let go.
    #[derive(Default)]
    struct Asked(Mutex<Vec<u64>>);

    impl Holder for Asked {
        fn let_go(&self, number: u64, kind: Kind) {
            assert_eq!(kind, Kind::Input);
            self.0.lock().push(number);
        }
    }

    const KIB: usize = 1024;

    struct Bench {
        budget: Budget,
        asked: Arc<Asked>,
    }

    impl Bench {
        fn new(bytes_max: usize) -> Bench {
            Bench { budget: Budget::new(Kind::Input, bytes_max), asked: Arc::default() }
        }

        fn account(&self, number: u64, bytes: usize) -> Account {
            let account = self.budget.open(Arc::clone(&self.asked) as Arc<dyn Holder>, number);
            account.set(bytes);
            account
        }

        fn asked(&self) -> Vec<u64> {
            self.asked.0.lock().clone()
        }

        fn held(&self) -> u64 {
            self.budget.readings().held_bytes
        }
    }

    #[test]
    fn the_largest_goes_at_one_byte_over_the_limit_and_not_at_the_limit() {
        let bench = Bench::new(100 * KIB);
        let accounts = [(1, 30), (2, 50), (3, 20)].map(|(n, kib)| bench.account(n, kib * KIB));
        assert_eq!((bench.held(), bench.asked()), (100 * 1024, vec![]));
        accounts[2].set(20 * KIB + 1);
        assert_eq!(bench.asked(), [2]);
        assert_eq!(bench.held(), 50 * 1024 + 1);
        assert_eq!(bench.budget.readings().closed, 1);
        assert_eq!(accounts.each_ref().map(Account::is_closed), [false, true, false]);
        // Without the largest, the rest is just within the limit: no other is closed.
        accounts[2].set(70 * KIB);
        let larger = bench.account(4, 71 * KIB);
        assert_eq!((bench.asked(), bench.held()), (vec![2, 4], 100 * 1024));
        drop(larger);
    }

    #[test]
    fn as_many_go_as_it_takes_and_they_count_no_more() {
        let bench = Bench::new(100 * KIB);
        let accounts = [1, 2, 3, 4].map(|n| bench.account(n, 20 * KIB + n as usize));
        let large = bench.account(5, 99 * KIB);
        assert_eq!(bench.asked(), [5]);
        let second = bench.account(6, 50 * KIB);
        assert_eq!(bench.asked(), [5, 6]);
        large.set(1);
        large.set(1 << 40);
        drop((large, second));
        assert_eq!(bench.held(), 80 * 1024 + 10);
        drop(accounts);
        assert_eq!(bench.held(), 0);
        assert_eq!(bench.asked(), [5, 6]);
    }

    #[test]
    fn a_little_is_free_and_never_enters_the_registry() {
        let bench = Bench::new(KIB);
        let accounts = [1, 2, 3].map(|number| bench.account(number, FREE_BYTES));
        accounts[0].add(FREE_BYTES);
        assert_eq!(bench.held(), 0);
        assert!(accounts.iter().all(|account| account.entry.get().is_none()));
        accounts[0].set(FREE_BYTES + 1);
        assert_eq!(bench.asked(), [1]);
    }

    #[test]
    fn what_is_added_can_be_spent_in_parts_and_never_more_than_is_there() {
        let bench = Bench::new(1000 * KIB);
        let account = bench.account(1, 0);
        account.spend(7);
        account.add(10 * KIB);
        account.add(FREE_BYTES);
        account.add(20 * KIB);
        account.spend(1);
        assert_eq!(bench.held(), 30 * 1024 - 1);
        account.remove(FREE_BYTES);
        account.remove(20 * KIB);
        account.spend(usize::MAX);
        assert_eq!(bench.held(), 0);
    }

    #[test]
    fn the_total_is_right_however_threads_meet() {
        let bench = &Bench::new(500 * KIB);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    for round in 0..2000 {
                        let account = bench.account(thread, (round % 40 + 5) * KIB);
                        let other = bench.account(thread, 50 * KIB);
                        account.set((round % 300) * KIB);
                        other.add(30 * KIB);
                    }
                });
            }
        });
        assert_eq!(bench.held(), 0);
        assert_eq!(bench.budget.readings().closed, bench.asked().len() as u64);
    }
}
