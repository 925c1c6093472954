//! Up to 128 finished jobs of one queue. They are in no order of age or expiry, but the chunk knows
//! its first job in both.

use std::cmp::Reverse;

use super::job::{COLUMNS, Column, FinishedJob, Numbers};
use super::packed::{Packed, ROWS};

/// How many jobs a chunk holds.
pub const SLOTS: usize = ROWS;

/// In which order finished jobs are dropped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// By when they ended, for limits.
    Age,
    /// By when they go, for retention.
    Expiry,
}

impl Order {
    pub const ALL: [Order; 2] = [Order::Age, Order::Expiry];
}

#[derive(Debug, Clone)]
pub struct Chunk {
    pub queue: u32,
    /// A bit for each slot with a job.
    used: u128,
    rows: Rows,
    /// The slot that is first in each order, if any is.
    first: [Option<u8>; 2],
    /// For a packed chunk whose first job has gone: all slots in that order, the next one last.
    /// Slots that have lost their jobs are passed over.
    following: [Vec<u8>; 2],
}

#[derive(Debug, Clone)]
enum Rows {
    /// Takes more.
    Open(Vec<[u64; COLUMNS]>),
    /// Has been full; its slots are not used again.
    Packed(Packed),
}

/// A slot with a job in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slot<'a> {
    chunk: &'a Chunk,
    slot: u8,
}

impl Numbers for Slot<'_> {
    #[inline]
    fn number(&self, column: Column) -> u64 {
        let row = usize::from(self.slot);
        match &self.chunk.rows {
            Rows::Open(rows) => rows[row].number(column),
            Rows::Packed(packed) => packed.number(row, column),
        }
    }
}

impl FinishedJob<Slot<'_>> {
    pub fn queue(&self) -> u32 {
        self.0.chunk.queue
    }

    /// A copy by itself.
    pub fn alone(&self) -> FinishedJob {
        FinishedJob(Column::ALL.map(|column| self.0.number(column)))
    }
}

impl Chunk {
    pub fn new(queue: u32) -> Chunk {
        Chunk {
            queue,
            used: 0,
            rows: Rows::Open(Vec::new()),
            first: [None; 2],
            following: [const { Vec::new() }; 2],
        }
    }

    #[inline]
    pub fn len(&self) -> usize {
        self.used.count_ones() as usize
    }

    /// How many slots have memory and no job.
    pub fn empty_slots(&self) -> usize {
        let slots = match &self.rows {
            Rows::Open(rows) => rows.len(),
            Rows::Packed(_) => SLOTS,
        };
        slots - self.len()
    }

    pub fn is_open(&self) -> bool {
        matches!(self.rows, Rows::Open(_))
    }

    pub fn is_used(&self, slot: u8) -> bool {
        self.used & (1 << slot) != 0
    }

    #[inline]
    pub fn job(&self, slot: u8) -> FinishedJob<Slot<'_>> {
        FinishedJob(Slot { chunk: self, slot })
    }

    /// Slots with a job.
    pub fn slots(&self) -> impl Iterator<Item = u8> + use<> {
        let mut left = self.used;
        std::iter::from_fn(move || {
            let slot = left.trailing_zeros() as u8;
            left &= left.wrapping_sub(1);
            (usize::from(slot) < SLOTS).then_some(slot)
        })
    }

    /// Where a job stands in an order, if it does.
    #[inline]
    pub fn key(&self, order: Order, slot: u8) -> Option<u128> {
        let job = self.job(slot);
        match order {
            Order::Age => Some(job.age_key()),
            Order::Expiry => job.expiry_key(),
        }
    }

    /// All jobs that have a place in this order: their keys and slots.
    pub fn keys(&self, order: Order) -> impl Iterator<Item = (u128, u8)> + '_ {
        self.slots().filter_map(move |slot| Some((self.key(order, slot)?, slot)))
    }

    /// The slot of the first job in each order.
    pub fn firsts(&self) -> [Option<u8>; 2] {
        self.first
    }

    /// Puts a job into a free slot of an open chunk; one that is full then is packed.
    pub fn insert(&mut self, job: &FinishedJob) -> u8 {
        let slot = self.used.trailing_ones() as u8;
        let Rows::Open(rows) = &mut self.rows else { unreachable!("only open chunks take jobs") };
        match rows.get_mut(usize::from(slot)) {
            Some(row) => *row = job.0,
            None => {
                if rows.len() == rows.capacity() {
                    rows.reserve_exact(rows.len().clamp(1, SLOTS - rows.len()));
                }
                rows.push(job.0);
            }
        }
        self.used |= 1 << slot;
        for order in Order::ALL {
            let before = self.first[order as usize].and_then(|first| self.key(order, first));
            let key = self.key(order, slot);
            if key.is_some() && (before.is_none() || key < before) {
                self.first[order as usize] = Some(slot);
            }
        }
        if self.used == u128::MAX
            && let Rows::Open(rows) = &self.rows
            && let Ok(rows) = <&[_; ROWS]>::try_from(&rows[..])
        {
            self.rows = Rows::Packed(Packed::new(rows));
        }
        slot
    }

    pub fn remove(&mut self, slot: u8) {
        self.used &= !(1 << slot);
        for order in Order::ALL {
            if self.first[order as usize] == Some(slot) {
                self.first[order as usize] = self.next(order);
            }
        }
    }

    /// Which job is first in this order now that the one before it is gone.
    fn next(&mut self, order: Order) -> Option<u8> {
        if self.is_open() {
            return self.keys(order).min().map(|(_, slot)| slot);
        }
        if self.following[order as usize].is_empty() {
            let mut keys: Vec<(u128, u8)> = self.keys(order).collect();
            keys.sort_unstable_by_key(|key| Reverse(*key));
            self.following[order as usize] = keys.into_iter().map(|(_, slot)| slot).collect();
        }
        while let Some(slot) = self.following[order as usize].pop() {
            if self.is_used(slot) {
                return Some(slot);
            }
        }
        None
    }
}
