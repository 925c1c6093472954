//! placeholder

pub mod door;

pub use answer::Answer;
pub use door::{
    ConnectionId, Delivery, Door, Flow, Gate, LeaseRef, Mailbox, Outbox, Session, Ticket,
};

mod answer {
    /// A deferred answer.
    #[derive(Clone, Debug)]
    pub enum Answer {
        /// The wait ran out.
        TimedOut,
    }
}
