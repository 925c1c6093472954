//! From a key to its job, in many small sorted tables: six bytes an entry, and no step moves more
//! than one table.

use std::hash::{BuildHasher, Hasher};

use bytes::Bytes;
use foldhash::fast::FixedState;

use crate::job::Key;

/// How many tables. A million keys make about 250 each.
const TABLES: usize = 4096;

/// How many entries are looked at first on one side of the place where an entry should be.
const NEAR: usize = 8;

/// A key that is not a UUID, in the order of namespace and name. The first bytes of the name are part
/// of it as a number, which in most comparisons decides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Named {
    pub namespace: i32,
    /// Filled up with zeros, so it orders as the name does.
    start: u32,
    pub name: Bytes,
}

impl Named {
    /// A name in a namespace.
    pub fn new(namespace: i32, name: Bytes) -> Named {
        let mut start = [0; 4];
        start.iter_mut().zip(&name).for_each(|(to, byte)| *to = *byte);
        Named { namespace, start: u32::from_be_bytes(start), name }
    }

    /// The name a key gives.
    pub fn of(key: &Key) -> Named {
        Named::new(key.namespace, key.name.clone())
    }
}

/// The key of the hashes. The seed keeps clients from choosing names that collide.
#[derive(Debug, Clone)]
pub struct Seed(FixedState);

impl Seed {
    /// The hash of a name.
    pub fn hash(&self, name: &[u8]) -> u64 {
        let mut hasher = self.0.build_hasher();
        hasher.write(name);
        hasher.finish()
    }
}

/// Sixteen bits of a key's hash, and the handle of the job that has the key.
#[derive(Debug, Clone, Copy)]
struct Entry {
    tag: [u8; 2],
    handle: [u8; 4],
}

impl Entry {
    fn tag(self) -> u16 {
        u16::from_le_bytes(self.tag)
    }

    fn handle(self) -> u32 {
        u32::from_le_bytes(self.handle)
    }
}

/// Handles of jobs by the hash of a key; the key itself stays with the job.
#[derive(Debug, Clone)]
pub struct KeyIndex {
    /// Each in the order of the tags. None at all while the index is [deferred](KeyIndex::defer).
    tables: Vec<Vec<Entry>>,
    seed: Seed,
}

impl KeyIndex {
    /// An empty index.
    pub fn new(seed: u64) -> KeyIndex {
        KeyIndex { tables: vec![Vec::new(); TABLES], seed: Seed(FixedState::with_seed(seed)) }
    }

    /// Forgets all of them.
    pub fn clear(&mut self) {
        self.tables = vec![Vec::new(); TABLES];
    }

    /// The hash of a name.
    pub fn hash(&self, name: &[u8]) -> u64 {
        self.seed.hash(name)
    }

    /// What keys the hashes.
    pub fn seed(&self) -> Seed {
        self.seed.clone()
    }

