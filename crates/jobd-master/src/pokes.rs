//! Pokes become polls: the first goes through at once, those that follow within the throttle
//! interval are joined and go through at its end.

use std::{sync::Arc, time::Duration};

use indexmap::IndexSet;
use parking_lot::Mutex;
use serde_json::json;
use tracing::debug;

use crate::{
    link::{Link, RequestError},
    wire::raw,
    workers::Workers,
};

/// The registered workers, and the pokes that wait for them.
#[derive(Debug)]
pub(crate) struct Pokes {
    pub(crate) workers: Mutex<Workers>,
    throttle_interval: Duration,
    throttled: Mutex<Throttled>,
}

/// Pokes that have not gone through yet.
#[derive(Debug, Default)]
struct Throttled {
    targets: IndexSet<String>,
    /// Whether an interval is under way.
    is_active: bool,
}

impl Pokes {
    pub(crate) fn new(throttle_interval: Duration) -> Self {
        Self { workers: Mutex::default(), throttle_interval, throttled: Mutex::default() }
    }

    /// A client says that there are new rows for these targets.
    pub(crate) fn poke(self: &Arc<Self>, targets: Vec<String>) {
        let mut throttled = self.throttled.lock();
        throttled.targets.extend(targets);
        if std::mem::replace(&mut throttled.is_active, true) {
            return;
        }
        let targets = std::mem::take(&mut throttled.targets);
        drop(throttled);
        self.poll_workers(targets);
        let pokes = Arc::clone(self);
        tokio::spawn(async move { pokes.throttle().await });
    }

    async fn throttle(self: Arc<Self>) {
        loop {
            tokio::time::sleep(self.throttle_interval).await;
            let targets = {
                let mut throttled = self.throttled.lock();
                throttled.is_active = !throttled.targets.is_empty();
                std::mem::take(&mut throttled.targets)
            };
            if targets.is_empty() {
                return;
            }
            self.poll_workers(targets);
        }
    }

    /// Polls every worker for those of its targets that were poked.
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
    pub(crate) fn poll_worker(self: &Arc<Self>, link: Link, name: String, targets: Vec<String>) {
        let data = raw(&json!({ "targets": targets }));
        let answer = link.request("poll", Some(&data), None);
        let pokes = Arc::clone(self);
        tokio::spawn(async move {
            match answer.await {
                Ok(_) => {}
                Err(RequestError::Closed | RequestError::ClosedBecause(_)) => {
                    // The poll may be lost; the next worker that serves these targets gets it.
                    let mut workers = pokes.workers.lock();
                    workers.drop_link(&link);
                    workers.remember(targets);
                }
                Err(error) => debug!(worker = name, %error, "a worker refused a poll"),
            }
        });
    }
}
