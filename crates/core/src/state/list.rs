//! An ordered list of slots at about five bytes an entry.
//!
//! Entries are slot numbers in chunks of up to 128; what they are ordered by is looked up in the
//! slot itself. Appending in order fills chunks whole, taking the first is cheap, and no single
//! step moves more than one chunk: a million entries never cause a pause.

use std::collections::BTreeMap;

/// Entries a chunk holds at most.
const CHUNK_MAX: usize = 128;
/// A chunk with fewer entries joins its successor when both fit well into one.
const CHUNK_SPARSE: usize = 16;

/// Slots in the order of a key that `key_of` tells for each of them. The caller MUST remove a slot
/// under its old key before that key changes.
#[derive(Debug, Default, Clone)]
pub struct SlotList {
    /// By a lower bound of each chunk's keys, above all keys of the chunk before.
    chunks: BTreeMap<u128, Vec<u32>>,
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
        self.chunks.first_key_value().and_then(|(_, chunk)| chunk.first().copied())
    }

    /// Puts a slot in its place. Its key is not in the list yet.
    pub fn insert(&mut self, key: u128, slot: u32, key_of: impl Fn(u32) -> u128) {
        self.len += 1;
        let Some((_, chunk)) = self.chunks.range_mut(..=key).next_back() else {
            self.insert_before_all(key, slot);
            return;
        };
        if chunk.last().is_none_or(|last| key_of(*last) < key) {
            if chunk.len() < CHUNK_MAX {
                grow(chunk);
                chunk.push(slot);
            } else {
                self.chunks.insert(key, vec![slot]);
            }
            return;
        }
        let at = chunk.partition_point(|other| key_of(*other) < key);
        if chunk.len() < CHUNK_MAX {
            grow(chunk);
            chunk.insert(at, slot);
            return;
        }
        let mut upper = chunk.split_off(CHUNK_MAX / 2);
        chunk.shrink_to_fit();
        match at.checked_sub(CHUNK_MAX / 2) {
            Some(at) => upper.insert(at, slot),
            None => chunk.insert(at, slot),
        }
        if let Some(first) = upper.first() {
            self.chunks.insert(key_of(*first), upper);
        }
    }

    fn insert_before_all(&mut self, key: u128, slot: u32) {
        match self.chunks.first_entry() {
            Some(entry) if entry.get().len() < CHUNK_MAX => {
                let mut chunk = entry.remove();
                grow(&mut chunk);
                chunk.insert(0, slot);
                self.chunks.insert(key, chunk);
            }
            _ => {
                self.chunks.insert(key, vec![slot]);
            }
        }
    }

    /// Takes a slot out. Returns whether it was there.
    pub fn remove(&mut self, key: u128, slot: u32, key_of: impl Fn(u32) -> u128) -> bool {
        let Some((bound, chunk)) = self.chunks.range_mut(..=key).next_back() else {
            return false;
        };
        let at = if chunk.first() == Some(&slot) {
            0
        } else {
            chunk.partition_point(|other| key_of(*other) < key)
        };
        if chunk.get(at) != Some(&slot) {
            return false;
        }
        chunk.remove(at);
        self.len -= 1;
        let (bound, len) = (*bound, chunk.len());
        if len == 0 {
            self.chunks.remove(&bound);
        } else if len < CHUNK_SPARSE {
            self.join_successor(bound, len);
        }
        true
    }

    fn join_successor(&mut self, bound: u128, len: usize) {
        let Some((next, other)) = self.chunks.range(bound..).nth(1) else { return };
        if other.len() + len > CHUNK_MAX - CHUNK_SPARSE {
            return;
        }
        let next = *next;
        if let Some(other) = self.chunks.remove(&next)
            && let Some(chunk) = self.chunks.get_mut(&bound)
        {
            chunk.extend_from_slice(&other);
        }
    }

    /// The slot with exactly this key.
    pub fn find(&self, key: u128, key_of: impl Fn(u32) -> u128) -> Option<u32> {
        let (_, chunk) = self.chunks.range(..=key).next_back()?;
        let at = chunk.partition_point(|other| key_of(*other) < key);
        chunk.get(at).copied().filter(|slot| key_of(*slot) == key)
    }

    /// All slots with keys from `key` on, in order.
    pub fn iter_from<'a>(
        &'a self,
        key: u128,
        key_of: impl Fn(u32) -> u128 + 'a,
    ) -> impl Iterator<Item = u32> + 'a {
        let start = self.chunks.range(..=key).next_back().map_or(key, |(bound, _)| *bound);
        self.chunks
            .range(start..)
            .flat_map(|(_, chunk)| chunk.iter().copied())
            .skip_while(move |slot| key_of(*slot) < key)
    }

    /// All slots in order, after passing over the first `count`, chunk by chunk.
    pub fn iter_after(&self, count: usize) -> impl Iterator<Item = u32> + '_ {
        let mut left = count;
        self.chunks
            .values()
            .skip_while(move |chunk| {
                let skip = chunk.len() <= left;
                if skip {
                    left -= chunk.len();
                }
                skip
            })
            .scan(count, move |_, chunk| Some(chunk))
            .enumerate()
            .flat_map(move |(at, chunk)| {
                let skip = if at == 0 { self.offset_within(count) } else { 0 };
                chunk.iter().skip(skip).copied()
            })
    }

    fn offset_within(&self, count: usize) -> usize {
        let mut left = count;
        for chunk in self.chunks.values() {
            if chunk.len() > left {
                return left;
            }
            left -= chunk.len();
        }
        0
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
        assert!(list.chunks.values().all(|chunk| chunk.capacity() <= CHUNK_MAX));
    }
}
