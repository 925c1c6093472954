//! The nodes that share the server's log, and who leads.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use spindle_cluster::{LogHealth, LogLag, LogServer, Node, NodeStatus, Role, Status};
use spindle_core::audit::Action;
use spindle_core::job::Origin;
use spindle_http::{Answered, Code, Pass, Problem};
use utoipa::ToSchema;

use super::moves::MovedQueue;
use crate::api::Api;

/// The server's cluster, as the node that answers sees it.
#[derive(Serialize, ToSchema)]
pub(crate) struct ClusterBody {
    /// Whether the log is one that several nodes share. A server with a log of its own is its only node, and leads.
    shared: bool,
    /// The node that answers.
    node: String,
    /// What it does: `leader`, `follower`, `campaigning`, `stepping-down` or `stepped-down`.
    role: &'static str,
    /// How often the lead has begun anew, as far as this node knows.
    epoch: u64,
    /// Who leads; null if this node hears nobody that does.
    leader: Option<String>,
    /// All nodes that were heard in the last hour, by name.
    nodes: Vec<NodeBody>,
    /// The servers that keep the log; null where it is the server's own, and while the node does not have it open.
    log: Option<LogBody>,
    /// Where queues are spread over several logs: each of them. What is above is said of the first then.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    shards: Vec<ShardBody>,
    /// Queues that were moved to another shard than that of their name, as the node that answers knows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    moved: Vec<MovedQueue>,
}

/// One of the logs that the queues are spread over.
#[derive(Serialize, ToSchema)]
pub(crate) struct ShardBody {
    /// Its number, from 0.
    shard: u8,
    /// What the node that answers does there.
    role: &'static str,
    /// How often the lead has begun anew.
    epoch: u64,
    /// Who leads it; null if nobody is heard to.
    leader: Option<String>,
    /// All nodes that were heard there in the last hour, by name.
    nodes: Vec<NodeBody>,
    /// The servers that keep the log.
    log: Option<LogBody>,
}

impl ShardBody {
    fn of((shard, node): (u8, &Node)) -> ShardBody {
        let Status { role, epoch, leader, nodes, log, .. } = node.status();
        let nodes = nodes.into_iter().map(NodeBody::from).collect();
        let log = log.map(LogBody::from);
        ShardBody { shard, role: role.word(), epoch, leader, nodes, log }
    }
}

/// One node of a cluster.
#[derive(Serialize, ToSchema)]
pub(crate) struct NodeBody {
    /// Its name.
    node: String,
    /// What it does, or did when it was last heard.
    role: &'static str,
    /// Whether it was heard within the last second.
    live: bool,
    /// How many milliseconds ago it was heard.
    heard_ms: u64,
    /// The epoch that it leads, or the highest that it has read.
    epoch: u64,
    /// The position behind the last record that it has read, or that is durable where it leads.
    position: u64,
    /// How many records it is behind the leader; null if nobody is heard to lead.
    lag: Option<u64>,
    /// Where other nodes reach it; null if they do not.
    address: Option<String>,
    /// Its version.
    version: String,
}

/// The servers that keep a shared log, as the node that answers hears of them every few seconds.
#[derive(Serialize, ToSchema)]
pub(crate) struct LogBody {
    /// The servers, the one that takes appends first.
    servers: Vec<LogServerBody>,
    /// How many milliseconds ago that was heard; null if nothing was heard yet.
    heard_ms: Option<u64>,
    /// Why nothing was heard since; null if the last answer is what is above.
    error: Option<String>,
}

/// A server that keeps a shared log.
#[derive(Serialize, ToSchema)]
pub(crate) struct LogServerBody {
    /// Its name, or its address.
    name: String,
    /// `leader`, which takes appends (of PostgreSQL the primary), or `replica`.
    role: &'static str,
    /// `current`, `behind`, `away` (it is not heard), or `unknown` where the server's login may not know.
    state: &'static str,
    /// Whether commits wait for it, or for most of those that are like it; null where that is not known.
    synchronous: Option<bool>,
    /// How many bytes it has still to sync, of PostgreSQL.
    lag_bytes: Option<u64>,
    /// How many entries it has still to take, of NATS.
    lag_entries: Option<u64>,
}

impl From<LogHealth> for LogBody {
    fn from(health: LogHealth) -> LogBody {
        let LogHealth { servers, heard, wrong: error } = health;
        let servers = servers.into_iter().map(LogServerBody::from).collect();
        let heard_ms =
            heard.map(|heard| u64::try_from(heard.elapsed().as_millis()).unwrap_or(u64::MAX));
        LogBody { servers, heard_ms, error }
    }
}

