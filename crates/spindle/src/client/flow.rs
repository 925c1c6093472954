//! `spindle flow`: the jobs that are joined by what waits for what, drawn as text.

use std::{
    collections::BTreeMap,
    io::{self, Write},
};

use serde::{Deserialize, Serialize};

use super::{native::Native, web::ApiRequest};
use crate::{
    cli::FlowArgs,
    exit::Code,
    output::{escape, write_line},
    queue_name::QueueName,
};

/// What the API answers.
#[derive(Debug, Serialize, Deserialize)]
struct Flow {
    nodes: Vec<Node>,
    edges: Vec<Edge>,
    is_partial: bool,
}

#[derive(Debug, Serialize, Deserialize)]
struct Node {
    id: u64,
    status: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    queue_base64: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    on_dead: Option<String>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Edge {
    from: u64,
    to: u64,
}

/// Draws the flow that a job is in.
pub fn flow(args: &FlowArgs) -> anyhow::Result<Code> {
    let native = Native::of(&args.native)?;
    let path = format!("/api/v1/jobs/{}/flow", args.id);
    let flow: Flow = native.ask(ApiRequest::get(&path), &format!("job {}", args.id))?;
    let mut out = io::stdout().lock();
    if args.native.json {
        write_line(&mut out, serde_json::to_string(&flow)?)?;
        return Ok(Code::Ok);
    }
    for line in drawn(&flow) {
        writeln!(out, "{line}")?;
    }
    if flow.is_partial {
        eprintln!("there are more jobs than these, or some that you may not see");
    }
    Ok(Code::Ok)
}

/// A line for each job, behind all those that it waits for, one step further in than the last of
/// them.
fn drawn(flow: &Flow) -> Vec<String> {
    let mut before: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for edge in &flow.edges {
        before.entry(edge.to).or_default().push(edge.from);
    }
    let mut depths: BTreeMap<u64, usize> = BTreeMap::new();
    // A job is younger than those that it waits for: by number, all of them come before it.
    for node in &flow.nodes {
        let deepest = before.get(&node.id).into_iter().flatten().filter_map(|id| depths.get(id));
        depths.insert(node.id, deepest.max().map_or(0, |depth| depth + 1));
    }
    let mut nodes: Vec<&Node> = flow.nodes.iter().collect();
    nodes.sort_by_key(|node| (depths.get(&node.id), node.id));
    nodes.iter().map(|node| line(node, depths[&node.id], before.get(&node.id))).collect()
}

/// Deeper ones are not drawn further in.
const DEPTH_SHOWN: usize = 20;

fn line(node: &Node, depth: usize, before: Option<&Vec<u64>>) -> String {
    let mut line =
        format!("{}{} {}", "  ".repeat(depth.min(DEPTH_SHOWN)), node.id, escape(&node.status));
    if node.queue.is_some() || node.queue_base64.is_some() {
        let queue = QueueName::from_api(node.queue.as_deref(), node.queue_base64.as_deref());
        line.push_str(&format!(" {queue}"));
    }
    let Some(before) = before else { return line };
    let ids: Vec<String> = before.iter().map(u64::to_string).collect();
    line.push_str(&format!(" after {}", ids.join(", ")));
    if let Some(on_dead) = node.on_dead.as_deref().filter(|on_dead| *on_dead != "cancel") {
        line.push_str(&format!(" (on_dead {})", escape(on_dead)));
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn each_job_stands_behind_those_it_waits_for() {
        let flow = json!({
            "nodes": [
                { "id": 1, "status": "gone" },
                { "id": 2, "status": "leased", "queue": "resize" },
                { "id": 3, "status": "blocked", "queue": "resize", "on_dead": "run" },
                { "id": 9, "status": "blocked", "queue": "mail\u{1b}", "on_dead": "cancel" },
            ],
            "edges": [
                { "from": 2, "to": 3 },
                { "from": 1, "to": 9 }, { "from": 3, "to": 9 },
            ],
            "is_partial": false,
        });
        let flow: Flow = from_value(flow).expect("as the API answers");
        let expected = [
            "1 gone",
            "2 leased resize",
            "  3 blocked resize after 2 (on_dead run)",
            "    9 blocked mail\\x1b after 1, 3",
        ];
        assert_eq!(drawn(&flow), expected);
    }
}
