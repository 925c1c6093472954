//! From a key to its job, in many small hash tables: none ever grows by more than a few hundred
//! entries at once.

use std::hash::{BuildHasher, Hasher};

use foldhash::fast::FixedState;
use hashbrown::HashTable;

/// How many tables. A million keys make about 250 each.
const TABLES: usize = 4096;
/// A table this large gives memory back when it is mostly empty.
const SHRINK_ABOVE: usize = 16;

/// What keys the hashes. The seed keeps strangers from choosing names that collide.
#[derive(Debug, Clone)]
pub struct Seed(FixedState);

impl Seed {
    /// The hash of a key.
    pub fn hash(&self, namespace: u8, name: &[u8]) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write_u8(namespace);
        hasher.write(name);
        hasher.finish()
    }
}

/// Handles of jobs by the hash of a key; the key itself stays with the job.
#[derive(Debug, Clone)]
pub struct KeyIndex {
    tables: Vec<HashTable<u32>>,
    seed: Seed,
}

impl KeyIndex {
    /// An empty index.
    pub fn new(seed: u64) -> KeyIndex {
        let seed = Seed(FixedState::with_seed(seed));
        KeyIndex { tables: vec![HashTable::new(); TABLES], seed }
    }

    /// The hash of a key.
    pub fn hash(&self, namespace: u8, name: &[u8]) -> u64 {
        self.seed.hash(namespace, name)
    }

    /// What keys the hashes, for whoever has to hash while the index is being changed.
    pub fn clone_seed(&self) -> Seed {
        self.seed.clone()
    }

    /// The handle under this hash whose key `is_it` says it is.
    pub fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        self.tables[table_of(hash)].find(hash, |handle| is_it(*handle)).copied()
    }

    /// Adds a handle; `hash_of` tells the hash of the key of any handle in this table.
    pub fn insert(&mut self, hash: u64, handle: u32, hash_of: impl Fn(u32) -> u64) {
        self.tables[table_of(hash)].insert_unique(hash, handle, |other| hash_of(*other));
    }

    /// Exchanges a handle for another with the same key.
    pub fn replace(&mut self, hash: u64, old: u32, new: u32) {
        let table = &mut self.tables[table_of(hash)];
        if let Some(handle) = table.find_mut(hash, |handle| *handle == old) {
            *handle = new;
        }
    }

    /// Removes a handle.
    pub fn remove(&mut self, hash: u64, handle: u32, hash_of: impl Fn(u32) -> u64) {
        let table = &mut self.tables[table_of(hash)];
        if let Ok(entry) = table.find_entry(hash, |other| *other == handle) {
            entry.remove();
        }
        if table.capacity() > SHRINK_ABOVE && table.len() * 4 < table.capacity() {
            table.shrink_to(table.len() * 2, |other| hash_of(*other));
        }
    }
}

/// The tables themselves use the high and the low bits of a hash, so the middle picks the table.
fn table_of(hash: u64) -> usize {
    (hash >> 24) as usize % TABLES
}
