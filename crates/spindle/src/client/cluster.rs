//! `spindle cluster`: the nodes that share a log, and who leads.

use std::{io, slice};

use serde_json::Value;

use super::{
    native::Native,
    view::text_of,
    web::{ApiRequest, encoded},
};
use crate::{
    cli::{ClusterArgs, ClusterCommand},
    exit::{Code, Failure},
    output::{Rows, escape, print_all, write_json, write_line},
};

const PATH: &str = "/api/v1/cluster";

/// Runs `spindle cluster`.
pub fn cluster(args: &ClusterArgs) -> anyhow::Result<Code> {
    let native = Native::of(&args.native)?;
    match &args.command {
        None => {
            let cluster: Value = native.ask(ApiRequest::get(PATH), "the cluster")?;
            print_all(slice::from_ref(&cluster), args.native.json, || rows(&cluster))?;
        }
        Some(ClusterCommand::StepDown { shard }) => step_down(&native, *shard, args.native.json)?,
        Some(ClusterCommand::Move { queue, to }) => {
            move_queue(&native, queue, *to, args.native.json)?;
        }
        Some(ClusterCommand::Moves) => {
            let cluster: Value = native.ask(ApiRequest::get(PATH), "the cluster")?;
            let moved = cluster.get("moved").and_then(Value::as_array);
            let moved = moved.map(Vec::as_slice).unwrap_or_default();
            print_all(moved, args.native.json, || moves(moved))?;
        }
        Some(ClusterCommand::Log) => {
            let cluster: Value = native.ask(ApiRequest::get(PATH), "the cluster")?;
            let logs = logs_of(&cluster);
            say_what_is_wrong(&cluster, &logs);
            print_all(&logs, args.native.json, || log_servers(&logs))?;
        }
    }
    Ok(Code::Ok)
}

fn step_down(native: &Native, shard: u8, as_json: bool) -> anyhow::Result<()> {
    let cluster: Value = native.ask(ApiRequest::get(PATH), "the cluster")?;
    let shards = shards_of(&cluster);
    let led = if shards.is_empty() && shard == 0 {
        Some(&cluster)
    } else {
        shards.get(usize::from(shard))
    };
    let led = led.ok_or_else(|| {
        let there_are = shards.len().max(1);
        Failure::with(
            Code::NotFound,
            format!("there is no shard {shard}: the cluster has {there_are}, from 0"),
        )
    })?;
    let leader = led.get("leader").map(text_of).unwrap_or_default();
    // A server without shards knows no such parameter.
    let query = if shards.is_empty() { String::new() } else { format!("?shard={shard}") };
    let path = format!("{PATH}/step-down{query}");
    native.answer(ApiRequest::post(&path), "the cluster")?;
    let mut out = io::stdout().lock();
    if as_json {
        return Ok(write_json(&mut out, &serde_json::json!({ "stepping_down": leader }))?);
    }
    Ok(write_line(
        &mut out,
        format_args!("{leader} steps down; `spindle cluster` shows who leads"),
    )?)
}

fn move_queue(native: &Native, queue: &str, to: u8, as_json: bool) -> anyhow::Result<()> {
    let path = format!("/api/v1/queues/{}/move?to={to}", encoded(queue));
    let moved: Value = native.ask(ApiRequest::post(&path), "the queue")?;
    let mut out = io::stdout().lock();
    if as_json {
        return Ok(write_json(&mut out, &moved)?);
    }
    Ok(write_line(
        &mut out,
        format_args!("{queue} moves to shard {to}; `spindle cluster moves` shows how far it is"),
    )?)
}

/// Queues that were moved, one a row.
fn moves(moved: &[Value]) -> Rows {
    let mut rows = Rows::new(&["queue", "shard", "drains"]);
    for queue in moved {
        let name = ["name", "name_base64"].iter().find_map(|field| queue.get(field));
        let drains = queue.get("drains").map_or_else(|| "-".to_owned(), text_of);
        rows.add([name.map(text_of).unwrap_or_default(), text_of(&queue["shard"]), drains]);
    }
    rows
}

