//! `spindle queues` and `delete`.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::{
    bulk::{Action, Bulk},
    native::Native,
    server::Server,
    session::AskError,
};
use crate::{
    cli::{DeleteArgs, QueuesArgs},
    exit::Code,
    output::{Rows, write_line},
};

/// Lists the queues.
pub fn queues(args: &QueuesArgs) -> anyhow::Result<Code> {
    let server = Server::of(&args.common)?;
    let queues = server.open()?.queues().map_err(|error| server.explain(error, "queues"))?;
    let mut out = io::stdout().lock();
    if args.common.json {
        queues.iter().try_for_each(|queue| write_json(&mut out, queue))?;
        return Ok(Code::Ok);
    }
    // Workq tells of ready and scheduled jobs alone.
    let has_all = queues.iter().any(|queue| queue.jobs.leased.is_some());
    let columns = ["queue", "ready", "scheduled", "leased", "parked", "done", "dead", "paused"];
    let shown = if has_all { columns.len() } else { 3 };
    let mut rows = Rows::new(columns.get(..shown).unwrap_or(&columns));
    for queue in &queues {
        let jobs = &queue.jobs;
        let others = [jobs.leased, jobs.parked, jobs.done, jobs.dead];
        let others = others.map(|count| count.map(|count| count.to_string()).unwrap_or_default());
        let paused = if queue.paused == Some(true) { "paused" } else { "" };
        let first =
            [queue.queue_name().to_string(), jobs.ready.to_string(), jobs.scheduled.to_string()];
        let all = first.into_iter().chain(others).chain([paused.to_owned()]);
        rows.add(all.take(shown));
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
        return Bulk::of(selection, Action::Delete).run(&native, args.common.json);
    }
    let server = Server::of(&args.common)?;
    let mut session = server.open()?;
    let mut code = Code::Ok;
    let mut out = io::stdout().lock();
    for &id in &selection.ids {
        let shown_id = if args.common.json { session.id_of(id) } else { Value::Null };
        let deleted = match session.delete(id) {
            Ok(()) => true,
            Err(AskError::NotFound) => {
                eprintln!("error: there is no job {id}");
                code = Code::NotFound;
                false
            }
            Err(error) => return Err(server.explain(error, &format!("job {id}"))),
        };
        if args.common.json {
            write_line(&mut out, json!({ "id": shown_id, "deleted": deleted }))?;
        }
    }
    Ok(code)
}

/// Prints something as one line of JSON.
pub fn write_json(out: &mut impl Write, value: &impl serde::Serialize) -> io::Result<()> {
    let line = serde_json::to_string(value).map_err(io::Error::other)?;
    write_line(out, line)
}
