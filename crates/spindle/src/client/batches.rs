//! `spindle batch`: jobs that belong together.

use std::{
    io::{self, IsTerminal},
    slice,
};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    confirm::{can_be_asked, is_meant},
    native::Native,
    session::AskError,
    times::{distance_of, of_field},
    view::text_of,
    web::ApiRequest,
};
use crate::{
    cli::{BatchArgs, BatchCommand, BatchNamed, BatchOpenArgs},
    exit::Code,
    output::{Rows, jobs_counted, print_all, write_json, write_line},
    queue_name::QueueName,
};

/// Runs `spindle batch`.
pub fn batch(args: &BatchArgs) -> anyhow::Result<Code> {
    match &args.command {
        BatchCommand::Open(args) => open(args)?,
        BatchCommand::List { limit, native } => {
            let native_api = Native::of(native)?;
            let batches = native_api.first("/api/v1/batches", "batches", "batches", *limit)?;
            print_all(&batches, native.json, || rows(&batches))?;
        }
        BatchCommand::Show(named) => {
            let batch = ask(&Native::of(&named.native)?, named.id)?;
            let shown = || fields(&batch, spindle_client::now());
            print_all(slice::from_ref(&batch), named.native.json, shown)?;
        }
        BatchCommand::Seal(named) => seal(named)?,
        BatchCommand::Cancel { named, yes } => return cancel(named, *yes),
    }
    Ok(Code::Ok)
}

/// What is asked about, in an error.
pub fn about(id: u64) -> String {
    format!("batch {id}")
}

fn ask(native: &Native, id: u64) -> anyhow::Result<Value> {
    native.ask(ApiRequest::get(&format!("/api/v1/batches/{id}")), &about(id))
}

fn open(args: &BatchOpenArgs) -> anyhow::Result<()> {
    let mut body = Map::new();
    args.queue.put(&mut body, "queue");
    let said = [
        ("name", args.name.clone().map(Value::from)),
        ("key", args.unique.clone().map(Value::from)),
        ("parent", args.parent.map(Value::from)),
        ("keep_ms", args.keep.map(Value::from)),
    ];
    body.extend(said.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))));
    let native = Native::of(&args.native)?;
    let opened = native.http().ask(ApiRequest::post("/api/v1/batches").with(&body));
    let batch: Value = opened.map_err(|error| {
        // The batch around it is the only thing that can be missing.
        let missing = args.parent.filter(|_| matches!(error, AskError::NotFound));
        native.explain(error, &missing.map_or_else(|| "batch".to_owned(), about))
    })?;
    let mut out = io::stdout().lock();
    if args.native.json {
        return Ok(write_json(&mut out, &batch)?);
    }
    Ok(write_line(&mut out, batch.get("id").map(text_of).unwrap_or_default())?)
}

fn seal(BatchNamed { id, native }: &BatchNamed) -> anyhow::Result<()> {
    let path = format!("/api/v1/batches/{id}/seal");
    let batch: Value = Native::of(native)?.ask(ApiRequest::post(&path), &about(*id))?;
    if native.json { Ok(write_json(&mut io::stdout().lock(), &batch)?) } else { Ok(()) }
}

/// What the cancelling of a batch did.
#[derive(Serialize, Deserialize)]
struct Cancelled {
    cancelled: u64,
    is_partial: bool,
    /// As it is now; none if it is not kept any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    batch: Option<Value>,
}

/// Cancels a batch, request by request, until none of its jobs is left.
fn cancel(BatchNamed { id, native: named }: &BatchNamed, yes: bool) -> anyhow::Result<Code> {
    let native = Native::of(named)?;
    if !yes && can_be_asked() {
        let unfinished = count(&ask(&native, *id)?, "unfinished");
        let question = format!("Cancel batch {id}, with {} unfinished?", jobs_counted(unfinished));
        if !is_meant(&question)? {
            return Ok(Code::Error);
        }
    }
    let path = format!("/api/v1/batches/{id}/cancel");
    let mut before = 0;
    let all = loop {
        let mut done: Cancelled = native.ask(ApiRequest::post(&path), &about(*id))?;
        done.cancelled += before;
        if !done.is_partial {
            break done;
        }
        before = done.cancelled;
    };
    let mut out = io::stdout().lock();
    if named.json {
        write_json(&mut out, &all)?;
    } else {
        let jobs = if all.cancelled == 1 { "job" } else { "jobs" };
        write_line(&mut out, format_args!("{} {jobs} cancelled", all.cancelled))?;
    }
    Ok(Code::Ok)
}

fn count(batch: &Value, which: &str) -> u64 {
    batch.pointer(&format!("/jobs/{which}")).and_then(Value::as_u64).unwrap_or_default()
}

fn queue(batch: &Value) -> String {
    let name = |field: &str| batch.get(field).and_then(Value::as_str);
    QueueName::from_api(name("queue"), name("queue_base64")).to_string()
}

/// How the jobs of a batch stand, in the order of columns.
const COUNTS: [&str; 5] = ["total", "unfinished", "done", "dead", "gone"];

fn rows(batches: &[Value]) -> Rows {
    let (now, for_eyes) = (spindle_client::now(), io::stdout().is_terminal());
    let mut columns = vec!["id", "queue", "status"];
    columns.extend(COUNTS);
    columns.extend(["opened", "name"]);
    let mut rows = Rows::new(&columns);
    for batch in batches {
        let text = |field: &str| batch.get(field).map(text_of).unwrap_or_default();
        let opened = text("opened_at");
        let opened = if for_eyes { distance_of(&opened, now) } else { opened };
        let counts = COUNTS.map(|which| count(batch, which).to_string());
        let first = [text("id"), queue(batch), text("status")];
        rows.add(first.into_iter().chain(counts).chain([opened, text("name")]));
    }
    rows
}

/// The other fields of a batch that are shown, with their labels.
const FIELDS: [(&str, &str); 8] = [
    ("name", "name"),
    ("key", "unique"),
    ("parent", "parent"),
    ("cancelled", "cancelled"),
    ("opened_at", "opened"),
    ("sealed_at", "sealed"),
    ("ended_at", "ended"),
    ("kept_until", "kept-until"),
];

/// A batch, field by field.
fn fields(batch: &Value, now: Timestamp) -> Rows {
    let mut rows = Rows::new(&["field", "value"]);
    let mut add = |label: &str, value: String| rows.add([label.to_owned(), value]);
    let text = |field: &str| {
        let value = batch.get(field)?;
        Some(of_field(field, value, now).unwrap_or_else(|| text_of(value)))
    };
    add("id", text("id").unwrap_or_default());
    add("queue", queue(batch));
    add("status", text("status").unwrap_or_default());
    for which in COUNTS {
        add(which, count(batch, which).to_string());
    }
    for (field, label) in FIELDS {
        text(field).into_iter().for_each(|value| add(label, value));
    }
    rows
}
