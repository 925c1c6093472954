//! An ordered list of slots at about five bytes an entry.
//!
//! Entries are slot numbers in chunks of up to 128; what they are ordered by is looked up in the
//! slot itself. Appending in order fills chunks whole, taking the first is cheap, and no single
//! step moves more than one chunk: a million entries never cause a pause.

use std::collections::VecDeque;

/// Entries a chunk holds at most.
const CHUNK_MAX: usize = 128;
/// A chunk with fewer entries joins its successor when both fit well into one.
const CHUNK_SPARSE: usize = 16;

#[derive(Debug, Clone)]
struct Chunk {
    /// At most the keys of its entries, above all keys of the chunk before.
    bound: u128,
    slots: Vec<u32>,
}

/// Slots in the order of a key that `key_of` tells for each of them. The caller MUST remove a slot
/// under its old key before that key changes.
#[derive(Debug, Default, Clone)]
pub struct SlotList {
    chunks: VecDeque<Chunk>,
    len: usize,
}

impl SlotList {
    /// How many entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first slot.
    pub fn first(&self) -> Option<u32> {
        self.chunks.front().and_then(|chunk| chunk.slots.first().copied())
    }

    /// The chunk a key belongs to: the last one whose bound is not above it.
    fn chunk_for(&self, key: u128) -> Option<usize> {
        let last = self.chunks.len().checked_sub(1)?;
        // New entries mostly come at the end, and old ones go at the front.
        if self.chunks[last].bound <= key {
            return Some(last);
        }
        if last > 0 && self.chunks[1].bound > key {
            return (self.chunks[0].bound <= key).then_some(0);
        }
        self.chunks.partition_point(|chunk| chunk.bound <= key).checked_sub(1)
    }

    /// Puts a slot in its place. Its key is not in the list yet.
    pub fn insert(&mut self, key: u128, slot: u32, key_of: impl Fn(u32) -> u128) {
        self.len += 1;
        let Some(number) = self.chunk_for(key) else {
            self.insert_before_all(key, slot);
            return;
        };
        let slots = &mut self.chunks[number].slots;
        if slots.last().is_none_or(|last| key_of(*last) < key) {
            if slots.len() < CHUNK_MAX {
                grow(slots);
                slots.push(slot);
            } else {
                self.chunks.insert(number + 1, Chunk { bound: key, slots: vec![slot] });
            }
            return;
        }
        let at = slots.partition_point(|other| key_of(*other) < key);
        if slots.len() < CHUNK_MAX {
            grow(slots);
            slots.insert(at, slot);
            return;
        }
        let mut upper = slots.split_off(CHUNK_MAX / 2);
        slots.shrink_to_fit();
        match at.checked_sub(CHUNK_MAX / 2) {
            Some(at) => upper.insert(at, slot),
            None => slots.insert(at, slot),
        }
        let bound = key_of(upper[0]);
        self.chunks.insert(number + 1, Chunk { bound, slots: upper });
    }

    fn insert_before_all(&mut self, key: u128, slot: u32) {
        match self.chunks.front_mut() {
            Some(chunk) if chunk.slots.len() < CHUNK_MAX => {
                grow(&mut chunk.slots);
                chunk.slots.insert(0, slot);
                chunk.bound = key;
            }
            _ => self.chunks.push_front(Chunk { bound: key, slots: vec![slot] }),
        }
    }

    /// Takes a slot out. Returns whether it was there.
    pub fn remove(&mut self, key: u128, slot: u32, key_of: impl Fn(u32) -> u128) -> bool {
        let Some(number) = self.chunk_for(key) else { return false };
        let slots = &mut self.chunks[number].slots;
        let at = if slots.first() == Some(&slot) {
            0
        } else {
            slots.partition_point(|other| key_of(*other) < key)
        };
        if slots.get(at) != Some(&slot) {
            return false;
        }
        slots.remove(at);
        self.len -= 1;
        if slots.is_empty() {
            self.chunks.remove(number);
            if self.chunks.len() * 4 < self.chunks.capacity() {
                self.chunks.shrink_to(self.chunks.len() * 2);
            }
        } else if slots.len() < CHUNK_SPARSE {
            self.join_successor(number);
        }
        true
    }

    fn join_successor(&mut self, number: usize) {
        let len = self.chunks[number].slots.len();
        let fits = |next: &Chunk| next.slots.len() + len <= CHUNK_MAX - CHUNK_SPARSE;
        if self.chunks.get(number + 1).is_some_and(fits)
            && let Some(next) = self.chunks.remove(number + 1)
        {
            self.chunks[number].slots.extend_from_slice(&next.slots);
        }
    }

