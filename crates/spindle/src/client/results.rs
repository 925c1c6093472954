//! `spindle run` and `spindle result`.

use std::io;

use serde_json::{Map, Value, json};

use super::{
    payload,
    server::Server,
    session::{AskError, Finished, NewJob},
};
use crate::{
    cli::{Common, PayloadType, ResultArgs, RunArgs},
    exit::{Code, Failure},
    output::{id_json, put_bytes, write_bytes, write_line},
    quantity::Written,
};

/// Adds a job, waits for its result and prints it.
pub fn run(args: &RunArgs) -> anyhow::Result<Code> {
    let server = Server::of(&args.common)?;
    let job = NewJob {
        queue: args.queue.clone(),
        payload: payload::read(&args.payload, server.payload_bytes_max())?,
        payload_type: args.payload_type.unwrap_or(PayloadType::Bytes),
        ttr_ms: args.ttr,
        ttl_ms: 0,
        priority: args.priority,
        attempts_max: None,
        fails_max: None,
        backoff: None,
        run_at_ms: None,
        tags: Vec::new(),
        fair_key: None,
        unique: None,
        after: Vec::new(),
        on_dead: None,
        batch: None,
        id: args.id,
    };
    let result = server.open()?.run(&job, args.wait).map_err(|error| match error {
        AskError::TimedOut => {
            let (wait, ttr) = (Written(args.wait.into()), Written(args.ttr.into()));
            let message = format!(
                "no result: no worker took the job within {wait}, or the one that did was not \
                 done within {ttr}; the job is gone (see --wait and --ttr)"
            );
            Failure::with(Code::Timeout, message)
        }
        other => server.explain(other, &super::add::about(&job)),
    })?;
    print_result(&args.common, &result)
}

/// Prints the result of a job.
pub fn result(args: &ResultArgs) -> anyhow::Result<Code> {
    let server = Server::of(&args.common)?;
    let result = server.open()?.result(args.id, args.wait).map_err(|error| match error {
        AskError::TimedOut => {
            let waits = if args.wait == 0 { "; --wait 60s waits for it" } else { "" };
            let message = format!("job {} has no result yet{waits}", args.id);
            Failure::with(Code::Timeout, message)
        }
        other => server.explain(other, &format!("job {}", args.id)),
    })?;
    print_result(&args.common, &result)
}

fn print_result(common: &Common, result: &Finished) -> anyhow::Result<Code> {
    let mut out = io::stdout().lock();
    if common.json {
        let mut object = Map::new();
        object.insert("id".to_owned(), id_json(&result.id));
        object.insert("success".to_owned(), json!(result.success));
        put_bytes(&mut object, "result", &result.result);
        for (name, text) in &result.remarks {
            object.insert((*name).to_owned(), json!(text));
        }
        write_line(&mut out, Value::Object(object))?;
    } else {
        write_bytes(&mut out, &result.result)?;
    }
    io::Write::flush(&mut out)?;
    if result.success {
        return Ok(Code::Ok);
    }
    let remarks = result.remarks.iter().map(|(name, text)| format!("{name} {text}"));
    let remarks: Vec<String> = remarks.collect();
    let why = if remarks.is_empty() { String::new() } else { format!(": {}", remarks.join(", ")) };
    Err(Failure::with(Code::JobFailed, format!("job {} failed{why}", result.id)))
}
