//! What other threads leave for one reactor.

use std::io;
use std::mem;

use mio::Waker;
use parking_lot::Mutex;
use spindle_budget::{Holder, Kind};
use spindle_engine::door::{ConnectionId, Delivery, Mailbox};

use crate::accept::Arrival;

/// A command to a reactor, from the server's handle or from the reactor that accepts.
#[derive(Debug)]
pub(crate) enum Command {
    /// Serve this accepted connection.
    Adopt(Arrival),
    /// This connection held the most when a budget was exceeded: it goes.
    LetGo { connection: ConnectionId, kind: Kind },
    /// Close the listeners.
    StopAccepting,
    /// Let every session answer what it can, and end it.
    Shutdown { last: bool },
    /// Close everything, unanswered.
    Abort,
}

/// Everything that others have noted since the reactor last looked.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    pub(crate) commands: Vec<Command>,
    pub(crate) deliveries: Vec<Delivery>,
    pub(crate) durable_moved: bool,
}

impl Notes {
    fn is_empty(&self) -> bool {
        self.commands.is_empty() && self.deliveries.is_empty() && !self.durable_moved
    }
}

/// One reactor's notes. The first note that comes while the reactor sleeps wakes it; while it works,
/// a note costs a short lock and no wake, so that there are never more wakes than turns.
#[derive(Debug)]
pub(crate) struct Inbox {
    kept: Mutex<Kept>,
    waker: Waker,
}

#[derive(Debug, Default)]
struct Kept {
    notes: Notes,
    asleep: bool,
    /// Whether the reactor, while it sleeps, holds something back until the durable position moves.
    awaits_durable: bool,
    /// The reactor has ended: nothing more is kept.
    closed: bool,
}

impl Inbox {
    /// The waker ends the poll of the reactor's sockets.
    pub(crate) fn new(waker: Waker) -> Inbox {
        Inbox { kept: Mutex::default(), waker }
    }

    pub(crate) fn command(&self, command: Command) {
        self.note(true, |notes| notes.commands.push(command));
    }

    fn note(&self, wakes: bool, change: impl FnOnce(&mut Notes)) {
        let mut kept = self.kept.lock();
        if kept.closed {
            return;
        }
        change(&mut kept.notes);
        let wakes = kept.asleep && (wakes || kept.awaits_durable);
        kept.asleep &= !wakes;
        drop(kept);
        if wakes {
            self.wake();
        }
    }

    /// The reactor is about to sleep. False when there is a note: then it must not.
    pub(crate) fn may_sleep(&self, awaits_durable: bool) -> bool {
        let mut kept = self.kept.lock();
        kept.awaits_durable = awaits_durable;
        kept.asleep = kept.notes.is_empty();
        kept.asleep
    }

    /// The reactor is awake and takes its notes; `taken` is empty, and its memory is used again.
    pub(crate) fn take(&self, taken: &mut Notes) {
        let mut kept = self.kept.lock();
        kept.asleep = false;
        mem::swap(&mut kept.notes, taken);
    }

    /// Takes the queued deliveries of the connections that `is_ending` names, in order.
    pub(crate) fn take_deliveries(
        &self,
        mut is_ending: impl FnMut(ConnectionId) -> bool,
    ) -> Vec<Delivery> {
        let mut kept = self.kept.lock();
        let queued = &mut kept.notes.deliveries;
        queued.extract_if(.., |delivery| is_ending(delivery.connection)).collect()
    }

    /// The reactor ends: what is noted from now on is dropped. A stand-in that still watches its poll is
    /// woken.
    pub(crate) fn close(&self) {
        let left = {
            let mut kept = self.kept.lock();
            kept.closed = true;
            mem::take(&mut kept.notes)
        };
        // Connections among them are closed, without the lock.
        drop(left);
        self.wake();
    }

    fn wake(&self) {
        if let Err(error) = self.waker.wake() {
            // Waking fails only for lack of memory: the next sweep finds the note.
            tracing::warn!(%error, "cannot wake a reactor");
        }
    }
}

impl Mailbox for Inbox {
    fn deliver(&self, delivery: Delivery) {
        self.note(true, |notes| notes.deliveries.push(delivery));
    }

    fn durable_moved(&self) {
        self.note(false, |notes| notes.durable_moved = true);
    }
}

impl Holder for Inbox {
    fn let_go(&self, number: u64, kind: Kind) {
        self.command(Command::LetGo { connection: ConnectionId(number), kind });
    }
}

/// A reactor's sockets, and the inbox whose notes wake it.
pub(crate) fn poll_and_inbox() -> io::Result<(mio::Poll, Inbox)> {
    let poll = mio::Poll::new()?;
    let waker = Waker::new(poll.registry(), WAKER)?;
    Ok((poll, Inbox::new(waker)))
}

/// Stands for the inbox among the tokens of the connections.
pub(crate) const WAKER: mio::Token = mio::Token(usize::MAX);

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use mio::Events;

    use super::*;

    /// Whether the reactor was woken since the last look.
    fn is_woken(poll: &mut mio::Poll) -> bool {
        let mut events = Events::with_capacity(4);
        poll.poll(&mut events, Some(Duration::ZERO)).unwrap();
        !events.is_empty()
    }

    #[test]
    fn the_first_note_wakes_a_sleeping_reactor_and_none_one_that_works() {
        let (mut poll, inbox) = poll_and_inbox().unwrap();
        inbox.command(Command::StopAccepting);
        assert!(!is_woken(&mut poll));
        assert!(!inbox.may_sleep(true), "it would sleep over a note");
        let mut notes = Notes::default();
        inbox.take(&mut notes);
        assert_eq!(notes.commands.len(), 1);
        assert!(inbox.may_sleep(true));
        inbox.command(Command::StopAccepting);
        assert!(is_woken(&mut poll));
        for _ in 0..64 {
            inbox.command(Command::StopAccepting);
            inbox.durable_moved();
        }
        assert!(!is_woken(&mut poll), "once is enough");
        notes = Notes::default();
        inbox.take(&mut notes);
        assert_eq!((notes.commands.len(), notes.durable_moved), (65, true));
    }

    #[test]
    fn that_the_log_moved_wakes_only_who_waits_for_it() {
        let (mut poll, inbox) = poll_and_inbox().unwrap();
        assert!(inbox.may_sleep(false));
        inbox.durable_moved();
        assert!(!is_woken(&mut poll));
        let mut notes = Notes::default();
        inbox.take(&mut notes);
        assert!(notes.durable_moved);
        assert!(inbox.may_sleep(true));
        inbox.durable_moved();
        assert!(is_woken(&mut poll));
    }
}
