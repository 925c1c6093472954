//! Jobs that wait for others: the graph that they make, and what a worker may read of those before
//! its job.

use axum::Json;
use axum::extract::State;
use axum::response::Response;
use serde::{Deserialize, Serialize};
use spindle_access::Target;
use spindle_core::{JobId, JobImage};
use spindle_engine::{FetchError, FlowNode, JobFlow, JobRef};
use spindle_http::{Answered, Pass, Problem, no_job, work_on_bytes};
use utoipa::{IntoParams, ToSchema};

use crate::api::Api;
use crate::batch::BatchStatus;
use crate::ended::lease_ended;
use crate::extract::{AfterPath, Args, JobPath};
use crate::naming;
use crate::numbers::bounded;
use crate::submit::OnDeadWord;
use crate::typed::{json_answer, to_json};
use crate::view::{self, status_word};

/// The most jobs of a flow that are shown.
pub(crate) const FLOW_MAX: usize = 1_000;
/// The bytes that reading the image of a finished job is estimated at.
const IMAGE_BYTES: usize = 4_096;

/// How much of a flow to show.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct FlowAsked {
    /// At most this many jobs, 1 to 1000 (the default): the nearest ones.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
}

/// Jobs that are joined by what waits for what.
#[derive(Serialize, ToSchema)]
#[schema(as = Flow)]
pub(crate) struct FlowShown {
    /// The jobs by number.
    nodes: Vec<NodeShown>,
    /// Which waits for which.
    edges: Vec<Edge>,
    /// There are more jobs than are shown, or some that the client may not see.
    is_partial: bool,
}

/// A job or a batch of a flow.
#[derive(Serialize, ToSchema)]
#[schema(as = FlowNode)]
pub(crate) struct NodeShown {
    /// Its number.
    id: u64,
    /// It is a batch, and waits for the jobs in it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    is_batch: bool,
    /// Where it stands; `gone` if it is not kept any more. Of a batch `open`, `sealed`, `done` or
    /// `ended`.
    #[schema(example = "blocked")]
    status: &'static str,
    /// Its queue, where the name is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    /// Its queue in base64, where the name is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "queue-base64")]
    queue_base64: Option<String>,
    /// What happens to it when one before it dies.
    #[serde(skip_serializing_if = "Option::is_none")]
    on_dead: Option<OnDeadWord>,
}

/// One job waits for another.
#[derive(Serialize, ToSchema)]
#[schema(as = FlowEdge)]
pub(crate) struct Edge {
    /// The one that is waited for.
    from: u64,
    /// The one that waits.
    to: u64,
}

impl FlowShown {
    fn of(flow: JobFlow, pass: &mut Pass) -> FlowShown {
        let before = flow.nodes.len();
        let may_see = |node: &FlowNode, pass: &mut Pass| {
            let is_gone = node.status.is_none() && node.batch.is_none();
            is_gone || pass.allows(Target::Queue(&node.queue)).is_ok()
        };
        let nodes: Vec<FlowNode> =
            flow.nodes.into_iter().filter(|node| may_see(node, pass)).collect();
        let is_shown = |id: &JobId| nodes.binary_search_by_key(id, |node| node.id).is_ok();
        let edges = nodes.iter().flat_map(|node| {
            let from = node.after.iter().filter(|id| is_shown(id));
            from.map(|from| Edge { from: from.0, to: node.id.0 })
        });
        FlowShown {
            edges: edges.collect(),
            is_partial: flow.is_partial || nodes.len() < before,
            nodes: nodes.iter().map(NodeShown::of).collect(),
        }
    }
}

impl NodeShown {
    fn of(node: &FlowNode) -> NodeShown {
        let batch = node.batch.as_ref().map(|batch| BatchStatus::of(batch).word());
        let status = batch.or(node.status.map(status_word));
        let known = Some(&node.queue).filter(|_| status.is_some());
        let (queue, queue_base64) =
            known.map(|queue| naming::text_or_base64(queue)).unwrap_or_default();
        NodeShown {
            id: node.id.0,
            is_batch: batch.is_some(),
            status: status.unwrap_or("gone"),
            queue,
            queue_base64,
            on_dead: (batch.is_none() && !node.after.is_empty()).then(|| node.on_dead.into()),
        }
    }
}

