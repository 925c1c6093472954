//! [`JobTable`] on a Spindle server.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use futures_util::{StreamExt, stream};
use hyper::{Method, StatusCode};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::sleep;
use tracing::{debug, warn};

use super::client::{Answer, Client, NoAnswer};
use super::held_leases::{HeldLease, HeldLeases};
use super::messages::{End, Extend, Job, LeaseRequest, LeasedJob, Problem};
use super::server::SpindleServer;
use crate::table::abort::AbortOnDrop;
use crate::table::contract::JobTable;
use crate::table::error::TableError;
use crate::table::leases::{Fate, Leased, Leases};
use crate::table::row::{
    Claimed, Finish, Found, Judge, Mark, Owned, Pick, RowId, Status, Verdict, Written,
};

/// How long the server lets us wait for a job before we ask again.
const WAIT_S: u64 = 30;
/// Requests at the same time that need no waiting.
const AT_ONCE: usize = 16;
/// The most by which the server extends a lease.
const EXTEND_MS_MAX: u64 = 31 * 24 * 3_600_000;
/// How soon a heartbeat that did not arrive is sent again.
const BEAT_AGAIN: Duration = Duration::from_secs(1);

/// The queues of a Spindle server. A target is a queue, a row is a job, a parked job is `manual`.
/// The token of its lease tells whose a job is, not the worker's mark.
#[derive(Debug)]
pub(in crate::table) struct SpindleTable {
    shared: Arc<Shared>,
    lost: tokio::sync::Mutex<mpsc::UnboundedReceiver<RowId>>,
}

#[derive(Debug)]
struct Shared {
    client: Client,
    leases: Mutex<HeldLeases>,
    /// Notified whenever a lease ends.
    freed: Notify,
    lost: mpsc::UnboundedSender<RowId>,
}

const NOT_SPINDLE: &str = "that is not the HTTP address of a Spindle server: look at host, port \
                           and path of spindle_url";

/// The outcome of a request that the server answered.
enum Outcome {
    Yes(Answer),
    /// The lease has ended, or the job is gone or in another state.
    TooLate(Problem),
}

impl SpindleTable {
    pub fn new(server: SpindleServer) -> Self {
        let (lost_sender, lost) = mpsc::unbounded_channel();
        let shared = Shared {
            client: Client::new(server),
            leases: Mutex::default(),
            freed: Notify::new(),
            lost: lost_sender,
        };
        Self { shared: Arc::new(shared), lost: tokio::sync::Mutex::new(lost) }
    }

    /// Sends a request for each item, [`AT_ONCE`] at a time; the answers come in any order. All are
    /// sent, also after an error.
    async fn each<T, R, F>(
        &self,
        items: Vec<T>,
        ask: impl Fn(Arc<Shared>, T) -> F,
    ) -> Result<Vec<R>, TableError>
    where
        F: Future<Output = Result<R, TableError>>,
    {
        let asked = items.into_iter().map(|item| ask(Arc::clone(&self.shared), item));
        let answers: Vec<_> = stream::iter(asked).buffer_unordered(AT_ONCE).collect().await;
        answers.into_iter().collect()
    }
}

impl Drop for SpindleTable {
    /// Ends the heartbeats, so that nothing keeps a lease alive for a worker that is gone.
    fn drop(&mut self) {
        self.shared.leases.lock().0.clear();
    }
}

impl Shared {
    fn describe(&self) -> String {
        format!("spindle at {:?}", self.client.server())
    }

    fn away(&self, reason: impl Into<String>) -> TableError {
        TableError::Away { table: self.describe(), reason: reason.into() }
    }

    fn schema(&self, problem: impl Into<String>) -> TableError {
        TableError::Schema { table: self.describe(), problem: problem.into() }
    }

    fn unanswered(&self, error: NoAnswer) -> TableError {
        match error {
            NoAnswer::Away(reason) => self.away(reason),
            NoAnswer::Wrong(problem) => self.schema(problem),
        }
    }

    async fn ask(&self, method: Method, path: &str, body: Vec<u8>) -> Result<Outcome, TableError> {
        let answered = self.client.ask(method, path, body).await;
        self.sort(answered.map_err(|error| self.unanswered(error))?)
    }

