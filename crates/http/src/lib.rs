//! What all HTTP doors share.
//!
//! A door gives an axum `Router` with its state applied and no fallback of its own; [`Site`] puts
//! the routers of all doors behind one guard that keeps strangers out, and [`listen`] serves them
//! on several threads, with limits and an orderly end. A handler is a translation: it turns a request
//! into calls of the engine through an [`EngineBridge`], and answers once what the answer reveals
//! is on disk.
//!
//! Start with `bridge.rs` (how a request waits for the engine and the disk), then `guard.rs` (which
//! requests are let in, by which of the server's `names.rs`), `listen.rs` (sockets) and
//! `commit_loop.rs` (when what was decided goes to the disk).

pub mod document;
pub mod listen;

mod accept;
mod body;
mod bridge;
mod commit_loop;
mod constraint;
mod cookie;
mod date;
mod guard;
mod head;
mod held;
mod large;
mod mailbox;
mod names;
mod pass;
mod problem;
mod put_back;
mod request;
mod rest;
mod serving;
mod site;
mod slices;
mod trace;
mod whole;
mod words;
mod write_timeout;

pub use accept::{Preference, accept_of, preference};
pub use body::{BodyError, BodyLimits, read_body, text_of};
pub use bridge::{EngineBridge, GuardedBody, LeaseGuard, Turn, Wait};
pub use constraint::{ConditionBody, ConstraintBody, ConstraintShown, Op, RateBody};
pub use cookie::{THEME_COOKIE, cookie_of};
pub use held::while_unread;
pub use large::{SMALL_BYTES_MAX, work_on_bytes};
pub use names::{HostName, HostNameError, HostNames, Names};
pub use pass::{Entrance, Needs, Pass, Table, Visitor, denied_anywhere};
pub use problem::{Answered, Code, Problem, ProblemBody, no_job};
pub use request::{REQUEST_ID, REQUEST_ID_BYTES_MAX};
pub use site::{Site, nothing_here};
pub use slices::{SliceTurn, slice_turn};
pub use trace::{TRACEPARENT, Trace, trace_header};
pub use whole::{Integer, whole, whole_or_null, whole_values};
pub use words::door_word;
