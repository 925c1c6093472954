//! How a worker gets a job: a slot of its own first, then a lease into it.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::MutexGuard;
use spindle_access::{Denied, Login, Role, Target};
use spindle_core::JobId;
use spindle_core::command::{Lease, Select};
use spindle_core::job::Origin;
use spindle_core::payload::Type;
use spindle_engine::{FetchError, LeasedJob};
use spindle_http::{Answered, LeaseGuard, work_on_bytes};
use tokio::select;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::door::LightJq;
use crate::extract::no_worker;
use crate::registry::{FreeSlot, Registry};
use crate::wire::{Order, Pack, check, from_json};
use crate::worker_id::WorkerId;

/// A wait in the engine that outlasts every wait of this door; a day, so that no sum overflows.
const WAIT_MS: u64 = 24 * 3_600_000;

/// A job for a worker, in its slot. The lease is undone unless `lease_guard` is told otherwise.
pub(crate) struct Taken {
    pub job: LeasedJob,
    /// The body that hands it to the worker.
    pub order: Vec<u8>,
    pub lease_guard: LeaseGuard,
}

/// A place for one job of a worker, given back unless a job comes into it.
struct WorkerSlot<'a> {
    door: &'a LightJq,
    id: WorkerId,
    is_open: bool,
}

impl WorkerSlot<'_> {
    /// Puts the job into the slot. Returns false if the worker has gone, or takes no such jobs any
    /// more.
    fn fill(mut self, job: &LeasedJob) -> bool {
        let held = self.door.registry().hold(self.id, job.id, &job.queue);
        self.is_open = !held;
        held
    }
}

impl Drop for WorkerSlot<'_> {
    fn drop(&mut self) {
        if self.is_open {
            let now_ms = self.door.engine().steady_ms();
            self.door.registry().give_back(self.id, now_ms);
        }
    }
}

/// What wakes a waiting worker, besides its own changes, its deadline and the server's end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Watched {
    Worker,
    /// It has no slot yet.
    Slots,
    /// It takes all names there are.
    Names,
}

/// What wakes a worker that waits for a job.
struct WakeSources {
    /// The worker itself.
    changed: watch::Receiver<()>,
    /// Its slots.
    freed: watch::Receiver<()>,
    names: watch::Receiver<Arc<BTreeSet<Bytes>>>,
    stopping: watch::Receiver<bool>,
    deadline: Option<Instant>,
}

impl WakeSources {
    /// Marks all changes as seen. Returns true if it is time for the last try.
    fn look(&mut self) -> Answered<bool> {
        if self.changed.has_changed().is_err() {
            return Err(no_worker());
        }
        self.changed.borrow_and_update();
        self.freed.borrow_and_update();
        self.names.borrow_and_update();
        let is_late = self.deadline.is_some_and(|deadline| deadline <= Instant::now());
        Ok(*self.stopping.borrow_and_update() || is_late)
    }

    /// Waits until something changes, or until the deadline.
    async fn moved(&mut self, watched: Watched) {
        let deadline = self.deadline;
        let late = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => pending().await,
            }
        };
        // A sender that is gone counts as a change too; the next look finds out.
        select! {
            _ = self.changed.changed() => {}
            _ = self.freed.changed(), if watched == Watched::Slots => {}
            _ = self.names.changed(), if watched == Watched::Names => {}
            _ = self.stopping.changed() => {}
            () = late => {}
        }
    }
}

