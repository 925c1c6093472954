//! Bringing jobs to workers that have a server of their own.

use std::iter::successors;
use std::time::Duration;

use axum::http::{HeaderValue, Method, Request, StatusCode, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::client::legacy::Error;
use spindle_core::command::Claim;
use spindle_core::job::TraceParent;
use spindle_core::payload::Type;
use spindle_engine::{Payload, WorkResult};
use spindle_http::{TRACEPARENT, trace_header, while_unread};
use spindle_limits::Taken as PlacesTaken;
use tokio::select;
use tokio::time::{sleep, timeout};

use crate::door::LightJq;
use crate::extract::WORKER_ID;
use crate::take::Taken;
use crate::target::Target;
use crate::wire::Format;
use crate::worker_id::WorkerId;

/// An answer's body is read only so that the connection can be used again.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// What became of a push.
enum Pushed {
    /// The worker has the job.
    Accepted,
    /// It takes no jobs of this name.
    Unknown,
    /// It refuses this job, because the argument is malformed.
    Refused,
    /// It certainly did not take the job.
    NotTaken(String),
    /// There was no slot for one more connection, which is not the worker's fault.
    NoPlace(PlacesTaken),
    /// It is not known whether it has the job.
    Unsure(String),
}

impl LightJq {
    /// Pushes jobs to a worker as long as it is registered with an address.
    pub(crate) async fn serve(self, id: WorkerId) {
        let mut stopping = self.stopping();
        loop {
            if *stopping.borrow_and_update() || self.registry().target(id).is_none() {
                return;
            }
            let misses = self.registry().misses(id);
            if misses > 0 {
                select! {
                    () = sleep(self.pause(misses)) => {}
                    _ = stopping.changed() => continue,
                }
            }
            let Some(login) = self.registry().login(id) else { return };
            match self.take(id, None, login).await {
                Ok(Some(taken)) => match self.registry().target(id) {
                    Some(target) => drop(tokio::spawn(self.clone().bring(id, target, taken))),
                    None => self.let_go(id, taken.job.id),
                },
                // The server stops, or too much waits for the disk, so there is no hurry.
                Ok(None) => sleep(self.options().pause_min).await,
                Err(problem) => {
                    tracing::debug!("lightjq: no job for worker {id}: {}", problem.detail);
                    sleep(self.options().pause_min).await;
                }
            }
        }
    }

    /// The wait after `misses` failures in a row: it doubles each time.
    fn pause(&self, misses: u32) -> Duration {
        let options = self.options();
        let doubled = options.pause_min.saturating_mul(1 << misses.saturating_sub(1).min(16));
        doubled.min(options.pause_max)
    }

    /// Pushes one job.
    async fn bring(self, id: WorkerId, target: Target, taken: Taken) {
        let Taken { job, order, lease_guard } = taken;
        let (now_ms, drop_after_ms) = (self.engine().steady_ms(), self.options().drop_after_ms);
        let why = match self.push(id, &target, order, (job.length_ms, job.trace)).await {
            Pushed::Accepted => {
                lease_guard.done();
                self.registry().reached(id, now_ms);
                return;
            }
            Pushed::Unknown => {
                self.registry().refuse(id, &job.queue);
                drop(lease_guard);
                return self.let_go(id, job.id);
            }
            Pushed::Refused => {
                lease_guard.done();
                self.registry().reached(id, now_ms);
                let claim = Claim::Token { id: job.id, epoch: job.epoch, attempt: job.attempt };
                self.fail_refused(claim).await;
                return self.let_go(id, job.id);
            }
            Pushed::NotTaken(why) => {
                // No worker has seen it: the attempt never happened.
                drop(lease_guard);
                why
            }
            Pushed::NoPlace(taken) => {
                tracing::debug!(
                    "lightjq: job {} is not pushed to {}: {taken}",
                    job.id,
                    target.url()
                );
                drop(lease_guard);
                sleep(self.options().pause_min).await;
                return self.let_go(id, job.id);
            }
            Pushed::Unsure(why) => {
                lease_guard.done();
                self.give_up_leases(id, &[job.id]).await;
                why
            }
        };
        tracing::debug!("lightjq: cannot push job {} to {}: {why}", job.id, target.url());
        let is_lost = self.registry().missed(id, self.engine().steady_ms(), drop_after_ms);
        self.let_go(id, job.id);
        if is_lost {
            self.lose(id, &format!("pushes to {} fail: {why}", target.url())).await;
        }
    }

    async fn push(
        &self,
        id: WorkerId,
        target: &Target,
        order: Vec<u8>,
        (lease_ms, trace): (Option<u64>, Option<TraceParent>),
    ) -> Pushed {
        let bytes = order.capacity();
        let worker_id = HeaderValue::try_from(id.to_string()).expect("a UUID is ASCII");
        let mut request = Request::builder()
            .method(Method::POST)
            .uri(target.uri())
            .header(header::CONTENT_TYPE, Format::Msgpack.content_type())
            .header(WORKER_ID, worker_id)
            .body(Full::new(Bytes::from(order)))
            .expect("the address was read as one");
        if let Some(trace) = trace {
            request.headers_mut().insert(TRACEPARENT, trace_header(trace));
        }
        let time = lease_ms.map_or(self.options().push_time, |ms| {
            self.options().push_time.min(Duration::from_millis(ms))
        });
        let exchange = async {
            let response = self.shared().pusher.request(request).await?;
            let (head, body) = response.into_parts();
            // The body's content does not matter, nor whether it breaks off.
            let _ = Limited::new(body, ANSWER_BYTES_MAX).collect().await;
            Ok::<StatusCode, Error>(head.status)
        };
        let output = &self.options().budgets.output;
        let Some(exchanged) = while_unread(output, bytes, timeout(time, exchange)).await else {
            let why = "it took more memory than all other unread answers";
            return Pushed::Unsure(why.to_owned());
        };
        match exchanged {
            Err(_) => Pushed::Unsure(format!("no answer within {} s", time.as_secs_f64())),
            Ok(Err(error)) => match taken_of(&error) {
                Some(taken) => Pushed::NoPlace(taken),
                None if error.is_connect() => Pushed::NotTaken(with_causes(&error)),
                None => Pushed::Unsure(with_causes(&error)),
            },
            Ok(Ok(status)) if status.is_success() => Pushed::Accepted,
            Ok(Ok(StatusCode::NOT_FOUND)) => Pushed::Unknown,
            Ok(Ok(StatusCode::BAD_REQUEST)) => Pushed::Refused,
            Ok(Ok(status)) => Pushed::NotTaken(format!("it answers {status}")),
        }
    }

    /// The worker says that the job is malformed: that is a failed attempt.
    async fn fail_refused(&self, claim: Claim) {
        let result = WorkResult {
            retry: true,
            message: Bytes::from_static(b"the worker refused the job as malformed (400)"),
            code: Bytes::from_static(b"refused"),
            result: Payload::new(Bytes::new(), Type::Msgpack),
            ..WorkResult::default()
        };
        let failed = self.bridge().change(|engine| engine.leases().finish(claim, result));
        if let Err(refused) = failed.await {
            tracing::debug!("lightjq: a refused job is not failed: {refused}");
        }
    }
}

type AnyError<'a> = &'a (dyn std::error::Error + 'static);

/// The causes of an error, the nearest first.
fn causes(error: &Error) -> impl Iterator<Item = AnyError<'_>> {
    successors(std::error::Error::source(error), |cause| cause.source())
}

/// The connection limit that caused an error, if one did.
fn taken_of(error: &Error) -> Option<PlacesTaken> {
    causes(error).find_map(|cause| cause.downcast_ref().copied())
}

/// An error with its causes.
fn with_causes(error: &Error) -> String {
    causes(error).fold(error.to_string(), |text, cause| text + ": " + &cause.to_string())
}
