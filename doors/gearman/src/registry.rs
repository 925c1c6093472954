//! The connections of this door and what their workers can do. Volatile, and only shown to people.
//!
//! Every connection may name 1,024 functions, so no packet causes a walk over names here: one name
//! costs a fixed number of look-ups, however many there are.

mod function;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::ops::Bound;

use bytes::Bytes;

use function::{Function, Name};

/// Most functions remembered without a worker; beyond that the one named longest ago is dropped.
const IDLE_FUNCTIONS_MAX: usize = 10_000;

/// One connection.
#[derive(Debug)]
struct Peer {
    address: IpAddr,
    /// What it calls itself.
    id: Option<Bytes>,
    /// The functions it can do, by the place its session gave each.
    functions: BTreeMap<u64, Bytes>,
}

/// A connection as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listed {
    pub number: u64,
    pub address: IpAddr,
    /// What it calls itself.
    pub id: Option<Bytes>,
    /// What it can do, the newest first.
    pub functions: Vec<Bytes>,
}

/// All connections, and the functions that workers, clients or people have named.
#[derive(Debug, Default)]
pub(crate) struct Registry {
    last_number: u64,
    peers: BTreeMap<u64, Peer>,
    functions: BTreeMap<Name, Function>,
    last_idle: u64,
    /// Functions without a worker, the one named longest ago first.
    idle: BTreeMap<u64, Name>,
}

impl Registry {
    /// Adds a connection and returns its number.
    pub fn connect(&mut self, address: IpAddr) -> u64 {
        self.last_number += 1;
        let peer = Peer { address, id: None, functions: BTreeMap::new() };
        self.peers.insert(self.last_number, peer);
        self.last_number
    }

    /// Removes a connection.
    pub fn disconnect(&mut self, number: u64) {
        self.reset_abilities(number);
        self.peers.remove(&number);
    }

    pub fn set_id(&mut self, number: u64, id: Bytes) {
        if let Some(peer) = self.peers.get_mut(&number) {
            peer.id = Some(id);
        }
    }

    /// Adds a function to what a worker can do. The worker's session chooses the place, and adds a
    /// function only once.
    pub fn add_ability(&mut self, number: u64, place: u64, function: &Bytes) {
        let Some(peer) = self.peers.get_mut(&number) else { return };
        if peer.functions.insert(place, function.clone()).is_none() {
            self.gain_worker(function);
        }
    }

    /// Removes the function that a worker added at this place.
    pub fn remove_ability(&mut self, number: u64, place: u64) {
        let Some(peer) = self.peers.get_mut(&number) else { return };
        if let Some(function) = peer.functions.remove(&place) {
            self.lose_worker(&function);
        }
    }

    /// Removes all functions of a worker.
    pub fn reset_abilities(&mut self, number: u64) {
        let Some(peer) = self.peers.get_mut(&number) else { return };
        for function in std::mem::take(&mut peer.functions).into_values() {
            self.lose_worker(&function);
        }
    }

    /// Remembers a function: it is listed until somebody drops it, or until too many have been
    /// named after it.
    pub fn note_function(&mut self, function: &Bytes) {
        let name = Name::of(function);
        let known = self.functions.entry(name.clone()).or_default();
        if known.workers() > 0 {
            return;
        }
        self.last_idle += 1;
        if let Some(before) = known.set_idle(self.last_idle) {
            self.idle.remove(&before);
        }
        self.idle.insert(self.last_idle, name);
        if self.idle.len() > IDLE_FUNCTIONS_MAX
            && let Some((_, oldest)) = self.idle.pop_first()
        {
            self.functions.remove(&oldest);
        }
    }

    fn gain_worker(&mut self, function: &Bytes) {
        let known = self.functions.entry(Name::of(function)).or_default();
        if let Some(place) = known.gain_worker() {
            self.idle.remove(&place);
        }
    }

    fn lose_worker(&mut self, function: &Bytes) {
        if self.functions.get_mut(&function[..]).is_some_and(Function::lose_worker) {
            self.note_function(function);
        }
    }

    /// How many workers can do a function; `None` if nobody has named it.
    pub fn workers(&self, function: &[u8]) -> Option<u64> {
        self.functions.get(function).map(Function::workers)
    }

    /// Forgets a function that no worker can do.
    pub fn forget_function(&mut self, function: &[u8]) {
        if self.workers(function) == Some(0)
            && let Some(known) = self.functions.remove(function)
            && let Some(place) = known.idle()
        {
            self.idle.remove(&place);
        }
    }

    /// At most `limit` known functions whose names come after this one, each with its number of
    /// workers.
    pub fn functions_after(&self, after: Option<&[u8]>, limit: usize) -> Vec<(Bytes, u64)> {
        let start = after.map_or(Bound::Unbounded, Bound::Excluded);
        self.functions
            .range::<[u8], _>((start, Bound::Unbounded))
            .take(limit)
            .map(|(name, known)| (name.bytes().clone(), known.workers()))
            .collect()
    }

