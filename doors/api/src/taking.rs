//! Taking jobs in: one, or many at once, with the keys that make a submit safe to send twice.

use spindle_core::job::Key;
use spindle_core::{JobId, Rejection};
use spindle_engine::{Gate, JobRef, NewJob, Refused};
use spindle_http::{Answered, Code, Problem};

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
    pub fn new(body: NewJobBody, once: Option<[Key; 2]>, now_ms: u64) -> Answered<Wanted> {
        let mode = body.unique.as_ref().map(|unique| unique.mode).unwrap_or_default();
        let mut job = body.into_new_job(now_ms)?;
        if let Some(once) = &once {
            // First, so that it is the one a refusal names.
            job.submit.keys.splice(0..0, once.clone());
        }
        job.submit.replaces = mode == UniqueMode::Replace;
        Ok(Wanted { job, once, mode })
    }

    /// Takes one job. The answer is durable.
    pub async fn take(&self, api: &Api) -> Answered<Taken> {
        for _ in 0..TRIES {
            let submitted = api.bridge().call(|engine| engine.submit(self.job.clone())).await;
            if let Some((taken, gate)) = self.settle(api, submitted)? {
                api.bridge().durable(gate).await;
                return Ok(taken);
            }
        }
        Err(Problem::new(Code::Busy, "the key changes hands too fast"))
    }

    /// What a submit comes to: taken, or the job that is the answer instead. None: that one went
    /// meanwhile.
    fn settle(
        &self,
        api: &Api,
        submitted: Result<(JobId, Gate), Refused>,
    ) -> Answered<Option<(Taken, Gate)>> {
        let refused = match submitted {
            Ok((id, gate)) => return Ok(Some((Taken { id, existing: false }, gate))),
            Err(refused) => refused,
        };
        let Refused::Rejected(Rejection::KeyTaken(other), _) = refused else {
            return Err(refused.into());
        };
        let (image, gate) = api.engine().job(JobRef::Id(other))?;
        let Some(image) = image else { return Ok(None) };
        let existing = Ok(Some((Taken { id: other, existing: true }, gate)));
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
pub(crate) async fn take_many(api: &Api, wanted: &[Wanted]) -> Vec<Answered<Taken>> {
    let mut taken = Vec::with_capacity(wanted.len());
    let mut newest = Gate::OPEN;
    let mut jobs: Vec<NewJob> = wanted.iter().map(|wanted| wanted.job.clone()).collect();
    while taken.len() < wanted.len() {
        let called = api.bridge().call(|engine| engine.submit_many(&jobs)).await;
        let results = match called {
            Ok(results) => results,
            // There is no room for the next one: all that are left get that answer.
            Err(refused) => jobs.iter().map(|_| Err(refused.clone())).collect(),
        };
        jobs.drain(..results.len());
        for submitted in results {
            let wanted = &wanted[taken.len()];
            if let Ok((_, gate)) | Err(Refused::Rejected(_, gate)) = &submitted {
                newest = newest.max(*gate);
            }
            taken.push(match wanted.settle(api, submitted) {
                Ok(Some((taken, gate))) => {
                    newest = newest.max(gate);
                    Ok(taken)
                }
                Ok(None) => wanted.take(api).await,
                Err(problem) => Err(problem),
            });
        }
    }
    api.bridge().durable(newest).await;
    taken
}
