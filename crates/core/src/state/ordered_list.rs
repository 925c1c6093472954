//! An ordered list of jobs at about five bytes an entry.
//!
//! Entries are numbers of jobs in chunks of up to 128, and chunks lie in blocks of up to 256; what
//! entries are ordered by is looked up in the job itself. Appending in order fills chunks whole,
//! taking the first is cheap, and no single step moves more than one chunk or one block: a million
//! entries never cause a pause.

use std::collections::BTreeSet;

/// What a list is ordered by: whole numbers, one for each entry.
pub trait OrderKey: Copy + Ord {
    /// The distance from a key that is not above it, as far as that can be counted.
    fn distance_from(self, lower: Self) -> usize;
}

impl OrderKey for u64 {
    fn distance_from(self, lower: u64) -> usize {
        (self - lower) as usize
    }
}

impl OrderKey for u128 {
    fn distance_from(self, lower: u128) -> usize {
        usize::try_from(self - lower).unwrap_or(usize::MAX)
    }
}

/// Entries a chunk holds at most.
const CHUNK_MAX: usize = 128;
/// A chunk with fewer entries joins its successor when both fit well into one.
const CHUNK_SPARSE: usize = 16;
/// Chunks a block holds at most.
const BLOCK_MAX: usize = 256;

#[derive(Debug, Clone)]
struct Chunk<K> {
    /// A lower bound of the keys of its entries, above all keys of the chunk before.
    bound: K,
    /// What may be among its entries, for walks that skip chunks: possibly too many bits, never too
    /// few. The user of the list gives them their meaning.
    marks: u128,
    entries: Vec<u32>,
}

/// Chunks in order; never empty.
type Block<K> = Vec<Chunk<K>>;

/// The number of a block, and of a chunk in it.
pub type ChunkAt = (usize, usize);

/// Entries in the order of the keys that `key_of` returns. The caller MUST remove an entry before
/// its key changes.
#[derive(Debug, Clone)]
pub struct OrderedList<K = u128> {
    blocks: Vec<Block<K>>,
    len: usize,
}

impl<K> Default for OrderedList<K> {
    fn default() -> Self {
        OrderedList { blocks: Vec::new(), len: 0 }
    }
}

impl<K: OrderKey> OrderedList<K> {
    /// How many entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// The first entry.
    pub fn first(&self) -> Option<u32> {
        self.blocks.first()?.first()?.entries.first().copied()
    }

    /// The last entry.
    pub fn last(&self) -> Option<u32> {
        self.blocks.last()?.last()?.entries.last().copied()
    }

    /// The chunk a key belongs to: the last one whose bound is not above it.
    fn chunk_for(&self, key: K) -> Option<ChunkAt> {
        let last = self.blocks.len().checked_sub(1)?;
        // New entries mostly come at the end, and old ones go at the front.
        let block = if last == 0 || self.blocks[last][0].bound <= key {
            last
        } else {
            self.blocks.partition_point(|block| block[0].bound <= key).checked_sub(1)?
        };
        let chunks = &self.blocks[block];
        if chunks[chunks.len() - 1].bound <= key {
            return Some((block, chunks.len() - 1));
        }
        // Keys that count up without gaps stand where their distance says; with gaps, before that.
        if chunks[0].bound > key {
            return None;
        }
        let guess = key.distance_from(chunks[0].bound) / CHUNK_MAX;
        let end = match chunks.get(guess) {
            Some(chunk) if chunk.bound > key => guess,
            Some(_) if chunks[guess + 1].bound > key => return Some((block, guess)),
            _ => chunks.len(),
        };
        Some((block, chunks[..end].partition_point(|chunk| chunk.bound <= key) - 1))
    }

    /// Puts an entry in its place. Its key is not in the list yet.
    pub fn insert(&mut self, entry: u32, key_of: impl Fn(u32) -> K) {
        let key = key_of(entry);
        self.len += 1;
        if self.last().is_some_and(|last| key_of(last) < key) {
            self.append(key, entry);
            return;
        }
        let Some(at @ (block, number)) = self.chunk_for(key) else {
            self.insert_before_all(key, entry);
            return;
        };
        let entries = &mut self.blocks[block][number].entries;
        if entries.last().is_none_or(|last| key_of(*last) < key) {
            self.insert_behind(at, key, entry);
            return;
        }
        let place = entries.partition_point(|other| key_of(*other) < key);
        if entries.len() < CHUNK_MAX {
            grow(entries);
            entries.insert(place, entry);
            return;
        }
        let mut upper = entries.split_off(CHUNK_MAX / 2);
        entries.shrink_to_fit();
        match place.checked_sub(CHUNK_MAX / 2) {
            Some(place) => upper.insert(place, entry),
            None => entries.insert(place, entry),
        }
        let bound = key_of(upper[0]);
        let marks = self.blocks[block][number].marks;
        self.insert_chunk_after(at, Chunk { bound, marks, entries: upper });
    }

