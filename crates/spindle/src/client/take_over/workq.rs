//! Jobs of Workq, by its text protocol.
//!
//! A lease keeps a job from other workers for its TTR, but it counts as an attempt: if this program is
//! killed meanwhile, a job on its last attempt has failed. And a lease takes the next job, even one of
//! `run`, whose client waits for its result. So queues with such jobs, and scheduled jobs, are only
//! looked at (`inspect`), and a job is deleted there only if no worker has had it meanwhile.

use std::{collections::HashSet, time::Duration};

use anyhow::anyhow;
use spindle_workq::{
    client::{Client, ClientError},
    wire::{JobInfo, JobState, QueueInfo, Uuid},
};

use super::{
    Other, Rest, Route, Taken, Waiting,
    dial::resolve,
    job::{DoorName, Job, Name, Stage, Tries},
    left_there,
};
use crate::client::{progress::Progress, when::now_ms};

const PORT: u16 = 9_922;
const ANSWER_TIME_MAX: Duration = Duration::from_secs(30);
/// How long a lease waits for a job: long enough for one that is there.
const LEASE_WAIT_MS: u32 = 100;
/// Jobs that are leased at once: all of them have to be here before the shortest TTR ends.
const LEASES_MAX: usize = 50;
/// No answer to `inspect` has more.
const PAGE_MAX: u32 = 100;

/// A Workq server.
pub struct Workq {
    client: Client,
    queues: Vec<String>,
    /// What is still to be done; `None`: not planned yet.
    stretches: Option<Vec<Stretch>>,
    /// Leased jobs that stay: they wait again when their leases end.
    left: HashSet<Uuid>,
    awaited: u64,
}

/// Jobs of a queue that are taken in one way.
struct Stretch {
    queue: String,
    way: Way,
    /// How many of them are passed over.
    skip: u32,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Lease,
    Ready,
    Scheduled,
}

/// Which job, and how often it had been leased when it was described.
pub struct Handle {
    id: Uuid,
    attempts: u64,
    is_leased: bool,
}

impl Workq {
    /// Connects to HOST:PORT, or to the usual port of a host.
    pub fn connect(address: &str, queues: &[String]) -> anyhow::Result<Self> {
        let addresses = resolve(address, PORT)?;
        let client = Client::connect(&addresses[..], ANSWER_TIME_MAX)
            .map_err(|error| anyhow!(error).context(format!("cannot connect to {address}")))?;
        let mut workq = Self {
            client,
            queues: queues.to_vec(),
            stretches: None,
            left: HashSet::new(),
            awaited: 0,
        };
        workq.client.inspect_server().map_err(explain)?;
        Ok(workq)
    }

    /// The wanted queues.
    fn list(&mut self) -> anyhow::Result<Vec<QueueInfo>> {
        let (mut queues, mut offset) = (vec![], 0);
        loop {
            let page = self.client.inspect_queues(offset, PAGE_MAX).map_err(explain)?;
            let count = page.len();
            offset += PAGE_MAX;
            queues.extend(page);
            if count < PAGE_MAX as usize {
                break;
            }
        }
        let wanted =
            |queue: &QueueInfo| self.queues.iter().any(|name| name.as_bytes() == queue.name);
        queues.retain(|queue| self.queues.is_empty() || wanted(queue));
        Ok(queues)
    }

    /// How the jobs of each queue are to be taken.
    fn plan(&mut self) -> anyhow::Result<Vec<Stretch>> {
        let mut stretches = vec![];
        for info in self.list()? {
            let queue = String::from_utf8_lossy(&info.name).into_owned();
            if info.ready > 0 {
                let way = if self.can_lease(&queue)? { Way::Lease } else { Way::Ready };
                stretches.push(Stretch { queue: queue.clone(), way, skip: 0 });
            }
            if info.scheduled > 0 {
                stretches.push(Stretch { queue, way: Way::Scheduled, skip: 0 });
            }
        }
        Ok(stretches)
    }

