//! The ready jobs of a group, by priority and age.

use super::ordered_list::OrderedList;

/// Up to so many jobs need no list: a group in a fair queue mostly has few jobs, and the three
/// allocations of a list would be in three places of the memory.
const FEW_MAX: usize = 5;
/// With only so many jobs left, a list is given up: fewer than it takes to make one.
const FEW_AGAIN: usize = 2;

/// Numbers of jobs in the order of the keys that `key_of` returns, as in an [`OrderedList`], and with
/// its rules.
#[derive(Debug, Clone)]
pub(crate) enum ReadyList {
    Few { len: u8, jobs: [u32; FEW_MAX] },
    Many(OrderedList),
}

impl Default for ReadyList {
    fn default() -> Self {
        ReadyList::Few { len: 0, jobs: [0; FEW_MAX] }
    }
}

impl ReadyList {
    /// The jobs, if they are few.
    fn few(&self) -> Option<&[u32]> {
        match self {
            ReadyList::Few { len, jobs } => Some(&jobs[..usize::from(*len)]),
            ReadyList::Many(_) => None,
        }
    }

    fn many(&self) -> Option<&OrderedList> {
        match self {
            ReadyList::Few { .. } => None,
            ReadyList::Many(list) => Some(list),
        }
    }

    /// How many jobs.
    pub fn len(&self) -> usize {
        match self {
            ReadyList::Few { len, .. } => usize::from(*len),
            ReadyList::Many(list) => list.len(),
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first job.
    pub fn first(&self) -> Option<u32> {
        match self {
            ReadyList::Few { len, jobs } => (*len > 0).then_some(jobs[0]),
            ReadyList::Many(list) => list.first(),
        }
    }

    /// Puts a job in its place.
    pub fn insert(&mut self, job: u32, key_of: impl Fn(u32) -> u128) {
        match self {
            ReadyList::Few { len, jobs } if usize::from(*len) < FEW_MAX => {
                let count = usize::from(*len);
                let key = key_of(job);
                let behind = |other: &&u32| key_of(**other) > key;
                let place = count - jobs[..count].iter().rev().take_while(behind).count();
                jobs.copy_within(place..count, place + 1);
                jobs[place] = job;
                *len += 1;
            }
            ReadyList::Few { jobs, .. } => {
                let mut list = OrderedList::default();
                jobs.iter().for_each(|other| list.insert(*other, &key_of));
                list.insert(job, key_of);
                *self = ReadyList::Many(list);
            }
            ReadyList::Many(list) => list.insert(job, key_of),
        }
    }

    /// Takes a job out. Returns whether it was there.
    pub fn remove(&mut self, job: u32, key_of: impl Fn(u32) -> u128) -> bool {
        match self {
            ReadyList::Few { len, jobs } => {
                let count = usize::from(*len);
                let Some(place) = jobs[..count].iter().position(|other| *other == job) else {
                    return false;
                };
                jobs.copy_within(place + 1..count, place);
                *len -= 1;
                true
            }
            ReadyList::Many(list) => {
                let was_there = list.remove(job, key_of);
                if list.len() <= FEW_AGAIN {
                    let mut jobs = [0; FEW_MAX];
                    let left = list.iter_after(0);
                    let len = jobs.iter_mut().zip(left).map(|(at, job)| *at = job).count() as u8;
                    *self = ReadyList::Few { len, jobs };
                }
                was_there
            }
        }
    }

    /// The job with exactly this key.
    pub fn find(&self, key: u128, key_of: impl Fn(u32) -> u128) -> Option<u32> {
        match self.few() {
            Some(jobs) => jobs.iter().copied().find(|job| key_of(*job) == key),
            None => self.many()?.find(key, key_of),
        }
    }

    /// All jobs in order, after passing over some.
    pub fn iter_after(&self, count: usize) -> impl Iterator<Item = u32> + '_ {
        let few = self.few().into_iter().flatten().copied().skip(count);
        few.chain(self.many().into_iter().flat_map(move |list| list.iter_after(count)))
    }

    /// How many jobs have keys below this one.
    pub fn count_below(&self, key: u128, key_of: impl Fn(u32) -> u128) -> usize {
        match self {
            ReadyList::Few { .. } => {
                self.iter_after(0).take_while(|job| key_of(*job) < key).count()
            }
            ReadyList::Many(list) => list.count_below(key, key_of),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn behaves_as_an_ordered_set_while_it_grows_and_shrinks() {
        let key_of = |job: u32| u128::from(job) * 3;
        let (mut list, mut set) = (ReadyList::default(), BTreeSet::new());
        let mut draw = 1u64;
        let mut most = 0;
        for step in 0..20_000u32 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            let job = ((draw >> 33) % 12) as u32;
            let grows = (step / 50) % 2 == 0;
            if !set.contains(&job) && (grows || draw >> 62 == 0) {
                list.insert(job, key_of);
                set.insert(job);
            } else {
                assert_eq!(list.remove(job, key_of), set.remove(&job));
            }
            most = most.max(list.len());
            assert_eq!((list.first(), list.len()), (set.first().copied(), set.len()));
            assert_eq!(list.is_empty(), set.is_empty());
            assert!(list.iter_after(0).eq(set.iter().copied()), "{list:?} {set:?}");
            assert!(list.iter_after(3).eq(set.iter().copied().skip(3)));
            assert_eq!(list.find(key_of(job), key_of), set.get(&job).copied());
            assert_eq!(list.count_below(key_of(job), key_of), set.range(..job).count());
        }
        assert!(most > FEW_MAX);
    }
}
