//! What a follower answers over HTTP by itself.

use std::sync::Arc;

use spindle_cluster::{LocalAnswer, Node, Reply};

/// Answers about this node. Where clients have to say who they are, the leader answers what not everybody may
/// know.
pub(super) fn of(node: &Node, asks: bool) -> LocalAnswer {
    let node = node.clone();
    Arc::new(move |path| match path {
        "/healthz" => Some(json("200 OK", r#"{"status":"ok"}"#.to_owned())),
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
