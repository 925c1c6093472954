//! The role that each route requires of its caller, and what the role must cover.

use spindle_access::Role::{Admin, Inspect, Manage, Read, Submit, Work};
use spindle_http::Needs::{All, Named, Nothing, Server};
use spindle_http::Table;

/// One row for each route of `router.rs`. `Named`: the extractors of paths (`extract.rs`) ask for
/// the queue, job or lease in the path; handlers ask for queues in bodies and filters.
pub(crate) const NEEDS: Table = &[
    ("POST", "/api/v1/jobs", Named(Submit)),
    ("GET", "/api/v1/jobs", Named(Read)),
    ("POST", "/api/v1/jobs/batch", Named(Submit)),
    ("POST", "/api/v1/jobs/bulk", Named(Manage)),
    ("GET", "/api/v1/jobs/export", All(Inspect)),
    // An import submits jobs in the name of every door.
    ("POST", "/api/v1/jobs/import", All(Admin)),
    // Without `inspect`, a job is shown without its payload and its result.
    ("GET", "/api/v1/jobs/{id}", Named(Read)),
    ("PATCH", "/api/v1/jobs/{id}", Named(Manage)),
    ("DELETE", "/api/v1/jobs/{id}", Named(Manage)),
    ("POST", "/api/v1/jobs/{id}/cancel", Named(Manage)),
    ("POST", "/api/v1/jobs/{id}/undo", Named(Manage)),
    ("POST", "/api/v1/jobs/{id}/retry", Named(Manage)),
    ("POST", "/api/v1/jobs/{id}/extend", Named(Manage)),
    ("POST", "/api/v1/jobs/{id}/park", Named(Manage)),
    ("POST", "/api/v1/jobs/{id}/release", Named(Manage)),
    ("GET", "/api/v1/jobs/{id}/wait", Named(Read)),
    ("GET", "/api/v1/jobs/{id}/why", Named(Read)),
    // Without `inspect`, the stream has no output.
    ("GET", "/api/v1/jobs/{id}/events", Named(Read)),
    ("GET", "/api/v1/jobs/{id}/output", Named(Inspect)),
    // By job number, because workers of other doors have no lease token.
    ("POST", "/api/v1/jobs/{id}/output", Named(Work)),
    ("POST", "/api/v1/jobs/{id}/progress", Named(Work)),
    ("GET", "/api/v1/jobs/{id}/flow", Named(Read)),
    // Handlers ask for the queue of the batch.
    ("POST", "/api/v1/batches", Named(Submit)),
    ("GET", "/api/v1/batches", All(Read)),
    ("GET", "/api/v1/batches/{id}", Named(Read)),
    ("GET", "/api/v1/batches/{id}/wait", Named(Read)),
    ("POST", "/api/v1/batches/{id}/seal", Named(Submit)),
    ("POST", "/api/v1/batches/{id}/cancel", Named(Manage)),
    ("GET", "/api/v1/constraints", All(Read)),
    ("GET", "/api/v1/constraints/{name}", All(Read)),
    ("PUT", "/api/v1/constraints/{name}", All(Manage)),
    ("DELETE", "/api/v1/constraints/{name}", All(Manage)),
    ("GET", "/api/v1/constraints/{name}/buckets", All(Read)),
    ("GET", "/api/v1/constraints/{name}/held", All(Read)),
    ("GET", "/api/v1/schedules", All(Read)),
    ("PUT", "/api/v1/schedules", All(Manage)),
    // Handlers ask for the queue of the schedule's jobs.
    ("GET", "/api/v1/schedules/{name}", Named(Read)),
    ("PUT", "/api/v1/schedules/{name}", Named(Manage)),
    ("DELETE", "/api/v1/schedules/{name}", Named(Manage)),
    ("POST", "/api/v1/schedules/{name}/pause", Named(Manage)),
    ("POST", "/api/v1/schedules/{name}/resume", Named(Manage)),
    ("POST", "/api/v1/schedules/{name}/run", Named(Manage)),
    ("POST", "/api/v1/lease", Named(Work)),
    ("POST", "/api/v1/leases/batch", Named(Work)),
    ("POST", "/api/v1/leases/{token}/extend", Named(Work)),
    ("POST", "/api/v1/leases/{token}/complete", Named(Work)),
    ("POST", "/api/v1/leases/{token}/fail", Named(Work)),
    ("POST", "/api/v1/leases/{token}/release", Named(Work)),
    ("POST", "/api/v1/leases/{token}/progress", Named(Work)),
    ("POST", "/api/v1/leases/{token}/output", Named(Work)),
    // Of a job that the leased one waited for, whatever its queue.
    ("GET", "/api/v1/leases/{token}/after/{id}", Named(Work)),
    ("GET", "/api/v1/queues", All(Read)),
    ("GET", "/api/v1/queues/{name}", Named(Read)),
    ("POST", "/api/v1/queues/{name}/pause", Named(Manage)),
    ("POST", "/api/v1/queues/{name}/resume", Named(Manage)),
    ("POST", "/api/v1/queues/{name}/drain", Named(Manage)),
    ("POST", "/api/v1/queues/{name}/purge", Named(Manage)),
    ("GET", "/api/v1/queues/{name}/settings", Named(Read)),
    ("PUT", "/api/v1/queues/{name}/settings", Named(Manage)),
    // A move affects all shards, so the role must cover more than the one queue.
    ("POST", "/api/v1/queues/{name}/move", Server(Admin)),
    ("GET", "/api/v1/workers", All(Read)),
    // Targets are in no queue of the server, or in any.
    ("GET", "/api/v1/jobd", All(Read)),
    ("POST", "/api/v1/jobd/pause", All(Manage)),
    ("POST", "/api/v1/jobd/continue", All(Manage)),
    ("GET", "/api/v1/events", All(Read)),
    ("GET", "/api/v1/history", Named(Read)),
    ("GET", "/api/v1/history/queues", All(Read)),
    ("GET", "/api/v1/failures", Named(Read)),
    ("GET", "/api/v1/server", Server(Read)),
    ("POST", "/api/v1/clock/accept", Server(Admin)),
    ("GET", "/api/v1/cluster", Server(Read)),
    ("POST", "/api/v1/cluster/step-down", Server(Admin)),
    // The audit log names people and queues.
    ("GET", "/api/v1/audit", All(Admin)),
    // A backup has everything that was ever written and is not compacted yet.
    ("GET", "/api/v1/backup", All(Admin)),
    ("GET", "/api/v1/backup/segments/{first}", All(Admin)),
    ("GET", "/healthz", Nothing),
    ("GET", "/readyz", Nothing),
    // They name queues.
    ("GET", "/metrics", All(Read)),
    ("GET", "/api/openapi.json", Nothing),
    ("GET", "/api/docs", Nothing),
    ("GET", "/api/docs/{name}", Nothing),
];
