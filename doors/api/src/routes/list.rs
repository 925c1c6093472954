//! Lists of jobs: a walk in bounded steps, each a short hold of the lock.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use spindle_core::{Found, JobId, JobImage, State as Core, Status};
use spindle_engine::{FetchError, Which};
use tokio::task::yield_now;
use utoipa::{IntoParams, ToSchema};

use crate::api::Api;
use crate::extract::Args;
use crate::naming;
use crate::view::{Bodies, Job, status_word};
use spindle_http::{Answered, Code, Problem, ProblemBody};

/// Jobs looked at in one hold of the lock.
const STEP_JOBS: usize = 512;
/// Steps of one request: then it answers with what it has, and where to go on.
const STEPS_MAX: usize = 40;
/// Finished jobs read from the log for one request.
const READS_MAX: usize = 2_000;
const LIMIT: usize = 100;
const LIMIT_MAX: usize = 1_000;

/// Which jobs to list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub(crate) struct Asked {
    /// Only those of this queue.
    queue: Option<String>,
    /// Only those of this queue, its name in base64.
    queue_base64: Option<String>,
    /// Only those of this status: `scheduled`, `ready`, `leased`, `parked`, `done` or `dead`.
    status: Option<String>,
    /// Only those with this tag.
    tag: Option<String>,
    /// At most so many, 1 to 1000; 100 if not said.
    limit: Option<usize>,
    /// Where the last page ended: its `next_cursor`.
    cursor: Option<String>,
}

/// A page of jobs.
#[derive(Serialize, ToSchema)]
pub(crate) struct Page {
    /// The jobs, oldest first, without payloads and results.
    jobs: Vec<Job>,
    /// Where to go on. Not there at the end of the list. A page may be short, even empty, and have
    /// one: then there was more to look through than one request may.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

struct Filter {
    queue: Option<Vec<u8>>,
    status: Option<Status>,
    tag: Option<String>,
}

/// List jobs by number. Jobs are looked through in the order of their numbers: filters make the
/// page smaller, not the walk.
#[utoipa::path(get, path = "/api/v1/jobs", tag = "jobs", params(Asked),
    responses(
        (status = 200, description = "A page of jobs", body = Page),
        (status = "4XX", description = "Refused", body = ProblemBody,
            content_type = "application/problem+json")))]
pub(crate) async fn list(State(api): State<Api>, Args(asked): Args<Asked>) -> Answered<Json<Page>> {
    let limit = asked.limit.unwrap_or(LIMIT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(Problem::new(Code::OutOfRange, "limit is 1 to 1000"));
    }
    let mut from = asked.cursor.as_deref().map(read_cursor).transpose()?.unwrap_or(JobId(0));
    let filter = filter(asked)?;
    let host = &api.options().host;
    let mut page = Page { jobs: Vec::new(), next_cursor: None };
    let mut reads = 0;
    for _ in 0..STEPS_MAX {
        let step = api.engine().look(|state| step(state, from, &filter));
        for found in step.found {
            if page.jobs.len() == limit || reads == READS_MAX {
                page.next_cursor = Some(cursor(found.id()));
                return told(&api, page).await;
            }
            let image = match found {
                Candidate::Live(image) => Some(*image),
                Candidate::Finished(id) => {
                    reads += 1;
                    finished(&api, id, &filter)?
                }
            };
            page.jobs.extend(image.map(|image| Job::new(&image, Bodies::default(), host)));
        }
        let Some(next) = step.next else { return told(&api, page).await };
        from = next;
        yield_now().await;
    }
    page.next_cursor = Some(cursor(from));
    told(&api, page).await
}

/// A list tells of many records at once: it waits for all that there are.
async fn told(api: &Api, page: Page) -> Answered<Json<Page>> {
    let (_, tail) = api.engine().find(Which::Id(JobId(0)));
    api.desk().durable(tail).await;
    Ok(Json(page))
}

fn filter(asked: Asked) -> Answered<Filter> {
    let queue = match (&asked.queue, &asked.queue_base64) {
        (None, None) => None,
        (name, base64) => Some(naming::queue(name.as_deref(), base64.as_deref())?.to_vec()),
    };
    let status = asked.status.map(|word| {
        let found = Status::ALL.into_iter().find(|status| status_word(*status) == word);
        found.ok_or_else(|| {
            let detail = "status is scheduled, ready, leased, parked, done or dead";
            Problem::new(Code::OutOfRange, detail)
        })
    });
    Ok(Filter { queue, status: status.transpose()?, tag: asked.tag })
}

impl Filter {
    fn takes(&self, image: &JobImage) -> bool {
        let queue = self.queue.as_ref().is_none_or(|queue| image.queue == queue);
        let status = self.status.is_none_or(|status| image.status() == status);
        let tag = self
            .tag
            .as_ref()
            .is_none_or(|tag| image.rare().tags.iter().any(|has| has.as_ref() == tag.as_bytes()));
        queue && status && tag
    }
}

enum Candidate {
    /// It is in memory, and passed the filter.
    Live(Box<JobImage>),
    /// The rest of it must be read before the filter can say.
    Finished(JobId),
}

impl Candidate {
    fn id(&self) -> JobId {
        match self {
            Candidate::Live(image) => JobId(image.id),
            Candidate::Finished(id) => *id,
        }
    }
}

struct Step {
    found: Vec<Candidate>,
    next: Option<JobId>,
}

fn step(state: &Core, from: JobId, filter: &Filter) -> Step {
    let mut found = Vec::new();
    for (looked_at, job) in state.jobs_from(from).enumerate() {
        if looked_at == STEP_JOBS {
            return Step { found, next: Some(job.id()) };
        }
        if filter.status.is_some_and(|status| job.status() != status) {
            continue;
        }
        match job {
            Found::Finished(stub) => found.push(Candidate::Finished(stub.id())),
            Found::Live(job) => {
                if filter.queue.as_ref().is_some_and(|queue| job.queue() != queue) {
                    continue;
                }
                let image = state.image(job.id()).filter(|image| filter.takes(image));
                found.extend(image.map(|image| Candidate::Live(Box::new(image))));
            }
        }
    }
    Step { found, next: None }
}

fn finished(api: &Api, id: JobId, filter: &Filter) -> Answered<Option<JobImage>> {
    match api.engine().job(Which::Id(id)) {
        Ok((image, _)) => Ok(image.filter(|image| filter.takes(image))),
        Err(FetchError::Moved) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn cursor(from: JobId) -> String {
    from.0.to_string()
}

fn read_cursor(text: &str) -> Answered<JobId> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| digits).map(JobId).ok_or_else(|| {
        Problem::new(Code::OutOfRange, "cursor is the next_cursor of the page before")
    })
}
