//! The newest records, kept in memory: what was just written is what is mostly read. Its size is
//! the budget for payloads in memory; what has left it is read back from the log.

use std::collections::VecDeque;

use bytes::Bytes;

#[derive(Debug)]
pub(crate) struct Recent {
    /// Consecutive records; the first has position `first`.
    records: VecDeque<Bytes>,
    first: u64,
    bytes: usize,
    bytes_max: usize,
}

/// What a record costs besides its bytes.
const RECORD_OVERHEAD_BYTES: usize = 64;

impl Recent {
    pub fn new(bytes_max: usize) -> Recent {
        Recent { records: VecDeque::new(), first: 0, bytes: 0, bytes_max }
    }

    /// Adds the record at `position`, the next one in order.
    pub fn push(&mut self, position: u64, record: Bytes) {
        if self.first + self.records.len() as u64 != position {
            self.records.clear();
            self.bytes = 0;
            self.first = position;
        }
        self.bytes += record.len() + RECORD_OVERHEAD_BYTES;
        self.records.push_back(record);
    }

    /// Forgets the oldest records over the budget, but none that is not durable yet: those cannot
    /// be read back.
    pub fn shrink(&mut self, durable: u64) {
        while self.bytes > self.bytes_max && self.first < durable {
            let Some(record) = self.records.pop_front() else { return };
            self.first += 1;
            self.bytes -= record.len() + RECORD_OVERHEAD_BYTES;
        }
    }

    pub fn find(&self, position: u64) -> Option<&Bytes> {
        let at = usize::try_from(position.checked_sub(self.first)?).ok()?;
        self.records.get(at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_durable_records_over_the_budget_are_forgotten() {
        let mut recent = Recent::new(1000);
        for position in 5..10 {
            recent.push(position, Bytes::from(vec![position as u8; 400]));
        }
        recent.shrink(6);
        assert!(recent.find(5).is_none() && recent.find(6).is_some());
        recent.shrink(10);
        assert!(recent.find(7).is_none());
        assert_eq!(recent.find(9).map(|record| record[0]), Some(9));
        assert!(recent.find(10).is_none() && recent.find(0).is_none());
        assert!(recent.bytes <= 1000);
    }
}