    async fn post(&self, path: &str, body: &impl serde::Serialize) -> Result<Outcome, TableError> {
        let body = serde_json::to_vec(body).expect("texts and numbers are JSON");
        self.ask(Method::POST, path, body).await
    }

    /// What an answer means for a job table.
    fn sort(&self, answer: Answer) -> Result<Outcome, TableError> {
        if answer.status.is_success() {
            return Ok(Outcome::Yes(answer));
        }
        let problem: Problem = serde_json::from_slice(&answer.body).unwrap_or_default();
        let reason = format!("{} {}", answer.status.as_u16(), problem.detail);
        match answer.status {
            StatusCode::CONFLICT | StatusCode::GONE => Ok(Outcome::TooLate(problem)),
            StatusCode::NOT_FOUND if problem.code == "job_not_found" => {
                Ok(Outcome::TooLate(problem))
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                Err(self.schema(format!("refuses this worker ({reason}); look at spindle_token")))
            }
            StatusCode::NOT_FOUND | StatusCode::METHOD_NOT_ALLOWED => Err(self.schema(NOT_SPINDLE)),
            // A server that requires TLS answers a plain request like this, and not in JSON.
            StatusCode::BAD_REQUEST if problem.code.is_empty() => {
                Err(self.schema(format!("{NOT_SPINDLE} (https:// for TLS)")))
            }
            status if status.is_redirection() => {
                let place = answer.location.map(|place| format!(" to {place}"));
                let place = place.unwrap_or_default();
                Err(self.schema(format!("sends us elsewhere{place}: write that in spindle_url")))
            }
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS => Err(self.away(reason)),
            status if status.is_client_error() => {
                Err(TableError::Refused { table: self.describe(), reason })
            }
            _ => Err(self.away(reason)),
        }
    }

    /// Whether the lease lives on.
    async fn extend(&self, token: &str, lease_ms: u64) -> Result<bool, TableError> {
        let body = Extend { ttr_ms: lease_ms.clamp(1, EXTEND_MS_MAX) };
        let outcome = self.post(&format!("/api/v1/leases/{token}/extend"), &body).await?;
        Ok(matches!(outcome, Outcome::Yes(_)))
    }

    /// Gives a job back untried.
    async fn release(&self, token: &str) -> Result<(), TableError> {
        let path = format!("/api/v1/leases/{token}/release");
        self.ask(Method::POST, &path, Vec::new()).await.map(drop)
    }