    /// Puts an entry after all others. The list is not empty.
    fn append(&mut self, key: K, entry: u32) {
        let block = self.blocks.len() - 1;
        self.insert_behind((block, self.blocks[block].len() - 1), key, entry);
    }

    /// Puts an entry after those of a chunk.
    fn insert_behind(&mut self, at: ChunkAt, key: K, entry: u32) {
        let entries = &mut self.blocks[at.0][at.1].entries;
        if entries.len() < CHUNK_MAX {
            grow(entries);
            entries.push(entry);
        } else {
            self.insert_chunk_after(at, Chunk { bound: key, marks: 0, entries: vec![entry] });
        }
    }

    fn insert_before_all(&mut self, key: K, entry: u32) {
        let first = self.blocks.first_mut().and_then(|block| block.first_mut());
        match first {
            Some(chunk) if chunk.entries.len() < CHUNK_MAX => {
                grow(&mut chunk.entries);
                chunk.entries.insert(0, entry);
                chunk.bound = key;
            }
            Some(_) => {
                self.blocks[0].insert(0, Chunk { bound: key, marks: 0, entries: vec![entry] });
                self.split_if_full(0);
            }
            None => self.blocks.push(vec![Chunk { bound: key, marks: 0, entries: vec![entry] }]),
        }
    }

    fn insert_chunk_after(&mut self, (block, number): ChunkAt, chunk: Chunk<K>) {
        let chunks = &mut self.blocks[block];
        if chunks.len() == BLOCK_MAX && number + 1 == BLOCK_MAX {
            // As when entries come in order: blocks are filled whole.
            self.blocks.insert(block + 1, vec![chunk]);
            return;
        }
        chunks.insert(number + 1, chunk);
        self.split_if_full(block);
    }

    fn split_if_full(&mut self, block: usize) {
        let chunks = &mut self.blocks[block];
        if chunks.len() > BLOCK_MAX {
            let upper = chunks.split_off(BLOCK_MAX / 2);
            chunks.shrink_to_fit();
            self.blocks.insert(block + 1, upper);
        }
    }

    /// Takes an entry out. Returns whether it was there.
    pub fn remove(&mut self, entry: u32, key_of: impl Fn(u32) -> K) -> bool {
        let key = key_of(entry);
        let Some(at @ (block, number)) = self.chunk_for(key) else { return false };
        let entries = &mut self.blocks[block][number].entries;
        let place = if entries.first() == Some(&entry) {
            0
        } else {
            entries.partition_point(|other| key_of(*other) < key)
        };
        if entries.get(place) != Some(&entry) {
            return false;
        }
        entries.remove(place);
        self.len -= 1;
        if entries.is_empty() {
            self.remove_chunk(at);
        } else if entries.len() < CHUNK_SPARSE {
            self.join_successor(at);
        }
        true
    }

    fn remove_chunk(&mut self, (block, number): ChunkAt) {
        let chunks = &mut self.blocks[block];
        chunks.remove(number);
        if chunks.is_empty() {
            self.blocks.remove(block);
            if self.blocks.len() * 4 < self.blocks.capacity() {
                self.blocks.shrink_to(self.blocks.len() * 2);
            }
            return;
        }
        if chunks.len() * 4 < chunks.capacity() {
            chunks.shrink_to(chunks.len() * 2);
        }
        let (len, next) = (chunks.len(), self.blocks.get(block + 1).map_or(BLOCK_MAX, Vec::len));
        if len + next <= BLOCK_MAX / 2 {
            let next = self.blocks.remove(block + 1);
            self.blocks[block].extend(next);
        }
    }

    fn join_successor(&mut self, (block, number): ChunkAt) {
        let chunks = &mut self.blocks[block];
        let len = chunks[number].entries.len();
        let fits = |next: &Chunk<K>| next.entries.len() + len <= CHUNK_MAX - CHUNK_SPARSE;
        if chunks.get(number + 1).is_some_and(fits) {
            let next = chunks.remove(number + 1);
            chunks[number].entries.reserve_exact(next.entries.len());
            chunks[number].entries.extend_from_slice(&next.entries);
            chunks[number].marks |= next.marks;
        }
    }

    /// Exchanges an entry number for another of the same key, which has these marks.
    pub fn replace(
        &mut self,
        key: K,
        (old, new): (u32, u32),
        marks: u128,
        key_of: impl Fn(u32) -> K,
    ) {
        if let Some(((block, number), place)) = self.place_of(key, key_of) {
            let chunk = &mut self.blocks[block][number];
            if let Some(entry) = chunk.entries.get_mut(place).filter(|entry| **entry == old) {
                *entry = new;
                chunk.marks |= marks;
            }
        }
    }

