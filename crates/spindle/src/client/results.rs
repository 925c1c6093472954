//! `spindle run` and `spindle result`.

use std::io;

use bytes::Bytes;
use serde_json::{Map, Value, json};
use spindle_workq::{
    client::ClientError,
    wire::{JobResult, Run},
};

use super::{
    add::about,
    payload,
    server::{Server, fresh_id},
};
use crate::{
    cli::{Common, ResultArgs, RunArgs},
    exit::{Code, Failure},
    output::{put_bytes, write_bytes, write_line},
    quantity::Written,
};

/// Adds a job, waits for its result and prints it.
pub fn run(args: &RunArgs) -> anyhow::Result<Code> {
    let run = Run {
        id: args.id.unwrap_or_else(fresh_id),
        name: Bytes::copy_from_slice(args.queue.as_bytes()),
        ttr_ms: args.ttr,
        wait_timeout_ms: args.wait,
        priority: args.priority,
        payload: payload::read(&args.payload)?,
    };
    let server = Server::of(&args.common);
    let result = server.connect()?.run(&run).map_err(|error| match error {
        ClientError::Timeout => {
            let (wait, ttr) = (Written(args.wait.into()), Written(args.ttr.into()));
            let told = format!(
                "no result: no worker took the job within {wait}, or the one that did was not \
                 done within {ttr}; the job is gone (see --wait and --ttr)"
            );
            Failure::with(Code::Timeout, told)
        }
        other => server.told(other, &about(run.id)),
    })?;
    print_result(&args.common, &result)
}

/// Prints the result of a job.
pub fn result(args: &ResultArgs) -> anyhow::Result<Code> {
    let server = Server::of(&args.common);
    let result = server.connect()?.result(args.id, args.wait).map_err(|error| match error {
        ClientError::Timeout => {
            let waits = if args.wait == 0 { "; --wait 60s waits for it" } else { "" };
            let told = format!("job {} has no result yet{waits}", args.id);
            Failure::with(Code::Timeout, told)
        }
        other => server.told(other, &about(args.id)),
    })?;
    print_result(&args.common, &result)
}

fn print_result(common: &Common, result: &JobResult) -> anyhow::Result<Code> {
    let mut out = io::stdout().lock();
    if common.json {
        let mut object = Map::new();
        object.insert("id".to_owned(), json!(result.id.to_string()));
        object.insert("success".to_owned(), json!(result.success));
        put_bytes(&mut object, "result", &result.result);
        write_line(&mut out, Value::Object(object))?;
    } else {
        write_bytes(&mut out, &result.result)?;
    }
    io::Write::flush(&mut out)?;
    if result.success {
        return Ok(Code::Ok);
    }
    Err(Failure::with(Code::JobFailed, format!("job {} failed", result.id)))
}
