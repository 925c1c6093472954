//! Who may connect, and what they may do: tokens, roles, queue patterns.
//!
//! A **tokens file** names identities. Each has roles, patterns of the queues it may touch, an
//! optional expiry, and either the SHA-256 of a random token or the common name of a client
//! certificate. The tokens themselves are not stored: nobody can log in with what is in the file.
//!
//! - [`Access`] is what a door holds: the identities, and whether the door requires everybody to
//!   identify themselves. Clones share one state. [`Watch`] reads the file again when it changes.
//! - [`Login`] is one connection (or one HTTP request): what it has presented, and the identity that
//!   belongs to it. [`Login::authorize`] is the one place where a door asks whether a request may be
//!   done. It is asked before the request is dispatched, and again when a wait ends with a job.
//! - [`hidden`] takes tokens out of texts that quote clients, for errors and logs.
//! - One table of a door says what each of its requests needs: a [`Role`], and a [`Target`], which
//!   is what the request is about. A test walks each table against every role, and a request without
//!   a row does not compile (TCP) or fails the tests and is for `admin` only (HTTP).
//!
//! # Rules
//!
//! - `admin` may do everything; `manage` includes `inspect`, which includes `read`. `submit` and
//!   `work` include nothing else.
//! - An identity whose patterns include `*` is *unlimited*. Any other identity may touch jobs of
//!   queues that fit a pattern; a job of another queue does not exist for it; and a request that
//!   shows or changes many queues at once ([`Target::AllQueues`]) is refused, never filtered.
//! - Roles are checked before patterns, so that a refusal for lack of a role says nothing about a
//!   job.
//! - Where a door does not require clients to identify themselves, a client that presents nothing
//!   may do everything. A client that presents a token is bound to it; if the token is not known,
//!   the client may do nothing.
//! - An identity that has expired, or is not in the file any more, stops working at once, also on
//!   connections that are open. Changed roles and patterns count from the next request on.
//!
//! # Why tokens are looked up by their digest
//!
//! A token has 256 random bits. Its SHA-256 is looked up in a hash map. The time that this takes
//! may reveal something about a digest in the file, but nobody can choose tokens by their digests,
//! and a digest opens nothing: there is no secret that could be guessed character by character. Nor
//! would a slow hash help, as it does for passwords: there are no likely tokens to try.
//!
//! Start with `tokens.rs` (the file), then `login.rs` (what is checked at each request).

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
pub use token::{Digest, Token, hidden, hidden_bytes};
pub use tokens::{Tokens, TokensError};
pub use watch::Watch;
