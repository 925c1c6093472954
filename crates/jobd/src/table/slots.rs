//! Open connections that wait for their next use.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};

/// At most so many connections, of which the idle ones are here.
#[derive(Debug)]
pub(super) struct Slots<C> {
    permits: Semaphore,
    idle: Mutex<Vec<Idle<C>>>,
}

#[derive(Debug)]
struct Idle<C> {
    connection: C,
    since: Instant,
}

/// The right to have one connection.
#[derive(Debug)]
pub(super) struct Slot<'a, C> {
    slots: &'a Slots<C>,
    _permit: SemaphorePermit<'a>,
}

impl<C> Slots<C> {
    pub fn new(most: usize) -> Self {
        Self { permits: Semaphore::new(most), idle: Mutex::new(Vec::new()) }
    }

    /// Waits until there is one connection less than the most.
    pub async fn slot(&self) -> Slot<'_, C> {
        let permit = self.permits.acquire().await.expect("the semaphore is never closed");
        Slot { slots: self, _permit: permit }
    }

    /// Closes the idle connections: the server they lead to has gone.
    pub fn clear(&self) {
        // Outside the lock: closing may take a while.
        let gone = std::mem::take(&mut *self.idle.lock());
        drop(gone);
    }
}

impl<C> Slot<'_, C> {
    /// The connection used last, and for how long it has been idle.
    pub fn idle(&self) -> Option<(C, Duration)> {
        let idle = self.slots.idle.lock().pop()?;
        Some((idle.connection, idle.since.elapsed()))
    }

    /// Puts a connection back for the next one.
    pub fn keep(self, connection: C) {
        self.slots.idle.lock().push(Idle { connection, since: Instant::now() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_connection_is_used_again_and_a_cleared_one_is_not() {
        let slots = Slots::new(2);
        let slot = slots.slot().await;
        assert!(slot.idle().is_none());
        slot.keep("first");
        let slot = slots.slot().await;
        assert_eq!(slot.idle().map(|(connection, _)| connection), Some("first"));
        slot.keep("first");
        slots.clear();
        assert!(slots.slot().await.idle().is_none());
    }

    #[tokio::test]
    async fn no_more_than_the_most_are_out() {
        let slots: Slots<()> = Slots::new(1);
        let slot = slots.slot().await;
        assert!(slots.permits.try_acquire().is_err());
        drop(slot);
        assert!(slots.permits.try_acquire().is_ok());
    }
}