    /// Marks the chunk a key is in.
    pub fn mark(&mut self, key: K, marks: u128) {
        if let Some((block, number)) = self.chunk_for(key) {
            self.blocks[block][number].marks |= marks;
        }
    }

    /// The chunk in which a walk from a key on begins.
    pub fn walk_from(&self, key: K) -> ChunkAt {
        self.chunk_for(key).unwrap_or_default()
    }

    /// A chunk on a walk: what may be in it, and its entries. None at the end.
    pub fn chunk(&self, (block, number): ChunkAt) -> Option<(u128, &[u32])> {
        let chunk = self.blocks.get(block)?.get(number)?;
        Some((chunk.marks, &chunk.entries))
    }

    /// Where a walk continues after a chunk.
    pub fn after(&self, (block, number): ChunkAt) -> ChunkAt {
        let is_last = self.blocks.get(block).is_none_or(|chunks| number + 1 >= chunks.len());
        if is_last { (block + 1, 0) } else { (block, number + 1) }
    }

    /// Where a walk down continues before a chunk; none at the beginning.
    pub fn before(&self, (block, number): ChunkAt) -> Option<ChunkAt> {
        if let Some(number) = number.checked_sub(1) {
            return Some((block, number));
        }
        let block = block.checked_sub(1)?;
        Some((block, self.blocks.get(block)?.len().checked_sub(1)?))
    }

    /// Sets what is in a chunk, found out by looking at all of it.
    pub fn set_marks(&mut self, (block, number): ChunkAt, marks: u128) {
        if let Some(chunk) = self.blocks.get_mut(block).and_then(|chunks| chunks.get_mut(number)) {
            chunk.marks = marks;
        }
    }

    /// The entry with exactly this key.
    pub fn find(&self, key: K, key_of: impl Fn(u32) -> K) -> Option<u32> {
        let ((block, number), place) = self.place_of(key, key_of)?;
        self.blocks[block][number].entries.get(place).copied()
    }

    /// Where the entry with exactly this key is. Keys are whole numbers, so between a chunk's bound
    /// and a key there are at most as many entries as their difference says.
    fn place_of(&self, key: K, key_of: impl Fn(u32) -> K) -> Option<(ChunkAt, usize)> {
        let at @ (block, number) = self.chunk_for(key)?;
        let Chunk { bound, entries, .. } = &self.blocks[block][number];
        let last = entries.len() - 1;
        let guess = key.distance_from(*bound).min(last);
        let there = key_of(entries[guess]);
        if there == key {
            return Some((at, guess));
        }
        if there < key {
            // This happens only beyond the last entry: any other guess is not below its key.
            return None;
        }
        let before = &entries[..guess];
        let place = before.partition_point(|other| key_of(*other) < key);
        before.get(place).filter(|entry| key_of(**entry) == key).map(|_| (at, place))
    }

    /// All entries with keys from `key` on, in order.
    pub fn iter_from<'a>(
        &'a self,
        key: K,
        key_of: impl Fn(u32) -> K + 'a,
    ) -> impl Iterator<Item = u32> + 'a {
        self.chunks_from(self.chunk_for(key).unwrap_or_default())
            .flat_map(|chunk| chunk.entries.iter().copied())
            .skip_while(move |entry| key_of(*entry) < key)
    }

    /// All entries in order, after passing over the first `count`, chunk by chunk.
    pub fn iter_after(&self, count: usize) -> impl Iterator<Item = u32> + '_ {
        let (mut at, mut left) = ((self.blocks.len(), 0), count);
        'found: for (block, chunks) in self.blocks.iter().enumerate() {
            for (number, chunk) in chunks.iter().enumerate() {
                if chunk.entries.len() > left {
                    at = (block, number);
                    break 'found;
                }
                left -= chunk.entries.len();
            }
        }
        self.chunks_from(at).flat_map(|chunk| chunk.entries.iter().copied()).skip(left)
    }

    /// How many entries have keys below this one. Of the chunks before the key's only the lengths are
    /// read, so it is cheap even among millions.
    pub fn count_below(&self, key: K, key_of: impl Fn(u32) -> K) -> usize {
        let Some((block, number)) = self.chunk_for(key) else { return 0 };
        let chunks = self.blocks[..block].iter().flatten().chain(&self.blocks[block][..number]);
        let before: usize = chunks.map(|chunk| chunk.entries.len()).sum();
        let own = &self.blocks[block][number].entries;
        before + own.partition_point(|entry| key_of(*entry) < key)
    }

    fn chunks_from(&self, (block, number): ChunkAt) -> impl Iterator<Item = &Chunk<K>> + '_ {
        self.blocks.iter().skip(block).flatten().skip(number)
    }
}

