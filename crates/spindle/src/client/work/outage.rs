//! Tells people once that the server is away, and once that it is there again.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::client::{progress::Progress, server::Server, session::AskError};

/// Whether the server is away, as far as its workers know.
pub struct Outage<'a> {
    server: &'a Server,
    progress: &'a Progress,
    is_away: AtomicBool,
}

impl<'a> Outage<'a> {
    /// None yet.
    pub fn none(server: &'a Server, progress: &'a Progress) -> Self {
        Self { server, progress, is_away: AtomicBool::new(false) }
    }

    /// Something failed that is tried again.
    pub fn goes_on(&self, error: &AskError) {
        if !self.is_away.swap(true, Ordering::Relaxed) {
            let Self { server, progress, .. } = self;
            progress.print(format_args!("{server}: {error}; trying again until it answers"));
        }
    }

    /// Something went well.
    pub fn is_over(&self) {
        if self.is_away.load(Ordering::Relaxed) && self.is_away.swap(false, Ordering::Relaxed) {
            self.progress.print(format_args!("{} answers again", self.server));
        }
    }
}