impl LightJq {
    pub(crate) fn registry(&self) -> MutexGuard<'_, Registry> {
        self.shared().registry.lock()
    }

    /// Waits for a job for a worker that `login` may work for, until a given time or without limit.
    /// What the answer reveals is durable when this returns. None: nothing came in time, or the
    /// server stops.
    pub(crate) async fn take(
        &self,
        id: WorkerId,
        deadline: Option<Instant>,
        mut login: Login,
    ) -> Answered<Option<Taken>> {
        let [changed, freed] = self.registry().watch(id).ok_or_else(no_worker)?;
        let (names, stopping) = (self.shared().names.watch(), self.stopping());
        let mut sources = WakeSources { changed, freed, names, stopping, deadline };
        loop {
            let is_last = sources.look()?;
            let Some(free) = self.registry().reserve(id) else {
                if is_last {
                    return if self.registry().has(id) { Ok(None) } else { Err(no_worker()) };
                }
                sources.moved(Watched::Slots).await;
                continue;
            };
            let slot = WorkerSlot { door: self, id, is_open: true };
            allows_names(&mut login, free.names.as_deref())?;
            let watched = if free.names.is_none() { Watched::Names } else { Watched::Worker };
            let queues = asked_for(&free, sources.names.borrow().iter());
            if queues.is_empty() {
                if is_last {
                    return Ok(None);
                }
                sources.moved(watched).await;
                continue;
            }
            let lease = lease_of(free.signature, queues);
            let wait_ms = if is_last { 0 } else { WAIT_MS };
            let leased = select! {
                biased;
                leased = self.bridge().lease(lease, wait_ms) => leased,
                () = sources.moved(watched) => continue,
            };
            let Some((job, guard)) = self.bridge().durable(leased).await? else {
                return Ok(None);
            };
            // The request may have waited for long; if the client may not have the job any more,
            // the lease is given up.
            login.authorize(Role::Work, Target::Queue(&job.queue))?;
            if let Some(taken) = self.taken(slot, job, guard).await? {
                return Ok(Some(taken));
            }
        }
    }

    /// Puts a leased job into the slot. None: it is not for this worker after all, or it is gone.
    /// Dropping the result gives back the slot and the lease.
    async fn taken(
        &self,
        slot: WorkerSlot<'_>,
        job: LeasedJob,
        lease_guard: LeaseGuard,
    ) -> Answered<Option<Taken>> {
        let (bytes, door) = (job.payload.len as usize, self.clone());
        let taken = work_on_bytes(bytes, move || door.read_order(job, lease_guard)).await?;
        Ok(taken.filter(|taken| slot.fill(&taken.job)))
    }

    /// Reads the body that hands a leased job to its worker. `None` if there is no payload to give
    /// out.
    fn read_order(
        &self,
        job: LeasedJob,
        lease_guard: LeaseGuard,
    ) -> Result<Option<Taken>, FetchError> {
        let _turn = self.bridge().turn();
        let payload = match self.engine().leases().payload(&job) {
            Ok(Some(payload)) => payload,
            none => {
                // The engine has ended this lease. Undoing it again could hit a lease that another
                // worker has by now.
                lease_guard.done();
                return none.map(|_| None);
            }
        };
        let order = Order {
            job: job.id,
            name: &job.queue,
            argument: &as_msgpack(&payload, job.payload.kind()),
            timeout_ms: job.length_ms,
        };
        let order = order.encode();
        Ok(Some(Taken { job, order, lease_guard }))
    }

    /// A worker no longer has a job.
    pub(crate) fn let_go(&self, id: WorkerId, job: JobId) {
        let now_ms = self.engine().steady_ms();
        self.registry().let_go(id, job, now_ms);
    }
}

/// Whether jobs of these names may be worked on; none: of all names.
pub(crate) fn allows_names(login: &mut Login, names: Option<&[Bytes]>) -> Result<(), Denied> {
    match names {
        Some(names) => {
            let mut names = names.iter().map(AsRef::as_ref);
            login.authorize(Role::Work, Target::Queues(&mut names))
        }
        None => login.authorize(Role::Work, Target::AllQueues),
    }
}

fn asked_for<'a>(free: &FreeSlot, known: impl Iterator<Item = &'a Bytes>) -> Vec<Bytes> {
    let takes = |name: &&Bytes| !free.refused.contains(*name);
    match &free.names {
        Some(names) => names.iter().filter(takes).cloned().collect(),
        None => known.filter(takes).cloned().collect(),
    }
}

fn lease_of(worker: Bytes, queues: Vec<Bytes>) -> Lease {
    Lease {
        queues,
        select: Select::ByPriority,
        holder: 0,
        bound: false,
        timeout_ms: None,
        door: Origin::Lightjq,
        worker,
        payload_bytes_max: u32::MAX,
    }
}

/// Payloads and results of any door, as this one's clients read them. Bytes that are not of the
/// type they were declared as are passed on as bytes.
pub(crate) fn as_msgpack(bytes: &Bytes, kind: Type) -> Bytes {
    match kind {
        Type::Msgpack if check(bytes).is_ok() => return bytes.clone(),
        Type::Json => {
            if let Ok(value) = from_json(bytes) {
                return Bytes::from(value);
            }
        }
        Type::Msgpack | Type::Bytes => {}
    }
    let mut pack = Pack::new();
    pack.bin(bytes);
    Bytes::from(pack.into_bytes())
}
