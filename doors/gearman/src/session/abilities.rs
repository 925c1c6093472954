//! What a worker can do.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;

use spindle_limits::WorkerNames;

use super::copy_name;

/// What a worker can do. The cost for one name does not depend on how many there are.
#[derive(Debug, Default)]
pub(super) struct Abilities {
    /// In the order the worker said them: round-robin goes by it.
    functions: BTreeMap<u64, Ability>,
    places: HashMap<Bytes, u64>,
    counted: WorkerNames,
    next_place: u64,
    /// Where the last job came from: round-robin goes on behind it.
    pub last: Option<Bytes>,
}

#[derive(Debug)]
struct Ability {
    name: Bytes,
    /// How long a job of the function may take.
    timeout_ms: Option<u64>,
}

/// The outcome of adding a function.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// It is new, and stands at this place under this name.
    New { place: u64, name: Bytes },
    /// The worker had said it before; its timeout is the new one.
    Known,
    /// The worker has reached the limit of functions, or of the bytes of their names.
    TooMany,
}

impl Abilities {
    pub fn add(&mut self, function: &Bytes, timeout_ms: Option<u64>) -> Added {
        if let Some(place) = self.places.get(function) {
            if let Some(known) = self.functions.get_mut(place) {
                known.timeout_ms = timeout_ms;
            }
            return Added::Known;
        }
        if !self.counted.add(function.len()) {
            return Added::TooMany;
        }
        let (place, name) = (self.next_place, copy_name(function));
        self.next_place += 1;
        self.functions.insert(place, Ability { name: name.clone(), timeout_ms });
        self.places.insert(name.clone(), place);
        Added::New { place, name }
    }

    /// Returns the place it stood at.
    pub fn remove(&mut self, function: &[u8]) -> Option<u64> {
        let place = self.places.remove(function)?;
        self.counted.remove(function.len());
        self.functions.remove(&place);
        Some(place)
    }

    pub fn reset(&mut self) {
        *self = Abilities { next_place: self.next_place, ..Abilities::default() };
    }

    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// In the order the worker said them.
    pub fn names(&self) -> Vec<Bytes> {
        self.functions.values().map(|ability| ability.name.clone()).collect()
    }

    pub fn each_name(&self) -> impl Iterator<Item = &[u8]> {
        self.functions.values().map(|ability| &ability.name[..])
    }

    /// The timeout of all functions, when they have the same.
    pub fn common_timeout_ms(&self) -> Option<Option<u64>> {
        let mut timeouts = self.functions.values().map(|ability| ability.timeout_ms);
        let first = timeouts.next()?;
        timeouts.all(|other| other == first).then_some(first)
    }

    /// Whether a job of the function runs out of time.
    pub fn has_timeout(&self, function: &[u8]) -> bool {
        self.common_timeout_ms() != Some(None) && self.timeout_ms(function).is_some()
    }

    pub fn timeout_ms(&self, function: &[u8]) -> Option<u64> {
        let place = self.places.get(function)?;
        self.functions.get(place)?.timeout_ms
    }
}

#[cfg(test)]
mod tests {
    use spindle_limits::{WORKER_NAMES_BYTES_MAX, WORKER_NAMES_MAX};

    use super::*;

    fn name(number: usize) -> Bytes {
        Bytes::from(number.to_string())
    }

    #[test]
    fn functions_stand_in_the_order_they_were_said_whatever_went_between() {
        let mut abilities = Abilities::default();
        for number in 0..4 {
            assert!(matches!(abilities.add(&name(number), None), Added::New { .. }));
        }
        assert_eq!(abilities.add(&name(1), Some(5)), Added::Known);
        assert_eq!(abilities.common_timeout_ms(), None);
        assert_eq!(abilities.timeout_ms(b"1"), Some(5));
        assert_eq!(abilities.remove(b"1"), Some(1));
        assert_eq!(abilities.remove(b"1"), None);
        abilities.add(&name(1), None);
        assert_eq!(abilities.names(), [name(0), name(2), name(3), name(1)]);
        assert_eq!(abilities.common_timeout_ms(), Some(None));
        abilities.reset();
        assert!(abilities.is_empty() && abilities.names().is_empty());
        assert_eq!(abilities.common_timeout_ms(), None);
    }

    #[test]
    fn as_many_as_a_lease_may_name_and_one_for_each_that_went() {
        let mut abilities = Abilities::default();
        for number in 0..WORKER_NAMES_MAX {
            assert!(matches!(abilities.add(&name(number), None), Added::New { .. }));
        }
        assert_eq!(abilities.add(&name(WORKER_NAMES_MAX), None), Added::TooMany);
        assert_eq!(abilities.add(&name(7), None), Added::Known);
        abilities.remove(b"7");
        assert!(matches!(abilities.add(&name(WORKER_NAMES_MAX), None), Added::New { .. }));
    }
    #[test]
    fn the_bytes_of_their_names_are_counted_too_until_they_go() {
        let mut abilities = Abilities::default();
        let long = |number: usize| Bytes::from(format!("{number:0512}"));
        let most = WORKER_NAMES_BYTES_MAX / 512;
        for number in 0..most {
            assert!(matches!(abilities.add(&long(number), None), Added::New { .. }));
        }
        assert_eq!(abilities.add(&name(1), None), Added::TooMany);
        assert_eq!(abilities.add(&long(1), None), Added::Known);
        abilities.remove(&long(1));
        assert!(matches!(abilities.add(&long(most), None), Added::New { .. }));
        assert_eq!(abilities.add(&name(1), None), Added::TooMany);
        abilities.reset();
        assert!(matches!(abilities.add(&long(0), None), Added::New { .. }));
    }
}
