//! Constraints: putting and showing them, and the labels by which jobs fall under them.
//!
//! [`rules`] puts, shows and removes constraints. [`labelling`] gives a new or changed job its labels
//! before the core sees it; [`relabelling`] gives jobs that were there before a constraint theirs.
//! What a matcher says is in the crate `spindle-matching`.

mod labelling;
mod relabelling;
mod rules;

pub(crate) use labelling::Rules;
pub(crate) use relabelling::Relabeller;
pub use relabelling::{Relabelling, Step as RelabelStep};
pub use rules::{BucketLine, ConstraintView, Expected, HeldBack, Opaque, PutConstraint, held_back};
