//! Taking jobs in: one, or many at once, with the keys that make a submit safe to send twice.

use std::collections::VecDeque;

use spindle_core::job::Key;
use spindle_core::{JobId, Rejection};
use spindle_engine::{Engine, Gated, JobRef, NewJob, Refused};
use spindle_http::{Answered, Code, Problem, Trace};

use crate::api::Api;
use crate::keys;
use crate::submit::{NewJobBody, UniqueMode};

/// A key can be free again when the job that had it is looked at: then the submit is made again.
const TRIES: usize = 4;

/// A job that a client wants taken.
pub(crate) struct Wanted {
    job: NewJob,
    once: Option<[Key; 2]>,
    mode: UniqueMode,
}

/// A job that was taken, or was there already.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    pub id: JobId,
    pub existing: bool,
}

impl Wanted {
    /// `once` is the idempotency key and what was asked with it.
    pub fn new(
        body: NewJobBody,
        once: Option<[Key; 2]>,
        Trace(trace): Trace,
        now_ms: u64,
    ) -> Answered<Wanted> {
        let mode = body.unique.as_ref().map(|unique| unique.mode).unwrap_or_default();
        let mut job = body.into_new_job(now_ms)?;
        job.submit.trace = trace;
        if let Some(once) = &once {
            // First, so that it is the one a refusal names.
            job.submit.keys.splice(0..0, once.clone());
        }
        job.submit.replaces = mode == UniqueMode::Replace;
        Ok(Wanted { job, once, mode })
    }

    /// A job of another server, with the names it had there and the one it has for being imported.
    pub fn imported(mut job: NewJob, once: [Key; 2]) -> Wanted {
        job.submit.keys.splice(0..0, once.clone());
        Wanted { job, once: Some(once), mode: UniqueMode::Reject }
    }

    /// The queue it is for.
    pub fn queue(&self) -> &[u8] {
        &self.job.submit.queue
    }

    /// The job to submit, and what is needed when its key turns out to be taken.
    fn split(self) -> (NewJob, Claim) {
        let Wanted { job, once, mode } = self;
        let again = (!job.submit.keys.is_empty()).then(|| job.clone());
        (job, Claim { again, once, mode })
    }

    /// Takes one job. The answer is durable.
    pub async fn take(self, api: &Api) -> Answered<Taken> {
        let mut wanted = self;
        for _ in 0..TRIES {
            let (job, claim) = wanted.split();
            let bytes = job.payload.len();
            let submit = |engine: &Engine| engine.jobs().submit(job);
            let submitted = api.bridge().change_with(bytes, submit).await;
            match claim.resolve(api, submitted).await? {
                Outcome::Taken(taken) => return Ok(taken),
                Outcome::Free(again) => wanted = *again,
            }
        }
        Err(Problem::new(Code::Busy, "the key changes hands too fast"))
    }
}

/// A key that a submit asks for.
struct Claim {
    /// The submit once more, if it has a key.
    again: Option<NewJob>,
    once: Option<[Key; 2]>,
    mode: UniqueMode,
}

/// What a submit comes to.
enum Outcome {
    /// It is taken, or another job is the answer instead.
    Taken(Taken),
    /// The job that had the key went meanwhile: it is to be submitted again.
    Free(Box<Wanted>),
}

impl Claim {
    async fn resolve(self, api: &Api, submitted: Result<JobId, Refused>) -> Answered<Outcome> {
        let refused = match submitted {
            Ok(id) => return Ok(Outcome::Taken(Taken { id, existing: false })),
            Err(refused) => refused,
        };
        let (Refused::Rejected(Rejection::KeyTaken(other)), Some(job)) = (&refused, self.again)
        else {
            return Err(refused.into());
        };
        let image = api.engine().jobs().get(JobRef::Id(*other))?;
        let Some(image) = api.bridge().durable(image).await else {
            let again = Wanted { job, once: self.once, mode: self.mode };
            return Ok(Outcome::Free(Box::new(again)));
        };
        let existing = Ok(Outcome::Taken(Taken { id: *other, existing: true }));
        match self.once.as_ref().and_then(|once| keys::is_same(&image, once)) {
            Some(true) => existing,
            Some(false) => {
                let detail = "the idempotency key came with another request before: use a new one";
                Err(Problem::new(Code::KeyReused, detail).with("job", other.0))
            }
            None if self.mode == UniqueMode::Existing => existing,
            None if self.mode == UniqueMode::Replace => {
                let detail = format!(
                    "a worker has job {other}, which holds the key; cancel it, or \
                                      wait until it is done"
                );
                Err(Problem::new(Code::JobLeased, detail).with("job", other.0))
            }
            None => Err(refused.into()),
        }
    }
}

/// Takes jobs in their order, each for itself: an answer for each of them, all durable, after one
/// wait for the disk.
pub(crate) async fn take_many(api: &Api, wanted: Vec<Wanted>) -> Vec<Answered<Taken>> {
    let (mut jobs, claims): (VecDeque<NewJob>, Vec<Claim>) =
        wanted.into_iter().map(Wanted::split).unzip();
    let mut answers = Gated::open(());
    let mut submitted = Vec::with_capacity(claims.len());
    while !jobs.is_empty() {
        let bytes = jobs.iter().map(|job| job.payload.len()).sum();
        if let Err(busy) = api.bridge().room(bytes).await {
            // Not even for the next one: that is the answer for the rest.
            submitted.extend(jobs.drain(..).map(|_| Err(busy.clone())));
            break;
        }
        let taken = {
            let _turn = api.bridge().turn();
            api.engine().jobs().submit_batch(&mut jobs)
        };
        submitted.extend(taken.into_iter().map(|answer| answers.absorb(answer)));
        // Others come in between.
        tokio::task::yield_now().await;
    }
    api.bridge().durable(answers).await;
    let mut taken = Vec::with_capacity(claims.len());
    for (claim, submitted) in claims.into_iter().zip(submitted) {
        taken.push(match claim.resolve(api, submitted).await {
            Ok(Outcome::Taken(taken)) => Ok(taken),
            Ok(Outcome::Free(wanted)) => wanted.take(api).await,
            Err(problem) => Err(problem),
        });
    }
    taken
}
