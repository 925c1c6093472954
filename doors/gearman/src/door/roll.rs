//! Who is connected to this door and what they can do; volatile, and only for people to look at.

use std::collections::BTreeMap;
use std::net::IpAddr;

use bytes::Bytes;

/// Functions remembered without a worker or a job; above it they are forgotten.
const IDLE_FUNCTIONS_MAX: usize = 10_000;

/// One connection.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub address: IpAddr,
    /// What it calls itself.
    pub id: Option<Bytes>,
    /// What it can do, oldest first.
    pub functions: Vec<Bytes>,
}

/// All connections, and the functions that workers, clients or people have named.
#[derive(Debug, Default)]
pub(crate) struct Roll {
    last_number: u64,
    entries: BTreeMap<u64, Entry>,
    /// Each with how many workers can do it.
    functions: BTreeMap<Bytes, u64>,
}

impl Roll {
    /// A connection came. Returns its number.
    pub fn enter(&mut self, address: IpAddr) -> u64 {
        self.last_number += 1;
        let entry = Entry { address, id: None, functions: Vec::new() };
        self.entries.insert(self.last_number, entry);
        self.last_number
    }

    /// A connection is gone.
    pub fn leave(&mut self, number: u64) {
        let Some(entry) = self.entries.remove(&number) else { return };
        for function in entry.functions {
            self.count(&function, false);
        }
    }

    pub fn set_id(&mut self, number: u64, id: Bytes) {
        if let Some(entry) = self.entries.get_mut(&number) {
            entry.id = Some(id);
        }
    }

    /// A worker can do a function, or no longer does.
    pub fn set_ability(&mut self, number: u64, function: &Bytes, able: bool) {
        let Some(entry) = self.entries.get_mut(&number) else { return };
        let at = entry.functions.iter().position(|known| known == function);
        match (at, able) {
            (None, true) => entry.functions.push(function.clone()),
            (Some(at), false) => {
                entry.functions.remove(at);
            }
            _ => return,
        }
        self.count(function, able);
    }

    /// A function was named: it is listed until somebody drops it.
    pub fn note_function(&mut self, function: &Bytes) {
        if self.functions.contains_key(function) {
            return;
        }
        if self.functions.len() >= IDLE_FUNCTIONS_MAX {
            self.functions.retain(|_, workers| *workers > 0);
        }
        self.functions.insert(function.clone(), 0);
    }

    fn count(&mut self, function: &Bytes, more: bool) {
        self.note_function(function);
        if let Some(workers) = self.functions.get_mut(function) {
            *workers = if more { *workers + 1 } else { workers.saturating_sub(1) };
        }
    }

    /// How many workers can do a function; none if nobody has named it.
    pub fn workers(&self, function: &[u8]) -> Option<u64> {
        self.functions.get(function).copied()
    }

    /// A person drops a function.
    pub fn forget_function(&mut self, function: &[u8]) {
        self.functions.remove(function);
    }

    /// Known functions behind this one, with how many workers can do them.
    pub fn functions_after(&self, after: Option<&[u8]>, limit: usize) -> Vec<(Bytes, u64)> {
        use std::ops::Bound;
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.functions
            .range::<[u8], _>((start, Bound::Unbounded))
            .take(limit)
            .map(|(name, workers)| (name.clone(), *workers))
            .collect()
    }

    /// Connections with their numbers.
    pub fn entries(&self) -> impl Iterator<Item = (u64, &Entry)> {
        self.entries.iter().map(|(number, entry)| (*number, entry))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_counts_once_for_a_function_and_no_more_when_it_is_gone() {
        let mut roll = Roll::default();
        let number = roll.enter(IpAddr::from([127, 0, 0, 1]));
        let (one, two) = (Bytes::from_static(b"one"), Bytes::from_static(b"two"));
        roll.set_ability(number, &one, true);
        roll.set_ability(number, &one, true);
        roll.set_ability(number, &two, true);
        assert_eq!((roll.workers(b"one"), roll.workers(b"two")), (Some(1), Some(1)));
        roll.set_ability(number, &two, false);
        roll.set_ability(number, &two, false);
        roll.leave(number);
        assert_eq!(roll.functions_after(None, 9), [(one.clone(), 0), (two.clone(), 0)]);
        assert_eq!(roll.functions_after(Some(b"one"), 9), [(two, 0)]);
        roll.forget_function(b"one");
        assert_eq!(roll.workers(b"one"), None);
    }

    #[test]
    fn idle_functions_are_forgotten_rather_than_too_many_kept() {
        let mut roll = Roll::default();
        let number = roll.enter(IpAddr::from([127, 0, 0, 1]));
        let able = Bytes::from_static(b"able");
        roll.set_ability(number, &able, true);
        for idle in 0..2 * IDLE_FUNCTIONS_MAX {
            roll.note_function(&Bytes::from(idle.to_string()));
        }
        assert!(roll.functions.len() <= IDLE_FUNCTIONS_MAX);
        assert_eq!(roll.workers(b"able"), Some(1));
    }
}
