//! Lists of jobs, a page at a time.

use axum::Json;
use axum::extract::{FromRequestParts, State};
use axum::http::Uri;
use axum::http::request::Parts;
use serde::{Deserialize, Serialize};
use spindle_access::Role;
use spindle_core::{JobId, JobImage};
use spindle_http::{Answered, Code, Pass, Problem};
use tokio::task::spawn_blocking;
use utoipa::{IntoParams, ToSchema};

use crate::api::Api;
use crate::count::Total;
use crate::extract::query;
use crate::filter::JobFilter;
use crate::numbers::{bounded, cursor_number};
use crate::view::{Bodies, Job};
use crate::walk::{Order, Walk};

const LIMIT: usize = 50;
pub(crate) const LIMIT_MAX: usize = 1_000;
/// The longest beginning of a payload that a list shows, in bytes.
pub(crate) const PREVIEW_BYTES_MAX: u32 = 256;

/// Which page of a list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Paging {
    /// At most this many, 1 to 1000; 50 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Where the last page ended: its `next_cursor`, with the same `order`.
    #[param(pattern = "^[0-9]{1,15}$")]
    cursor: Option<String>,
    /// `asc` (the default) begins with the oldest job, `desc` with the newest.
    #[serde(default)]
    #[param(inline)]
    order: Order,
    /// Show with each job how its payload begins: at most this many bytes, 1 to 256.
    #[param(minimum = 1, maximum = 256)]
    payload_preview: Option<u32>,
    /// Count the jobs that are meant, whatever `limit` and `cursor` say: `total`.
    #[serde(default)]
    count: bool,
}

/// The names of the fields of [`Paging`].
const PAGING: [&str; 5] = ["limit", "cursor", "order", "payload_preview", "count"];

/// Which jobs to list, and which page of them.
pub(crate) struct Asked {
    filter: JobFilter,
    paging: Paging,
}

impl FromRequestParts<Api> for Asked {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &Api) -> Answered<Self> {
        let pairs = parts.uri.query().unwrap_or_default().split('&');
        let is_paging = |pair: &&str| PAGING.contains(&pair.split('=').next().unwrap_or_default());
        let (paging, filter): (Vec<&str>, Vec<&str>) = pairs.partition(is_paging);
        let part = |pairs: Vec<&str>| -> Answered<Uri> {
            let text = format!("/?{}", pairs.join("&"));
            text.parse().map_err(|_| Problem::bad_field("the query is malformed"))
        };
        Ok(Asked { filter: query(&part(filter)?)?, paging: query(&part(paging)?)? })
    }
}

/// A page of jobs.
#[derive(Serialize, ToSchema)]
#[schema(as = JobPage)]
pub(crate) struct Page {
    /// The jobs by number, without payloads and results.
    jobs: Vec<Job>,
    /// Where to go on. Not there at the end of the list.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
    /// There was more to look through than one request may: the page may be short, even empty, and
    /// the list goes on at `next_cursor`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    partial: bool,
    /// With `count`: how many jobs are meant. It may be a moment ahead of the disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<usize>,
    /// There was more to look through than one request may: there are `total` jobs or more.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    total_is_at_least: bool,
}

/// List jobs by number, the oldest or the newest first. What is shown of a job is on disk; whether
/// one is missing that came or changed this very moment is not waited for.
#[utoipa::path(get, path = "/api/v1/jobs",
    operation_id = "list_jobs", tag = "jobs", params(JobFilter, Paging),
    responses(
        (status = 200, description = "A page of jobs", body = Page),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn list(
    State(api): State<Api>,
    mut pass: Pass,
    asked: Asked,
) -> Answered<Json<Page>> {
    let limit = bounded("limit", asked.paging.limit.unwrap_or(LIMIT), 1..=LIMIT_MAX)?;
    let preview = asked.paging.payload_preview;
    let preview = preview
        .map(|bytes| bounded("payload_preview", bytes, 1..=PREVIEW_BYTES_MAX))
        .transpose()?;
    let cursor = cursor_number(asked.paging.cursor.as_deref())?.map(JobId);
    let filter = asked.filter.read(&api)?;
    pass.allows(filter.target())?;
    if preview.is_some() || filter.looks_into_payloads() {
        pass.allows_as(Role::Inspect, filter.target())?;
    }
    let counted = match asked.paging.count {
        true => Some(filter.clone().count(&api).await?),
        false => None,
    };
    let mut walk = Walk::new(filter, asked.paging.order, cursor);
    let mut jobs = Vec::new();
    while jobs.len() < limit && walk.next().is_some() && !walk.is_spent() {
        let images = walk.stretch(&api, limit - jobs.len()).await?;
        jobs.extend(shown(&api, images, preview).await?);
    }
    api.bridge().durable(walk.answer(())).await;
    let partial = jobs.len() < limit && walk.next().is_some();
    let next_cursor = walk.next().map(|next| next.0.to_string());
    let (total, total_is_at_least) = match counted {
        Some(Total { jobs, is_all }) => (Some(jobs), !is_all),
        None => (None, false),
    };
    Ok(Json(Page { jobs, next_cursor, partial, total, total_is_at_least }))
}

/// Jobs as a list shows them. Payloads are read on a separate thread: they may have to come from
/// the disk, and no other request must wait for that.
async fn shown(api: &Api, images: Vec<JobImage>, preview: Option<u32>) -> Answered<Vec<Job>> {
    let new = |api: &Api, image: &JobImage| {
        Job::new(api.engine(), image, Bodies::default(), &api.options().host)
    };
    let Some(max) = preview else {
        return Ok(images.iter().map(|image| new(api, image)).collect());
    };
    let api = api.clone();
    let task = spawn_blocking(move || {
        let with_beginning = |image: &JobImage| {
            let job = new(&api, image);
            let place = image.payload.as_ref();
            let id = JobId(image.id);
            match place.and_then(|place| api.engine().jobs().payload_beginning(id, place, max)) {
                Some(bytes) => job.beginning(&bytes),
                None => job,
            }
        };
        images.iter().map(with_beginning).collect()
    });
    task.await.map_err(|_| {
        Problem::new(Code::Unreadable, "looking into payloads failed; see the server's log")
    })
}