    /// Exchanges a slot number for another of the same key.
    pub fn replace(&mut self, key: u128, old: u32, new: u32, key_of: impl Fn(u32) -> u128) {
        if let Some((chunk, at)) = self.place_of(key, key_of)
            && let Some(entry) = self.chunks[chunk].slots.get_mut(at)
            && *entry == old
        {
            *entry = new;
        }
    }

    /// The slot with exactly this key.
    pub fn find(&self, key: u128, key_of: impl Fn(u32) -> u128) -> Option<u32> {
        let (chunk, at) = self.place_of(key, key_of)?;
        self.chunks[chunk].slots.get(at).copied()
    }

    /// Where the slot with exactly this key is. Keys are whole numbers, so between a chunk's bound and a
    /// key there are at most as many entries as their difference says.
    fn place_of(&self, key: u128, key_of: impl Fn(u32) -> u128) -> Option<(usize, usize)> {
        let number = self.chunk_for(key)?;
        let chunk = &self.chunks[number];
        // Keys that count up without gaps stand where their distance from the bound says; with
        // gaps they stand before that.
        let end = chunk.slots.len();
        let guess = usize::try_from(key - chunk.bound).unwrap_or(end).min(end);
        if let Some(slot) = chunk.slots.get(guess)
            && key_of(*slot) == key
        {
            return Some((number, guess));
        }
        let before = chunk.slots.get(..guess)?;
        let at = before.partition_point(|other| key_of(*other) < key);
        before.get(at).filter(|slot| key_of(**slot) == key).map(|_| (number, at))
    }

    /// All slots with keys from `key` on, in order.
    pub fn iter_from<'a>(
        &'a self,
        key: u128,
        key_of: impl Fn(u32) -> u128 + 'a,
    ) -> impl Iterator<Item = u32> + 'a {
        let start = self.chunk_for(key).unwrap_or(0);
        self.chunks
            .range(start.min(self.chunks.len())..)
            .flat_map(|chunk| chunk.slots.iter().copied())
            .skip_while(move |slot| key_of(*slot) < key)
    }

    /// All slots in order, after passing over the first `count`, chunk by chunk.
    pub fn iter_after(&self, count: usize) -> impl Iterator<Item = u32> + '_ {
        let mut left = count;
        let start = self.chunks.iter().position(|chunk| {
            let here = chunk.slots.len() > left;
            if !here {
                left -= chunk.slots.len();
            }
            here
        });
        self.chunks
            .range(start.unwrap_or(self.chunks.len())..)
            .flat_map(|chunk| chunk.slots.iter().copied())
            .skip(left)
    }
}

/// Doubles small chunks as a vector would, but never beyond one chunk.
fn grow(chunk: &mut Vec<u32>) {
    if chunk.len() == chunk.capacity() {
        chunk.reserve_exact(chunk.len().clamp(4, CHUNK_MAX - chunk.len()));
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn keys(list: &SlotList) -> Vec<u32> {
        list.iter_after(0).collect()
    }

    #[test]
    fn behaves_as_an_ordered_set_under_any_mix_of_steps() {
        let key_of = |slot: u32| u128::from(slot) * 3;
        let mut list = SlotList::default();
        let mut set = BTreeSet::new();
        let mut draw = 1u64;
        for step in 0..60_000u32 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            let slot = ((draw >> 33) % 3000) as u32;
            let grows = (step / 10_000) % 2 == 0;
            if !set.contains(&slot) && (grows || draw & 3 == 0) {
                list.insert(key_of(slot), slot, key_of);
                set.insert(slot);
            } else if set.contains(&slot) {
                assert!(list.remove(key_of(slot), slot, key_of));
                set.remove(&slot);
            } else {
                assert!(!list.remove(key_of(slot), slot, key_of));
            }
            assert_eq!(list.first(), set.first().copied());
            if step % 997 == 0 {
                assert_eq!(keys(&list), set.iter().copied().collect::<Vec<_>>());
                let from: Vec<u32> = list.iter_from(u128::from(slot) * 3 + 1, key_of).collect();
                assert_eq!(from, set.range(slot + 1..).copied().collect::<Vec<_>>());
                let skip = (draw % 4000) as usize;
                let after: Vec<u32> = list.iter_after(skip).collect();
                assert_eq!(after, set.iter().skip(skip).copied().collect::<Vec<_>>());
            }
        }
        assert_eq!(list.len(), set.len());
    }

    #[test]
    fn appended_entries_fill_their_chunks() {
        let mut list = SlotList::default();
        for slot in 0..100_000u32 {
            list.insert(u128::from(slot), slot, u128::from);
        }
        assert_eq!(list.chunks.len(), 100_000usize.div_ceil(CHUNK_MAX));
        assert!(list.chunks.iter().all(|chunk| chunk.slots.capacity() <= CHUNK_MAX));
    }
}
