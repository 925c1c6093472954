//! The notes that other threads and sockets leave for one reactor.

use std::mem;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use parking_lot::Mutex;
use spindle_engine::door::{ConnectionId, Delivery, Mailbox};

use crate::accept::Permit;

/// A command to a reactor, from the server's handle or from the reactor that accepts.
#[derive(Debug)]
pub(crate) enum Command {
    /// Serve this accepted connection.
    Adopt { door: usize, stream: TcpStream, peer: SocketAddr, permit: Permit },
    /// Close the listeners.
    StopAccepting,
    /// Let every session answer what it can, and end it.
    Shutdown { last: bool },
    /// Close everything, unanswered.
    Abort,
}

/// Everything that happened since the reactor last looked.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) commands: Vec<Command>,
    /// Connections whose sockets became readable or writable.
    pub(crate) ready: Vec<ConnectionId>,
    pub(crate) deliveries: Vec<Delivery>,
    pub(crate) accept: bool,
    pub(crate) durable_moved: bool,
    pub(crate) sweep: bool,
}

impl Work {
    fn is_empty(&self) -> bool {
        self.ready.is_empty()
            && self.deliveries.is_empty()
            && self.commands.is_empty()
            && !(self.accept || self.durable_moved || self.sweep)
    }

    fn append(&mut self, later: &mut Work) {
        self.commands.append(&mut later.commands);
        self.ready.append(&mut later.ready);
        self.deliveries.append(&mut later.deliveries);
        self.accept |= mem::take(&mut later.accept);
        self.durable_moved |= mem::take(&mut later.durable_moved);
        self.sweep |= mem::take(&mut later.sweep);
    }
}

/// One reactor's notes. The first note that comes while the reactor waits wakes it; while it works,
/// a note costs a short lock and no wake, so that there are never more wakes than turns.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    notes: Mutex<Notes>,
}

#[derive(Debug, Default)]
struct Notes {
    work: Work,
    /// Present only while the reactor waits for notes.
    waker: Option<Waker>,
    /// The reactor has ended: nothing more is kept.
    closed: bool,
}

impl Inbox {
    fn note(&self, change: impl FnOnce(&mut Work)) {
        let waker = {
            let mut notes = self.notes.lock();
            if notes.closed {
                return;
            }
            change(&mut notes.work);
            notes.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn command(&self, command: Command) {
        self.note(|work| work.commands.push(command));
    }

    pub(crate) fn sweep(&self) {
        self.note(|work| work.sweep = true);
    }

    /// Adds the notes to `work`; ready when it then has something in it.
    pub(crate) fn poll_take(&self, cx: &Context<'_>, work: &mut Work) -> Poll<()> {
        let mut notes = self.notes.lock();
        if work.is_empty() {
            mem::swap(&mut notes.work, work);
        } else if !notes.work.is_empty() {
            work.append(&mut notes.work);
        }
        if work.is_empty() {
            notes.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Takes the queued deliveries of the connections that `is_ending` names, in order.
    pub(crate) fn take_deliveries(
        &self,
        mut is_ending: impl FnMut(ConnectionId) -> bool,
    ) -> Vec<Delivery> {
        let mut notes = self.notes.lock();
        let queued = &mut notes.work.deliveries;
        queued.extract_if(.., |delivery| is_ending(delivery.connection)).collect()
    }

    /// The reactor ends; what is noted from now on is dropped.
    pub(crate) fn close(&self) -> Work {
        let mut notes = self.notes.lock();
        notes.closed = true;
        notes.waker = None;
        mem::take(&mut notes.work)
    }

    /// What a connection's socket wakes.
    pub(crate) fn waker(self: &Arc<Inbox>, connection: ConnectionId) -> Waker {
        Waker::from(Arc::new(SocketWaker { inbox: Arc::clone(self), connection }))
    }

    /// What the listeners wake.
    pub(crate) fn accept_waker(self: &Arc<Inbox>) -> Waker {
        Waker::from(Arc::new(AcceptWaker { inbox: Arc::clone(self) }))
    }
}

impl Mailbox for Inbox {
    fn deliver(&self, delivery: Delivery) {
        self.note(|work| work.deliveries.push(delivery));
    }

    fn durable_moved(&self) {
        self.note(|work| work.durable_moved = true);
    }
}

struct SocketWaker {
    inbox: Arc<Inbox>,
    connection: ConnectionId,
}

impl Wake for SocketWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.inbox.note(|work| work.ready.push(self.connection));
    }
}

struct AcceptWaker {
    inbox: Arc<Inbox>,
}

impl Wake for AcceptWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.inbox.note(|work| work.accept = true);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    #[test]
    fn many_notes_make_one_wake_and_none_while_the_reactor_works() {
        let inbox = Arc::new(Inbox::default());
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let cx = Context::from_waker(&waker);
        let mut work = Work::default();
        inbox.durable_moved();
        assert!(inbox.poll_take(&cx, &mut work).is_ready());
        inbox.durable_moved();
        assert_eq!(count.0.load(Ordering::SeqCst), 0);
        work = Work::default();
        assert!(inbox.poll_take(&cx, &mut work).is_ready());
        work = Work::default();
        assert!(inbox.poll_take(&cx, &mut work).is_pending());
        for id in 0..64 {
            inbox.waker(ConnectionId(id)).wake_by_ref();
            inbox.durable_moved();
        }
        assert_eq!(count.0.load(Ordering::SeqCst), 1);
        assert!(inbox.poll_take(&cx, &mut work).is_ready());
        assert_eq!((work.ready.len(), work.durable_moved), (64, true));
    }

    #[test]
    fn notes_are_taken_even_while_work_is_left_over() {
        let inbox = Inbox::default();
        let mut work = Work { ready: vec![ConnectionId(1)], ..Work::default() };
        inbox.durable_moved();
        assert!(inbox.poll_take(&Context::from_waker(Waker::noop()), &mut work).is_ready());
        assert_eq!((work.ready.len(), work.durable_moved), (1, true));
    }
}
