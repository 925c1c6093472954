//! `spindle purge`.

use std::io;

use serde_json::{Map, Value};

use super::{
    confirm::{can_be_asked, is_meant},
    native::Native,
    view::Queue,
    web::ApiRequest,
};
use crate::{
    cli::PurgeArgs,
    exit::Code,
    output::{jobs_counted, write_line},
};

/// Deletes a queue's ready and scheduled jobs, or says how many there are.
pub fn purge(args: &PurgeArgs) -> anyhow::Result<Code> {
    let native = Native::of(&args.native)?;
    let about = format!("queue {}", args.queue);
    let path = args.queue.path();
    // A mistyped name is an error, not a queue without jobs.
    let queue: Queue = native.ask(ApiRequest::get(&path), &about)?;
    let waiting = queue.jobs.ready + queue.jobs.scheduled;
    if args.dry_run {
        return print(args, "matching", waiting, "would be deleted");
    }
    if waiting > 0 && !args.yes && can_be_asked() {
        let jobs = jobs_counted(waiting).replace(" job", " ready and scheduled job");
        if !is_meant(&format!("Delete {jobs} of queue {}?", args.queue))? {
            return Ok(Code::Error);
        }
    }
    let answer: Value = native.ask(ApiRequest::post(&format!("{path}/purge")), &about)?;
    let deleted = answer.get("deleted").and_then(Value::as_u64).unwrap_or_default();
    print(args, "deleted", deleted, "deleted")
}

fn print(args: &PurgeArgs, field: &str, count: u64, what: &str) -> anyhow::Result<Code> {
    let mut out = io::stdout().lock();
    if args.native.json {
        let mut object = Map::new();
        args.queue.put(&mut object, "queue");
        object.insert(field.to_owned(), count.into());
        write_line(&mut out, Value::Object(object))?;
    } else {
        let jobs = if count == 1 { "job" } else { "jobs" };
        write_line(&mut out, format_args!("{count} {jobs} {what}"))?;
    }
    Ok(Code::Ok)
}
