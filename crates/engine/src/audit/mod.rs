//! The audit log: what people did to jobs that are not theirs, to queues and to constraints.
//!
//! Whatever a person changes goes through [`People`], which needs an [`Audit`]: so no change of that
//! kind can be made without saying who makes it. The calls of `People` stand beside those of workers
//! (`call/`, `read/queues.rs`, `constraints/rules.rs`); `request.rs` is how an entry comes into the
//! record of its change, `list.rs` how entries are found. What is kept is for the core to decide.

mod list;
mod request;

pub use list::{AuditFilter, AuditPage};
pub(crate) use request::Deed;
pub use request::{Audit, People};
