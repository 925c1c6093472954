//! Numbered places in chunks: growing never moves what is there, and empty chunks are given back.

use std::collections::BTreeSet;

/// Places in a chunk.
const CHUNK: usize = 256;

#[derive(Debug, Clone)]
struct Chunk<T> {
    places: [Option<T>; CHUNK],
    /// Places from this one on were never used.
    used: usize,
    /// Places given back, below `used`.
    free: Vec<u8>,
}

impl<T> Chunk<T> {
    fn boxed() -> Box<Chunk<T>> {
        Box::new(Chunk { places: [const { None }; CHUNK], used: 0, free: Vec::new() })
    }

    fn is_full(&self) -> bool {
        self.free.is_empty() && self.used == CHUNK
    }
}

/// A slab of `T`. Numbers of removed entries are used again, lowest chunk first, so that chunks at
/// the end become empty and are freed.
#[derive(Debug, Clone)]
pub struct Slab<T> {
    /// One step to an entry, not two: all indices lead here. Growing moves eight bytes for 256 entries,
    /// 64 KiB at two million.
    chunks: Vec<Option<Box<Chunk<T>>>>,
    /// Chunks with a free place (or not there at all).
    open: BTreeSet<u32>,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { chunks: Vec::new(), open: BTreeSet::new(), len: 0 }
    }
}

impl<T> Slab<T> {
    /// Room for one more chunk, at the end.
    fn add_chunk(&mut self) -> u32 {
        let at = u32::try_from(self.chunks.len()).expect("numbers end far below 2^32 chunks");
        self.chunks.push(None);
        self.open.insert(at);
        at
    }

    /// Puts a value in a free place and returns its number.
    pub fn insert(&mut self, value: T) -> u32 {
        let at = match self.open.first() {
            Some(at) => *at,
            None => self.add_chunk(),
        };
        let chunk = self.chunks[at as usize].get_or_insert_with(Chunk::boxed);
        let place = chunk.free.pop().unwrap_or_else(|| {
            chunk.used += 1;
            (chunk.used - 1) as u8
        });
        chunk.places[usize::from(place)] = Some(value);
        self.len += 1;
        if chunk.is_full() {
            self.open.remove(&at);
        }
        at * CHUNK as u32 + u32::from(place)
    }

    /// Takes an entry out.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let at = number / CHUNK as u32;
        let slot = self.chunks.get_mut(at as usize)?;
        let chunk = slot.as_mut()?;
        let place = number as usize % CHUNK;
        let value = chunk.places[place].take()?;
        self.len -= 1;
        let was_full = chunk.is_full();
        chunk.free.push(place as u8);
        let is_empty = chunk.free.len() == chunk.used;
        if is_empty {
            *slot = None;
        }
        if was_full {
            self.open.insert(at);
        }
        if is_empty {
            self.drop_empty_end();
        }
        Some(value)
    }

    /// Frees empty chunks at the end.
    fn drop_empty_end(&mut self) {
        while let Some(None) = self.chunks.last() {
            self.chunks.pop();
            self.open.remove(&(self.chunks.len() as u32));
        }
        if self.chunks.len() * 4 < self.chunks.capacity() {
            self.chunks.shrink_to(self.chunks.len() * 2);
        }
    }

    /// How many entries there are. Numbers are used again, so every number is below the highest count of
    /// entries so far.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Looks an entry up.
    #[inline]
    pub fn find(&self, number: u32) -> Option<&T> {
        self.chunks.get(number as usize / CHUNK)?.as_ref()?.places[number as usize % CHUNK].as_ref()
    }

    /// Looks an entry up, to change it.
    #[inline]
    pub fn find_mut(&mut self, number: u32) -> Option<&mut T> {
        self.chunks.get_mut(number as usize / CHUNK)?.as_mut()?.places[number as usize % CHUNK]
            .as_mut()
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;
    #[inline]
    fn index(&self, number: u32) -> &T {
        self.find(number).expect("an index only holds numbers of live entries")
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut T {
        self.find_mut(number).expect("an index only holds numbers of live entries")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_go_when_their_entries_went_and_numbers_are_used_again() {
        let mut slab = Slab::default();
        let numbers: Vec<u32> = (0..1000u64).map(|value| slab.insert(value)).collect();
        assert_eq!(numbers, (0..1000).collect::<Vec<_>>());
        for number in &numbers[10..] {
            assert_eq!(slab.remove(*number), Some(u64::from(*number)));
        }
        assert_eq!((slab.chunks.len(), slab.len()), (1, 10));
        assert_eq!(slab.remove(10), None);
        let again: BTreeSet<u32> = (0..300u64).map(|value| slab.insert(value)).collect();
        assert_eq!(again, (10..310).collect());
        assert_eq!(slab.find(5), Some(&5));
    }
}
