//! `spindle import --from`: jobs of a running server of another kind.
//!
//! - `beanstalkd`, `gearman`, `workq`, `sidekiq`, `bullmq`: those servers, and those libraries in a
//!   real Redis
//! - `redis`: that Redis
//! - `held`: imports through connections that are held up at a certain request

mod beanstalkd;
mod bullmq;
mod gearman;
mod held;
mod redis;
mod sidekiq;
mod workq;

use std::{collections::BTreeMap, path::Path};

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::{Value, json, value::RawValue};

use crate::{
    fake_workq::stderr,
    native::{at, object, output_of},
    serve::Served,
};

/// Imports from a server of a kind: the exit code, the counts, and what was said.
fn import_from(served: &Served, kind: &str, address: &str, more: &[&str]) -> (i32, Value, String) {
    let arguments = ["import", "--from", kind, address, "--json"];
    let output = at(served, &[&arguments[..], more].concat()).output().unwrap();
    let said = String::from_utf8(output.stdout.clone()).unwrap();
    let counts = said.lines().last().map_or(Value::Null, object);
    (output.status.code().unwrap(), counts, stderr(&output))
}

/// The counts of an import: these, and 0 of everything else.
fn counts(others: &[(&str, u64)]) -> Value {
    let mut counts = json!({ "imported": 0, "existing": 0, "refused": 0, "unreadable": 0,
                             "gone": 0, "at_work": 0, "left": 0 });
    for (name, count) in others {
        counts[*name] = (*count).into();
    }
    counts
}

/// The jobs of a queue, in the order of their numbers.
fn jobs(served: &Served, queue: &str) -> Vec<Value> {
    let exported = output_of(served, &["export", "-"]);
    let lines = exported.lines().map(|line| {
        let mut job = object(line);
        // JSON exactly as it is there.
        let raw: BTreeMap<&str, &RawValue> = serde_json::from_str(line).unwrap();
        if let Some(payload) = raw.get("payload") {
            job["payload"] = payload.get().into();
        }
        job
    });
    lines.filter(|line| line["type"] == "job" && line["queue"] == queue).collect()
}

/// How often each payload is there in a queue.
fn payloads(served: &Served, queue: &str) -> BTreeMap<String, usize> {
    let mut payloads = BTreeMap::new();
    jobs(served, queue).iter().for_each(|job| *payloads.entry(payload(job)).or_default() += 1);
    payloads
}

fn payload(job: &Value) -> String {
    if let Some(text) = job["payload_base64"].as_str() {
        return String::from_utf8(BASE64_STANDARD.decode(text).unwrap()).unwrap();
    }
    job["payload"].as_str().unwrap().to_owned()
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
