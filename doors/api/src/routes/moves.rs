//! Moving queues between the shards of a cluster.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use spindle_core::job::Origin;
use spindle_core::places::Placed;
use spindle_http::{Answered, Pass};
use utoipa::{IntoParams, ToSchema};

use crate::api::Api;
use crate::extract::{Args, QueuePath};
use crate::naming;

/// Where a queue is to go.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct MoveTo {
    /// The number of the shard that is to take its jobs.
    #[param(maximum = 63)]
    to: u8,
}

/// A queue that was moved to another shard than that of its name.
#[derive(Serialize, ToSchema)]
pub(crate) struct MovedQueue {
    /// Its name, where it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    /// Its name in base64, where it is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "queue-base64")]
    name_base64: Option<String>,
    /// The shard that takes its jobs, or will in a moment.
    shard: u32,
    /// The shard that it was on, as long as that has jobs of it. If there is none, it has moved.
    #[serde(skip_serializing_if = "Option::is_none")]
    drains: Option<u32>,
}

impl From<Placed> for MovedQueue {
    fn from(placed: Placed) -> MovedQueue {
        let Placed { queue, version: _, shard, drains } = placed;
        let (name, name_base64) = naming::text_or_base64(&queue);
        MovedQueue { name, name_base64, shard, drains }
    }
}

/// Move a queue to another shard: new jobs go there from a moment later on, and the jobs that it has are worked where
/// they are. Nothing waits, and workers need do nothing. When no job is left where it was, it has moved;
/// `GET /api/v1/cluster` shows how far it is.
#[utoipa::path(post, path = "/api/v1/queues/{name}/move", operation_id = "move_queue", tag = "queues",
    params(QueuePath, MoveTo),
    responses(
        (status = 202, description = "It begins to move, or is there", body = MovedQueue),
        (status = 409, description = "The server's queues are not spread over shards"),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn start(
    State(api): State<Api>,
    QueuePath(name): QueuePath,
    Args(MoveTo { to }): Args<MoveTo>,
    pass: Pass,
) -> Answered<(StatusCode, Json<MovedQueue>)> {
    let mut audit = pass.audit(Origin::Api);
    api.bridge().change(|engine| engine.people(&mut audit).move_queue(&name, to)).await?;
    let places = api.bridge().durable(api.engine().moves().places()).await;
    let here = || Placed { queue: name.clone(), version: 0, shard: to.into(), drains: None };
    let placed = places.placed(&name).cloned().unwrap_or_else(here);
    Ok((StatusCode::ACCEPTED, Json(placed.into())))
}
