//! `spindle queues` and `delete`.

use std::io;

use serde_json::{Value, json};

use super::{
    bulk::{Action, Bulk},
    native::Native,
    server::Server,
    session::AskError,
    view::Queue,
};
use crate::{
    cli::{Common, DeleteArgs},
    exit::Code,
    output::{Rows, print_all, write_line},
};

/// Lists the queues.
pub fn queues(common: &Common) -> anyhow::Result<Code> {
    let server = Server::of(common)?;
    let queues = server.open()?.queues().map_err(|error| server.explain(error, "queues"))?;
    print_all(&queues, common.json, || rows(&queues))
}

fn rows(queues: &[Queue]) -> Rows {
    // Workq shows ready and scheduled jobs alone.
    let has_all = queues.iter().any(|queue| queue.jobs.leased.is_some());
    let columns =
        ["queue", "ready", "scheduled", "leased", "parked", "blocked", "done", "dead", "paused"];
    let shown = if has_all { columns.len() } else { 3 };
    let mut rows = Rows::new(columns.get(..shown).unwrap_or(&columns));
    for queue in queues {
        let jobs = &queue.jobs;
        let others = [jobs.leased, jobs.parked, jobs.blocked, jobs.done, jobs.dead];
        let others = others.map(|count| count.map(|count| count.to_string()).unwrap_or_default());
        let paused = if queue.paused == Some(true) { "paused" } else { "" };
        let first =
            [queue.queue_name().to_string(), jobs.ready.to_string(), jobs.scheduled.to_string()];
        let all = first.into_iter().chain(others).chain([paused.to_owned()]);
        rows.add(all.take(shown));
    }
    rows
}

/// Deletes jobs. If one is not there, the others are still deleted.
pub fn delete(args: &DeleteArgs) -> anyhow::Result<Code> {
    let selection = &args.selection;
    if let Some(bulk) = Bulk::of(&selection.matching, Action::Delete)? {
        return bulk.run(&Native::among(&args.common)?, args.common.json);
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
