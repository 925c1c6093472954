//! The TCP server: one accept loop for all doors that speak over plain sockets.
//!
//! A door brings a state machine per connection ([`spindle_engine::door::Session`]); this crate
//! owns the sockets, reads into the sessions, writes what their outboxes release, and enforces
//! the limits on clients: connections, silence in the middle of a request, answers that nobody
//! reads. It knows no protocol and no queue.
//!
//! [`bind()`] claims the addresses (or [`bound()`] takes them over), [`Server::start`] serves them,
//! [`ServerHandle`] ends the server. No function of this crate is async. [`listen`] claims an address
//! for a server of another kind, such as that of HTTP.
//!
//! # How it runs
//!
//! A few **reactors**, each with its own epoll set and its own connections. A reactor makes
//! *turns*: it takes what its sockets say and the notes that others have left in its `Inbox` (the
//! engine's deferred answers, commands), reads what is ready, hands out answers, then writes to
//! every connection that may have something to send. So a commit that releases 64 answers costs one
//! turn and 64 writes, and 32 requests that came in one read are answered by one write.
//!
//! A reactor itself commits what its sessions decide, when its
//! [`Cohort`](spindle_engine::cohort::Cohort) says so. During the commit a second thread, its
//! *stand-in*, makes the turns.
//!
//! - Invariant: the inbox's lock is never held while a door is called, so a mailbox may be used
//!   from inside the engine's lock.
//! - Invariant: bytes reach a socket only through `Outbox::released`, in one place
//!   (`Connection::flush`).
//! - Invariant: every session that was opened gets exactly one `on_closed`.
//! - Invariant: a turn never blocks, and what one connection can do in a turn is bounded.
//! - Invariant: one thread at a time makes turns, so a session is called by one thread at a time.
//!
//! What connections hold is counted in the server's [`Budgets`](spindle_budget::Budgets) at the end
//! of each flush. The thread that finds a budget exceeded sends `Command::LetGo` to the connection that
//! holds the most.
//!
//! Connections that send much (over 1 KiB in a read) are read in turn, 64 KiB in all per turn; others
//! when their sockets say so. No more than that of one client's input is worked on at a time.
//!
//! # What a session can rely on
//!
//! - After `Flow::Wait`, `on_bytes` is not called until `on_answer` has returned
//!   `Flow::Continue`; then it is called with what was kept, if anything was.
//! - After `on_end_of_input` only `on_answer`, `on_shutdown` and, when a wait had outlived the end
//!   of input and was answered with `Flow::Continue`, `on_end_of_input` again are called.
//!   `Flow::Continue` from `on_end_of_input` means `Flow::Close`, unless the session left requests
//!   in the input because its outbox was full: then `on_bytes` and `on_end_of_input` are called
//!   again when that is sent.
//! - A session that finds more than 64 KiB in its outbox may leave complete requests in the input
//!   and return `Flow::Continue`: it is called again with them when the outbox is empty.
//!   Meanwhile no more is read than while it waits. This bounds memory when small requests ask
//!   for large answers.
//! - Deliveries that were queued before a connection closes are handed to its session before
//!   `on_closed`, so that a lease among them is seen (and is then among the unsent ones).
//! - Much input that came while a session waited is given to it in several calls: the input of a call
//!   may be less than what has come.
//! - Input buffers are shared and reused: a session copies what it keeps.

mod accept;
mod bind;
mod config;
mod connection;
mod connections;
mod counters;
mod feed;
mod held;
mod inbox;
mod opening;
mod reactor;
mod server;
mod shutdown;
mod stand_in;
mod tls;
mod transport;

pub use bind::{BindError, BoundDoor, bind, bound, inner, listen, may_listen};
pub use config::{Limits, NetConfig};
pub use counters::NetCounters;
pub use server::{AdoptError, Server, ServerHandle, StartError};
