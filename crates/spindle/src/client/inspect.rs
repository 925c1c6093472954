//! `spindle job`, `jobs`, `queues` and `delete`.

use std::io;

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use spindle_workq::{
    client::ClientError,
    wire::{JobInfo, JobState},
};

use super::{add::about, server::Server};
use crate::{
    cli::{DeleteArgs, JobArgs, JobsArgs, QueuesArgs},
    exit::Code,
    output::{Rows, preview, put_bytes, write_line},
    quantity::Written,
};

/// The most that one request lists.
const PAGE: u32 = 100;
/// How much of a payload a list shows.
const PREVIEW_LETTERS: usize = 40;

/// Shows a job.
pub fn job(args: &JobArgs) -> anyhow::Result<Code> {
    let server = Server::of(&args.common);
    let asked = server.connect()?.inspect_job(args.id);
    let job = asked.map_err(|error| server.told(error, &about(args.id)))?;
    let mut out = io::stdout().lock();
    if args.common.json {
        write_line(&mut out, job_object(&job))?;
        return Ok(Code::Ok);
    }
    let mut rows = Rows::new(&["field", "value"]);
    let count = |max: u32| if max == 0 { "no limit".to_owned() } else { max.to_string() };
    rows.add(["id".to_owned(), job.id.to_string()]);
    rows.add(["queue".to_owned(), name(&job.name)]);
    rows.add(["state".to_owned(), state(&job).to_owned()]);
    rows.add(["priority".to_owned(), job.priority.to_string()]);
    rows.add(["attempts".to_owned(), job.attempts.to_string()]);
    rows.add(["max-attempts".to_owned(), count(job.attempts_max)]);
    rows.add(["fails".to_owned(), job.fails.to_string()]);
    rows.add(["max-fails".to_owned(), job.fails_max.max(1).to_string()]);
    rows.add(["ttr".to_owned(), Written(job.ttr_ms).to_string()]);
    rows.add(["ttl".to_owned(), Written(job.ttl_ms).to_string()]);
    rows.add(["created".to_owned(), time(job.created_ms)]);
    if let Some(time_ms) = job.time_ms {
        rows.add(["time".to_owned(), time(time_ms)]);
    }
    rows.add(["payload-bytes".to_owned(), job.payload.len().to_string()]);
    rows.add(["payload".to_owned(), preview(&job.payload, usize::MAX)]);
    rows.print(&mut out)?;
    Ok(Code::Ok)
}

/// Lists the jobs of a queue.
pub fn jobs(args: &JobsArgs) -> anyhow::Result<Code> {
    let server = Server::of(&args.common);
    let mut client = server.connect()?;
    let mut jobs = Vec::new();
    while jobs.len() < args.limit as usize {
        let listed = jobs.len() as u32;
        let (offset, limit) = (args.offset.saturating_add(listed), (args.limit - listed).min(PAGE));
        let page = if args.scheduled {
            client.inspect_scheduled_jobs(&args.queue, offset, limit)
        } else {
            client.inspect_jobs(&args.queue, offset, limit)
        };
        let page = page.map_err(|error| server.told(error, &format!("queue {}", args.queue)))?;
        let is_last = page.len() < limit as usize;
        jobs.extend(page);
        if is_last {
            break;
        }
    }
    let mut out = io::stdout().lock();
    if args.common.json {
        jobs.iter().try_for_each(|job| write_line(&mut out, job_object(job)))?;
        return Ok(Code::Ok);
    }
    let columns = ["id", "state", "priority", "attempts", "fails", "time", "payload"];
    let mut rows = Rows::new(&columns);
    for job in &jobs {
        rows.add([
            job.id.to_string(),
            state(job).to_owned(),
            job.priority.to_string(),
            job.attempts.to_string(),
            job.fails.to_string(),
            time(job.time_ms.unwrap_or(job.created_ms)),
            preview(&job.payload, PREVIEW_LETTERS),
        ]);
    }
    rows.print(&mut out)?;
    Ok(Code::Ok)
}

/// Lists the queues.
pub fn queues(args: &QueuesArgs) -> anyhow::Result<Code> {
    let server = Server::of(&args.common);
    let mut client = server.connect()?;
    let mut queues = Vec::new();
    loop {
        let offset = u32::try_from(queues.len()).unwrap_or(u32::MAX);
        let asked = client.inspect_queues(offset, PAGE);
        let page = asked.map_err(|error| server.told(error, "queues"))?;
        let is_last = page.len() < PAGE as usize;
        queues.extend(page);
        if is_last {
            break;
        }
    }
    let mut out = io::stdout().lock();
    if args.common.json {
        for queue in &queues {
            let (ready, scheduled) = (queue.ready, queue.scheduled);
            let queue = name(&queue.name);
            let line = json!({ "queue": queue, "ready": ready, "scheduled": scheduled });
            write_line(&mut out, line)?;
        }
        return Ok(Code::Ok);
    }
    let mut rows = Rows::new(&["queue", "ready", "scheduled"]);
    for queue in &queues {
        rows.add([name(&queue.name), queue.ready.to_string(), queue.scheduled.to_string()]);
    }
    rows.print(&mut out)?;
    Ok(Code::Ok)
}

/// Deletes jobs. One that is not there does not keep the others from going.
pub fn delete(args: &DeleteArgs) -> anyhow::Result<Code> {
    let server = Server::of(&args.common);
    let mut client = server.connect()?;
    let mut code = Code::Ok;
    let mut out = io::stdout().lock();
    for &id in &args.ids {
        let deleted = match client.delete(id) {
            Ok(()) => true,
            Err(ClientError::NotFound) => {
                eprintln!("error: there is no job {id}");
                code = Code::NotFound;
                false
            }
            Err(error) => return Err(server.told(error, &about(id))),
        };
        if args.common.json {
            write_line(&mut out, json!({ "id": id.to_string(), "deleted": deleted }))?;
        }
    }
    Ok(code)
}

fn job_object(job: &JobInfo) -> Value {
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| object.insert(name.to_owned(), value);
    put("id", json!(job.id.to_string()));
    put("queue", json!(name(&job.name)));
    put("state", json!(state(job)));
    put("priority", json!(job.priority));
    put("attempts", json!(job.attempts));
    put("attempts_max", limit(job.attempts_max));
    put("fails", json!(job.fails));
    put("fails_max", json!(job.fails_max.max(1)));
    put("ttr_ms", json!(job.ttr_ms));
    put("ttl_ms", json!(job.ttl_ms));
    put("created", json!(time(job.created_ms)));
    put("time", job.time_ms.map_or(Value::Null, |time_ms| json!(time(time_ms))));
    put_bytes(&mut object, "payload", &job.payload);
    Value::Object(object)
}

/// The protocol's 0 is nobody's idea of a maximum.
fn limit(max: u32) -> Value {
    if max == 0 { Value::Null } else { json!(max) }
}

/// The protocol numbers new jobs alike whether they wait for their time or for a worker.
fn state(job: &JobInfo) -> &'static str {
    match job.state {
        JobState::New => match job.time_ms {
            Some(time_ms) if time_ms > super::when::now_ms() => "scheduled",
            _ => "ready",
        },
        JobState::Pending => "ready again",
        JobState::Leased => "leased",
        JobState::Completed => "done",
        JobState::Failed => "dead",
    }
}

fn name(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

fn time(time_ms: u64) -> String {
    let second = i64::try_from(time_ms / 1000).unwrap_or(i64::MAX);
    Timestamp::from_second(second).unwrap_or(Timestamp::MAX).to_string()
}
