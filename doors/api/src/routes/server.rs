//! What the server reports about itself.

use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use spindle_budget::Readings;
use spindle_engine::{DiskRoom, Gauges};
use spindle_limits::Reason;
use utoipa::ToSchema;

use crate::api::Api;
use crate::instant;
use crate::routes::health::readiness;
use crate::routes::history::Point;

/// The server.
#[derive(Serialize, ToSchema)]
pub(crate) struct Server {
    /// Its version.
    version: &'static str,
    /// When it started.
    started_at: String,
    /// How long ago that was.
    uptime_ms: u64,
    /// `ok`, or why it takes no jobs, as `/readyz` says it.
    #[schema(example = "ok")]
    status: &'static str,
    /// New jobs are refused for want of room on the disk.
    disk_full: bool,
    /// New jobs are refused because the log cannot be made longer, for another reason than room.
    log_cannot_grow: bool,
    /// TTLs delete nothing, because the machine's clock and the log disagree.
    clock_held: bool,
    /// The doors that are open.
    doors: Vec<Door>,
    /// Jobs, done and dead ones included.
    jobs: usize,
    /// Done and dead ones.
    jobs_finished: usize,
    /// Queues with jobs or settings.
    queues: usize,
    /// Clients of all doors that wait for something.
    waits: usize,
    /// What the log takes.
    log_bytes: u64,
    /// What all clients together make the server hold.
    budgets: Vec<Budget>,
    /// What else has a limit, and how near it is.
    limits: Vec<LimitShown>,
    /// What happened in the last minute, as far as it is known: a point of the history.
    last_minute: Point,
}

/// A limit, and how much of it is used.
#[derive(Serialize, ToSchema)]
#[schema(as = ServerLimit)]
pub(crate) struct LimitShown {
    /// `disk_bytes`: the file system of the log, whatever is on it; `log_bytes`: the log;
    /// `unfinished_jobs`.
    #[schema(example = "disk_bytes")]
    name: &'static str,
    /// How much is used.
    used: u64,
    /// The most.
    max: u64,
}

/// The limits that there are.
fn limits(api: &Api, gauges: &Gauges) -> Vec<LimitShown> {
    let disk = api.options().disk_room().map(|room| LimitShown {
        name: "disk_bytes",
        used: room.bytes.saturating_sub(room.free_bytes),
        max: room.bytes,
    });
    let unfinished = gauges.jobs.saturating_sub(gauges.finished) as u64;
    let set = [
        ("log_bytes", gauges.log_bytes, gauges.log_bytes_max),
        ("unfinished_jobs", unfinished, gauges.unfinished_max),
    ];
    let set = set.into_iter().filter(|(.., max)| *max != u64::MAX);
    disk.into_iter().chain(set.map(|(name, used, max)| LimitShown { name, used, max })).collect()
}

/// Bytes that clients make the server hold, and how many they may.
#[derive(Serialize, ToSchema)]
pub(crate) struct Budget {
    /// `unfinished_input`: requests that have begun to come in; `unread_output`: answers that have
    /// not left.
    #[schema(example = "unread_output")]
    name: &'static str,
    /// Held now.
    bytes: u64,
    /// The most; beyond it who holds most loses the connection.
    bytes_max: u64,
    /// Connections closed for it since the server began.
    closed: u64,
}

/// An open door.
#[derive(Serialize, ToSchema)]
pub(crate) struct Door {
    /// Its name in settings and messages.
    name: &'static str,
    /// Where it listens.
    address: String,
    /// Its open connections, where they are counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    connections: Option<usize>,
    /// Connections that were refused for want of a place, since the server began.
    refused: u64,
}

/// The server: version, doors, health, and how much there is.
#[utoipa::path(get, path = "/api/v1/server", operation_id = "show_server", tag = "server",
    responses((status = 200, description = "How it is now", body = Server)))]
pub(crate) async fn show(State(api): State<Api>) -> Json<Server> {
    let gauges = api.engine().observe().gauges();
    let uptime_ms = api.engine().now_ms().saturating_sub(api.started_ms());
    let options = api.options();
    let refusals = options.places.refusals();
    let doors = options.addresses.iter().map(|(name, address)| {
        let refused = refusals.iter().filter(|(door, _)| door == name);
        let refused = refused.flat_map(|(_, all)| Reason::ALL.map(|reason| all.count(reason)));
        Door {
            name,
            address: address.to_string(),
            connections: options.open(name),
            refused: refused.sum(),
        }
    });
    let budgets = options.budgets.all().map(|budget| {
        let Readings { held_bytes, bytes_max, closed } = budget.readings();
        Budget { name: budget.kind().name(), bytes: held_bytes, bytes_max, closed }
    });
    Json(Server {
        version: env!("CARGO_PKG_VERSION"),
        started_at: instant::shown(api.started_ms()),
        uptime_ms,
        status: readiness(&api),
        disk_full: gauges.is_disk_full,
        log_cannot_grow: gauges.log_cannot_grow,
        clock_held: gauges.is_clock_held,
        doors: doors.collect(),
        jobs: gauges.jobs,
        jobs_finished: gauges.finished,
        queues: gauges.queues,
        waits: gauges.waits,
        log_bytes: gauges.log_bytes,
        budgets: budgets.into(),
        limits: limits(&api, &gauges),
        last_minute: last_minute(&api),
    })
}

fn last_minute(api: &Api) -> Point {
    let now_ms = api.engine().now_ms();
    let slot = api.options().history.book().last_minute(now_ms);
    Point::of_server(now_ms.saturating_sub(60_000), &slot)
}

impl crate::api::Options {
    /// The room of the disk that the log is on, if it is on one.
    pub(crate) fn disk_room(&self) -> Option<DiskRoom> {
        DiskRoom::at(self.data.as_deref()?).ok()
    }

    fn open(&self, door: &str) -> Option<usize> {
        if door == "http" {
            return Some(self.connections.load(Ordering::Relaxed));
        }
        let line = self.line_connections.iter().find(|(name, _)| *name == door);
        line.map(|(_, open)| open.load(Ordering::Relaxed))
    }
}
