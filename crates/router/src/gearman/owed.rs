//! The answers that the client is owed, in the order of its requests.

use std::collections::VecDeque;

use bytes::Bytes;

use crate::Shard;

/// What comes next for the client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Debt {
    /// The next answer of this shard.
    From(Shard),
    /// The router's own answer.
    Ready(Bytes),
    /// Nothing, but these fences have to come back first.
    Fences(Vec<(Shard, FenceNumber)>),
    /// The end of the connection.
    End,
}

/// How many fences were sent on a way, this one included.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub(super) struct FenceNumber(pub u64);

/// The number of a debt, which no other of the connection has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct DebtNumber(u64);

/// All that the client is owed.
#[derive(Default)]
pub(super) struct Owed {
    debts: VecDeque<Debt>,
    /// The number of the front one.
    first: u64,
    /// Bytes of the router's own answers.
    ready_bytes: usize,
}

impl Owed {
    /// Adds a debt behind all others.
    pub fn push(&mut self, debt: Debt) -> DebtNumber {
        if let Debt::Ready(bytes) = &debt {
            self.ready_bytes += bytes.len();
        }
        self.debts.push_back(debt);
        DebtNumber(self.first + self.debts.len() as u64 - 1)
    }

    /// What leaves next.
    pub fn front(&self) -> Option<&Debt> {
        self.debts.front()
    }

    /// The number of the front debt; if there is none, the number of the next one to be pushed.
    pub fn front_number(&self) -> DebtNumber {
        DebtNumber(self.first)
    }

    /// Removes the front debt, which is paid.
    pub fn pop(&mut self) -> Option<Debt> {
        let debt = self.debts.pop_front()?;
        self.first += 1;
        if let Debt::Ready(bytes) = &debt {
            self.ready_bytes -= bytes.len();
        }
        Some(debt)
    }

    pub fn len(&self) -> usize {
        self.debts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.debts.is_empty()
    }

    /// Bytes of the router's own answers that wait for others.
    pub fn ready_bytes(&self) -> usize {
        self.ready_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debts_are_paid_in_order_and_each_has_its_number() {
        let mut owed = Owed::default();
        let first = owed.push(Debt::From(Shard(1)));
        let second = owed.push(Debt::Ready(Bytes::from_static(b"abc")));
        assert_eq!((owed.front_number(), owed.len(), owed.ready_bytes()), (first, 2, 3));
        assert_eq!(owed.pop(), Some(Debt::From(Shard(1))));
        assert_eq!(owed.front_number(), second);
        assert_eq!(owed.pop(), Some(Debt::Ready(Bytes::from_static(b"abc"))));
        assert_eq!((owed.pop(), owed.ready_bytes()), (None, 0));
        let next = owed.front_number();
        assert_eq!(owed.push(Debt::End), next);
    }
}
