//! Constraints: putting and showing them, and the labels by which jobs fall under them.
//!
//! [`rules`] puts, shows and removes constraints. [`labelling`] gives a new or changed job its labels
//! before the core sees it, by the [`newest`] matchers; [`relabelling`] gives jobs that were there
//! before a constraint theirs, in a [`pass`] over all of them. What a matcher says is in the crate
//! `spindle-matching`.

mod labelling;
mod newest;
mod pass;
mod relabelling;
mod rules;

pub(crate) use newest::Rules;
pub(crate) use pass::Pass;
pub use pass::Relabelling;
pub use relabelling::Step as RelabelStep;
pub use rules::{
    BucketLine, ConstraintView, Expected, HeldBack, HeldQueues, JobNow, Opaque, PutConstraint,
};