/// The entries of several lists as one, in the order of their keys.
pub fn merged<I: Iterator<Item = u32>>(
    lists: impl Iterator<Item = I>,
    key_of: impl Fn(u32) -> u128,
) -> impl Iterator<Item = u32> {
    let mut lists: Vec<I> = lists.collect();
    let first = |(at, list): (usize, &mut I)| list.next().map(|entry| (key_of(entry), at, entry));
    let mut heads: BTreeSet<(u128, usize, u32)> =
        lists.iter_mut().enumerate().filter_map(first).collect();
    std::iter::from_fn(move || {
        let (_, at, entry) = heads.pop_first()?;
        heads.extend(lists[at].next().map(|next| (key_of(next), at, next)));
        Some(entry)
    })
}

/// Doubles small chunks as a vector would, but never beyond one chunk.
fn grow(chunk: &mut Vec<u32>) {
    if chunk.len() == chunk.capacity() {
        chunk.reserve_exact(chunk.len().max(4).min(CHUNK_MAX - chunk.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Joined chunks can have any capacity.
    #[test]
    fn a_chunk_grows_from_any_size_to_one_chunk_at_most() {
        for len in 0..CHUNK_MAX {
            let mut chunk = vec![7; len];
            chunk.shrink_to_fit();
            grow(&mut chunk);
            assert!((len + 1..=CHUNK_MAX).contains(&chunk.capacity()), "{len}");
        }
    }

    /// A short chunk before another, joined at every length, then filled up.
    #[test]
    fn joined_chunks_fill_up_again() {
        let key_of = |entry: u32| u128::from(entry);
        let (short, full) = (CHUNK_SPARSE as u32, CHUNK_MAX as u32);
        for kept in 1..=full {
            let mut list = OrderedList::<u128>::default();
            let spread = |number: u32| number * 10;
            (short..short + full).for_each(|n| list.insert(spread(n), key_of));
            (0..short).rev().for_each(|n| list.insert(spread(n), key_of));
            let gone = (short + kept..short + full).chain([0]).map(spread);
            gone.for_each(|entry| assert!(list.remove(entry, key_of)));
            let between = || (11..211).filter(|entry| entry % 10 != 0);
            between().for_each(|entry| list.insert(entry, key_of));
            let model: BTreeSet<u32> = (1..short + kept).map(spread).chain(between()).collect();
            assert_eq!(keys(&list), model.into_iter().collect::<Vec<_>>(), "{kept} kept");
            let mut chunks = list.blocks.iter().flatten();
            assert!(chunks.all(|chunk| chunk.entries.capacity() <= CHUNK_MAX), "{kept} kept");
        }
    }

    fn keys(list: &OrderedList<u128>) -> Vec<u32> {
        list.iter_after(0).collect()
    }

    #[test]
    fn behaves_as_an_ordered_set_under_any_mix_of_steps() {
        let key_of = |entry: u32| u128::from(entry) * 3;
        let mut list = OrderedList::<u128>::default();
        let mut set = BTreeSet::new();
        let mut draw = 1u64;
        for step in 0..60_000u32 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            let entry = ((draw >> 33) % 3000) as u32;
            let grows = (step / 10_000) % 2 == 0;
            if !set.contains(&entry) && (grows || draw & 3 == 0) {
                list.insert(entry, key_of);
                set.insert(entry);
            } else if set.contains(&entry) {
                assert!(list.remove(entry, key_of));
                set.remove(&entry);
            } else {
                assert!(!list.remove(entry, key_of));
            }
            assert_eq!(list.first(), set.first().copied());
            if step % 997 == 0 {
                assert_eq!(keys(&list), set.iter().copied().collect::<Vec<_>>());
                let from: Vec<u32> = list.iter_from(u128::from(entry) * 3 + 1, key_of).collect();
                assert_eq!(from, set.range(entry + 1..).copied().collect::<Vec<_>>());
                let below = list.count_below(u128::from(entry) * 3, key_of);
                assert_eq!(below, set.range(..entry).count());
                let skip = (draw % 4000) as usize;
                let after: Vec<u32> = list.iter_after(skip).collect();
                assert_eq!(after, set.iter().skip(skip).copied().collect::<Vec<_>>());
            }
        }
        assert_eq!(list.len(), set.len());
    }

    #[test]
    fn appended_entries_fill_their_chunks() {
        let mut list = OrderedList::<u128>::default();
        for entry in 0..100_000u32 {
            list.insert(entry, u128::from);
        }
        let chunks: Vec<&Chunk<u128>> = list.blocks.iter().flatten().collect();
        assert_eq!(chunks.len(), 100_000usize.div_ceil(CHUNK_MAX));
        assert_eq!(list.blocks.len(), chunks.len().div_ceil(BLOCK_MAX));
        assert!(chunks.iter().all(|chunk| chunk.entries.capacity() <= CHUNK_MAX));
        assert!(list.blocks.iter().all(|block| block.capacity() <= BLOCK_MAX));
    }
}
