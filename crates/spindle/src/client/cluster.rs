//! `spindle cluster`: the nodes that share a log, and who leads.

use std::{io, slice};

use serde_json::Value;

use super::{native::Native, view::text_of, web::ApiRequest};
use crate::{
    cli::{ClusterArgs, ClusterCommand},
    exit::Code,
    output::{Rows, print_all, write_json, write_line},
};

const PATH: &str = "/api/v1/cluster";

/// Runs `spindle cluster`.
pub fn cluster(args: &ClusterArgs) -> anyhow::Result<Code> {
    let native = Native::of(&args.native)?;
    match args.command {
        None => {
            let cluster: Value = native.ask(ApiRequest::get(PATH), "the cluster")?;
            print_all(slice::from_ref(&cluster), args.native.json, || rows(&cluster))?;
        }
        Some(ClusterCommand::StepDown) => step_down(&native, args.native.json)?,
    }
    Ok(Code::Ok)
}

fn step_down(native: &Native, as_json: bool) -> anyhow::Result<()> {
    let cluster: Value = native.ask(ApiRequest::get(PATH), "the cluster")?;
    native.answer(ApiRequest::post("/api/v1/cluster/step-down"), "the cluster")?;
    let leader = cluster.get("leader").map(text_of).unwrap_or_default();
    let mut out = io::stdout().lock();
    if as_json {
        return Ok(write_json(&mut out, &serde_json::json!({ "stepping_down": leader }))?);
    }
    Ok(write_line(
        &mut out,
        format_args!("{leader} steps down; `spindle cluster` shows who leads"),
    )?)
}

/// The nodes, one a row.
fn rows(cluster: &Value) -> Rows {
    let fields = ["node", "role", "epoch", "position", "lag", "heard_ms", "address", "version"];
    let mut rows = Rows::new(&fields);
    for node in cluster.get("nodes").and_then(Value::as_array).into_iter().flatten() {
        let is_live = node.get("live").and_then(Value::as_bool).unwrap_or_default();
        rows.add(fields.map(|field| match field {
            // What it did then says nothing about now.
            "role" if !is_live => "silent".to_owned(),
            _ => node.get(field).filter(|value| !value.is_null()).map_or("-".to_owned(), text_of),
        }));
    }
    rows
}