/// The flow that a job is in: the jobs that it waits for and waited for, theirs, and all that wait
/// for one of these. A job that waits no more is found from those behind it only.
#[utoipa::path(get, path = "/api/v1/jobs/{id}/flow", operation_id = "show_flow", tag = "jobs",
    params(JobPath, FlowAsked),
    responses(
        (status = 200, description = "Jobs, and which waits for which", body = FlowShown),
        (status = "4XX", description = "No such job")))]
pub(crate) async fn flow(
    State(api): State<Api>,
    JobPath(which): JobPath,
    Args(asked): Args<FlowAsked>,
    mut pass: Pass,
) -> Answered<Json<FlowShown>> {
    let limit = bounded("limit", asked.limit.unwrap_or(FLOW_MAX), 1..=FLOW_MAX)?;
    let reader = api.clone();
    let read = move || reader.engine().jobs().flow(which, limit);
    let flow = work_on_bytes(limit * IMAGE_BYTES, read).await?;
    let flow = api.bridge().durable(flow).await.ok_or_else(no_job)?;
    Ok(Json(FlowShown::of(flow, &mut pass)))
}

/// A job that a leased one waited for.
#[derive(Serialize, ToSchema)]
#[schema(as = JobBefore)]
pub(crate) struct BeforeShown {
    /// Its number.
    id: u64,
    /// Where it stands.
    #[schema(example = "done")]
    status: &'static str,
    /// Its queue, where the name is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    /// Its queue in base64, where the name is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "queue-base64")]
    queue_base64: Option<String>,
    /// How its last attempt ended that had an outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<view::Result>,
}

/// The result of a job that a leased job waited for. Whoever holds the lease may read it, whatever
/// the queue of that job is.
#[utoipa::path(get, path = "/api/v1/leases/{token}/after/{id}",
    operation_id = "show_result_before", tag = "leases", params(AfterPath),
    responses(
        (status = 200, description = "The job and its result", body = BeforeShown),
        (status = "4XX", description = "The lease has ended, or its job waited for no such job")))]
pub(crate) async fn before(
    State(api): State<Api>,
    AfterPath { claim, id }: AfterPath,
) -> Answered<Response> {
    let held = api.engine().leases().after(claim);
    let after = match api.bridge().durable(held).await {
        Ok(after) => after,
        Err(refused) => return Err(lease_ended(&api, claim, refused).await),
    };
    if !after.contains(&id) {
        let detail = format!("job {} was not submitted after job {id}", claim.id());
        return Err(Problem::out_of_range(detail));
    }
    let image = api.engine().jobs().get(JobRef::Id(id))?;
    let image = api.bridge().durable(image).await.ok_or_else(no_job)?;
    let place = image.outcome.as_ref().and_then(|outcome| outcome.bytes.as_ref());
    let bytes = place.map_or(0, |place| place.len as usize);
    let reader = api.clone();
    let shown = work_on_bytes(bytes, move || {
        let result = reader.engine().jobs().result(&image)?;
        let has_bytes = image.outcome.as_ref().is_some_and(|outcome| outcome.bytes.is_some());
        Ok::<_, FetchError>(result.map(|bytes| {
            to_json(&BeforeShown::of(&image, has_bytes.then_some(&bytes)), bytes.len())
        }))
    });
    let shown = shown.await?;
    Ok(json_answer(api.bridge().durable(shown).await))
}

impl BeforeShown {
    fn of(image: &JobImage, bytes: Option<&bytes::Bytes>) -> BeforeShown {
        let (queue, queue_base64) = naming::text_or_base64(&image.queue);
        let outcome = image.outcome.as_ref();
        BeforeShown {
            id: image.id,
            status: status_word(image.status()),
            queue,
            queue_base64,
            result: outcome.map(|outcome| view::result(image, outcome, bytes)),
        }
    }
}