    /// The handle under this hash that `is_it` accepts.
    pub fn find(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<u32> {
        let table = &self.tables[table_of(hash)];
        self.place(hash, is_it).map(|at| table[at].handle())
    }

    /// The place of the entry that has this hash's tag and whose handle `is_it` accepts.
    fn place(&self, hash: u64, is_it: impl Fn(u32) -> bool) -> Option<usize> {
        let (table, tag) = (self.tables.get(table_of(hash))?, tag_of(hash));
        let start = first_not_below(table, tag);
        let same = table[start..].iter().take_while(|entry| entry.tag() == tag);
        same.enumerate().find(|(_, entry)| is_it(entry.handle())).map(|(at, _)| start + at)
    }

    /// Forgets all entries and takes no more until it is [filled](KeyIndex::fill). Nothing may be
    /// looked up meanwhile.
    pub fn defer(&mut self) {
        self.tables = Vec::new();
    }

    /// Whether it takes no entries for now, so that no hash need be computed.
    pub fn is_deferred(&self) -> bool {
        self.tables.is_empty()
    }

    /// Begins again with the entries of both iterators, about `many` each, with no search. It is done in two steps of two
    /// pieces of work, which `both` runs, at the same time if it can: hashing the names of each, and filling each half of
    /// the tables.
    pub fn fill<I: Iterator<Item = (u64, u32)>, J: Iterator<Item = (u64, u32)>>(
        &mut self,
        many: usize,
        one: impl FnOnce() -> I + Send,
        other: impl FnOnce() -> J + Send,
        both: impl Fn(Work<'_>, Work<'_>),
    ) {
        let (mut ones, mut others) = (Default::default(), Default::default());
        let (one, other) = (&mut Some(one), &mut Some(other));
        both(
            &mut || ones = one.take().map(|one| by_half(one(), many)).unwrap_or_default(),
            &mut || others = other.take().map(|other| by_half(other(), many)).unwrap_or_default(),
        );
        let [ones_low, ones_high]: [Vec<u64>; 2] = ones;
        let [others_low, others_high]: [Vec<u64>; 2] = others;
        let (mut low, mut high) = (Vec::new(), Vec::new());
        both(&mut || low = half_of_tables(0, [&ones_low, &others_low]), &mut || {
            high = half_of_tables(TABLES / 2, [&ones_high, &others_high])
        });
        low.append(&mut high);
        self.tables = low;
    }

    /// Adds a handle.
    pub fn insert(&mut self, hash: u64, handle: u32) {
        let Some(table) = self.tables.get_mut(table_of(hash)) else { return };
        let tag = tag_of(hash);
        if table.len() == table.capacity() {
            // Only a little more room than now: a vector by itself would double it.
            table.reserve_exact(table.len() / 8 + 4);
        }
        let at = first_not_below(table, tag);
        table.insert(at, Entry { tag: tag.to_le_bytes(), handle: handle.to_le_bytes() });
    }

    /// Exchanges a handle for another with the same key.
    pub fn replace(&mut self, hash: u64, old: u32, new: u32) {
        if let Some(at) = self.place(hash, |handle| handle == old) {
            self.tables[table_of(hash)][at].handle = new.to_le_bytes();
        }
    }

    /// Removes a handle.
    pub fn remove(&mut self, hash: u64, handle: u32) {
        let Some(at) = self.place(hash, |other| other == handle) else { return };
        let table = &mut self.tables[table_of(hash)];
        table.remove(at);
        if table.len() + table.len() / 4 + 8 < table.capacity() {
            table.shrink_to(table.len() + table.len() / 8);
        }
    }
}

/// A piece of work that another function runs, once.
pub type Work<'a> = &'a mut (dyn FnMut() + Send);

/// Table, tag and handle as one number, for the lower and for the upper half of the tables.
fn by_half(entries: impl Iterator<Item = (u64, u32)>, many: usize) -> [Vec<u64>; 2] {
    // Half of them each, and a little for chance.
    let mut halves = [0, 1].map(|_| Vec::with_capacity(many / 2 + many / 64 + 64));
    for (hash, handle) in entries {
        let table = table_of(hash);
        let entry = (table as u64) << 48 | u64::from(tag_of(hash)) << 32 | u64::from(handle);
        halves[usize::from(table >= TABLES / 2)].push(entry);
    }
    halves
}

/// Half of the tables from `first` on, with these entries.
fn half_of_tables(first: usize, lists: [&[u64]; 2]) -> Vec<Vec<Entry>> {
    let table_of = |entry: u64| (entry >> 48) as usize - first;
    let mut counts = vec![0; TABLES / 2];
    lists.iter().flat_map(|list| list.iter()).for_each(|entry| counts[table_of(*entry)] += 1);
    let mut tables: Vec<Vec<Entry>> = counts.into_iter().map(Vec::with_capacity).collect();
    for entry in lists.into_iter().flatten().copied() {
        let (tag, handle) = ((entry >> 32) as u16, entry as u32);
        let (tag, handle) = (tag.to_le_bytes(), handle.to_le_bytes());
        tables[table_of(entry)].push(Entry { tag, handle });
    }
    tables.iter_mut().for_each(|table| table.sort_unstable_by_key(|entry| entry.tag()));
    tables
}

/// Where the entries with this tag begin. Tags are evenly spread, so the tag's value tells about
/// where they begin: one stretch of memory is looked at, instead of a search from end to end.
fn first_not_below(table: &[Entry], tag: u16) -> usize {
    let len = table.len();
    let guess = (usize::from(tag) * len) >> u16::BITS;
    let is_below = |at: usize| table[at].tag() < tag;
    let (mut low, mut high, mut step) = (0, len, NEAR);
    if guess < len && is_below(guess) {
        low = guess + 1;
        while low + step < len {
            if !is_below(low + step) {
                high = low + step;
                break;
            }
            low += step + 1;
            step *= 2;
        }
    } else {
        high = guess;
        while step < high {
            if is_below(high - step) {
                low = high - step + 1;
                break;
            }
            high -= step;
            step *= 2;
        }
    }
    low + table[low..high].partition_point(|entry| entry.tag() < tag)
}

fn table_of(hash: u64) -> usize {
    (hash >> 24) as usize % TABLES
}

fn tag_of(hash: u64) -> u16 {
    (hash >> 48) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_of_a_tag_is_found_wherever_it_is() {
        for spread in [0u64, 1, 7, 100, 300, 65_535] {
            let mut table: Vec<Entry> = Vec::new();
            for draw in 0..400u64 {
                let tag = (draw.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % (spread + 1);
                let tag = tag as u16;
                let at = table.partition_point(|entry| entry.tag() < tag);
                assert_eq!(first_not_below(&table, tag), at);
                for other in [0, tag.wrapping_sub(1), tag.wrapping_add(1), u16::MAX] {
                    let expected = table.partition_point(|entry| entry.tag() < other);
                    assert_eq!(first_not_below(&table, other), expected, "of {other}");
                }
                table.insert(at, Entry { tag: tag.to_le_bytes(), handle: [0; 4] });
            }
        }
    }

    #[test]
    fn names_are_in_the_order_of_their_bytes() {
        let mut names: Vec<&[u8]> =
            vec![b"", b"\0", b"a", b"a\0", b"a\0\0b", b"ab", b"abcd", b"abcd\0"];
        names.extend([&b"abcde"[..], b"abce", b"\xff", b"\xff\xff\xff\xff\xff"]);
        for (one, other) in names.iter().flat_map(|one| names.iter().map(move |other| (one, other)))
        {
            let named = |name: &[u8]| Named::new(2, Bytes::copy_from_slice(name));
            assert_eq!(named(one).cmp(&named(other)), one.cmp(other), "{one:?} {other:?}");
        }
    }

    #[test]
    fn a_deferred_index_knows_all_when_it_was_filled() {
        let hash = |handle: u32| u64::from(handle % 977).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut index = KeyIndex::new(7);
        index.insert(hash(1), 1);
        index.defer();
        index.insert(hash(5), 5);
        index.remove(hash(1), 1);
        index.replace(hash(5), 5, 6);
        let hashed = |handle| (hash(handle), handle);
        let one_by_one = |one: Work<'_>, other: Work<'_>| {
            other();
            one();
        };
        index.fill(2_000, || (2..2_000).map(hashed), || (2_000..5_000).map(hashed), one_by_one);
        for handle in 2..5_000 {
            assert_eq!(index.find(hash(handle), |other| other == handle), Some(handle));
        }
        assert_eq!(index.find(hash(1), |other| other == 1), None);
        assert!(index.tables.iter().all(|table| table.is_sorted_by_key(|entry| entry.tag())));
        index.remove(hash(7), 7);
        index.insert(hash(5_000), 5_000);
        assert_eq!(index.find(hash(7), |other| other == 7), None);
        assert_eq!(index.find(hash(5_000), |other| other == 5_000), Some(5_000));
    }

    #[test]
    #[should_panic(expected = "index out of bounds")]
    fn a_deferred_index_does_not_pretend_to_know() {
        let mut index = KeyIndex::new(7);
        index.insert(3, 1);
        index.defer();
        index.find(3, |_| true);
    }

    #[test]
    fn keys_with_the_same_tag_are_told_apart_and_memory_returns() {
        let mut index = KeyIndex::new(7);
        // All in one table, and a thousand to a tag.
        let hash = |handle: u32| u64::from(handle % 5) << 48;
        (0..5_000).for_each(|handle| index.insert(hash(handle), handle));
        for handle in 0..5_000 {
            assert_eq!(index.find(hash(handle), |other| other == handle), Some(handle));
        }
        assert_eq!(index.find(hash(3), |other| other == 4), None);
        index.replace(hash(3), 3, 9_003);
        assert_eq!(index.find(hash(3), |other| other == 9_003), Some(9_003));
        index.replace(hash(3), 9_003, 3);
        (0..4_990).for_each(|handle| index.remove(hash(handle), handle));
        for handle in 4_990..5_000 {
            assert_eq!(index.find(hash(handle), |other| other == handle), Some(handle));
        }
        assert!(index.tables[0].capacity() < 40);
    }
}
