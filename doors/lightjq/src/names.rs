//! The job names that LightJQ's pushers use: a worker that names none takes all of these.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use spindle_core::JobId;
use spindle_core::job::Origin;
use spindle_engine::Engine;
use spindle_limits::WORKER_NAMES_MAX;
use tokio::sync::watch;

/// How many names a worker without names of its own has: as many as another one may list.
const NAMES_MAX: usize = WORKER_NAMES_MAX;

/// Names of jobs that came in through this door and may be there still.
#[derive(Debug)]
pub(crate) struct JobNames {
    names: watch::Sender<Arc<BTreeSet<Bytes>>>,
}

impl JobNames {
    pub fn new() -> JobNames {
        JobNames { names: watch::Sender::default() }
    }

    /// The names, in a channel that reports new ones.
    pub fn watch(&self) -> watch::Receiver<Arc<BTreeSet<Bytes>>> {
        self.names.subscribe()
    }

    /// A job of this name came in. When there are as many as one lease can ask for, names without
    /// jobs make room; if there are none of those, only workers that list this name are given its
    /// jobs.
    pub fn note(&self, engine: &Engine, name: &Bytes) {
        if self.names.borrow().contains(name) {
            return;
        }
        self.names.send_if_modified(|names| {
            let names = Arc::make_mut(names);
            if names.len() >= NAMES_MAX {
                let existing = engine.queues().existing(names.iter());
                names.retain(|name| existing.contains(name));
            }
            if names.len() >= NAMES_MAX {
                tracing::warn!(
                    "lightjq: {NAMES_MAX} job names are in use; workers that name no jobs are not \
                     given those of {}",
                    String::from_utf8_lossy(name)
                );
                return false;
            }
            // A copy: the name shares its bytes with a whole request.
            names.insert(Bytes::copy_from_slice(name))
        });
    }

    /// Finds the names of jobs from an earlier run of the server.
    pub async fn find(&self, engine: &Engine) {
        let mut from = Some(JobId(0));
        while let Some(at) = from {
            let (found, next) = engine.jobs().queues_of(Origin::Lightjq, at);
            for name in found {
                self.note(engine, &name);
            }
            from = next;
            tokio::task::yield_now().await;
        }
    }
}
