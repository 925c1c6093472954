//! Pokes: the first goes through at once, those that follow within the throttle interval are
//! joined and go through at its end.

use std::sync::Arc;

use indexmap::IndexSet;
use tracing::debug;

use super::run::Shared;
use crate::{link::RequestError, wire::raw};

/// Pokes that have not gone through yet.
#[derive(Debug, Default)]
pub(super) struct Pokes {
    targets: IndexSet<String>,
    /// Whether an interval is under way.
    is_throttled: bool,
}

impl Shared {
    /// Somebody says there are new rows for these targets.
    pub(super) fn poke(self: &Arc<Self>, targets: Vec<String>) {
        let mut pokes = self.pokes.lock();
        pokes.targets.extend(targets);
        if pokes.is_throttled {
            return;
        }
        let targets = std::mem::take(&mut pokes.targets);
        pokes.is_throttled = true;
        drop(pokes);
        self.poll_workers(targets);
        let shared = Arc::clone(self);
        tokio::spawn(async move { shared.throttle().await });
    }

    async fn throttle(self: Arc<Self>) {
        loop {
            tokio::time::sleep(self.poke_throttle_interval).await;
            let targets = {
                let mut pokes = self.pokes.lock();
                if pokes.targets.is_empty() {
                    pokes.is_throttled = false;
                    return;
                }
                std::mem::take(&mut pokes.targets)
            };
            self.poll_workers(targets);
        }
    }

    /// Tells every worker which of its targets were poked.
    fn poll_workers(self: &Arc<Self>, targets: IndexSet<String>) {
        let mut workers = self.workers.lock();
        for worker in workers.all() {
            let served = worker.among(&targets);
            if !served.is_empty() {
                self.poll_worker(worker.link.clone(), worker.name.clone(), served);
            }
        }
        workers.remember(targets);
    }

    /// Sends one worker its poll, now.
    pub(super) fn poll_worker(
        self: &Arc<Self>,
        link: crate::link::Link,
        name: String,
        targets: Vec<String>,
    ) {
        let data = raw(&serde_json::json!({ "targets": targets }));
        let answer = link.request("poll", Some(&data), None);
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            match answer.await {
                Ok(_) => {}
                Err(RequestError::Closed) => {
                    // It may not have heard it; whoever comes next for these targets will.
                    let mut workers = shared.workers.lock();
                    workers.drop_link(&link);
                    workers.remember(targets);
                }
                Err(error) => debug!(worker = name, %error, "a worker refused a poll"),
            }
        });
    }
}
