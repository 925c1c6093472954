//! `spindle queue`: shows a queue and changes its settings.

use std::{io, iter, slice};

use serde_json::{Map, Value, json};
use spindle_client::http::{Method, header};

use super::{
    native::Native,
    session::AskError,
    times::{lasting, with_distance},
    view::{Queue, text_of},
    web::ApiRequest,
};
use crate::{
    cli::{self, BytesType, FairBy, QueueArgs, QueueCommand, QueueSettings, RetryWait, Setting},
    exit::Code,
    output::{Rows, print_all, write_json},
    quantity::Written,
    queue_name::QueueName,
};

/// How often a change is tried again because somebody else changed the settings in between.
const TRIES: usize = 20;

/// Runs `spindle queue`.
pub fn queue(args: &QueueArgs) -> anyhow::Result<Code> {
    match &args.command {
        QueueCommand::Show { name, native } => show(name, native),
        QueueCommand::Set { name, settings, native } => set(name, settings, native),
    }
}

fn show(name: &QueueName, args: &cli::Native) -> anyhow::Result<Code> {
    let native = Native::of(args)?;
    let queue: Queue = native.ask(ApiRequest::get(&name.path()), &about(name))?;
    print_all(slice::from_ref(&queue), args.json, || rows(&queue))
}

fn rows(queue: &Queue) -> Rows {
    let mut rows = Rows::new(&["field", "value"]);
    let mut add = |name: &str, value: String| rows.add([name.to_owned(), value]);
    add("queue", queue.queue_name().to_string());
    add("paused", if queue.paused == Some(true) { "yes" } else { "no" }.to_owned());
    for (status, count) in queue.jobs.by_status() {
        add(status, count.to_string());
    }
    let more = |name: &str| queue.more.get(name).filter(|value| !value.is_null());
    if let Some(age_ms) = more("oldest_ready_age_ms").and_then(Value::as_u64) {
        add("oldest-ready", lasting(age_ms));
    }
    add("waiting-workers", more("waiting_leases").map(text_of).unwrap_or_default());
    let asked =
        more("last_asked_at").map(|time| with_distance(&text_of(time), spindle_client::now()));
    add("last-asked", asked.unwrap_or_else(|| "never".to_owned()));
    let none = Map::new();
    let settings = more("settings").and_then(Value::as_object).unwrap_or(&none);
    for (name, field, written) in SETTINGS {
        let value = settings.get(field).filter(|value| !value.is_null());
        add(name, value.map_or("default".to_owned(), written));
    }
    rows
}

/// A setting's name here and in the API, and how its value is written.
type Shown = (&'static str, &'static str, fn(&Value) -> String);

const SETTINGS: [Shown; 12] = [
    ("tries", "fails_max", limit),
    ("max-attempts", "attempts_max", limit),
    ("backoff", "backoff", wait),
    ("ttr", "ttr_default_ms", time),
    ("keep", "keep_ms", time),
    ("keep-dead", "keep_dead_ms", time),
    ("max-jobs", "jobs_max", text_of),
    ("max-bytes", "bytes_max", text_of),
    ("max-finished", "finished_max", text_of),
    ("bytes-type", "bytes_type", text_of),
    ("aging", "aging_ms", time),
    ("fair", "fair", fair),
];

/// The field that the keys come from, and the keys that have weights: `/tenant gold=5`.
fn fair(value: &Value) -> String {
    let by = value["field"].as_str().unwrap_or("key");
    let weights = value["weights"].as_object().into_iter().flatten();
    let weights = weights.map(|(key, weight)| format!(" {key}={weight}"));
    iter::once(by.to_owned()).chain(weights).collect()
}

fn limit(value: &Value) -> String {
    if *value == 0 { "no limit".to_owned() } else { text_of(value) }
}

fn time(value: &Value) -> String {
    value.as_u64().map_or_else(|| text_of(value), |ms| Written(ms).to_string())
}

fn wait(value: &Value) -> String {
    RetryWait::of_json(value).map_or_else(|| text_of(value), |wait| wait.to_string())
}

