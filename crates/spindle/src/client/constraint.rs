//! `spindle constraint`.

use std::io;

use serde_json::{Value, json};
use spindle_client::http::Method;

use super::{
    native::Native,
    payload,
    view::text_of,
    web::{ApiRequest, encoded},
};
use crate::{
    cli::{ConstraintArgs, ConstraintCommand, Limits, Rate},
    exit::{Code, Failure},
    output::{Rows, print_all, write_json},
    queue_name::QueueName,
};

/// Runs `spindle constraint`.
pub fn constraint(args: &ConstraintArgs) -> anyhow::Result<Code> {
    match &args.command {
        ConstraintCommand::List { native } => {
            let asked = Native::of(native)?;
            let constraints = asked.list("/api/v1/constraints", "constraints")?;
            print_all(&constraints, native.json, || rows(&constraints))?;
        }
        ConstraintCommand::Show { name, native } => {
            let asked = Native::of(native)?;
            let rule: Value = asked.ask(ApiRequest::get(&path(name)), &about(name))?;
            print(&rule, native.json)?;
            print_notes(&rule);
        }
        ConstraintCommand::Put { name, rule, limits, native } => {
            let asked = Native::of(native)?;
            let rule = match rule {
                Some(rule) => {
                    let text = payload::read(rule, asked.payload_bytes_max())?;
                    serde_json::from_slice(&text).map_err(|error| {
                        Failure::with(Code::Usage, format!("the constraint is not JSON: {error}"))
                    })?
                }
                None => rule_of(limits)?,
            };
            let path = path(name);
            let asking = ApiRequest::of(Method::PUT, &path).with(&rule);
            let rule: Value = asked.ask(asking, &about(name))?;
            if native.json {
                print(&rule, true)?;
            }
            print_notes(&rule);
        }
        ConstraintCommand::Delete { name, native } => {
            let asked = Native::of(native)?;
            asked.answer(ApiRequest::of(Method::DELETE, &path(name)), &about(name))?;
        }
    }
    Ok(Code::Ok)
}

fn rows(constraints: &[Value]) -> Rows {
    let mut rows = Rows::new(&["name", "queue", "running-max", "rate", "per"]);
    for rule in constraints {
        let field = |name: &str| rule.get(name).map(text_of).unwrap_or_default();
        let queue = rule.get("queue").and_then(Value::as_str);
        let queue = queue.map(|queue| QueueName::from_api(Some(queue), None).to_string());
        let queue = queue.unwrap_or_else(|| field("queue_glob"));
        rows.add([field("name"), queue, field("running_max"), rate(rule), field("per")]);
    }
    rows
}

/// The options as the API takes them. Null stands for an option that was not given.
fn rule_of(limits: &Limits) -> anyhow::Result<Value> {
    let Limits { queue, queue_glob, per, running_max, rate, burst, per_shard } = limits;
    let text = |queue: &QueueName| {
        let message = format!("queue {queue}: a constraint names queues whose names are text");
        let text = str::from_utf8(queue.bytes()).map(str::to_owned);
        text.map_err(|_| Failure::with(Code::Usage, message))
    };
    let queue = queue.as_ref().map(text).transpose()?;
    let rate = rate
        .map(|Rate { count, per_ms }| json!({ "count": count, "per_ms": per_ms, "burst": burst }));
    let mut rule = json!({
        "queue": queue, "queue_glob": queue_glob, "per": per, "running_max": running_max,
        "rate": rate,
    });
    // Older servers do not know the field.
    if *per_shard {
        rule["per_shard"] = true.into();
    }
    Ok(rule)
}

fn path(name: &str) -> String {
    format!("/api/v1/constraints/{}", encoded(name))
}

fn about(name: &str) -> String {
    format!("constraint {name}")
}

/// `10 per 1000ms, burst 20`
fn rate(rule: &Value) -> String {
    let Some(rate) = rule.get("rate").filter(|rate| rate.is_object()) else {
        return String::new();
    };
    let field = |name: &str| rate.get(name).map(text_of).unwrap_or_default();
    format!("{} per {}ms, burst {}", field("count"), field("per_ms"), field("burst"))
}

/// The field with the server's notes on a constraint, for people.
const NOTES: &str = "notes";

/// Prints notes to standard error, so that they do not disturb programs that read the output.
fn print_notes(rule: &Value) {
    let notes = rule.get(NOTES).and_then(Value::as_array);
    for note in notes.into_iter().flatten().filter_map(Value::as_str) {
        eprintln!("note: {note}");
    }
}

fn print(rule: &Value, as_json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if as_json {
        return Ok(write_json(&mut out, rule)?);
    }
    let mut rows = Rows::new(&["field", "value"]);
    let fields = rule.as_object().into_iter().flatten();
    for (name, value) in fields.filter(|(name, _)| *name != NOTES) {
        rows.add([name.replace('_', "-"), text_of(value)]);
    }
    Ok(rows.print(&mut out)?)
}
