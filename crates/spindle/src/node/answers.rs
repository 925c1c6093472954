//! Requests over HTTP that each node answers itself, whichever node leads.

use std::sync::Arc;

use axum::Router;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use spindle_cluster::{LocalAnswer, Node, Reply};

const ALIVE: &str = r#"{"status":"ok"}"#;

/// Answers of a follower about this node. If clients have to authenticate, the leader answers requests that not
/// everybody may make.
pub(super) fn of(node: &Node, asks: bool) -> LocalAnswer {
    let node = node.clone();
    Arc::new(move |path| match path {
        "/healthz" => Some(json("200 OK", ALIVE.to_owned())),
        "/readyz" => Some(ready(&node)),
        "/api/v1/cluster" if !asks => Some(json("200 OK", spindle_api::cluster_body(&node))),
        _ => None,
    })
}

fn ready(node: &Node) -> Reply {
    match node.status().leader {
        Some(leader) => json("200 OK", format!(r#"{{"status":"follower of {leader}"}}"#)),
        None => json("503 Service Unavailable", r#"{"status":"no_leader"}"#.to_owned()),
    }
}

fn json(status: &'static str, body: String) -> Reply {
    Reply { status, content_type: "application/json", body }
}

/// The same of a node with shards, which a router stands in front of.
pub(super) fn of_shards(nodes: &[Node], asks: bool) -> Router {
    let of_ready: Arc<[Node]> = nodes.into();
    let of_cluster = Arc::clone(&of_ready);
    let router = Router::new()
        .route("/healthz", get(async || whole(StatusCode::OK, ALIVE.to_owned())))
        .route("/readyz", get(async move || all_ready(&of_ready)));
    if asks {
        return router;
    }
    let body = async move || whole(StatusCode::OK, spindle_api::shards_body(&of_cluster));
    router.route("/api/v1/cluster", get(body))
}

/// Whether each shard has a leader, by what this node has heard.
fn all_ready(nodes: &[Node]) -> Response {
    let without = (0_u8..).zip(nodes).filter(|(_, node)| node.status().leader.is_none());
    let without: Vec<String> = without.map(|(shard, _)| shard.to_string()).collect();
    if without.is_empty() {
        return whole(StatusCode::OK, ALIVE.to_owned());
    }
    let body = format!(r#"{{"status":"no_leader","shards":[{}]}}"#, without.join(","));
    whole(StatusCode::SERVICE_UNAVAILABLE, body)
}

fn whole(status: StatusCode, body: String) -> Response {
    let headers = [
        (header::CONTENT_TYPE, "application/json"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    ];
    (status, headers, body).into_response()
}