/// Reads the settings, changes those that are given, and puts them. Tries again if they have changed
/// in between.
fn set(name: &QueueName, settings: &QueueSettings, args: &cli::Native) -> anyhow::Result<Code> {
    let native = Native::of(args)?;
    let explain = |error| native.explain(error, &about(name));
    let mut tries = TRIES;
    let queue: Queue = loop {
        tries -= 1;
        match try_to_set(&native, name, settings) {
            Err(AskError::Refused { code: Some(code), .. })
                if code == "revision_mismatch" && tries > 0 => {}
            other => break other.map_err(explain)?,
        }
    };
    if args.json {
        write_json(&mut io::stdout().lock(), &queue)?;
    }
    Ok(Code::Ok)
}

fn try_to_set(
    native: &Native,
    name: &QueueName,
    settings: &QueueSettings,
) -> Result<Queue, AskError> {
    let path = name.path();
    let (mut wanted, condition) = match native.http().answer_in_full(ApiRequest::get(&path)) {
        Ok(answer) => {
            let mut queue: Map<String, Value> = answer.json()?;
            let wanted = match queue.remove("settings") {
                Some(Value::Object(settings)) => settings,
                _ => Map::new(),
            };
            let tag = answer.headers.get(header::ETAG).and_then(|tag| tag.to_str().ok());
            (wanted, tag.map(|tag| ("If-Match", tag.to_owned())))
        }
        Err(AskError::NotFound) => (Map::new(), Some(("If-None-Match", "*".to_owned()))),
        Err(error) => return Err(error),
    };
    for (field, value) in changes(settings) {
        match value {
            Some(value) => wanted.insert(field.to_owned(), value),
            None => wanted.remove(field),
        };
    }
    change_fair(&mut wanted, settings);
    let path = format!("{path}/settings");
    let mut asking = ApiRequest::of(Method::PUT, &path).with(&wanted);
    asking.headers.extend(condition);
    native.http().ask(asking)
}

/// The settings that are given, by the API's names. `None`: the setting is removed.
fn changes(settings: &QueueSettings) -> impl Iterator<Item = (&'static str, Option<Value>)> {
    let bytes_type = settings.bytes_type.map(|kind| match kind {
        BytesType::Json => Setting(Some(json!("json"))),
        BytesType::Msgpack => Setting(Some(json!("msgpack"))),
        BytesType::None => Setting(None),
    });
    let QueueSettings { tries, max_attempts, backoff, ttr, keep, keep_dead, .. } = settings;
    let QueueSettings { max_jobs, max_bytes, max_finished, .. } = settings;
    let limits = [max_jobs, max_bytes, max_finished];
    let said = [tries, max_attempts, backoff, ttr, keep, keep_dead].into_iter().chain(limits);
    let said = said.map(Clone::clone).chain([bytes_type, settings.aging.clone()]);
    let named = SETTINGS.into_iter().zip(said);
    named.filter_map(|((_, field, _), setting)| Some((field, setting?.0)))
}

/// Weights that are not given stay as they are.
fn change_fair(wanted: &mut Map<String, Value>, settings: &QueueSettings) {
    let QueueSettings { fair, weights, .. } = settings;
    if *fair == Some(FairBy::Nothing) {
        wanted.remove("fair");
    }
    if weights.is_empty() && matches!(fair, None | Some(FairBy::Nothing)) {
        return;
    }
    let mut object = wanted.remove("fair").filter(Value::is_object).unwrap_or_else(|| json!({}));
    match fair {
        Some(FairBy::Field(field)) => object["field"] = json!(field),
        Some(FairBy::Key) => object["field"] = Value::Null,
        Some(FairBy::Nothing) | None => {}
    }
    if !weights.is_empty() && !object["weights"].is_object() {
        object["weights"] = json!({});
    }
    for (key, weight) in weights {
        object["weights"][key] = json!(weight);
    }
    wanted.insert("fair".to_owned(), object);
}

fn about(name: &QueueName) -> String {
    format!("queue {name}")
}
