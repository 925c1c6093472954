//! Queries: lists of `[OP, EXPR, EXPR]`, joined by AND.
//!
//! An EXPR is an expression of SQLite over a job's columns, or a JSON value. Three things keep an
//! expression in its place: [`scan`] refuses what would end it early, SQLite's authorizer refuses
//! all but a job's columns and harmless functions ([`Guard`]), and a budget ends it when it takes
//! too long ([`Budget`]).

mod budget;
mod guard;
mod keywords;
mod scan;
mod terms;

pub use budget::{Budget, End, Try};
pub use guard::Guard;
pub use terms::{Bound, Query};
