//! Where the engine leaves answers for requests that wait.

use std::collections::HashMap;

use parking_lot::Mutex;
use spindle_engine::{Delivery, Mailbox, Ticket};
use tokio::sync::{oneshot, watch};

/// The mailbox of all HTTP requests together: each wait is a ticket with a request behind it.
#[derive(Debug, Default)]
pub(crate) struct TicketMailbox {
    waits: Mutex<HashMap<Ticket, Reply>>,
    /// Changes whenever the durable position does.
    moved: watch::Sender<()>,
}

#[derive(Debug)]
enum Reply {
    /// A request waits for it.
    Awaited(oneshot::Sender<Delivery>),
    /// It came between the engine's call and the wait.
    Early(Box<Delivery>),
}

impl TicketMailbox {
    /// The answer to a ticket the engine has just given.
    pub fn expect(&self, ticket: Ticket) -> oneshot::Receiver<Delivery> {
        let (sender, receiver) = oneshot::channel();
        let mut waits = self.waits.lock();
        match waits.remove(&ticket) {
            Some(Reply::Early(delivery)) => drop(sender.send(*delivery)),
            Some(Reply::Awaited(_)) | None => {
                waits.insert(ticket, Reply::Awaited(sender));
            }
        }
        receiver
    }

    /// Forgets a ticket that no request waits for any more. The engine knows already.
    pub fn forget(&self, ticket: Ticket) {
        self.waits.lock().remove(&ticket);
    }

    /// Changes whenever the durable position does, from now on.
    pub fn moves(&self) -> watch::Receiver<()> {
        self.moved.subscribe()
    }
}

impl Mailbox for TicketMailbox {
    fn deliver(&self, delivery: Delivery) {
        let mut waits = self.waits.lock();
        let ticket = delivery.ticket;
        match waits.remove(&ticket) {
            // The request may be gone: then dropping its wait has the engine undo the lease.
            Some(Reply::Awaited(sender)) => drop(sender.send(delivery)),
            Some(Reply::Early(_)) | None => {
                waits.insert(ticket, Reply::Early(Box::new(delivery)));
            }
        }
    }

    fn durable_moved(&self) {
        self.moved.send_replace(());
    }
}

#[cfg(test)]
mod tests {
    use spindle_engine::{Answer, ConnectionId, Gated};

    use super::*;

    fn delivery(ticket: Ticket) -> Delivery {
        let connection = ConnectionId(1);
        Delivery { connection, ticket, answer: Gated::open(Answer::Room) }
    }

    #[test]
    fn an_answer_reaches_its_request_whichever_comes_first() {
        let post = TicketMailbox::default();
        let mut late = post.expect(Ticket(1));
        assert!(late.try_recv().is_err());
        post.deliver(delivery(Ticket(2)));
        post.deliver(delivery(Ticket(1)));
        assert_eq!(late.try_recv().unwrap().ticket, Ticket(1));
        assert_eq!(post.expect(Ticket(2)).try_recv().unwrap().ticket, Ticket(2));
        assert!(post.waits.lock().is_empty());
    }

    #[test]
    fn who_left_leaves_nothing_behind() {
        let post = TicketMailbox::default();
        drop(post.expect(Ticket(1)));
        post.deliver(delivery(Ticket(1)));
        drop(post.expect(Ticket(2)));
        post.forget(Ticket(2));
        assert!(post.waits.lock().is_empty());
    }
}
