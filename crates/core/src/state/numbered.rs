//! Places with numbers that stay, for few things: queues, and the groups of a queue.

/// Values by number. Numbers of removed values are used again.
#[derive(Debug, Clone)]
pub(crate) struct Numbered<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Numbered { places: Vec::new(), free: Vec::new() }
    }
}

impl<T> Numbered<T> {
    /// Puts a value in a place and returns its number.
    pub fn insert(&mut self, value: T) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() as u32 - 1
        });
        self.places[number as usize] = Some(value);
        number
    }

    pub fn remove(&mut self, number: u32) -> Option<T> {
        let value = self.places.get_mut(number as usize)?.take()?;
        self.free.push(number);
        Some(value)
    }

    pub fn find(&self, number: u32) -> Option<&T> {
        self.places.get(number as usize)?.as_ref()
    }

    pub fn find_mut(&mut self, number: u32) -> Option<&mut T> {
        self.places.get_mut(number as usize)?.as_mut()
    }

    pub fn len(&self) -> usize {
        self.places.len() - self.free.len()
    }

    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().flatten()
    }
}
