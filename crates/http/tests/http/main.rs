//! The listener and the site, over real sockets and without a door.

#[cfg(test)]
mod bridge;
#[cfg(test)]
mod budgets;
#[cfg(test)]
mod encrypted;
#[cfg(test)]
mod listener;
#[cfg(test)]
mod rest;
#[cfg(test)]
mod resting;
#[cfg(test)]
mod site;

#[cfg(test)]
use std::sync::Arc;

#[cfg(test)]
use axum::Router;
#[cfg(test)]
use spindle_engine::{Engine, Options};
#[cfg(test)]
use spindle_http::{Names, Site};
#[cfg(test)]
use spindle_log::MemoryLog;
#[cfg(test)]
use spindle_testkit::ManualEngine;

/// An engine in memory, with nothing to commit. None of its threads runs.
#[cfg(test)]
fn engine() -> Engine {
    let engine = ManualEngine::open(Arc::new(MemoryLog::new()), 1, Options::default()).engine;
    engine.flush().unwrap();
    engine
}

/// Routes, called by the names of loopback.
#[cfg(test)]
fn site(routes: Router) -> Site {
    Site::new(routes, Names::new("127.0.0.1".parse().unwrap()))
}
