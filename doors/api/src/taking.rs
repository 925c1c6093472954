//! Taking jobs in: one, or many at once, with the keys that make a submit safe to send twice.

use std::collections::{BTreeSet, VecDeque};

use spindle_core::job::Key;
use spindle_core::{JobId, Rejection};
use spindle_engine::{Engine, Gated, JobRef, NewJob, Refused};
use spindle_http::{Answered, Code, Problem, Trace};

use crate::api::Api;
use crate::keys;
use crate::linking::{Linked, Links};
use crate::submit::{NewJobBody, UniqueMode};

/// How often a submit is tried: the key may become free before the job that held it is looked up,
/// and then the submit is made again.
const TRIES: usize = 4;

/// A job that a client wants taken.
pub(crate) struct Wanted {
    job: NewJob,
    once: Option<[Key; 2]>,
    mode: UniqueMode,
    /// What it says of other jobs of its request.
    linked: Linked,
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
        let after = body.after.iter().filter_map(|item| item.name().map(str::to_owned)).collect();
        let linked = Linked { name: body.r#ref.clone(), after };
        let mut job = body.into_new_job(now_ms)?;
        job.submit.trace = trace;
        if let Some(once) = &once {
            // It goes first, so that a refusal names this key.
            job.submit.keys.splice(0..0, once.clone());
        }
        job.submit.replaces = mode == UniqueMode::Replace;
        Ok(Wanted { job, once, mode, linked })
    }

    /// A job of another server, with the names it had there and the key that marks it as imported.
    /// `linked` names it and those that it waits for by their numbers there.
    pub fn imported(mut job: NewJob, once: [Key; 2], linked: Linked) -> Wanted {
        job.submit.keys.splice(0..0, once.clone());
        Wanted { job, once: Some(once), mode: UniqueMode::Reject, linked }
    }

    /// What it says of other jobs of its request.
    pub fn linked(&self) -> &Linked {
        &self.linked
    }

    /// The jobs that it waits for, as far as they were there before its request.
    pub fn after(&self) -> &[JobId] {
        &self.job.submit.after
    }

    /// The batch that it is to belong to.
    pub fn batch(&self) -> Option<JobId> {
        self.job.submit.batch
    }

    /// Adds the jobs it names that are known to those it waits for; the other names may be of the
    /// same request.
    pub fn resolve(&mut self, known: impl Fn(&str) -> Option<JobId>) {
        let Wanted { job, linked, .. } = self;
        linked.after.retain(|name| match known(name) {
            Some(id) => {
                job.submit.after.push(id);
                false
            }
            None => true,
        });
    }

    /// The queue it is for.
    pub fn queue(&self) -> &[u8] {
        &self.job.submit.queue
    }

