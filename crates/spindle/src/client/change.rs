//! `spindle retry`, `cancel`, `move`, `pause`, `resume` and `purge`.

use std::io;

use serde_json::{Map, Value, json};
use ureq::http::Method;

use super::{
    inspect::write_json,
    native::Native,
    payload,
    session::AskError,
    view::{Job, Queue},
    web::{Asking, payload_fields, queue_path},
};
use crate::{
    cli::{self, CancelArgs, JobName, MoveArgs, PayloadType, PurgeArgs, QueueArgs, RetryArgs},
    exit::{Code, whole},
    output::write_line,
};

/// Lets a job run again, with another payload if one is given.
pub fn retry(args: &RetryArgs) -> anyhow::Result<Code> {
    let native = Native::of(&args.native)?;
    let about = format!("job {}", args.id);
    let body = match &args.payload {
        None => Map::new(),
        Some(argument) => {
            let payload = payload::read(argument, native.payload_bytes_max())?;
            let kind = args.payload_type.unwrap_or(PayloadType::Bytes);
            let mut fields =
                payload_fields(&payload, kind).map_err(|error| native.told(error, &about))?;
            if fields.is_empty() {
                // No bytes are another payload too.
                fields.insert("payload_base64".to_owned(), json!(""));
            }
            fields
        }
    };
    let path = format!("/api/v1/jobs/{}/retry", args.id);
    let job: Job = native.ask(Asking::post(&path).with(&body), &about)?;
    if args.native.json {
        write_json(&mut io::stdout().lock(), &job.with_texts())?;
    }
    Ok(Code::Ok)
}

/// Ends jobs as dead.
pub fn cancel(args: &CancelArgs) -> anyhow::Result<Code> {
    for_each(&args.native, &args.ids, |native, id| {
        native.http().ask(Asking::post(&format!("/api/v1/jobs/{id}/cancel")))
    })
}

/// Moves waiting jobs to another queue.
pub fn move_to(args: &MoveArgs) -> anyhow::Result<Code> {
    let body = json!({ "queue": args.to });
    for_each(&args.native, &args.ids, |native, id| {
        let path = format!("/api/v1/jobs/{id}");
        native.http().ask(Asking::of(Method::PATCH, &path).with(&body))
    })
}

/// Changes one job after the other. One that will not be changed does not keep the others from it.
fn for_each(
    named: &cli::Native,
    ids: &[JobName],
    change: impl Fn(&Native, JobName) -> Result<Job, AskError>,
) -> anyhow::Result<Code> {
    let native = Native::of(named)?;
    let mut code = Code::Ok;
    let mut out = io::stdout().lock();
    for &id in ids {
        match change(&native, id) {
            Ok(job) if named.json => write_json(&mut out, &job.with_texts())?,
            Ok(_) => {}
            Err(error @ (AskError::NotFound | AskError::Refused { .. })) => {
                code = match error {
                    AskError::NotFound if code == Code::Ok => Code::NotFound,
                    AskError::NotFound => code,
                    _ => Code::Error,
                };
                eprintln!("error: {}", whole(&native.told(error, &format!("job {id}"))));
            }
            Err(error) => return Err(native.told(error, &format!("job {id}"))),
        }
    }
    Ok(code)
}

/// Gives out no more jobs of a queue.
pub fn pause(args: &QueueArgs) -> anyhow::Result<Code> {
    change_queue(args, "pause")
}

/// Gives out a queue's jobs again.
pub fn resume(args: &QueueArgs) -> anyhow::Result<Code> {
    change_queue(args, "resume")
}

fn change_queue(args: &QueueArgs, how: &str) -> anyhow::Result<Code> {
    let native = Native::of(&args.native)?;
    let path = format!("{}/{how}", queue_path(&args.queue));
    let queue: Queue = native.ask(Asking::post(&path), &format!("queue {}", args.queue))?;
    if args.native.json {
        write_json(&mut io::stdout().lock(), &queue)?;
    }
    Ok(Code::Ok)
}

/// Deletes a queue's ready and scheduled jobs, or says how many there are.
pub fn purge(args: &PurgeArgs) -> anyhow::Result<Code> {
    let native = Native::of(&args.native)?;
    let about = format!("queue {}", args.queue);
    let path = queue_path(&args.queue);
    let (told, count) = if args.dry_run {
        let queue: Queue = native.ask(Asking::get(&path), &about)?;
        let matching = queue.jobs.ready + queue.jobs.scheduled;
        (json!({ "queue": args.queue, "matching": matching }), matching)
    } else {
        let answer: Value = native.ask(Asking::post(&format!("{path}/purge")), &about)?;
        let deleted = answer.get("deleted").and_then(Value::as_u64).unwrap_or_default();
        (json!({ "queue": args.queue, "deleted": deleted }), deleted)
    };
    let mut out = io::stdout().lock();
    match (args.native.json, args.dry_run) {
        (true, _) => write_line(&mut out, told)?,
        (false, true) => write_line(&mut out, format_args!("{count} jobs would be deleted"))?,
        (false, false) => write_line(&mut out, format_args!("{count} jobs deleted"))?,
    }
    Ok(Code::Ok)
}
