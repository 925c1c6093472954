//! What machines ask: alive, ready, and the numbers.

use std::sync::atomic::Ordering;

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use spindle_limits::Of;
use utoipa::ToSchema;

use crate::api::Api;
use crate::exposition::Exposition;
use crate::metrics::{self, AtDoors};

/// How the server is.
#[derive(Serialize, ToSchema)]
pub(crate) struct Health {
    /// `ok`, or what is wrong.
    status: &'static str,
}

fn health(status: &'static str) -> Response {
    let code = if status == "ok" { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, Json(Health { status })).into_response()
}

/// Whether the server lives. 503 when its log has failed, after which it ends.
#[utoipa::path(get, path = "/healthz", operation_id = "alive", tag = "server",
    responses((status = 200, description = "It lives", body = Health),
        (status = 503, description = "Its log has failed", body = Health)))]
pub(crate) async fn alive(State(api): State<Api>) -> Response {
    health(if api.engine().failure().is_some() { "log_failed" } else { "ok" })
}

/// Whether the server takes jobs: not while it stops, on a full disk, when its log cannot grow, or when it
/// holds as much as it may.
#[utoipa::path(get, path = "/readyz", operation_id = "ready", tag = "server",
    responses((status = 200, description = "It takes jobs", body = Health),
        (status = 503, description = "It does not, and why", body = Health)))]
pub(crate) async fn ready(State(api): State<Api>) -> Response {
    health(readiness(&api))
}

/// `ok`, or why the server takes no jobs.
pub(crate) fn readiness(api: &Api) -> &'static str {
    let gauges = api.engine().observe().gauges();
    if api.engine().failure().is_some() {
        "log_failed"
    } else if *api.stopping().borrow() || gauges.is_stopping {
        "stopping"
    } else if api.engine().released().is_none() {
        // A server with a log of its own never answers this.
        "taking_over"
    } else if gauges.is_disk_full {
        "disk_full"
    } else if gauges.log_cannot_grow {
        "log_cannot_grow"
    } else if gauges.is_log_full {
        "log_full"
    } else if gauges.is_server_full {
        "server_full"
    } else {
        "ok"
    }
}

/// Numbers for Prometheus, in its text format 0.0.4, or in OpenMetrics for those that ask for that.
#[utoipa::path(get, path = "/metrics", operation_id = "metrics", tag = "server",
    responses((status = 200, description = "The numbers", content(
        (String = "text/plain"), (String = "application/openmetrics-text")))))]
pub(crate) async fn metrics(State(api): State<Api>, headers: HeaderMap) -> Response {
    let form = Exposition::wanted(&headers);
    let options = api.options();
    let own = [("http", &options.connections)];
    let lines = options.line_connections.iter().map(|(door, open)| (*door, open));
    let open = own.into_iter().chain(lines);
    let mut open: Vec<_> = open.map(|(door, open)| (door, open.load(Ordering::Relaxed))).collect();
    // For the jobd master, whose connections are counted only by the slots they take.
    let is_counted = |door| open.iter().any(|(counted, _)| *counted == door);
    let others: Vec<_> =
        options.places.open().into_iter().filter(|(door, _)| !is_counted(*door)).collect();
    open.extend(others);
    let rates = options.access.rates();
    let too_fast = Of::ALL.map(|of| (of, rates.map_or(0, |rates| rates.exceeded(of))));
    let shaken = options.handshakes.iter();
    let handshakes = shaken.map(|(end, count)| (*end, count.load(Ordering::Relaxed))).collect();
    let certificate_expires =
        options.certificate_expires.as_ref().map(|expires| expires.load(Ordering::Relaxed));
    let refused = options.places.refusals();
    let doors = AtDoors { open, refused, too_fast, handshakes, certificate_expires };
    let text = form.of(metrics::open_metrics(api.engine(), &doors, options).await);
    let vary = HeaderValue::from_static("accept");
    let headers = [(header::CONTENT_TYPE, form.content_type()), (header::VARY, vary)];
    (headers, text).into_response()
}