    /// The job to submit, and what is needed when its key turns out to be taken.
    fn split(self) -> (NewJob, Claim) {
        let Wanted { job, once, mode, .. } = self;
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
            let (once, mode, linked) = (self.once, self.mode, Linked::default());
            let again = Wanted { job, once, mode, linked };
            return Ok(Outcome::Free(Box::new(again)));
        };
        let existing = Ok(Outcome::Taken(Taken { id: *other, existing: true }));
        match self.once.as_ref().and_then(|once| keys::is_same(&image, once)) {
            Some(true) => existing,
            Some(false) => {
                let detail = "the idempotency key came with another request before: use a new one";
                let problem = Problem::new(Code::KeyReused, detail);
                // The client may submit to this queue, but it may know nothing of another one.
                let is_of_own_queue = image.queue == job.submit.queue;
                Err(if is_of_own_queue { problem.with("job", other.0) } else { problem })
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

/// A job that was submitted, and whether it was taken.
struct Asked {
    claim: Claim,
    submitted: Result<JobId, Refused>,
}

impl Asked {
    async fn resolve(self, api: &Api) -> Answered<Taken> {
        match self.claim.resolve(api, self.submitted).await? {
            Outcome::Taken(taken) => Ok(taken),
            Outcome::Free(wanted) => wanted.take(api).await,
        }
    }
}

/// Takes jobs, each independently of the others: one answer for each, all of them durable after one
/// wait for the disk. They are taken in their order, but for those that wait for later ones of the
/// request. A job that was already refused keeps its place, so that a refusal can name jobs by
/// their places.
///
/// # Errors
///
/// They wait for each other in a circle, or two have the same name.
pub(crate) async fn take_many(
    api: &Api,
    wanted: Vec<Answered<Wanted>>,
) -> Answered<Vec<Answered<Taken>>> {
    let none = Linked::default();
    let linked = wanted.iter().map(|job| job.as_ref().map_or(&none, Wanted::linked));
    if let Some(links) = Links::of(linked)? {
        return Ok(take_linked(api, wanted, links).await);
    }
    let mut ready = Vec::with_capacity(wanted.len());
    // `None`: the answer comes from the next of the jobs that are submitted.
    let refused: Vec<Option<Problem>> =
        wanted.into_iter().map(|job| job.map(|job| ready.push(job)).err()).collect();
    let mut answers = Gated::open(());
    let mut asked = submit_all(api, ready, &mut answers).await.into_iter();
    api.bridge().durable(answers).await;
    let mut taken = Vec::with_capacity(refused.len());
    for problem in refused {
        taken.push(match problem {
            Some(problem) => Err(problem),
            None => asked.next().expect("one for each that was ready").resolve(api).await,
        });
    }
    Ok(taken)
}

/// Submits jobs in their order. `answers` collects what their answers wait for.
async fn submit_all(api: &Api, wanted: Vec<Wanted>, answers: &mut Gated<()>) -> Vec<Asked> {
    let (mut jobs, claims): (VecDeque<NewJob>, Vec<Claim>) =
        wanted.into_iter().map(Wanted::split).unzip();
    let mut submitted = Vec::with_capacity(claims.len());
    while !jobs.is_empty() {
        let bytes = jobs.iter().map(|job| job.payload.len()).sum();
        if let Err(busy) = api.bridge().room(bytes).await {
            // There is no room for the next one either, so all remaining jobs get the same answer.
            submitted.extend(jobs.drain(..).map(|_| Err(busy.clone())));
            break;
        }
        let taken = {
            let _turn = api.bridge().turn();
            api.engine().jobs().submit_batch(&mut jobs)
        };
        submitted.extend(taken.into_iter().map(|answer| answers.absorb(answer)));
        if !jobs.is_empty() {
            // The thread's other requests get a turn.
            tokio::task::yield_now().await;
        }
    }
    let asked = |(claim, submitted)| Asked { claim, submitted };
    claims.into_iter().zip(submitted).map(asked).collect()
}

/// After so many jobs the thread's other requests get a turn.
const LINKED_PER_TURN: usize = 32;

/// As [`take_many`], level by level: a job is submitted when those that it waits for have numbers.
async fn take_linked(
    api: &Api,
    wanted: Vec<Answered<Wanted>>,
    links: Links,
) -> Vec<Answered<Taken>> {
    let mut taken: Vec<Option<Answered<Taken>>> = wanted.iter().map(|_| None).collect();
    let mut wanted: Vec<Option<Answered<Wanted>>> = wanted.into_iter().map(Some).collect();
    let mut answers = Gated::open(());
    let mut since_turn = 0;
    for level in links.levels {
        let (mut places, mut ready) = (Vec::new(), Vec::new());
        for place in level {
            let Some(job) = wanted[place].take() else { continue };
            match job.and_then(|job| job.behind(&links.before[place], &taken)) {
                Ok(job) => {
                    places.push(place);
                    ready.push(job);
                }
                Err(problem) => taken[place] = Some(Err(problem)),
            }
        }
        since_turn += ready.len();
        let asked = submit_all(api, ready, &mut answers).await;
        for (place, asked) in places.into_iter().zip(asked) {
            taken[place] = Some(match asked.submitted {
                Ok(id) => Ok(Taken { id, existing: false }),
                Err(_) => asked.resolve(api).await,
            });
        }
        if since_turn >= LINKED_PER_TURN {
            since_turn = 0;
            tokio::task::yield_now().await;
        }
    }
    api.bridge().durable(answers).await;
    taken.into_iter().flatten().collect()
}

impl Wanted {
    /// The job, waiting for those of its request that were taken before it.
    fn behind(
        mut self,
        before: &Result<BTreeSet<usize>, String>,
        taken: &[Option<Answered<Taken>>],
    ) -> Answered<Wanted> {
        let places = before.as_ref().map_err(|name| {
            let detail = format!("it waits for `{name}`, and no job that was taken has that name");
            Problem::new(Code::NoBlocker, detail)
        })?;
        for place in places {
            let Some(Ok(Taken { id, .. })) = &taken[*place] else {
                let detail =
                    format!("job {} of the request, which it waits for, is refused", place + 1);
                return Err(Problem::new(Code::NoBlocker, detail));
            };
            self.job.submit.after.push(*id);
        }
        Ok(self)
    }
}
