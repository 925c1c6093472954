//! What a constraint's matcher says, and which constraints a job falls under.
//!
//! [`spec`] is the vocabulary, [`encoding`] how it is kept, [`rules`] a set of matchers made ready.
//! [`fields`] finds what matchers ask for in a payload, with [`json`] and [`msgpack`] as readers.
//! None of it knows the engine: it is a function from a queue's name and a payload to labels.

mod encoding;
mod fields;
mod json;
mod msgpack;
mod path;
mod rules;
mod spec;
mod value;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use encoding::{UnreadableMatcher, decode_matcher, encode_matcher};
pub use path::MatchPath;
pub use rules::{Document, RuleSet};
pub use spec::{
    Condition, ConstraintSpec, Matcher, QueuePattern, Scalar, SpecError, Test, check_name,
};