    /// Whether every ready job of a queue can be leased without harm.
    fn can_lease(&mut self, queue: &str) -> anyhow::Result<bool> {
        let mut offset = 0;
        loop {
            let page = self.client.inspect_jobs(queue, offset, PAGE_MAX);
            let page = found(page)?.unwrap_or_default();
            if page.iter().any(|job| is_awaited(job) || is_on_last_attempt(job)) {
                return Ok(false);
            }
            offset += PAGE_MAX;
            if page.len() < PAGE_MAX as usize {
                return Ok(true);
            }
        }
    }

    /// The next jobs of a stretch. None: there are no more.
    fn take_of(&mut self, at: &mut Stretch) -> anyhow::Result<Option<Vec<Taken<Handle>>>> {
        if at.way == Way::Lease {
            let leased = self.lease(&at.queue)?;
            return Ok((!leased.is_empty()).then_some(leased));
        }
        loop {
            let page = if at.way == Way::Scheduled {
                self.client.inspect_scheduled_jobs(&at.queue, at.skip, PAGE_MAX)
            } else {
                self.client.inspect_jobs(&at.queue, at.skip, PAGE_MAX)
            };
            let page = found(page)?.unwrap_or_default();
            if page.is_empty() {
                return Ok(None);
            }
            let (awaited, others): (Vec<_>, Vec<_>) = page.into_iter().partition(is_awaited);
            self.awaited += awaited.len() as u64;
            at.skip += awaited.len() as u32;
            if !others.is_empty() {
                return Ok(Some(others.into_iter().map(|job| described(job, false)).collect()));
            }
        }
    }

    fn lease(&mut self, queue: &str) -> anyhow::Result<Vec<Taken<Handle>>> {
        let mut taken = vec![];
        while taken.len() < LEASES_MAX {
            let leased = match self.client.lease(&[queue], LEASE_WAIT_MS) {
                Err(ClientError::Timeout) => break,
                leased => leased.map_err(explain)?,
            };
            // A job that stays has come back already, so only such jobs are left.
            if self.left.contains(&leased.id) {
                break;
            }
            if let Some(info) = found(self.client.inspect_job(leased.id))? {
                taken.push(described(info, true));
            }
        }
        Ok(taken)
    }
}

impl Other for Workq {
    type Handle = Handle;

    const ROUTE: Route = Route::Import;

    fn waiting(&mut self) -> anyhow::Result<Vec<Waiting>> {
        let mut waiting = vec![];
        for info in self.list()? {
            let queue = String::from_utf8_lossy(&info.name).into_owned();
            for (state, jobs) in [("ready", info.ready), ("scheduled", info.scheduled)] {
                if jobs > 0 {
                    waiting.push(Waiting { queue: queue.clone(), state, jobs });
                }
            }
        }
        Ok(waiting)
    }

    fn take(&mut self, _: &Progress) -> anyhow::Result<Vec<Taken<Handle>>> {
        let mut stretches = match self.stretches.take() {
            Some(stretches) => stretches,
            None => self.plan()?,
        };
        while let Some(first) = stretches.first_mut() {
            if let Some(taken) = self.take_of(first)? {
                self.stretches = Some(stretches);
                return Ok(taken);
            }
            stretches.remove(0);
        }
        self.stretches = Some(stretches);
        Ok(vec![])
    }

    fn remove(&mut self, jobs: &[Taken<Handle>]) -> anyhow::Result<u64> {
        let mut gone = 0;
        for Taken { handle, .. } in jobs {
            let now = found(self.client.inspect_job(handle.id))?;
            let is_ours = now.is_some_and(|job| {
                let is_idle = matches!(job.state, JobState::New | JobState::Pending);
                job.attempts == handle.attempts && (is_idle || handle.is_leased)
            });
            let is_deleted = is_ours && found(self.client.delete(handle.id))?.is_some();
            gone += u64::from(!is_deleted);
        }
        Ok(gone)
    }

