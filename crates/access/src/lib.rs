//! Who comes in, and what they may do: tokens, roles, queue patterns.
//!
//! A **tokens file** names identities. Each has roles, patterns of the queues it may touch, maybe
//! an end, and either the SHA-256 of a random token or the common name of a client certificate.
//! The tokens themselves are nowhere: who has the file cannot come in with it.
//!
//! - [`Access`] is what a door holds: the identities, and whether the door asks everybody who they
//!   are. Clones are the same. [`Watch`] reads the file again when it changes.
//! - [`Login`] is one connection (or one HTTP request): what it has presented, and the identity that
//!   is. [`Login::authorize`] is the one place where a door asks whether a request may be done. It
//!   is asked before the request is dispatched, and again when a wait ends with a job.
//! - A door says what each of its requests needs in one table: a [`Role`], and a [`Target`]: what it
//!   is about. A test walks each table against every role, and a request without a row does not
//!   compile (TCP) or fails the tests and is for `admin` only (HTTP).
//!
//! # Rules
//!
//! - `admin` may do everything; `manage` includes `inspect`, which includes `read`. `submit` and
//!   `work` include nothing else.
//! - An identity whose patterns include `*` is *unlimited*. One that is not may touch jobs of queues
//!   that fit a pattern; a job of another queue does not exist for it; and what shows or changes
//!   many queues at once ([`Target::AllQueues`]) is refused, never filtered.
//! - Roles are asked first and patterns second, so that a lack of a role says nothing about a job.
//! - Where nobody has to say who they are, who presents nothing may do everything. Who presents a
//!   token is bound to it: to nothing at all if it is not known.
//! - An identity that has expired, or is not in the file any more, stops working at once, also on
//!   connections that are open. Changed roles and patterns count from the next request on.
//!
//! # Why tokens are looked up by their digest
//!
//! A token has 256 random bits. What is compared is its SHA-256, in a hash map. The time this takes
//! may say something about a digest in the file, but nobody can choose tokens by their digests, and
//! a digest opens nothing: there is no secret whose letters could be guessed one by one. Nor does a
//! slow hash help, as it does for passwords: there are no likely tokens to try.
//!
//! Start with `tokens.rs` (the file), then `login.rs` (what is asked at each request).

mod access;
mod denied;
mod faults;
mod identity;
mod login;
mod role;
mod secret;
mod token;
mod tokens;
mod watch;

pub use access::{Access, Look};
pub use denied::Denied;
#[doc(hidden)]
pub use faults::Faults;
pub use identity::Identity;
pub use login::{Login, Target};
pub use role::{Role, Roles};
pub use secret::{SecretError, read_secret};
pub use token::{Digest, Token};
pub use tokens::{Tokens, TokensError};
pub use watch::Watch;
