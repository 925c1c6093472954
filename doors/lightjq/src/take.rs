//! How a worker comes by a job: a slot of its own first, then a lease into it.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::MutexGuard;
use spindle_core::JobId;
use spindle_core::command::{Lease, Select};
use spindle_core::job::Origin;
use spindle_core::payload::Type;
use spindle_engine::{Answer, FetchError, Gate, LeaseRef, LeaseReply, LeasedJob};
use spindle_http::{Answered, Code, HandOut, Problem};
use tokio::select;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

use crate::door::LightJq;
use crate::roll::{Roll, Wish};
use crate::wire::{Order, Pack, check, from_json};
use crate::worker_id::WorkerId;

/// A wait of the engine that outlasts every wait of ours; a day, so that no sum overflows.
const WAIT_MS: u64 = 24 * 3_600_000;

/// A job for a worker, in its slot. If nothing becomes of `hand_out` the lease is undone.
pub(crate) struct Taken {
    pub job: LeasedJob,
    /// The body that hands it to the worker.
    pub order: Vec<u8>,
    pub hand_out: HandOut,
}

/// A place for one job of a worker, given back unless a job comes into it.
struct Slot<'a> {
    door: &'a LightJq,
    id: WorkerId,
    is_open: bool,
}

impl Slot<'_> {
    /// The job is in the slot. False: the worker has gone, or takes no such jobs any more.
    fn fill(mut self, job: &LeasedJob) -> bool {
        let held = self.door.roll().hold(self.id, job.id, &job.queue);
        self.is_open = !held;
        held
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if self.is_open {
            let now_ms = self.door.engine().now_ms();
            self.door.roll().give_back(self.id, now_ms);
        }
    }
}

/// What a try to take came to.
enum Tried {
    Leased(Box<LeasedJob>, Gate),
    Nothing(Gate),
}

/// What else than the worker, the time and the server's end matters to who waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Eye {
    Worker,
    /// It has no slot yet.
    Slots,
    /// It takes all names there are.
    Names,
}

/// What a worker that waits for a job has an eye on meanwhile.
struct Lookout {
    /// The worker itself.
    changed: watch::Receiver<()>,
    /// Its slots.
    freed: watch::Receiver<()>,
    names: watch::Receiver<Arc<BTreeSet<Bytes>>>,
    stopping: watch::Receiver<bool>,
    deadline: Option<Instant>,
}

impl Lookout {
    /// Takes note of how things are. True: it is time to try for the last time.
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

    /// Waits until something is not as it was, or the time is up.
    async fn moved(&mut self, eye: Eye) {
        let deadline = self.deadline;
        let late = async {
            match deadline {
                Some(deadline) => sleep_until(deadline).await,
                None => pending().await,
            }
        };
        // A sender that is gone has moved as well: looking again tells.
        select! {
            _ = self.changed.changed() => {}
            _ = self.freed.changed(), if eye == Eye::Slots => {}
            _ = self.names.changed(), if eye == Eye::Names => {}
            _ = self.stopping.changed() => {}
            () = late => {}
        }
    }
}

/// There is no such worker, any more.
pub(crate) fn no_worker() -> Problem {
    Problem::new(Code::WorkerNotFound, "there is no such worker (any more): register again")
}

impl LightJq {
    pub(crate) fn roll(&self) -> MutexGuard<'_, Roll> {
        self.shared().roll.lock()
    }

    /// A job for a worker, waited for until a time, or as long as it takes. What the answer
    /// reveals is durable when this returns. None: nothing came in time, or the server stops.
    pub(crate) async fn take(
        &self,
        id: WorkerId,
        deadline: Option<Instant>,
    ) -> Answered<Option<Taken>> {
        let [changed, freed] = self.roll().watch(id).ok_or_else(no_worker)?;
        let (names, stopping) = (self.shared().names.watch(), self.stopping());
        let mut lookout = Lookout { changed, freed, names, stopping, deadline };
        loop {
            let is_last = lookout.look()?;
            let Some(wish) = self.roll().reserve(id) else {
                if is_last {
                    return if self.roll().has(id) { Ok(None) } else { Err(no_worker()) };
                }
                lookout.moved(Eye::Slots).await;
                continue;
            };
            let slot = Slot { door: self, id, is_open: true };
            let eye = if wish.names.is_none() { Eye::Names } else { Eye::Worker };
            let queues = asked_for(&wish, lookout.names.borrow().iter());
            if queues.is_empty() {
                if is_last {
                    return Ok(None);
                }
                lookout.moved(eye).await;
                continue;
            }
            let lease = lease_of(wish.signature, queues);
            let tried = select! {
                biased;
                tried = self.lease(lease, if is_last { 0 } else { WAIT_MS }) => tried?,
                () = lookout.moved(eye) => continue,
            };
            match tried {
                Tried::Nothing(gate) => {
                    self.desk().durable(gate).await;
                    return Ok(None);
                }
                Tried::Leased(job, gate) => {
                    if let Some(taken) = self.taken(slot, *job, gate).await? {
                        return Ok(Some(taken));
                    }
                }
            }
        }
    }

    /// One try. Dropping it while it waits gives up the wait, and a lease that is on its way.
    async fn lease(&self, wish: Lease, wait_ms: u64) -> Answered<Tried> {
        let desk = self.desk();
        let caller = desk.caller();
        let reply = desk.take(|engine| engine.lease(&caller, wish.clone(), wait_ms)).await?;
        Ok(match reply {
            LeaseReply::Leased(job, gate) => Tried::Leased(job, gate),
            LeaseReply::Nothing(gate) => Tried::Nothing(gate),
            LeaseReply::Waiting(ticket) => match desk.wait(caller, ticket).answered().await {
                (Answer::Leased(job), gate) => Tried::Leased(job, gate),
                (_, gate) => Tried::Nothing(gate),
            },
        })
    }

    /// Puts a leased job into the slot. None: it is not for this worker after all, or it is gone.
    async fn taken(&self, slot: Slot<'_>, job: LeasedJob, gate: Gate) -> Answered<Option<Taken>> {
        let id = slot.id;
        let hand_out = self.desk().hand_out(LeaseRef { job: job.id, attempt: job.attempt });
        if !slot.fill(&job) {
            return Ok(None);
        }
        let payload = match self.engine().leased_payload(&job) {
            Ok(payload) => payload,
            Err(error) => {
                self.let_go(id, job.id);
                // The engine has ended a job whose payload is damaged, and others may be gone.
                self.engine().end_turn();
                return match error {
                    FetchError::Damaged(_) | FetchError::Moved => Ok(None),
                    error => Err(error.into()),
                };
            }
        };
        self.desk().durable(gate).await;
        let order = Order {
            job: job.id,
            name: &job.queue,
            argument: &as_msgpack(&payload, job.payload.kind()),
            timeout_ms: job.length_ms,
        };
        let order = order.encode();
        Ok(Some(Taken { job, order, hand_out }))
    }

    /// A worker has a job no more.
    pub(crate) fn let_go(&self, id: WorkerId, job: JobId) {
        let now_ms = self.engine().now_ms();
        self.roll().let_go(id, job, now_ms);
    }
}

fn asked_for<'a>(wish: &Wish, known: impl Iterator<Item = &'a Bytes>) -> Vec<Bytes> {
    let takes = |name: &&Bytes| !wish.refused.contains(*name);
    match &wish.names {
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

/// Payloads and results of any door, as this one's clients read them. What was said to be of a
/// type and is not is bytes.
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
