//! A table of the most frequent keys of a stream, in bounded memory.
//!
//! The *Space-Saving* algorithm (Metwally, Agrawal, El Abbadi, 2005): a key for which there is no room
//! replaces the key with the lowest score, and begins with that score. So a key that is frequent
//! enough comes in and stays, however many others pass by. Scores halve within an hour, so that what
//! is frequent now counts for more.

use std::collections::BTreeMap;

/// Scores halve in this time.
const HALF_LIFE_MS: f64 = 3_600_000.0;

/// What is known of the most frequent keys.
#[derive(Clone, PartialEq, Debug)]
pub struct Busiest<K, V> {
    max: usize,
    entries: BTreeMap<K, (f64, V)>,
}

impl<K: Ord + Clone, V> Busiest<K, V> {
    /// A table with room for so many keys.
    pub fn new(max: usize) -> Busiest<K, V> {
        Busiest { max, entries: BTreeMap::new() }
    }

    /// A key occurred so often: its value, a new one if it is new to the table.
    pub fn count(&mut self, key: &K, count: u64, new: impl FnOnce() -> V) -> &mut V {
        let mut inherited = 0.0;
        if !self.entries.contains_key(key) && self.entries.len() >= self.max {
            let lowest = self.entries.iter().min_by(|a, b| a.1.0.total_cmp(&b.1.0));
            if let Some((lowest, (score, _))) = lowest.map(|(key, entry)| (key.clone(), entry)) {
                inherited = *score;
                self.entries.remove(&lowest);
            }
        }
        let entry = self.entries.entry(key.clone()).or_insert_with(|| (inherited, new()));
        entry.0 += count as f64;
        &mut entry.1
    }

    /// Time passes.
    pub fn pass(&mut self, ms: u64) {
        let factor = (-(ms as f64) / HALF_LIFE_MS).exp2();
        self.entries.values_mut().for_each(|(score, _)| *score *= factor);
    }

    /// What it holds, in the order of the keys.
    pub fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.entries.iter().map(|(key, (_, value))| (key, value))
    }

    /// The same, to be changed.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&K, &mut V)> {
        self.entries.iter_mut().map(|(key, (_, value))| (key, value))
    }

    /// What it knows of a key.
    pub fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// Keeps only these.
    pub fn retain(&mut self, mut keep: impl FnMut(&V) -> bool) {
        self.entries.retain(|_, (_, value)| keep(value));
    }

    /// Its entries with their scores.
    pub(crate) fn scored(&self) -> impl Iterator<Item = (&K, f64, &V)> {
        self.entries.iter().map(|(key, (score, value))| (key, *score, value))
    }

    /// Puts an entry back that was in it, if there is room.
    pub(crate) fn restore(&mut self, key: K, score: f64, value: V) {
        if self.entries.len() < self.max {
            let score = if score.is_finite() { score.max(0.0) } else { 0.0 };
            self.entries.insert(key, (score, value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(table: &Busiest<u32, ()>) -> Vec<u32> {
        table.iter().map(|(key, ())| *key).collect()
    }

    #[test]
    fn a_key_without_room_takes_the_place_of_the_least_frequent() {
        let mut table = Busiest::new(2);
        table.count(&1, 5, || ());
        table.count(&2, 1, || ());
        assert_eq!(keys(&table), [1, 2]);
        table.count(&3, 1, || ());
        assert_eq!(keys(&table), [1, 3]);
        table.count(&4, 9, || ());
        table.count(&5, 1, || ());
        assert_eq!(keys(&table), [4, 5]);
        let scores: Vec<f64> = table.scored().map(|(_, score, ())| score).collect();
        assert_eq!(scores, [11.0, 6.0], "4 has taken over what 3 had, and 5 what 1 had");
    }

    #[test]
    fn what_is_frequent_stays_while_many_others_pass() {
        let mut table = Busiest::new(8);
        for round in 0..1_000 {
            table.count(&0, 40, || ());
            for other in 1..=20 {
                table.count(&(round * 20 + other), 1, || ());
            }
            table.pass(10_000);
        }
        assert!(table.get(&0).is_some());
        assert_eq!(keys(&table).len(), 8);
    }

    #[test]
    fn what_was_frequent_long_ago_gives_way() {
        let mut table = Busiest::new(1);
        table.count(&1, 1_000_000, || ());
        table.pass(24 * 3_600_000);
        table.count(&2, 1, || ());
        assert_eq!(keys(&table), [2]);
        let (_, score, ()) = table.scored().next().expect("2");
        assert!(score < 2.0, "{score}");
    }

    #[test]
    fn scores_that_are_no_numbers_are_none() {
        let mut table = Busiest::new(2);
        table.restore(1, f64::NAN, ());
        table.restore(2, f64::NEG_INFINITY, ());
        table.restore(3, 1.0, ());
        assert_eq!(
            table.scored().map(|(key, score, ())| (*key, score)).collect::<Vec<_>>(),
            [(1, 0.0), (2, 0.0)]
        );
    }
}