    /// The connection that came next after the one with this number.
    pub fn entry_after(&self, number: u64) -> Option<Listed> {
        let behind = (Bound::Excluded(number), Bound::Unbounded);
        let (number, peer) = self.peers.range(behind).next()?;
        let functions = peer.functions.values().rev().cloned().collect();
        Some(Listed { number: *number, address: peer.address, id: peer.id.clone(), functions })
    }
}

#[cfg(test)]
mod tests {
    use super::function::take_steps;
    use super::*;

    fn connect(registry: &mut Registry) -> u64 {
        registry.connect(IpAddr::from([127, 0, 0, 1]))
    }

    #[test]
    fn a_worker_counts_once_for_a_function_and_no_more_when_it_is_gone() {
        let mut registry = Registry::default();
        let number = connect(&mut registry);
        let (one, two) = (Bytes::from_static(b"one"), Bytes::from_static(b"two"));
        registry.add_ability(number, 0, &one);
        registry.add_ability(number, 0, &one);
        registry.add_ability(number, 1, &two);
        assert_eq!((registry.workers(b"one"), registry.workers(b"two")), (Some(1), Some(1)));
        assert_eq!(registry.entry_after(0).unwrap().functions, [two.clone(), one.clone()]);
        registry.remove_ability(number, 1);
        registry.remove_ability(number, 1);
        registry.disconnect(number);
        assert_eq!(registry.functions_after(None, 9), [(one.clone(), 0), (two.clone(), 0)]);
        assert_eq!(registry.functions_after(Some(b"one"), 9), [(two, 0)]);
        assert_eq!(registry.entry_after(0), None);
        registry.forget_function(b"one");
        assert_eq!(registry.workers(b"one"), None);
    }

    #[test]
    fn the_idle_function_named_longest_ago_is_forgotten_rather_than_too_many_kept() {
        let mut registry = Registry::default();
        let number = connect(&mut registry);
        let able = Bytes::from_static(b"able");
        registry.note_function(&able);
        registry.add_ability(number, 0, &able);
        let named = |idle: usize| Bytes::from(idle.to_string());
        for idle in 0..IDLE_FUNCTIONS_MAX {
            registry.note_function(&named(idle));
        }
        assert_eq!(registry.functions.len(), IDLE_FUNCTIONS_MAX + 1);
        // Named again, so the next one is the oldest.
        registry.note_function(&named(0));
        registry.note_function(&Bytes::from_static(b"one more"));
        let workers = ["0", "1", "2", "able"].map(|name| registry.workers(name.as_bytes()));
        assert_eq!(workers, [Some(0), None, Some(0), Some(1)]);
        // A function that its last worker gives up counts as just named.
        registry.disconnect(number);
        let workers = ["0", "2", "3", "able"].map(|name| registry.workers(name.as_bytes()));
        assert_eq!(workers, [Some(0), None, Some(0), Some(0)]);
        assert_eq!((registry.functions.len(), registry.idle.len()), (10_000, 10_000));
    }

    #[test]
    fn a_function_that_is_in_use_again_is_not_dropped_under_its_worker() {
        let mut registry = Registry::default();
        let number = connect(&mut registry);
        let name = Bytes::from_static(b"name");
        registry.add_ability(number, 0, &name);
        registry.forget_function(b"name");
        assert_eq!(registry.workers(b"name"), Some(1));
    }

    /// The last thousand of a hundred thousand names cost as much as the first, but for the depth
    /// of a tree: coming and going.
    #[test]
    fn what_a_name_costs_does_not_grow_with_the_names_there_are() {
        const WORKERS: u64 = 100;
        const PER_WORKER: u64 = 1000;
        let mut registry = Registry::default();
        let mut most = u64::MAX;
        let mut check = |what: &str| {
            let steps = take_steps();
            assert!(steps <= most, "{what}: {steps} steps, and the first thousand took {most}");
            // The steps of the first worker set the limit.
            most = most.min(4 * steps);
        };
        take_steps();
        let numbers: Vec<u64> = (0..WORKERS).map(|_| connect(&mut registry)).collect();
        for number in &numbers {
            for place in 0..PER_WORKER {
                let name = Bytes::from(format!("function {number} {place}"));
                registry.note_function(&name);
                registry.add_ability(*number, place, &name);
            }
            check("coming");
        }
        assert_eq!(registry.functions.len() as u64, WORKERS * PER_WORKER);
        for number in numbers {
            match number % 3 {
                0 => (0..PER_WORKER).for_each(|place| registry.remove_ability(number, place)),
                1 => registry.reset_abilities(number),
                _ => {}
            }
            registry.disconnect(number);
            check("going");
        }
    }
}
