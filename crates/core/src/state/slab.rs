//! Numbered places in chunks: growing never moves what is there, and empty chunks are given back.

use std::collections::BTreeSet;

/// Places in a chunk.
const CHUNK: usize = 256;

#[derive(Debug, Clone)]
struct Chunk<T> {
    places: Vec<Option<T>>,
    /// Places given back, below `places.len()`.
    free: Vec<u8>,
}

/// Chunks in a block.
const BLOCK: usize = 1024;

/// A slab of `T`. Numbers of removed entries are used again, lowest chunk first, so that chunks at
/// the end become empty and are freed.
#[derive(Debug, Clone)]
pub struct Slab<T> {
    /// All blocks but the last are full, so that growing never moves more than one.
    blocks: Vec<Vec<Option<Box<Chunk<T>>>>>,
    /// Chunks with a free place (or not there at all).
    open: BTreeSet<u32>,
    len: usize,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Slab { blocks: Vec::new(), open: BTreeSet::new(), len: 0 }
    }
}

impl<T> Slab<T> {
    /// How many entries.
    pub fn len(&self) -> usize {
        self.len
    }

    fn chunk(&self, at: u32) -> Option<&Chunk<T>> {
        self.blocks.get(at as usize / BLOCK)?.get(at as usize % BLOCK)?.as_deref()
    }

    fn chunk_mut(&mut self, at: u32) -> Option<&mut Option<Box<Chunk<T>>>> {
        self.blocks.get_mut(at as usize / BLOCK)?.get_mut(at as usize % BLOCK)
    }

    /// Room for one more chunk, at the end.
    fn add_chunk(&mut self) -> u32 {
        if self.blocks.last().is_none_or(|block| block.len() == BLOCK) {
            self.blocks.push(Vec::new());
        }
        let full = (self.blocks.len() - 1) * BLOCK;
        let last = self.blocks.last_mut().expect("one was added above");
        last.push(None);
        let at = full + last.len() - 1;
        let at = u32::try_from(at).expect("numbers end far below 2^32 chunks");
        self.open.insert(at);
        at
    }

    /// Puts a value in a free place and returns its number.
    pub fn insert(&mut self, value: T) -> u32 {
        let at = match self.open.first() {
            Some(at) => *at,
            None => self.add_chunk(),
        };
        let slot = self.chunk_mut(at).expect("open chunks have their room");
        let chunk = slot.get_or_insert_with(|| {
            Box::new(Chunk { places: Vec::with_capacity(CHUNK), free: Vec::new() })
        });
        let place = match chunk.free.pop() {
            Some(place) => {
                chunk.places[usize::from(place)] = Some(value);
                usize::from(place)
            }
            None => {
                chunk.places.push(Some(value));
                chunk.places.len() - 1
            }
        };
        if chunk.free.is_empty() && chunk.places.len() == CHUNK {
            self.open.remove(&at);
        }
        self.len += 1;
        at * CHUNK as u32 + place as u32
    }

    /// Takes an entry out.
    pub fn remove(&mut self, number: u32) -> Option<T> {
        let at = number / CHUNK as u32;
        let place = number % CHUNK as u32;
        let slot = self.chunk_mut(at)?;
        let chunk = slot.as_mut()?;
        let value = chunk.places.get_mut(place as usize)?.take()?;
        let was_full = chunk.free.is_empty() && chunk.places.len() == CHUNK;
        chunk.free.push(place as u8);
        let is_empty = chunk.free.len() == chunk.places.len();
        if is_empty {
            *slot = None;
        }
        self.len -= 1;
        if was_full {
            self.open.insert(at);
        }
        if is_empty {
            self.drop_empty_end();
        }
        Some(value)
    }

    /// Frees empty chunks at the end, and their blocks.
    fn drop_empty_end(&mut self) {
        while let Some(block) = self.blocks.last_mut() {
            match block.last() {
                Some(Some(_)) => return,
                Some(None) => {
                    block.pop();
                    let at =
                        (self.blocks.len() - 1) * BLOCK + self.blocks.last().map_or(0, Vec::len);
                    self.open.remove(&(at as u32));
                }
                None => {
                    self.blocks.pop();
                }
            }
        }
    }

    /// Looks an entry up.
    pub fn find(&self, number: u32) -> Option<&T> {
        let chunk = self.chunk(number / CHUNK as u32)?;
        chunk.places.get((number % CHUNK as u32) as usize)?.as_ref()
    }

    /// Looks an entry up, to change it.
    pub fn find_mut(&mut self, number: u32) -> Option<&mut T> {
        let chunk = self.chunk_mut(number / CHUNK as u32)?.as_mut()?;
        chunk.places.get_mut((number % CHUNK as u32) as usize)?.as_mut()
    }
}

impl<T> std::ops::Index<u32> for Slab<T> {
    type Output = T;
    fn index(&self, number: u32) -> &T {
        self.find(number).expect("an index only holds numbers of live entries")
    }
}

impl<T> std::ops::IndexMut<u32> for Slab<T> {
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
        assert_eq!((slab.len(), slab.blocks.len(), slab.blocks[0].len()), (10, 1, 1));
        assert_eq!(slab.remove(10), None);
        let again: BTreeSet<u32> = (0..300u64).map(|value| slab.insert(value)).collect();
        assert_eq!(again, (10..310).collect());
        assert_eq!(slab.find(5), Some(&5));
    }
}
