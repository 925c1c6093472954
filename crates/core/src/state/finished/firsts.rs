//! Chunks by the first of their jobs in an order.

use std::collections::BTreeSet;

/// A job's key, and its number, which says in which chunk it is.
pub type First = (u128, u32);

/// Chunks in order. As long as jobs go one chunk after the other, the tree stays as it is.
#[derive(Debug, Clone, Default)]
pub struct Firsts {
    /// The chunk that comes before all others.
    head: Option<First>,
    others: BTreeSet<First>,
}

impl Firsts {
    /// A chunk has another first job now, or comes, or goes.
    pub fn exchange(&mut self, old: Option<First>, new: Option<First>) {
        if old.is_some() && old == self.head {
            self.head = new;
            let next = self.others.first();
            if new.is_none() || next.is_some_and(|next| Some(*next) < new) {
                self.others.extend(new);
                self.head = self.others.pop_first();
            }
        } else {
            old.map(|old| self.others.remove(&old));
            let is_head = new.is_some() && (self.head.is_none() || new < self.head);
            self.others.extend(if is_head { std::mem::replace(&mut self.head, new) } else { new });
        }
    }

    pub fn iter(&self) -> impl Iterator<Item = First> + '_ {
        self.head.iter().chain(&self.others).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stays_in_order_under_any_mix_of_steps() {
        let (mut firsts, mut model) = (Firsts::default(), BTreeSet::new());
        let mut draw = 1u64;
        for _ in 0..20_000 {
            draw = draw.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
            let new = Some((u128::from(draw >> 40) % 50, (draw >> 33) as u32 % 3));
            let new = new.filter(|new| draw % 5 > 1 && !model.contains(new));
            let at = (draw >> 20) as usize % 40;
            let old = model.iter().nth(at.saturating_sub(20)).filter(|_| at > 5).copied();
            firsts.exchange(old, new);
            old.map(|old| model.remove(&old));
            model.extend(new);
            assert!(firsts.iter().eq(model.iter().copied()));
        }
    }
}
