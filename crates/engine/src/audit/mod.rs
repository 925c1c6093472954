//! The audit log: what people did to jobs that are not theirs, to queues and to constraints.
//!
//! Every change that a person makes goes through [`People`], which needs an [`Audit`]: so none can
//! be made without saying who makes it. The calls of `People` stand beside those of workers
//! (`call/`, `read/queues.rs`, `constraints/rules.rs`); `request.rs` puts an entry into the record
//! of its change, `list.rs` finds entries. The core decides what is kept.

mod list;
mod request;

pub use list::{AuditFilter, AuditPage};
pub(crate) use request::Deed;
pub use request::{Audit, People};
