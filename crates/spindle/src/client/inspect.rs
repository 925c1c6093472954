//! `spindle job`, `jobs`, `queues` and `delete`.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::{
    bulk::Bulk,
    native::Native,
    server::Server,
    session::{AskError, Wanted},
    view::{Job, text_of},
};
use crate::{
    cli::{DeleteArgs, JobArgs, JobStatus, JobsArgs, QueuesArgs},
    exit::Code,
    output::{Rows, preview, write_line},
    quantity::Written,
};

/// How much of a payload a list shows.
const PREVIEW_LETTERS: usize = 40;

/// Shows a job.
pub fn job(args: &JobArgs) -> anyhow::Result<Code> {
    let server = Server::of(&args.common)?;
    let asked = server.open()?.job(args.id);
    let job = asked.map_err(|error| server.told(error, &format!("job {}", args.id)))?;
    let mut out = io::stdout().lock();
    if args.common.json {
        write_json(&mut out, &job.with_texts())?;
    } else {
        print_job(&job, &mut out)?;
    }
    Ok(Code::Ok)
}

/// Prints a job, field by field.
fn print_job(job: &Job, out: &mut impl Write) -> anyhow::Result<()> {
    let mut rows = Rows::new(&["field", "value"]);
    let mut add = |name: &str, value: String| rows.add([name.to_owned(), value]);
    let most = |max: Option<u32>| match max {
        None | Some(0) => "no limit".to_owned(),
        Some(max) => max.to_string(),
    };
    let length = |ms: u64| Written(ms).to_string();
    add("id", job.id_text());
    add("queue", job.queue_text());
    add("status", job.status.clone());
    add("priority", job.priority.to_string());
    add("attempts", job.attempts.to_string());
    add("attempts-max", most(job.attempts_max));
    add("fails", job.fails.to_string());
    add("fails-max", most(Some(job.fails_max.unwrap_or(1))));
    job.ttr_ms.into_iter().for_each(|ms| add("ttr", length(ms)));
    job.ttl_ms.into_iter().for_each(|ms| add("ttl", length(ms)));
    add("created", job.created_at.clone());
    job.run_at.iter().for_each(|time| add("time", time.clone()));
    for (name, value) in job.more.iter().filter(|(_, value)| is_told(value)) {
        add(&name.replace('_', "-"), shown(value));
    }
    if let Some(outcome) = &job.result {
        add("success", outcome.success.to_string());
        for (name, text) in
            [("message", &outcome.message), ("error", &outcome.error), ("code", &outcome.code)]
        {
            if !text.is_empty() {
                add(name, text.clone());
            }
        }
        add("result", preview(&outcome.result_bytes()?, usize::MAX));
    }
    add("payload-bytes", job.payload_bytes.to_string());
    if let Some(payload) = job.payload_bytes()? {
        add("payload", preview(&payload, usize::MAX));
    }
    Ok(rows.print(out)?)
}

/// What says something only where it is, and not by being there.
fn is_told(value: &Value) -> bool {
    !value.is_null() && !value.as_array().is_some_and(Vec::is_empty)
}

fn shown(value: &Value) -> String {
    match value {
        Value::Array(items) if items.iter().all(Value::is_string) => {
            let words: Vec<String> = items.iter().map(text_of).collect();
            words.join(", ")
        }
        other => text_of(other),
    }
}

/// Lists jobs.
pub fn jobs(args: &JobsArgs) -> anyhow::Result<Code> {
    let server = Server::of(&args.common)?;
    let scheduled = args.scheduled.then_some(JobStatus::Scheduled);
    let wanted = Wanted {
        queue: args.queue.clone(),
        statuses: args.filter.status.iter().copied().chain(scheduled).collect(),
        filters: args.filter.fields(),
        offset: args.offset,
        limit: args.limit,
    };
    let about = args.queue.as_ref().map_or("jobs".to_owned(), |queue| format!("queue {queue}"));
    let jobs = server.open()?.jobs(&wanted).map_err(|error| server.told(error, &about))?;
    let mut out = io::stdout().lock();
    if args.common.json {
        jobs.into_iter().try_for_each(|job| write_json(&mut out, &job.with_texts()))?;
        return Ok(Code::Ok);
    }
    let columns = ["id", "queue", "status", "priority", "attempts", "fails", "time", "payload"];
    let mut rows = Rows::new(&columns);
    for job in &jobs {
        let payload = match job.payload_bytes()? {
            Some(payload) => preview(&payload, PREVIEW_LETTERS),
            None => format!("({} bytes)", job.payload_bytes),
        };
        rows.add([
            job.id_text(),
            job.queue_text(),
            job.status.clone(),
            job.priority.to_string(),
            job.attempts.to_string(),
            job.fails.to_string(),
            job.run_at.clone().unwrap_or_else(|| job.created_at.clone()),
            payload,
        ]);
    }
    rows.print(&mut out)?;
    Ok(Code::Ok)
}

/// Lists the queues.
pub fn queues(args: &QueuesArgs) -> anyhow::Result<Code> {
    let server = Server::of(&args.common)?;
    let queues = server.open()?.queues().map_err(|error| server.told(error, "queues"))?;
    let mut out = io::stdout().lock();
    if args.common.json {
        queues.iter().try_for_each(|queue| write_json(&mut out, queue))?;
        return Ok(Code::Ok);
    }
    // Workq tells of ready and scheduled jobs alone.
    let tells_all = queues.iter().any(|queue| queue.jobs.leased.is_some());
    let columns = ["queue", "ready", "scheduled", "leased", "parked", "done", "dead", "paused"];
    let told = if tells_all { columns.len() } else { 3 };
    let mut rows = Rows::new(columns.get(..told).unwrap_or(&columns));
    for queue in &queues {
        let jobs = &queue.jobs;
        let others = [jobs.leased, jobs.parked, jobs.done, jobs.dead];
        let others = others.map(|count| count.map(|count| count.to_string()).unwrap_or_default());
        let paused = if queue.paused == Some(true) { "paused" } else { "" };
        let first = [queue.name_text(), jobs.ready.to_string(), jobs.scheduled.to_string()];
        let all = first.into_iter().chain(others).chain([paused.to_owned()]);
        rows.add(all.take(told));
    }
    rows.print(&mut out)?;
    Ok(Code::Ok)
}

/// Deletes jobs. One that is not there does not keep the others from going.
pub fn delete(args: &DeleteArgs) -> anyhow::Result<Code> {
    let selection = &args.selection;
    Bulk::check(&selection.filter, !selection.all_matching)?;
    if selection.all_matching {
        let native = Native::among(&args.common)?;
        return Bulk::of(selection, "delete").run(&native, args.common.json);
    }
    let server = Server::of(&args.common)?;
    let mut session = server.open()?;
    let mut code = Code::Ok;
    let mut out = io::stdout().lock();
    for &id in &selection.ids {
        let deleted = match session.delete(id) {
            Ok(()) => true,
            Err(AskError::NotFound) => {
                eprintln!("error: there is no job {id}");
                code = Code::NotFound;
                false
            }
            Err(error) => return Err(server.told(error, &format!("job {id}"))),
        };
        if args.common.json {
            write_line(&mut out, json!({ "id": id.to_string(), "deleted": deleted }))?;
        }
    }
    Ok(code)
}

/// Prints something as one line of JSON.
pub fn write_json(out: &mut impl Write, told: &impl serde::Serialize) -> io::Result<()> {
    let line = serde_json::to_string(told).map_err(io::Error::other)?;
    write_line(out, line)
}
