//! `spindle add` and `spindle schedule`.

use std::io::{self, Write};

use bytes::Bytes;
use serde_json::json;
use spindle_workq::wire::{NewJob, Uuid};

use super::{
    lines::add_lines,
    payload,
    server::{Server, fresh_id},
    when::{now_ms, parse_when},
};
use crate::{
    cli::{AddArgs, Common, JobOptions, ScheduleArgs},
    exit::{Code, Failure},
    output::write_line,
};

/// Adds a job, or one per line, and prints each id.
pub fn add(args: &AddArgs) -> anyhow::Result<Code> {
    if let Some(path) = &args.lines {
        return add_lines(args, path);
    }
    let job = new_job(&args.queue, &args.options, payload::read(&args.payload)?);
    let server = Server::of(&args.common);
    server.connect()?.add(&job).map_err(|error| server.told(error, &about(job.id)))?;
    print_id(&args.common, &args.queue, job.id)?;
    Ok(Code::Ok)
}

/// Adds a job for later and prints its id.
pub fn schedule(args: &ScheduleArgs) -> anyhow::Result<Code> {
    let time_ms = parse_when(&args.time, now_ms())
        .map_err(|reason| Failure::with(Code::Usage, format!("`{}`: {reason}", args.time)))?;
    let job = new_job(&args.queue, &args.options, payload::read(&args.payload)?);
    let server = Server::of(&args.common);
    let added = server.connect()?.schedule(&job, time_ms);
    added.map_err(|error| server.told(error, &about(job.id)))?;
    print_id(&args.common, &args.queue, job.id)?;
    Ok(Code::Ok)
}

/// The job that the options describe.
pub fn new_job(queue: &str, options: &JobOptions, payload: Bytes) -> NewJob {
    NewJob {
        id: options.id.unwrap_or_else(fresh_id),
        name: Bytes::copy_from_slice(queue.as_bytes()),
        ttr_ms: options.ttr,
        ttl_ms: options.ttl,
        priority: options.priority,
        attempts_max: options.max_attempts.unwrap_or(0),
        fails_max: options.max_fails.unwrap_or(0),
        payload,
    }
}

/// A job in an error.
pub fn about(id: Uuid) -> String {
    format!("job {id}")
}

/// Prints the id of an added job.
fn print_id(common: &Common, queue: &str, id: Uuid) -> io::Result<()> {
    write_id(&mut io::stdout().lock(), common, queue, id)
}

/// Writes the id of an added job.
pub fn write_id(out: &mut impl Write, common: &Common, queue: &str, id: Uuid) -> io::Result<()> {
    if common.json {
        return write_line(out, json!({ "id": id.to_string(), "queue": queue }));
    }
    write_line(out, id)
}
