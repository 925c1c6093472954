//! `spindle flow`: jobs and batches that are connected because one waits for another, drawn as text.

use std::{
    collections::{BTreeMap, BTreeSet},
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
    /// A batch, and those before it are in it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    is_batch: bool,
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

/// A line for each job and batch, after everything that it waits for, indented one step more than the
/// deepest of those.
fn drawn(flow: &Flow) -> Vec<String> {
    let mut before: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    for edge in &flow.edges {
        before.entry(edge.to).or_default().push(edge.from);
    }
    let depths = depths(flow);
    let mut nodes: Vec<(usize, &Node)> =
        flow.nodes.iter().map(|node| (depths.get(&node.id).copied().unwrap_or(0), node)).collect();
    nodes.sort_by_key(|(depth, node)| (*depth, node.id));
    nodes.iter().map(|(depth, node)| line(node, *depth, before.get(&node.id))).collect()
}

/// The length of the longest chain before each. It does not follow from the numbers: a batch is older
/// than the jobs in it, which it waits for.
fn depths(flow: &Flow) -> BTreeMap<u64, usize> {
    let known: BTreeSet<u64> = flow.nodes.iter().map(|node| node.id).collect();
    let mut behind: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let mut to_see: BTreeMap<u64, usize> = BTreeMap::new();
    for Edge { from, to } in &flow.edges {
        if known.contains(from) && known.contains(to) {
            behind.entry(*from).or_default().push(*to);
            *to_see.entry(*to).or_default() += 1;
        }
    }
    let mut depths: BTreeMap<u64, usize> = BTreeMap::new();
    let mut next: Vec<u64> = known.into_iter().filter(|id| !to_see.contains_key(id)).collect();
    while let Some(id) = next.pop() {
        let depth = *depths.entry(id).or_default() + 1;
        for to in behind.get(&id).into_iter().flatten() {
            let deepest = depths.entry(*to).or_default();
            *deepest = depth.max(*deepest);
            // Its depth is final once the last of those before it has been seen.
            if let Some(left) = to_see.get_mut(to) {
                *left -= 1;
                if *left == 0 {
                    next.push(*to);
                }
            }
        }
    }
    depths
}

/// Deeper ones are not drawn further in.
const DEPTH_SHOWN: usize = 20;
/// How many of those in a batch its line names: they have lines of their own.
const MEMBERS_NAMED: usize = 10;

fn line(node: &Node, depth: usize, before: Option<&Vec<u64>>) -> String {
    let kind = if node.is_batch { "batch " } else { "" };
    let indent = "  ".repeat(depth.min(DEPTH_SHOWN));
    let mut line = format!("{indent}{kind}{} {}", node.id, escape(&node.status));
    if node.queue.is_some() || node.queue_base64.is_some() {
        let queue = QueueName::from_api(node.queue.as_deref(), node.queue_base64.as_deref());
        line.push_str(&format!(" {queue}"));
    }
    let Some(before) = before else { return line };
    let named = if node.is_batch { MEMBERS_NAMED } else { before.len() };
    let ids: Vec<String> = before.iter().take(named).map(u64::to_string).collect();
    let word = if node.is_batch { "of" } else { "after" };
    line.push_str(&format!(" {word} {}", ids.join(", ")));
    if before.len() > named {
        line.push_str(&format!(" and {} more", before.len() - named));
    }
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

    #[test]
    fn a_batch_stands_behind_the_jobs_in_it_and_names_the_first_of_them() {
        let job = |id: u64| json!({ "id": id, "status": "ready", "queue": "resize" });
        let mut nodes = vec![
            json!({ "id": 1, "is_batch": true, "status": "open", "queue": "photos" }),
            json!({ "id": 2, "status": "blocked", "queue": "album", "on_dead": "run" }),
        ];
        nodes.extend((3..15).map(job));
        let mut edges = vec![json!({ "from": 1, "to": 2 })];
        edges.extend((3..15).map(|id| json!({ "from": id, "to": 1 })));
        let flow = json!({ "nodes": nodes, "edges": edges, "is_partial": false });
        let flow: Flow = from_value(flow).expect("as the API answers");
        let lines = drawn(&flow);
        assert_eq!(lines[..12], (3..15).map(|id| format!("{id} ready resize")).collect::<Vec<_>>());
        let batch = "  batch 1 open photos of 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 and 2 more";
        assert_eq!(lines[12..], [batch, "    2 blocked album after 1 (on_dead run)"]);
    }
}