/// The cluster's logs, each with the number of its shard where there are several; none where a server has its own.
fn logs_of(cluster: &Value) -> Vec<Value> {
    let log = |of: &Value| of.get("log").filter(|log| log.is_object()).cloned();
    let shards = shards_of(cluster);
    if shards.is_empty() {
        return log(cluster).into_iter().collect();
    }
    let numbered = |shard: &Value| {
        let mut log = log(shard)?;
        log["shard"] = shard["shard"].clone();
        Some(log)
    };
    shards.iter().filter_map(numbered).collect()
}

/// Why there are no rows, or why they may be old.
fn say_what_is_wrong(cluster: &Value, logs: &[Value]) {
    if cluster["shared"] == false {
        eprintln!("note: the server's log is its own");
    }
    for log in logs {
        let Some(error) = log.get("error").and_then(Value::as_str) else { continue };
        let of_shard = log.get("shard").map(|shard| format!(" of shard {}", text_of(shard)));
        let since = match log.get("heard_ms").and_then(Value::as_u64) {
            Some(heard_ms) => format!("for {} s", heard_ms / 1000),
            None => "yet".to_owned(),
        };
        let of_shard = of_shard.unwrap_or_default();
        eprintln!(
            "note: the servers of the log{of_shard} were not heard {since}: {}",
            escape(error)
        );
    }
}

/// The servers that keep the logs, one a row.
fn log_servers(logs: &[Value]) -> Rows {
    const TITLES: [&str; 5] = ["server", "role", "state", "synchronous", "lag"];
    let is_sharded = logs.iter().any(|log| log.get("shard").is_some());
    let shard = is_sharded.then_some("shard");
    let titles: Vec<&str> = shard.into_iter().chain(TITLES).collect();
    let mut rows = Rows::new(&titles);
    for log in logs {
        for server in log.get("servers").and_then(Value::as_array).into_iter().flatten() {
            let synchronous = match server.get("synchronous").and_then(Value::as_bool) {
                Some(true) => "yes",
                Some(false) => "no",
                None => "-",
            };
            let lag = match (server["lag_bytes"].as_u64(), server["lag_entries"].as_u64()) {
                (Some(bytes), _) => format!("{bytes} bytes"),
                (None, Some(entries)) => format!("{entries} entries"),
                (None, None) => "-".to_owned(),
            };
            let [name, role, state] =
                ["name", "role", "state"].map(|field| text_of(&server[field]));
            let shard = log.get("shard").map(text_of);
            rows.add(shard.into_iter().chain([name, role, state, synchronous.to_owned(), lag]));
        }
    }
    rows
}

/// The cluster's shards; none of one with a single log.
fn shards_of(cluster: &Value) -> &[Value] {
    cluster.get("shards").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

const FIELDS: [&str; 8] =
    ["node", "role", "epoch", "position", "lag", "heard_ms", "address", "version"];

/// The nodes, one a row; of several shards, one for each node at each of them.
fn rows(cluster: &Value) -> Rows {
    let shards = shards_of(cluster);
    if shards.is_empty() {
        let mut rows = Rows::new(&FIELDS);
        nodes_of(cluster).for_each(|node| rows.add(FIELDS.map(|field| cell(node, field))));
        return rows;
    }
    let titles: Vec<&str> = ["shard"].into_iter().chain(FIELDS).collect();
    let mut rows = Rows::new(&titles);
    for shard in shards {
        for node in nodes_of(shard) {
            let cells = FIELDS.map(|field| cell(node, field));
            rows.add([text_of(&shard["shard"])].into_iter().chain(cells));
        }
    }
    rows
}

fn nodes_of(cluster: &Value) -> impl Iterator<Item = &Value> {
    cluster.get("nodes").and_then(Value::as_array).into_iter().flatten()
}

fn cell(node: &Value, field: &str) -> String {
    let is_live = node.get("live").and_then(Value::as_bool).unwrap_or_default();
    match field {
        // What it did then says nothing about now.
        "role" if !is_live => "silent".to_owned(),
        _ => node.get(field).filter(|value| !value.is_null()).map_or("-".to_owned(), text_of),
    }
}
