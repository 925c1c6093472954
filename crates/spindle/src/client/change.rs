//! `spindle retry`, `cancel`, `pause` and `resume`.

use std::{
    io,
    time::{Duration, Instant},
};

use anyhow::Context;
use serde::{Deserialize, Serialize};

use super::{
    bulk::{Action, Bulk},
    native::Native,
    payload,
    session::AskError,
    view::{Job, Queue},
    web::{ApiRequest, PayloadFields, payload_fields},
};
use crate::{
    cli::{self, CancelArgs, JobName, PauseArgs, PayloadType, ResumeArgs, RetryArgs},
    exit::{Code, Failure, code_of, whole},
    output::write_json,
    queue_name::QueueName,
};

/// Lets a job run again, with another payload if one is given.
pub fn retry(args: &RetryArgs) -> anyhow::Result<Code> {
    let bulk = Bulk::of(&args.matching, Action::Retry)?;
    let native = Native::of(&args.native)?;
    if let Some(bulk) = bulk {
        return bulk.run(&native, args.native.json);
    }
    let id = args.id.context("name a job, or use --all-matching")?;
    let about = format!("job {id}");
    let body = match &args.payload {
        None => PayloadFields::default(),
        Some(argument) => {
            let payload = payload::read(argument, native.payload_bytes_max())?;
            let kind = args.payload_type.unwrap_or(PayloadType::Bytes);
            payload_fields(&payload, kind).map_err(|error| native.explain(error, &about))?
        }
    };
    let path = format!("/api/v1/jobs/{id}/retry");
    let job: Job = native.ask(ApiRequest::post(&path).with(&body), &about)?;
    if args.native.json {
        write_json(&mut io::stdout().lock(), &job.with_texts())?;
    }
    Ok(Code::Ok)
}

/// Ends jobs as dead.
pub fn cancel(args: &CancelArgs) -> anyhow::Result<Code> {
    if let Some(bulk) = Bulk::of(&args.selection.matching, Action::Cancel)? {
        return bulk.run(&Native::of(&args.native)?, args.native.json);
    }
    for_each(&args.native, &args.selection.ids, |native, id| {
        native.http().ask(ApiRequest::post(&format!("/api/v1/jobs/{id}/cancel")))
    })
}

/// Changes one job after the other. If one cannot be changed, the others still are.
pub fn for_each(
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
                eprintln!("error: {}", whole(&native.explain(error, &format!("job {id}"))));
            }
            Err(error) => return Err(native.explain(error, &format!("job {id}"))),
        }
    }
    Ok(code)
}

/// Stops giving out jobs of a queue; on request, waits until no worker has one.
pub fn pause(args: &PauseArgs) -> anyhow::Result<Code> {
    let native = Native::of(&args.native)?;
    let how = format!("pause?create={}", args.create);
    let prints = args.native.json && args.drain.is_none();
    change_queue(&native, &args.queue, &how, prints).map_err(|error| {
        if code_of(&error) != Code::NotFound {
            return error;
        }
        let message = format!("{}, or --create pauses it all the same", whole(&error));
        Failure::with(Code::NotFound, message)
    })?;
    let Some(wait_ms) = args.drain else { return Ok(Code::Ok) };
    let until = Instant::now() + Duration::from_millis(wait_ms.into());
    let drained = loop {
        let left = until.saturating_duration_since(Instant::now());
        let wait_s = left.min(DRAIN_WAIT_MAX).as_millis().div_ceil(1000);
        let path = format!("{}/drain?create=false&wait_s={wait_s}", args.queue.path());
        let asking = ApiRequest::post(&path).waiting(left.min(DRAIN_WAIT_MAX));
        let drained: Drained = native.ask(asking, &format!("queue {}", args.queue))?;
        if drained.drained || Instant::now() >= until {
            break drained;
        }
    };
    if args.native.json {
        write_json(&mut io::stdout().lock(), &drained)?;
    }
    if drained.drained {
        return Ok(Code::Ok);
    }
    let jobs = if drained.leased == 1 { "job is" } else { "jobs are" };
    let message = format!(
        "queue {} is paused, and {} {jobs} still at work; `spindle workers` tells whose",
        args.queue, drained.leased
    );
    Err(Failure::with(Code::Timeout, message))
}

/// The longest that one request waits, so that a server that has gone is noticed.
const DRAIN_WAIT_MAX: Duration = Duration::from_secs(20);

/// How far a drain is.
#[derive(Serialize, Deserialize)]
struct Drained {
    drained: bool,
    leased: u64,
}

/// Gives out a queue's jobs again.
pub fn resume(args: &ResumeArgs) -> anyhow::Result<Code> {
    let native = Native::of(&args.native)?;
    change_queue(&native, &args.queue, "resume", args.native.json)?;
    Ok(Code::Ok)
}

fn change_queue(native: &Native, name: &QueueName, how: &str, prints: bool) -> anyhow::Result<()> {
    let path = format!("{}/{how}", name.path());
    let queue: Queue = native.ask(ApiRequest::post(&path), &format!("queue {name}"))?;
    if prints {
        write_json(&mut io::stdout().lock(), &queue)?;
    }
    Ok(())
}
