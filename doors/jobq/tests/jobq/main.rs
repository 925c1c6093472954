//! Jobq's door on a bench: its routes by the document and by what the original was recorded to
//! answer, its queries, its events, and what other doors do to its jobs.

#![expect(clippy::unwrap_used, reason = "these are tests: what is not there fails them")]

mod access;
mod clients;
mod costs;
mod create;
mod events;
mod foreign;
mod gates;
mod harness;
mod large;
#[cfg(test)]
mod lists;
mod page;
mod polls;
mod soup;
mod states;