    /// Reads a job; `None` when there is none.
    async fn job(&self, id: RowId) -> Result<Option<Job>, TableError> {
        match self.ask(Method::GET, &format!("/api/v1/jobs/{id}"), Vec::new()).await {
            Ok(Outcome::Yes(answer)) => match serde_json::from_slice(&answer.body) {
                Ok(job) => Ok(Some(job)),
                Err(error) => Err(self.schema(format!("answers what is no job: {error}"))),
            },
            // A number that cannot be a job's is refused.
            Ok(Outcome::TooLate(_)) | Err(TableError::Refused { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn forget(&self, ids: impl IntoIterator<Item = RowId>) {
        let mut leases = self.leases.lock();
        ids.into_iter().for_each(|id| drop(leases.0.remove(&id)));
        drop(leases);
        self.freed.notify_waiters();
    }

    /// Writes the end of a job. Returns its id if the server took it.
    async fn finish(&self, id: RowId, token: &str, end: &End) -> Result<Option<RowId>, TableError> {
        let path = format!("/api/v1/leases/{token}/{}", end.verb());
        match self.post(&path, end).await? {
            Outcome::Yes(_) => {
                self.leases.lock().update(id, |lease| lease.is_written = true);
                Ok(Some(id))
            }
            Outcome::TooLate(problem) => {
                warn!(%id, reason = problem.detail, "the end of a job came too late");
                Ok(None)
            }
        }
    }
}

/// Sends heartbeats for a job until its lease has ended.
async fn beat(shared: Arc<Shared>, id: RowId, token: String, lease_ms: u64) {
    let interval = Duration::from_millis((lease_ms / 3).max(1));
    let mut pause = interval;
    loop {
        sleep(pause).await;
        match shared.extend(&token, lease_ms).await {
            Ok(true) => pause = interval,
            Ok(false) => {
                shared.leases.lock().update(id, |lease| lease.is_lost = true);
                // Fails when the worker has ended.
                let _ = shared.lost.send(id);
                return;
            }
            Err(error) => {
                debug!(%id, %error, "a heartbeat did not arrive");
                pause = interval.min(BEAT_AGAIN);
            }
        }
    }
}

impl SpindleTable {
    fn hold(&self, job: &LeasedJob, target: &str) {
        let (id, token) = (job.id(), job.lease_token.clone());
        let heartbeat = job.lease_ms.map(|lease_ms| {
            AbortOnDrop::spawn(beat(Arc::clone(&self.shared), id, token.clone(), lease_ms))
        });
        let target = target.to_owned();
        let lease = HeldLease { token, target, _heartbeat: heartbeat, ..HeldLease::default() };
        self.shared.leases.lock().0.insert(id, lease);
    }

    /// A job whose lease was lost may be leased to the same worker again while its process still
    /// runs: the new lease waits for the old one's end. `false`: the new lease ended before that.
    async fn await_former(&self, job: &LeasedJob) -> Result<bool, TableError> {
        let lease_ms = job.lease_ms.unwrap_or(60_000);
        loop {
            let freed = self.shared.freed.notified();
            tokio::pin!(freed);
            freed.as_mut().enable();
            if !self.shared.leases.lock().0.contains_key(&job.id()) {
                return Ok(true);
            }
            tokio::select! {
                () = freed => {}
                () = sleep(Duration::from_millis((lease_ms / 3).max(1))) => {
                    if !self.shared.extend(&job.lease_token, lease_ms).await? {
                        return Ok(false);
                    }
                }
            }
        }
    }
}

#[async_trait]
impl Leases for SpindleTable {
    async fn lease(
        &self,
        target: &str,
        recall: oneshot::Receiver<()>,
    ) -> Result<Option<Leased>, TableError> {
        let shared = &self.shared;
        let worker = &shared.client.server().worker;
        let request = LeaseRequest { queues: [target], wait_s: WAIT_S, worker };
        let body = serde_json::to_vec(&request).expect("texts and numbers are JSON");
        let wait = Duration::from_secs(WAIT_S);
        let asked = shared.client.ask_patiently("/api/v1/lease", body, wait, recall).await;
        let answer = match asked {
            Ok(Some(answer)) => answer,
            Ok(None) => return Ok(None),
            Err(error) => return Err(shared.unanswered(error)),
        };
        if answer.status == StatusCode::NO_CONTENT {
            return Ok(None);
        }
        let Outcome::Yes(answer) = shared.sort(answer)? else { return Ok(None) };
        let job: LeasedJob = serde_json::from_slice(&answer.body)
            .map_err(|error| shared.schema(format!("answers what is no lease: {error}")))?;
        if !self.await_former(&job).await? {
            return Ok(None);
        }
        self.hold(&job, target);
        Ok(Some(job.leased()))
    }

    fn taken(&self, id: RowId) {
        self.shared.leases.lock().update(id, |lease| lease.is_taken = true);
    }

    async fn lost(&self) -> RowId {
        match self.lost.lock().await.recv().await {
            Some(id) => id,
            // The sender lives as long as the table does.
            None => std::future::pending().await,
        }
    }

    async fn fate(&self, id: RowId) -> Result<Fate, TableError> {
        let job = self.shared.job(id).await?;
        Ok(job.map_or(Fate::Gone, |job| job.finish().map_or(Fate::Open, Fate::Ended)))
    }

    fn receipt(&self, id: RowId) -> Option<String> {
        self.shared.leases.lock().0.get(&id).map(|lease| lease.token.clone())
    }

    fn remember(&self, id: RowId, receipt: String) {
        let lease = HeldLease { token: receipt, ..HeldLease::default() };
        self.shared.leases.lock().0.insert(id, lease);
    }
}

#[async_trait]
impl JobTable for SpindleTable {
    fn describe(&self) -> String {
        self.shared.describe()
    }

    async fn check(&self) -> Result<(), TableError> {
        let outcome = self.shared.ask(Method::GET, "/api/v1/server", Vec::new()).await?;
        let is_server = |answer: &Answer| {
            let server: Result<serde_json::Value, _> = serde_json::from_slice(&answer.body);
            server.is_ok_and(|server| server.get("doors").is_some())
        };
        match outcome {
            Outcome::Yes(answer) if is_server(&answer) => Ok(()),
            _ => Err(self.shared.schema(NOT_SPINDLE)),
        }
    }

    /// Releases the parked jobs that are accepted, and changes no other.
    async fn claim(
        &self,
        pick: Pick<'_>,
        _: &Mark,
        judge: &Judge<'_>,
    ) -> Result<Vec<Claimed>, TableError> {
        let Pick::Ids(ids) = pick else { return Ok(Vec::new()) };
        let read = |shared: Arc<Shared>, id| async move { shared.job(id).await };
        let jobs = self.each(ids.to_vec(), read).await?;
        let mut claimed: Vec<Claimed> = jobs
            .into_iter()
            .flatten()
            .map(|job| {
                let row = Found { id: RowId(job.id), status: job.row_status(), target: job.queue };
                let verdict = judge(&row);
                Claimed { row, verdict }
            })
            .collect();
        claimed.sort_unstable_by_key(|claimed| claimed.row.id);
        let accepted =
            claimed.iter().filter(|claimed| matches!(claimed.verdict, Verdict::Accept(_)));
        let accepted: Vec<RowId> = accepted.map(|claimed| claimed.row.id).collect();
        let release = |shared: Arc<Shared>, id: RowId| async move {
            let path = format!("/api/v1/jobs/{id}/release");
            let outcome = shared.ask(Method::POST, &path, Vec::new()).await?;
            Ok((id, matches!(outcome, Outcome::Yes(_))))
        };
        for (id, was_parked) in self.each(accepted, release).await? {
            let missed = claimed.iter_mut().find(|claimed| claimed.row.id == id && !was_parked);
            if let Some(claimed) = missed {
                // Another client was faster.
                claimed.verdict = Verdict::Leave;
                claimed.row.status = Status::Waiting;
            }
        }
        Ok(claimed)
    }

    async fn write(
        &self,
        _: &Mark,
        starts: &[RowId],
        _: i64,
        finishes: &[Finish],
    ) -> Result<Written, TableError> {
        let mut written = Written::default();
        let mut to_write = Vec::new();
        {
            let mut leases = self.shared.leases.lock();
            written.started = starts.iter().copied().filter(|id| leases.start(*id)).collect();
            for finish in finishes {
                match leases.to_finish(finish.id) {
                    Some(lease) if lease.is_written => written.finished.push(finish.id),
                    Some(lease) => {
                        to_write.push((finish.id, lease.token.clone(), End::of(finish)));
                    }
                    None => {}
                }
            }
        }
        let finish = |shared: Arc<Shared>, (id, token, end): (RowId, String, End)| async move {
            shared.finish(id, &token, &end).await
        };
        written.finished.extend(self.each(to_write, finish).await?.into_iter().flatten());
        self.shared.forget(finishes.iter().map(|finish| finish.id));
        Ok(written)
    }

    async fn owned(&self, _: &Mark) -> Result<Vec<Owned>, TableError> {
        Ok(self.shared.leases.lock().owned())
    }

    async fn give_back(
        &self,
        _: &Mark,
        accepted: &[RowId],
        unstarted: &[RowId],
    ) -> Result<Vec<RowId>, TableError> {
        let mut given = Vec::new();
        for &id in accepted.iter().chain(unstarted) {
            let Some(token) = self.receipt(id) else { continue };
            self.shared.release(&token).await?;
            self.shared.forget([id]);
            given.push(id);
        }
        Ok(given)
    }

    fn leases(&self) -> Option<&dyn Leases> {
        Some(self)
    }
}
