//! The rules of Spindle: jobs, queues, leases, retries and limits, as a pure state machine.
//!
//! A [`Command`] is a request. [`decide`] says which [`Event`]s it causes, or why it is refused;
//! [`State::evolve`] folds an event into the [`State`]. Time, ids, randomness and the places of
//! bytes come in with the command, so folding the same events gives the same state on every
//! machine. There is no I/O here, no clock, no thread.
//!
//! Start with [`job`] (the life of a job), then [`command`] and [`event`].

pub mod address;
pub mod audit;
pub mod batch;
pub mod command;
pub mod consumer;
pub mod event;
pub mod glob;
pub mod job;
pub mod payload;
pub mod places;
pub mod policy;
pub mod queue;
pub mod rendezvous;
pub mod schedule;
pub mod seat;
pub mod state;

mod decide;
mod failure_text;
mod fast_decode;
mod fast_encode;
pub mod rejection;
mod reservations;
mod tries;

pub use command::Command;
pub use decide::{CONSTRAINTS_MAX, Decision, EVENTS_MAX, RATE_MAX};
pub use decide::{decide, decide_finish, decide_lease, decide_submit};
pub use event::Event;
pub use failure_text::cut_text;
pub use fast_decode::EventReader;
pub use job::{JobId, JobImage, Status};
pub use payload::{BytesRef, Type};
pub use policy::{Defaults, Policies, Policy, Requeue};
pub use rejection::Rejection;
pub use reservations::Reservations;
pub use state::{FairPlace, Found, Place, ReadyBefore, State};
pub use tries::{Limit, Source, Tries};
