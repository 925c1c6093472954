//! Stands in for the engine that reactors need.

use std::sync::Arc;
use std::time::Duration;

use spindle_engine::Gate;
use spindle_engine::door::{Committer, Mailbox};

/// Stands in for the engine behind routers: nothing is decided here, so nothing waits for a log. A shard's
/// answer was durable there before it left.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoLog;

impl Committer for NoLog {
    fn attach(&self, _mailbox: &Arc<dyn Mailbox>) {}

    fn durable(&self) -> Gate {
        Gate::OPEN
    }

    fn end_turn(&self) -> bool {
        false
    }

    fn commit(&self) {}

    fn commit_if_quick(&self) {}

    fn sync_time(&self) -> Duration {
        Duration::ZERO
    }
}
