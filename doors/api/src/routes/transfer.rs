//! Moving jobs to another server: the export of all jobs with their payloads, page by page, and the
//! import.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use spindle_core::JobId;
use spindle_core::audit::Action;
use spindle_engine::{Engine, FetchError, Gated};
use spindle_http::{Answered, Pass, Problem, ProblemBody, work_on_bytes};
use utoipa::{IntoParams, ToSchema};

use crate::api::Api;
use crate::extract::{Args, RawBody, parse, query};
use crate::filter::JobFilter;
use crate::keys;
use crate::numbers::{bounded, cursor_number};
use crate::portable::{Import, Portable};
use crate::reading::{bodies, bytes_of};
use crate::routes::audit;
use crate::routes::submit::{BATCH_MAX, Submitted};
use crate::taking::{Wanted, take_many};
use crate::typed::{json_answer, to_json};
use crate::walk::{Order, Walk};

const LIMIT_MAX: usize = 1_000;
/// A page ends with the job that makes its payloads and results longer than this.
const PAGE_BYTES: usize = 4 * 1024 * 1024;
/// The jobs that are not done or dead.
const UNFINISHED: &str = "/?status=scheduled,ready,leased,parked,blocked";

/// Which page of an export.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Asked {
    /// At most this many, 1 to 1000 (the default). A page with long payloads has fewer.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Where the last page ended: its `next_cursor`.
    #[param(pattern = "^[0-9]{1,15}$")]
    cursor: Option<String>,
    /// Done and dead jobs too.
    #[serde(default)]
    finished: bool,
}

/// A page of jobs that another server can take in.
#[derive(Serialize, ToSchema)]
#[schema(as = ExportPage)]
pub(crate) struct Page {
    /// The jobs by number.
    jobs: Vec<Portable>,
    /// Where to go on. Not there at the end.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// List jobs with all that another server needs to take them in. What is shown of a job is on disk.
#[utoipa::path(get, path = "/api/v1/jobs/export",
    operation_id = "export_jobs", tag = "jobs", params(Asked),
    responses(
        (status = 200, description = "A page of jobs", body = Page),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn export(
    State(api): State<Api>,
    pass: Pass,
    Args(paging): Args<Asked>,
) -> Answered<Response> {
    let limit = bounded("limit", paging.limit.unwrap_or(LIMIT_MAX), 1..=LIMIT_MAX)?;
    let cursor = cursor_number(paging.cursor.as_deref())?.map(JobId);
    let filter = if paging.finished { "/" } else { UNFINISHED };
    let filter: JobFilter = query(&filter.parse().expect("a path and words"))?;
    if cursor.is_none() {
        let which = if paging.finished { "all jobs" } else { "unfinished jobs" };
        audit::note(&api, &pass, Action::Export, which.to_owned()).await;
    }
    let mut walk = Walk::new(filter.read(&api)?, Order::Asc, cursor);
    let (mut images, mut bytes) = (Vec::new(), 0);
    while images.len() < limit && bytes < PAGE_BYTES && walk.next().is_some() && !walk.is_spent() {
        for image in walk.stretch(&api, limit - images.len()).await? {
            if bytes >= PAGE_BYTES {
                walk.leave(JobId(image.id));
                break;
            }
            bytes += bytes_of(&image, u32::MAX);
            // A job that lives only in memory goes when the client that waits for it does.
            let stays = !image.foreground && image.options().deletion.is_none();
            images.extend(stays.then_some(image));
        }
    }
    api.bridge().durable(walk.answer(())).await;
    let next_cursor = walk.next().map(|next| next.0.to_string());
    let reader = api.clone();
    let shown = work_on_bytes(bytes, move || {
        let mut all = Gated::open(());
        let mut jobs = Vec::with_capacity(images.len());
        for image in &images {
            match bodies(&reader, image, u32::MAX) {
                Ok(bodies) => {
                    let after = reader.engine().jobs().created(image.options().open());
                    jobs.push(Portable::new(image, &all.absorb(bodies), after));
                }
                // It was deleted meanwhile.
                Err(FetchError::Moved) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all.map(|()| to_json(&Page { jobs, next_cursor }, bytes)))
    });
    Ok(json_answer(api.bridge().durable(shown.await?).await))
}

/// Jobs to take in.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ImportBody<'a> {
    /// 1 to 1,000 jobs as an export has them, taken in this order.
    #[serde(borrow)]
    #[schema(value_type = Vec<Portable>, min_items = 1, max_items = 1000)]
    jobs: Vec<&'a RawValue>,
}

/// What became of each job.
#[derive(Serialize, ToSchema)]
pub(crate) struct ImportAnswer {
    /// One answer for each job, in the order of the request.
    answers: Vec<OneImport>,
}

/// What became of a job.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum OneImport {
    /// It is taken, or was there already.
    Taken(Submitted),
    /// Nothing is to be done with it.
    Skipped {
        /// Why: it is finished, or its time is over.
        #[schema(example = "finished")]
        skipped: &'static str,
    },
    /// It is refused; the others are not, for that.
    Refused {
        /// Why.
        problem: ProblemBody,
    },
}

/// Take in jobs of another server, with the names they have there. The same job makes one job here,
/// however often it is sent, as long as that one is kept. The answer comes when all are on disk.
#[utoipa::path(post, path = "/api/v1/jobs/import",
    operation_id = "import_jobs", tag = "jobs", request_body = ImportBody,
    responses(
        (status = 200, description = "What became of each", body = ImportAnswer),
        (status = "4XX", description = "None is taken")))]