impl From<LogServer> for LogServerBody {
    fn from(server: LogServer) -> LogServerBody {
        let LogServer { name, role, state, is_synchronous: synchronous, lag } = server;
        let (lag_bytes, lag_entries) = match lag {
            Some(LogLag::Bytes(bytes)) => (Some(bytes), None),
            Some(LogLag::Entries(entries)) => (None, Some(entries)),
            None => (None, None),
        };
        let (role, state) = (role.word(), state.word());
        LogServerBody { name, role, state, synchronous, lag_bytes, lag_entries }
    }
}

impl From<Status> for ClusterBody {
    fn from(status: Status) -> ClusterBody {
        let Status { node, role, epoch, leader, nodes, log } = status;
        let nodes = nodes.into_iter().map(NodeBody::from).collect();
        let (role, log, shards, moved) =
            (role.word(), log.map(LogBody::from), Vec::new(), Vec::new());
        ClusterBody { shared: true, node, role, epoch, leader, nodes, log, shards, moved }
    }
}

impl From<NodeStatus> for NodeBody {
    fn from(status: NodeStatus) -> NodeBody {
        let NodeStatus { node, role, live, heard_ms, epoch, position, lag, address, version } =
            status;
        let role = role.word();
        NodeBody { node, role, live, heard_ms, epoch, position, lag, address, version }
    }
}

/// A server with a log of its own, whose name is the machine's.
fn alone(host: &str, epoch: u64, position: u64) -> ClusterBody {
    let (node, role) = (host.to_owned(), Role::Leader.word());
    let only = NodeBody {
        node: node.clone(),
        role,
        live: true,
        heard_ms: 0,
        epoch,
        position,
        lag: Some(0),
        address: None,
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let (leader, nodes) = (Some(node.clone()), vec![only]);
    let (log, shards, moved) = (None, Vec::new(), Vec::new());
    ClusterBody { shared: false, leader, node, role, epoch, nodes, log, shards, moved }
}

/// What a node reports about all shards: it has one entry for each of them, in order.
fn of_shards(seats: &[Node]) -> Option<ClusterBody> {
    let first = seats.first()?;
    let shards = (0..).zip(seats).map(ShardBody::of).collect();
    let moved = first.places().map.into_iter().map(MovedQueue::from).collect();
    Some(ClusterBody { shards, moved, ..first.status().into() })
}

/// What `GET /api/v1/cluster` answers for a process that has a node at each of several shards.
pub fn shards_body(seats: &[Node]) -> String {
    of_shards(seats).and_then(|body| serde_json::to_string(&body).ok()).unwrap_or_default()
}

/// What `GET /api/v1/cluster` answers for a node, in JSON; for a follower, which has no API.
pub fn cluster_body(node: &Node) -> String {
    let body = ClusterBody::from(node.status());
    serde_json::to_string(&body).unwrap_or_default()
}

/// The nodes that share the server's log, who leads, and how far the others are behind. Every node answers this
/// itself, also while nobody leads; where clients have to show a token, the leader answers for all.
#[utoipa::path(get, path = "/api/v1/cluster", operation_id = "cluster", tag = "server",
    responses((status = 200, description = "The nodes", body = ClusterBody)))]
pub(crate) async fn show(State(api): State<Api>) -> Json<ClusterBody> {
    let options = api.options();
    if let Some(body) = of_shards(&options.shards) {
        return Json(body);
    }
    Json(match &options.cluster {
        Some(node) => node.status().into(),
        None => alone(&api.options().host, api.engine().epoch(), api.engine().durable().0),
    })
}

/// Let another node lead. The answer comes before the lead has changed: connections are ended in order, what is under
/// way is answered, and then the first other node that is ready begins to lead, mostly within a second.
#[utoipa::path(post, path = "/api/v1/cluster/step-down", operation_id = "step_down", tag = "server",
    responses(
        (status = 202, description = "This node steps down"),
        (status = 409, description = "The server does not share its log: nobody could take over")))]
pub(crate) async fn step_down(State(api): State<Api>, pass: Pass) -> Answered<Response> {
    let Some(node) = &api.options().cluster else {
        let why = "this server has a log of its own: there is no other node to lead";
        return Err(Problem::new(Code::NotShared, why));
    };
    let mut audit = pass.audit(Origin::Api);
    let name = node.name().to_owned();
    api.bridge().change(|engine| engine.people(&mut audit).note(Action::StepDown, name)).await?;
    node.ask_to_step_down();
    Ok(StatusCode::ACCEPTED.into_response())
}
