//! How the program around a master reads its state and gives it orders, from any thread.

use std::{fmt, net::SocketAddr, sync::Arc, time::SystemTime};

use futures_util::future::join_all;
use indexmap::IndexSet;
use thiserror::Error;
use tokio::runtime::Handle;

use crate::{
    pass_on::{Order, Outcome, give, share},
    pokes::Pokes,
    report::Reported,
    worker_status::WorkerStatus,
    workers::{Registered, Workers},
};

/// How many targets without a worker a list names.
const UNSERVED_MAX: usize = 100;

/// A handle to a running master. It may outlive the master; then it has no workers.
///
/// The list of workers is locked for as long as it takes to copy some of it and to queue what is
/// sent; nobody waits for a peer meanwhile.
#[derive(Clone)]
pub struct MasterHandle {
    address: SocketAddr,
    pokes: Arc<Pokes>,
    runtime: Handle,
}

impl fmt::Debug for MasterHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("MasterHandle").field(&self.address).finish()
    }
}

/// Some of the registered workers.
#[derive(Clone, Debug)]
pub struct WorkerList {
    /// In the order in which they registered.
    pub workers: Vec<WorkerView>,
    /// Whether there are more behind the last.
    pub has_more: bool,
    /// Targets that were poked and that no worker serves; at most 100.
    pub unserved: Vec<String>,
    /// How many those are in all.
    pub unserved_count: usize,
}

/// A registered worker.
#[derive(Clone, Debug)]
pub struct WorkerView {
    /// Its number, unique among the connections that register.
    pub id: u64,
    /// Its name, which others may have too.
    pub name: String,
    /// Where its connection comes from.
    pub address: SocketAddr,
    /// When it registered.
    pub registered: SystemTime,
    /// The targets that it serves.
    pub targets: Vec<String>,
    /// What it told last of itself.
    pub last_status: Option<LastStatus>,
    /// Why there is no newer status, if it did not answer the last request; for people.
    pub problem: Option<String>,
}

/// A worker's status, and when it told it.
#[derive(Clone, Debug)]
pub struct LastStatus {
    /// The status.
    pub status: Arc<WorkerStatus>,
    /// When it came.
    pub at: SystemTime,
}

/// Which targets of which workers are meant.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// These targets; none: all.
    pub targets: Option<Vec<String>>,
    /// Of these workers, by their numbers; none: of all.
    pub workers: Option<Vec<u64>>,
}

/// A worker that a selection means, and which of its targets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meant {
    /// Its number.
    pub worker: u64,
    /// Its name.
    pub name: String,
    /// Its targets that are meant.
    pub targets: Vec<String>,
}

/// What of a selection is not there.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotMeant {
    /// No worker has this number, or its connection is gone.
    #[error("no worker has the number {0}, or its connection is gone")]
    Worker(u64),
    /// None of the workers that are meant serves this target.
    #[error("no worker that is meant serves the target {0:?}")]
    Target(String),
}

impl MasterHandle {
    /// For a master whose connections this runtime drives: the caller's.
    pub(crate) fn new(address: SocketAddr, pokes: Arc<Pokes>) -> Self {
        Self { address, pokes, runtime: Handle::current() }
    }

    /// The address on which the master listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// At most `count_max` workers with numbers above `after`, and their statuses. They are asked,
    /// unless they were within the last second. A worker that does not answer within a second is in
    /// the list with its earlier status, and is not waited for again until it has answered.
    pub async fn workers(&self, after: u64, count_max: usize) -> WorkerList {
        let (found, has_more, unserved, unserved_count) = {
            let workers = self.pokes.workers.lock();
            let behind = workers.all().iter().filter(|worker| worker.id > after);
            let found: Vec<Registered> = behind.clone().take(count_max).cloned().collect();
            let unserved = workers.unserved();
            let unserved_count = unserved.len();
            let unserved = unserved.take(UNSERVED_MAX).cloned().collect();
            (found, behind.count() > count_max, unserved, unserved_count)
        };
        join_all(found.iter().map(|it| it.report.ask(&it.link, &self.runtime))).await;
        let workers = found.into_iter().map(WorkerView::of).collect();
        WorkerList { workers, has_more, unserved, unserved_count }
    }

    /// The workers that a selection means. Those that serve none of its targets are left out.
    ///
    /// # Errors
    /// [`NotMeant`] when something that it names is not there.
    pub fn meant(&self, selection: &Selection) -> Result<Vec<Meant>, NotMeant> {
        let workers = self.pokes.workers.lock();
        let (chosen, asked) = choose(&workers, selection)?;
        let meant = chosen.into_iter().filter_map(|worker| {
            let targets = share(worker, asked.as_ref())?;
            Some(Meant { worker: worker.id, name: worker.name.clone(), targets })
        });
        Ok(meant.collect())
    }

    /// Has the selected workers pause or go on with the selected targets. The orders are sent at
    /// once; the future is ready when each worker has answered, gone or been silent for five seconds.
    ///
    /// # Errors
    /// [`NotMeant`] when something that the selection names is not there: nothing is sent then.
    pub fn give(
        &self,
        order: Order,
        selection: &Selection,
    ) -> Result<impl Future<Output = Vec<Outcome>> + Send + use<>, NotMeant> {
        let workers = self.pokes.workers.lock();
        let (chosen, asked) = choose(&workers, selection)?;
        Ok(give(order, &chosen, asked.as_ref()))
    }
}

/// The workers that a selection names, and its targets.
fn choose<'a>(
    workers: &'a Workers,
    selection: &Selection,
) -> Result<(Vec<&'a Registered>, Option<IndexSet<String>>), NotMeant> {
    let all = workers.all();
    let chosen: Vec<&Registered> = match &selection.workers {
        None => all.iter().collect(),
        Some(ids) => {
            let ids: IndexSet<u64> = ids.iter().copied().collect();
            let find = |id: u64| all.iter().find(|worker| worker.id == id);
            let find = |id| find(id).ok_or(NotMeant::Worker(id));
            ids.into_iter().map(find).collect::<Result<_, _>>()?
        }
    };
    let asked: Option<IndexSet<String>> =
        selection.targets.as_ref().map(|targets| targets.iter().cloned().collect());
    let is_served = |target: &str| chosen.iter().any(|worker| worker.serves(target));
    match asked.iter().flatten().find(|target| !is_served(target)) {
        Some(target) => Err(NotMeant::Target(target.clone())),
        None => Ok((chosen, asked)),
    }
}

impl WorkerView {
    fn of(worker: Registered) -> Self {
        let Reported { status, problem } = worker.report.reported();
        let remote = worker.link.remote();
        Self {
            id: worker.id,
            name: worker.name,
            address: SocketAddr::new(remote.ip().to_canonical(), remote.port()),
            registered: worker.since,
            targets: worker.targets,
            last_status: status.map(|(status, at)| LastStatus { status, at }),
            problem,
        }
    }
}