pub(crate) async fn import(
    State(api): State<Api>,
    pass: Pass,
    RawBody(raw): RawBody,
) -> Answered<Json<ImportAnswer>> {
    let now_ms = api.engine().now_ms();
    let reader = api.clone();
    let read = work_on_bytes(raw.len(), move || read_all(reader.engine(), &raw, now_ms)).await?;
    let mut wanted = Vec::with_capacity(read.len());
    // `None`: filled in from the next answer of the jobs that are taken.
    let places: Vec<Option<OneImport>> = read
        .into_iter()
        .map(|read| match read {
            Ok(Import::Job(job)) => {
                wanted.push(*job);
                None
            }
            Ok(Import::Skipped(skipped)) => Some(OneImport::Skipped { skipped }),
            Err(problem) => Some(OneImport::Refused { problem: problem.into() }),
        })
        .collect();
    if !wanted.is_empty() {
        let detail = format!("{} of {} jobs", wanted.len(), places.len());
        audit::note(&api, &pass, Action::Import, detail).await;
    }
    let mut taken = taken(&api, wanted).await?.into_iter();
    let mut next = || taken.next().expect("an answer for each job that was wanted");
    let answers = places.into_iter().map(|place| place.unwrap_or_else(&mut next));
    Ok(Json(ImportAnswer { answers: answers.collect() }))
}

/// The job that was imported before under this name.
fn imported(engine: &Engine, name: &str) -> Option<JobId> {
    let found = engine.jobs().find_by_key_beginning(&keys::reference_beginning(name));
    found.without_waiting("whoever waits for it is in a later record")
}

fn read_all(engine: &Engine, raw: &[u8], now_ms: u64) -> Answered<Vec<Answered<Import>>> {
    let ImportBody { jobs } = parse(raw)?;
    if !(1..=BATCH_MAX).contains(&jobs.len()) {
        return Err(Problem::out_of_range("a request has 1 to 1000 jobs"));
    }
    let read = |job: &&RawValue| {
        let mut import = parse::<Portable>(job.get().as_bytes())?.read(now_ms)?;
        if let Import::Job(wanted) = &mut import {
            wanted.resolve(|name| imported(engine, name));
        }
        Ok(import)
    };
    Ok(jobs.iter().map(read).collect())
}

async fn taken(api: &Api, wanted: Vec<Wanted>) -> Answered<Vec<OneImport>> {
    let answers = take_many(api, wanted.into_iter().map(Ok).collect()).await?.into_iter();
    let shown = answers.map(|answer| match answer {
        Ok(taken) => OneImport::Taken(Submitted::new(api, taken)),
        Err(problem) => OneImport::Refused { problem: problem.into() },
    });
    Ok(shown.collect())
}
