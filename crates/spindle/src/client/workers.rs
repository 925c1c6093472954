//! `spindle workers`.

use std::io;

use serde_json::Value;

use super::{inspect::write_json, native::Native, view::text_of};
use crate::{cli::WorkersArgs, exit::Code, output::Rows};

/// Lists the workers and what they hold.
pub fn workers(args: &WorkersArgs) -> anyhow::Result<Code> {
    let native = Native::of(&args.native)?;
    let workers = native.list("/api/v1/workers", "workers")?;
    let mut out = io::stdout().lock();
    if args.native.json {
        workers.iter().try_for_each(|worker| write_json(&mut out, worker))?;
        return Ok(Code::Ok);
    }
    let mut rows = Rows::new(&["worker", "door", "queues", "last-seen", "jobs"]);
    for worker in &workers {
        let field = |name: &str| worker.get(name).map(words).unwrap_or_default();
        rows.add([field("name"), field("door"), field("queues"), field("seen_at"), field("jobs")]);
    }
    rows.print(&mut out)?;
    Ok(Code::Ok)
}

/// A list as words, each with a blank between.
fn words(value: &Value) -> String {
    match value {
        Value::Array(items) => items.iter().map(words).collect::<Vec<_>>().join(" "),
        Value::Object(fields) => fields.get("id").map(text_of).unwrap_or_default(),
        other => text_of(other),
    }
}
