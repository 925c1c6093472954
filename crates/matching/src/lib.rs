//! Matchers of constraints: which constraints a job falls under.
//!
//! `spec` is the vocabulary, `encoding` its bytes in a constraint, `rules` a compiled set of
//! matchers. `fields` finds the fields that matchers test in a payload by their `pointer`s, with
//! `json` and `msgpack` as readers. The crate is a function from a queue's name and a payload to
//! labels, and does not depend on the engine.

mod encoding;
mod fields;
mod json;
mod msgpack;
mod path;
mod pointer;
mod rules;
mod spec;
mod value;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use encoding::{decode_matcher, encode_matcher};
pub use path::MatchPath;
pub use pointer::is_pointer;
pub use rules::{Document, Matched, RuleSet};
pub use spec::{
    Condition, ConstraintSpec, Matcher, PER_FAIR_KEY, Scalar, SpecError, Test, check_name,
};
pub use spindle_core::queue::{QueuePattern, UnreadableMatcher};