    fn leave(&mut self, jobs: Vec<Taken<Handle>>) -> anyhow::Result<()> {
        for Taken { handle, .. } in jobs {
            if handle.is_leased {
                self.left.insert(handle.id);
            } else if let Some(at) = self.stretches.as_mut().and_then(|all| all.first_mut()) {
                at.skip += 1;
            }
        }
        Ok(())
    }

    fn rest(&mut self) -> anyhow::Result<Rest> {
        let waiting: u64 = self.waiting()?.iter().map(|waiting| waiting.jobs).sum();
        let mut notes = vec!["Workq does not say how many jobs its workers have".to_owned()];
        if self.awaited > 0 {
            notes.push(left_there("because clients wait for the results", self.awaited));
        }
        Ok(Rest { left: waiting + self.left.len() as u64, notes, ..Rest::default() })
    }
}

/// Whether the job was submitted by `run`, so that a client waits for it.
fn is_awaited(job: &JobInfo) -> bool {
    job.ttl_ms == 0
}

fn is_on_last_attempt(job: &JobInfo) -> bool {
    job.attempts_max > 0 && job.attempts + 1 >= u64::from(job.attempts_max)
}

fn described(info: JobInfo, is_leased: bool) -> Taken<Handle> {
    let attempts = info.attempts.saturating_sub(u64::from(is_leased));
    let attempts_left = u64::from(info.attempts_max).saturating_sub(attempts).max(1);
    let limit = |left: u64| u32::try_from(left).unwrap_or(u32::MAX);
    // Times have whole seconds there; they are rounded up, so that no job runs early.
    let begins_ms = info.time_ms.unwrap_or(info.created_ms).saturating_add(999);
    let ends_ms = begins_ms.saturating_add(info.ttl_ms);
    let run_at_ms = info.time_ms.filter(|time| *time > now_ms());
    let uuid = info.id.to_string();
    let door = DoorName {
        door: "workq",
        number: number_of(&uuid),
        made: format!("{uuid}:{}", info.created_ms),
        uuid: Some(uuid.clone()),
        key: None,
        keep_ms: None,
        expires_ms: Some(i64::try_from(ends_ms).unwrap_or(i64::MAX)),
    };
    let fails_left = u64::from(info.fails_max).saturating_sub(info.fails).max(1);
    let job = Job {
        name: Name::Door(door),
        queue: info.name.to_vec(),
        payload: info.payload.to_vec(),
        priority: info.priority,
        stage: match run_at_ms.and_then(|time| i64::try_from(time).ok()) {
            Some(run_at_ms) => Stage::Scheduled { run_at_ms },
            None => Stage::Ready,
        },
        ttr_ms: Some(info.ttr_ms),
        tries: Tries {
            attempts_max: (info.attempts_max > 0).then(|| limit(attempts_left)),
            fails_max: (info.fails_max > 0).then(|| limit(fails_left)),
        },
        ..Job::default()
    };
    let handle = Handle { id: info.id, attempts: info.attempts, is_leased };
    Taken { handle, shown: uuid, job }
}

/// A job has a number where it comes from; here its UUID makes one.
fn number_of(uuid: &str) -> u64 {
    let digits: String = uuid.chars().filter(char::is_ascii_hexdigit).take(16).collect();
    u64::from_str_radix(&digits, 16).unwrap_or(0)
}

/// None if there is no such job or queue.
fn found<T>(answer: Result<T, ClientError>) -> anyhow::Result<Option<T>> {
    match answer {
        Ok(found) => Ok(Some(found)),
        Err(ClientError::NotFound) => Ok(None),
        Err(error) => Err(explain(error)),
    }
}

fn explain(error: ClientError) -> anyhow::Error {
    match error {
        ClientError::Io(_) => anyhow!(error)
            .context("lost the connection to Workq; run it again: it goes on where it was"),
        ClientError::Protocol(_) => anyhow!(error).context("that is no Workq"),
        _ => anyhow!(error).context("Workq refused"),
    }
}
