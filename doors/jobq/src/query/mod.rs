//! Queries: lists of `[OP, EXPR, EXPR]`, joined by AND.
//!
//! An EXPR is an expression of SQLite over a job's columns, or a JSON value. Three things keep an
//! expression in its place: [`scan`] refuses what would end it early, SQLite's authorizer refuses
//! all but a job's columns and harmless functions ([`Guard`]), and a budget ends it when it takes
//! too long ([`Budget`]).
//!
//! The budget is asked between jobs, between terms, and by those functions that would take longest
//! (`functions.rs`). The evaluation of one term for one job cannot be interrupted, so the lengths
//! of values, and the number of names and of `||`, have limits.

mod budget;
mod functions;
mod guard;
mod keywords;
mod pattern;
mod scan;
mod terms;

pub use budget::{Budget, End, Try};
pub use functions::install as install_functions;
pub use guard::{Guard, NAMES_MAX};
pub use pattern::PATTERN_BYTES_MAX;
pub use terms::{BoundQuery, Query, TERMS_MAX};
