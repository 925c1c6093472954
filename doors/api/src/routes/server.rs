//! What the server says of itself.

use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::Api;
use crate::instant;
use crate::routes::health::readiness;

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
}

/// The server: version, doors, health, and how much there is.
#[utoipa::path(get, path = "/api/v1/server", operation_id = "show_server", tag = "server",
    responses((status = 200, description = "How it is now", body = Server)))]
pub(crate) async fn show(State(api): State<Api>) -> Json<Server> {
    let gauges = api.engine().observe().gauges();
    let uptime_ms = api.engine().now_ms().saturating_sub(api.started_ms());
    let options = api.options();
    let doors = options.addresses.iter().map(|(name, address)| Door {
        name,
        address: address.to_string(),
        connections: options.open(name),
    });
    Json(Server {
        version: env!("CARGO_PKG_VERSION"),
        started_at: instant::shown(api.started_ms()),
        uptime_ms,
        status: readiness(&api),
        disk_full: gauges.is_disk_full,
        clock_held: gauges.is_clock_held,
        doors: doors.collect(),
        jobs: gauges.jobs,
        jobs_finished: gauges.finished,
        queues: gauges.queues,
        waits: gauges.waits,
        log_bytes: gauges.log_bytes,
    })
}

impl crate::api::Options {
    fn open(&self, door: &str) -> Option<usize> {
        if door == "http" {
            return Some(self.connections.load(Ordering::Relaxed));
        }
        let line = self.line_connections.iter().find(|(name, _)| *name == door);
        line.map(|(_, open)| open.load(Ordering::Relaxed))
    }
}
