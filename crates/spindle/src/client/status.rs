//! `spindle status`: how the server is, on one screen.

use std::io::{self, Write};

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    attention::{Attention, attentions},
    native::Native,
    times::lasting,
    view::{Counts, Queue},
    web::ApiRequest,
};
use crate::{
    cli,
    exit::Code,
    output::{Rows, escape, grouped, write_json, write_line},
    quantity::shown_size,
};

/// Queues of one page of a list.
const PAGE: usize = 500;
/// How many queues that need attention fit on a screen.
const ATTENTIONS_SHOWN: usize = 15;

/// What the server says of itself, as far as it is shown here.
#[derive(Deserialize)]
struct Server {
    version: String,
    uptime_ms: u64,
    status: String,
    disk_full: bool,
    /// Older servers do not say it.
    #[serde(default)]
    log_cannot_grow: bool,
    clock_held: bool,
    doors: Vec<Door>,
    queues: u64,
    log_bytes: u64,
    /// All of it, for JSON.
    #[serde(skip)]
    whole: Value,
}

#[derive(Deserialize)]
struct Door {
    name: String,
    address: String,
    connections: Option<u64>,
}

/// Workers of the first page: more do not fit on a screen anyway.
#[derive(Deserialize)]
struct WorkerPage {
    workers: Vec<Value>,
    next_cursor: Option<String>,
}

/// Says how the server is. The exit code says whether it takes jobs.
pub fn status(args: &cli::Native) -> anyhow::Result<Code> {
    let native = Native::of(args)?;
    let whole: Value = native.ask(ApiRequest::get("/api/v1/server"), "server")?;
    let server = Server { whole: whole.clone(), ..serde_json::from_value(whole)? };
    let (counts, attentions) = look_at_queues(&native)?;
    let workers: WorkerPage = native.ask(ApiRequest::get("/api/v1/workers"), "workers")?;
    let mut out = io::stdout().lock();
    if args.json {
        write_json(&mut out, &object(&server, &counts, &workers, &attentions))?;
    } else {
        print(&server, &counts, &workers, &attentions, &mut out)?;
    }
    Ok(if server.status == "ok" { Code::Ok } else { Code::Error })
}

/// All jobs by status, and the queues that need attention.
fn look_at_queues(native: &Native) -> anyhow::Result<(Counts, Vec<Attention>)> {
    let mut sum = Counts::default();
    let mut found = Vec::new();
    let path = format!("/api/v1/queues?limit={PAGE}");
    native.for_each(&path, "queues", |queue: Queue| {
        sum.add(&queue.jobs);
        found.extend(attentions(&queue));
    })?;
    // Queues that stand still come first, then slow ones, then those with dead jobs.
    found.sort_by_key(|attention| attention.rank);
    Ok((sum, found))
}

fn print(
    server: &Server,
    counts: &Counts,
    workers: &WorkerPage,
    attentions: &[Attention],
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let Server { version, uptime_ms, .. } = server;
    let mut rows = Rows::new(&["what", "how it is"]);
    let mut row = |name: &str, text: String| rows.add([name.to_owned(), text]);
    let up = lasting(uptime_ms.saturating_sub(uptime_ms % 1_000).max(1_000));
    row("server", format!("spindle {version}, up {up}"));
    row("health", health(server));
    for Door { name, address, connections } in &server.doors {
        let open = connections.map(|count| format!(", {} connected", grouped(count)));
        row("door", format!("{name} on {address}{}", open.unwrap_or_default()));
    }
    row("log", shown_size(server.log_bytes));
    row("queues", grouped(server.queues));
    let counts = counts.by_status().map(|(name, count)| format!("{name} {}", grouped(count)));
    row("jobs", counts.join(", "));
    row("workers", workers_summary(workers));
    rows.print(out)?;
    if attentions.is_empty() {
        return Ok(());
    }
    writeln!(out)?;
    let mut rows = Rows::new(&["queue that needs somebody", "why", "see"]);
    for attention in attentions.iter().take(ATTENTIONS_SHOWN) {
        let Attention { queue, text, command, .. } = attention;
        rows.add([queue.to_string(), text.clone(), command.clone()]);
    }
    rows.print(out)?;
    let hidden = attentions.len().saturating_sub(ATTENTIONS_SHOWN);
    if hidden > 0 {
        write_line(out, format_args!("and {} more: see --json", grouped(hidden as u64)))?;
    }
    Ok(())
}

fn health(server: &Server) -> String {
    let mut health = match server.status.as_str() {
        "ok" => "ready".to_owned(),
        "disk_full" => "not ready: the disk is full, new jobs are refused".to_owned(),
        "log_cannot_grow" => {
            "not ready: the log cannot grow, new jobs are refused; the server's own log says why"
                .to_owned()
        }
        "log_full" => {
            "not ready: the log is as large as it may be, new jobs are refused".to_owned()
        }
        "server_full" => "not ready: there are as many unfinished jobs as there may be".to_owned(),
        "stopping" => "not ready: it is stopping".to_owned(),
        "log_failed" => "not ready: its log has failed".to_owned(),
        other => format!("not ready: {}", escape(other)),
    };
    if server.disk_full && server.status != "disk_full" {
        health += "; the disk is full";
    }
    if server.log_cannot_grow && server.status != "log_cannot_grow" {
        health += "; the log cannot grow";
    }
    if server.clock_held {
        health += "; clock and log disagree, no TTL counts (spindle clock accept)";
    }
    health
}

fn workers_summary(page: &WorkerPage) -> String {
    let field = |worker: &Value, name: &str| worker.get(name).cloned().unwrap_or_default();
    let waiting = |worker: &&Value| field(worker, "waiting").as_u64().is_some_and(|n| n > 0);
    let busy =
        |worker: &&Value| field(worker, "jobs").as_array().is_some_and(|jobs| !jobs.is_empty());
    let count = |is_meant: &dyn Fn(&&Value) -> bool| {
        grouped(page.workers.iter().filter(is_meant).count() as u64)
    };
    let all = grouped(page.workers.len() as u64);
    let more = if page.next_cursor.is_some() { " of the first" } else { "" };
    format!("{all}{more}: {} at work, {} waiting", count(&busy), count(&waiting))
}

fn object(
    server: &Server,
    counts: &Counts,
    workers: &WorkerPage,
    attentions: &[Attention],
) -> Value {
    let jobs: Map<String, Value> = counts
        .by_status()
        .into_iter()
        .map(|(name, count)| (name.to_owned(), json!(count)))
        .collect();
    let attentions: Vec<Value> = attentions.iter().map(Attention::object).collect();
    json!({
        "ready": server.status == "ok",
        "server": server.whole,
        "jobs": jobs,
        "workers": workers.workers.len(),
        "attention": attentions,
    })
}
