//! `spindle add` and `spindle schedule`.

use std::io::{self, Write};

use bytes::Bytes;
use serde_json::{Map, Value};

use super::{
    batches, payload,
    server::Server,
    session::{AskError, NewJob},
    when::{now_ms, parse_when},
};
use crate::{
    cli::{AddArgs, Common, IfTaken, JobOptions, PayloadType, ScheduleArgs},
    exit::{Code, Failure},
    output::{id_json, write_line},
    queue_name::QueueName,
};

/// Adds a job and prints its id.
pub fn add(args: &AddArgs) -> anyhow::Result<Code> {
    let server = Server::of(&args.common)?;
    let payload = payload::read(&args.payload, server.payload_bytes_max())?;
    add_one(&server, &args.common, new_job(&args.queue, &args.options, payload))
}

/// Adds a job for later and prints its id.
pub fn schedule(args: &ScheduleArgs) -> anyhow::Result<Code> {
    let time_ms = parse_when(&args.time, now_ms())
        .map_err(|reason| Failure::with(Code::Usage, format!("`{}`: {reason}", args.time)))?;
    let server = Server::of(&args.common)?;
    let payload = payload::read(&args.payload, server.payload_bytes_max())?;
    let job = new_job(&args.queue, &args.options, payload);
    add_one(&server, &args.common, NewJob { run_at_ms: Some(time_ms), ..job })
}

fn add_one(server: &Server, common: &Common, job: NewJob) -> anyhow::Result<Code> {
    let added = server.open()?.add(&job);
    let id = added.map_err(|error| refused(server, error, &job))?;
    write_id(&mut io::stdout().lock(), common, &job.queue, &id)?;
    Ok(Code::Ok)
}

/// The job that the options describe.
pub fn new_job(queue: &QueueName, options: &JobOptions, payload: Bytes) -> NewJob {
    let if_taken = options.if_taken.unwrap_or(IfTaken::Reject);
    NewJob {
        queue: queue.clone(),
        payload,
        payload_type: options.payload_type.unwrap_or(PayloadType::Bytes),
        ttr_ms: options.ttr,
        ttl_ms: options.ttl,
        priority: options.priority,
        attempts_max: options.max_attempts,
        fails_max: options.tries,
        backoff: options.backoff,
        run_at_ms: None,
        tags: options.tags.clone(),
        fair_key: options.fair_key.clone(),
        unique: options.unique.clone().map(|key| (key, if_taken)),
        after: options.after.clone(),
        on_dead: options.on_dead,
        batch: options.batch,
        id: options.id,
    }
}

/// A job that has no id yet, in an error.
pub fn about(job: &NewJob) -> String {
    match &job.id {
        Some(id) => format!("job {id}"),
        None => format!("job for queue {}", job.queue),
    }
}

/// Why a job was not added.
pub fn refused(server: &Server, error: AskError, job: &NewJob) -> anyhow::Error {
    match (&error, job.batch) {
        // Its batch is the only thing that can be missing.
        (AskError::NotFound, Some(batch)) => server.explain(error, &batches::about(batch)),
        _ => server.explain(error, &about(job)),
    }
}

/// Writes the id of an added job.
pub fn write_id(
    out: &mut impl Write,
    common: &Common,
    queue: &QueueName,
    id: &str,
) -> io::Result<()> {
    if common.json {
        let mut object = Map::new();
        object.insert("id".to_owned(), id_json(id));
        queue.put(&mut object, "queue");
        return write_line(out, Value::Object(object));
    }
    write_line(out, id)
}
