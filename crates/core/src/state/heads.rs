//! The groups of a share that compete.

use std::collections::{BTreeSet, btree_set};
use std::iter::Chain;
use std::option;

/// The key of a group's first job, and its number.
type Head = (u128, u32);

/// Groups by the key of their first job, the best first. Most shares have one group, for which there
/// is no set: a single node of a set takes more memory than everything else of a key with few jobs.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heads {
    first: Option<Head>,
    /// All after the first one.
    others: BTreeSet<Head>,
}

impl Heads {
    /// Whether none competes.
    pub fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    /// A group competes.
    pub fn insert(&mut self, head: Head) {
        match self.first {
            None => self.first = Some(head),
            Some(first) if head == first => {}
            Some(first) if head < first => {
                self.others.insert(first);
                self.first = Some(head);
            }
            Some(_) => {
                self.others.insert(head);
            }
        }
    }

    /// A group no longer competes.
    pub fn remove(&mut self, head: &Head) {
        if self.first == Some(*head) {
            self.first = self.others.pop_first();
        } else {
            self.others.remove(head);
        }
    }
}

impl<'a> IntoIterator for &'a Heads {
    type Item = &'a Head;
    type IntoIter = Chain<option::Iter<'a, Head>, btree_set::Iter<'a, Head>>;

    fn into_iter(self) -> Self::IntoIter {
        self.first.iter().chain(&self.others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn behaves_as_a_set_under_any_mix_of_steps() {
        let (mut heads, mut set) = (Heads::default(), BTreeSet::new());
        let mut draw = 1u64;
        for _ in 0..10_000 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            let head = (u128::from((draw >> 33) % 4), ((draw >> 40) % 2) as u32);
            if draw >> 63 == 0 {
                heads.insert(head);
                set.insert(head);
            } else {
                heads.remove(&head);
                set.remove(&head);
            }
            assert!(heads.into_iter().eq(&set), "{heads:?} {set:?}");
            assert_eq!(heads.is_empty(), set.is_empty());
        }
    }
}
