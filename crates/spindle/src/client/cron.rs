//! `spindle cron`: schedules.

use std::{fs, io};

use anyhow::Context as _;
use clap::ValueEnum;
use serde_json::{Map, Value, json};
use spindle_client::http::Method;
use spindle_core::schedule::Schedule;
use spindle_schedule::Timing;

use super::{
    native::Native,
    payload,
    view::text_of,
    web::{ApiRequest, encoded, payload_fields},
    when::{now_ms, rfc3339},
};
use crate::{
    cli::{CronApplyArgs, CronArgs, CronCommand, CronNamed, CronPreviewArgs, CronSetArgs},
    exit::{Code, Failure},
    output::{Rows, print_all, write_json, write_line},
    queue_name::QueueName,
};

/// Runs `spindle cron`.
pub fn cron(args: &CronArgs) -> anyhow::Result<Code> {
    match &args.command {
        CronCommand::List { native } => {
            let schedules = Native::of(native)?.list("/api/v1/schedules", "schedules")?;
            print_all(&schedules, native.json, || rows(&schedules))?;
        }
        CronCommand::Show { name, native } => {
            let schedule: Value =
                Native::of(native)?.ask(ApiRequest::get(&path(name)), &about(name))?;
            print(&schedule, native.json)?;
        }
        CronCommand::Set(args) => set(args)?,
        CronCommand::Remove(CronNamed { name, native }) => {
            let removal = path(name);
            let removal = ApiRequest::of(Method::DELETE, &removal);
            Native::of(native)?.answer(removal, &about(name))?;
        }
        CronCommand::Pause(named) => set_paused(named, "pause")?,
        CronCommand::Resume(named) => set_paused(named, "resume")?,
        CronCommand::Run(named) => run(named)?,
        CronCommand::Preview(args) => preview(args)?,
        CronCommand::Apply(args) => apply(args)?,
    }
    Ok(Code::Ok)
}

fn path(name: &str) -> String {
    format!("/api/v1/schedules/{}", encoded(name))
}

fn about(name: &str) -> String {
    format!("schedule {name}")
}

fn set(args: &CronSetArgs) -> anyhow::Result<()> {
    let native = Native::of(&args.native)?;
    let path = path(&args.name);
    let body = body_of(args, native.payload_bytes_max())?;
    let asking = ApiRequest::of(Method::PUT, &path).with(&body);
    let schedule: Value = native.ask(asking, &about(&args.name))?;
    if args.native.json { print(&schedule, true) } else { Ok(()) }
}

/// The options as the API takes them. Null stands for an option that was not given.
fn body_of(args: &CronSetArgs, payload_bytes_max: usize) -> anyhow::Result<Value> {
    let word = |value: Option<clap::builder::PossibleValue>| {
        value.map(|value| value.get_name().to_owned())
    };
    let mut job = Map::new();
    args.queue.put(&mut job, "queue");
    if let Some(payload) = &args.payload {
        let payload = payload::read(payload, payload_bytes_max)?;
        let fields = payload_fields(&payload, args.payload_type)
            .map_err(|error| Failure::with(Code::Usage, error.to_string()))?;
        let fields = serde_json::to_value(fields).context("the payload is no JSON")?;
        job.extend(fields.as_object().into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())));
    }
    if let Some(priority) = args.priority {
        job.insert("priority".to_owned(), priority.into());
    }
    let said = [
        ("expression", Some(json!(args.expression))),
        ("zone", args.zone.as_ref().map(|zone| json!(zone))),
        ("job", Some(Value::Object(job))),
        ("overlap", word(args.overlap.and_then(|it| it.to_possible_value())).map(Value::from)),
        ("missed", word(args.missed.and_then(|it| it.to_possible_value())).map(Value::from)),
        ("missed_max", args.missed_max.map(Value::from)),
        ("jitter_ms", args.jitter.map(Value::from)),
        ("start_at", args.start.as_ref().map(|at| json!(at))),
        ("end_at", args.end.as_ref().map(|at| json!(at))),
        ("paused", args.paused.then_some(Value::Bool(true))),
    ];
    let said = said.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Ok(Value::Object(said.collect()))
}

fn set_paused(CronNamed { name, native }: &CronNamed, verb: &str) -> anyhow::Result<()> {
    let path = format!("{}/{verb}", path(name));
    let schedule: Value = Native::of(native)?.ask(ApiRequest::post(&path), &about(name))?;
    if native.json { print(&schedule, true) } else { Ok(()) }
}

fn run(CronNamed { name, native }: &CronNamed) -> anyhow::Result<()> {
    let path = format!("{}/run", path(name));
    let answer: Value = Native::of(native)?.ask(ApiRequest::post(&path), &about(name))?;
    let mut out = io::stdout().lock();
    if native.json {
        return Ok(write_json(&mut out, &answer)?);
    }
    Ok(write_line(&mut out, answer.get("job").map(text_of).unwrap_or_default())?)
}

/// Needs no server: the program has the same parser and zones as a server of its release.
fn preview(args: &CronPreviewArgs) -> anyhow::Result<()> {
    let schedule = Schedule {
        expression: args.expression.clone(),
        zone: args.zone.clone(),
        ..Schedule::default()
    };
    let usage =
        |error: spindle_schedule::TimingError| Failure::with(Code::Usage, error.to_string());
    let timing = Timing::of(&schedule).map_err(usage)?;
    let now_ms = now_ms();
    timing.first_after(now_ms).map_err(usage)?;
    let mut out = io::stdout().lock();
    for due in timing.all_after(now_ms).take(args.times.into()) {
        let at = rfc3339(due.due_ms);
        if args.json {
            write_json(&mut out, &json!({ "at": at }))?;
        } else {
            write_line(&mut out, at)?;
        }
    }
    Ok(())
}

fn apply(args: &CronApplyArgs) -> anyhow::Result<()> {
    let file = args.file.display();
    let text = fs::read_to_string(&args.file).with_context(|| format!("cannot read {file}"))?;
    let set = toml::from_str(&text)
        .map_err(|error| Failure::with(Code::Usage, format!("{file}: {error}")))?;
    let set = as_json(toml::Value::Table(set));
    let path = format!("/api/v1/schedules?dry_run={}", args.dry_run);
    let asking = ApiRequest::of(Method::PUT, &path).with(&set);
    let applied: Value = Native::of(&args.native)?.ask(asking, "schedules")?;
    let mut out = io::stdout().lock();
    if args.native.json {
        return Ok(write_json(&mut out, &applied)?);
    }
    for what in ["created", "changed", "removed"] {
        for name in applied.get(what).and_then(Value::as_array).into_iter().flatten() {
            write_line(&mut out, format_args!("{what} {}", text_of(name)))?;
        }
    }
    let unchanged = applied.get("unchanged").and_then(Value::as_u64).unwrap_or_default();
    Ok(write_line(&mut out, format_args!("{unchanged} unchanged"))?)
}

/// A value of a TOML file as the API takes it: a time is a text there.
fn as_json(value: toml::Value) -> Value {
    match value {
        toml::Value::String(text) => Value::from(text),
        toml::Value::Integer(number) => Value::from(number),
        toml::Value::Float(number) => Value::from(number),
        toml::Value::Boolean(is_so) => Value::from(is_so),
        toml::Value::Datetime(time) => Value::from(time.to_string()),
        toml::Value::Array(items) => items.into_iter().map(as_json).collect(),
        toml::Value::Table(fields) => {
            Value::Object(fields.into_iter().map(|(name, value)| (name, as_json(value))).collect())
        }
    }
}

fn rows(schedules: &[Value]) -> Rows {
    let mut rows = Rows::new(&["name", "expression", "zone", "queue", "next", "last", "state"]);
    for schedule in schedules {
        let text = |pointer: &str| schedule.pointer(pointer).map(text_of).unwrap_or_default();
        let name = |field: &str| schedule.pointer(field).and_then(Value::as_str);
        let queue = QueueName::from_api(name("/job/queue"), name("/job/queue_base64")).to_string();
        let is_paused = schedule.get("paused") == Some(&Value::Bool(true));
        let state = if is_paused { "paused".to_owned() } else { text("/last/outcome") };
        let [expression, zone] = ["/expression", "/zone"].map(text);
        rows.add([
            text("/name"),
            expression,
            zone,
            queue,
            text("/fires_at"),
            text("/last/due_at"),
            state,
        ]);
    }
    rows
}

fn print(schedule: &Value, as_json: bool) -> anyhow::Result<()> {
    let mut out = io::stdout().lock();
    if as_json {
        return Ok(write_json(&mut out, schedule)?);
    }
    let mut rows = Rows::new(&["field", "value"]);
    for (name, value) in schedule.as_object().into_iter().flatten() {
        rows.add([name.replace('_', "-"), text_of(value)]);
    }
    Ok(rows.print(&mut out)?)
}
