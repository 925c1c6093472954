//! Which rule each route has.

use axum::http::Method;

use super::lists::Kind;

/// How a request is answered, if it names no shard itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rule {
    /// By the first shard.
    First,
    /// By a shard that the request has to name: it is about one log.
    Named,
    /// By the shard of the queue in the path.
    Queue,
    /// By the shard of the job in the path.
    Job,
    /// The same; a queue in the body must be on that shard, too.
    JobEdit,
    /// By the shard of the lease whose token is in the path.
    Token,
    /// By the shard of the batch in the path.
    Batch,
    /// By whichever shard has the schedule in the path.
    Schedule,
    /// By the shard of the queue in the body.
    Submit,
    /// Each job by the shard of its queue.
    SubmitMany,
    /// The same, as jobs of another server name each other.
    Import,
    /// By one shard after the other, if the filter does not say which.
    Bulk,
    /// By the shard of the queue in the body.
    OpenBatch,
    /// By the shard of the queue in the body, if no other has a schedule of that name.
    PutSchedule,
    /// Each schedule by the shard of its queue.
    ApplySchedules,
    /// By whichever shard has a job.
    Lease,
    /// Each report by its lease's shard.
    Reports,
    /// By all shards, one after the other.
    Every,
    /// By all shards, whose answers are joined.
    List(Kind),
    /// By all shards, whose numbers are added up.
    Sum(Sum),
    /// By all shards, one after the other, and shown with the numbers of all.
    PutConstraint,
    /// By all shards: what the first one says, with the numbers of all.
    Constraints(About),
    /// By all shards, as what happens comes.
    Events,
    /// By the shard of the queue in the query, or the first.
    JobqCreate,
    /// By all shards, one behind the other.
    JobqList,
    /// By whichever shard has a job.
    JobqPoll,
}

/// What is added up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sum {
    Server,
    History,
    QueuesHistory,
    Failures,
    Metrics,
}

/// What is asked about constraints.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum About {
    Page,
    One,
    Buckets,
    Held,
}

use Rule::{
    ApplySchedules, Batch, Bulk, Constraints, Events, Every, First, Import, Job, JobEdit,
    JobqCreate, JobqList, JobqPoll, Lease, List, Named, OpenBatch, PutSchedule, Queue, Reports,
    Schedule, Submit, SubmitMany, Token,
};

/// One row for each route of the doors over HTTP that is not simply the first shard's; of the native
/// API all are here. The first row that fits counts. What is about a node and not about a shard is left
/// to the node: `/healthz`, `/readyz` and `GET /api/v1/cluster` never come here.
pub(super) const ROWS: &[(&str, &str, Rule)] = &[
    ("POST", "/api/v1/jobs", Submit),
    ("GET", "/api/v1/jobs", List(Kind::Jobs)),
    ("POST", "/api/v1/jobs/batch", SubmitMany),
    ("POST", "/api/v1/jobs/bulk", Bulk),
    ("GET", "/api/v1/jobs/export", List(Kind::Export)),
    ("POST", "/api/v1/jobs/import", Import),
    ("GET", "/api/v1/jobs/{id}", Job),
    ("PATCH", "/api/v1/jobs/{id}", JobEdit),
    ("DELETE", "/api/v1/jobs/{id}", Job),
    ("POST", "/api/v1/jobs/{id}/cancel", Job),
    ("POST", "/api/v1/jobs/{id}/undo", Job),
    ("POST", "/api/v1/jobs/{id}/retry", Job),
    ("POST", "/api/v1/jobs/{id}/extend", Job),
    ("POST", "/api/v1/jobs/{id}/park", Job),
    ("POST", "/api/v1/jobs/{id}/release", Job),
    ("GET", "/api/v1/jobs/{id}/wait", Job),
    ("GET", "/api/v1/jobs/{id}/why", Job),
    ("GET", "/api/v1/jobs/{id}/events", Job),
    ("GET", "/api/v1/jobs/{id}/output", Job),
    ("POST", "/api/v1/jobs/{id}/output", Job),
    ("POST", "/api/v1/jobs/{id}/progress", Job),
    ("GET", "/api/v1/jobs/{id}/flow", Job),
    ("POST", "/api/v1/batches", OpenBatch),
    ("GET", "/api/v1/batches", List(Kind::Batches)),
    ("GET", "/api/v1/batches/{id}", Batch),
    ("GET", "/api/v1/batches/{id}/wait", Batch),
    ("POST", "/api/v1/batches/{id}/seal", Batch),
    ("POST", "/api/v1/batches/{id}/cancel", Batch),
    // Each shard has all constraints. Their names and settings are the same everywhere, what is left of
    // them is not.
    ("GET", "/api/v1/constraints", Constraints(About::Page)),
    ("GET", "/api/v1/constraints/{name}", Constraints(About::One)),
    ("PUT", "/api/v1/constraints/{name}", Rule::PutConstraint),
    ("DELETE", "/api/v1/constraints/{name}", Every),
    ("GET", "/api/v1/constraints/{name}/buckets", Constraints(About::Buckets)),
    ("GET", "/api/v1/constraints/{name}/held", Constraints(About::Held)),
    ("GET", "/api/v1/schedules", List(Kind::Schedules)),
    ("PUT", "/api/v1/schedules", ApplySchedules),
    ("GET", "/api/v1/schedules/{name}", Schedule),
    ("PUT", "/api/v1/schedules/{name}", PutSchedule),
    ("DELETE", "/api/v1/schedules/{name}", Schedule),
    ("POST", "/api/v1/schedules/{name}/pause", Schedule),
    ("POST", "/api/v1/schedules/{name}/resume", Schedule),
    ("POST", "/api/v1/schedules/{name}/run", Schedule),
    ("POST", "/api/v1/lease", Lease),
    ("POST", "/api/v1/leases/batch", Reports),
    ("POST", "/api/v1/leases/{token}/extend", Token),
    ("POST", "/api/v1/leases/{token}/complete", Token),
    ("POST", "/api/v1/leases/{token}/fail", Token),
    ("POST", "/api/v1/leases/{token}/release", Token),
    ("POST", "/api/v1/leases/{token}/progress", Token),
    ("POST", "/api/v1/leases/{token}/output", Token),
    ("GET", "/api/v1/leases/{token}/after/{id}", Token),
    ("GET", "/api/v1/queues", List(Kind::Queues)),
    ("GET", "/api/v1/queues/{name}", Queue),
    ("POST", "/api/v1/queues/{name}/pause", Queue),
    ("POST", "/api/v1/queues/{name}/resume", Queue),
    ("POST", "/api/v1/queues/{name}/drain", Queue),
    ("POST", "/api/v1/queues/{name}/purge", Queue),
    // The first shard has the map of moved queues.
    ("POST", "/api/v1/queues/{name}/move", First),
    ("GET", "/api/v1/queues/{name}/settings", Queue),
    ("PUT", "/api/v1/queues/{name}/settings", Queue),
    ("GET", "/api/v1/workers", List(Kind::Workers)),
    // The master is a part of the node that leads the first shard.
    ("GET", "/api/v1/jobd", First),
    ("POST", "/api/v1/jobd/pause", First),
    ("POST", "/api/v1/jobd/continue", First),
    ("GET", "/api/v1/events", Events),
    ("GET", "/api/v1/history", Rule::Sum(Sum::History)),
    ("GET", "/api/v1/history/queues", Rule::Sum(Sum::QueuesHistory)),
    ("GET", "/api/v1/failures", Rule::Sum(Sum::Failures)),
    ("GET", "/api/v1/server", Rule::Sum(Sum::Server)),
    ("POST", "/api/v1/clock/accept", Every),
    ("GET", "/api/v1/audit", List(Kind::Audit)),
    ("GET", "/api/v1/cluster", First),
    ("POST", "/api/v1/cluster/step-down", Named),
    ("GET", "/api/v1/backup", Named),
    ("GET", "/api/v1/backup/segments/{first}", Named),
    ("GET", "/healthz", First),
    ("GET", "/readyz", First),
    ("GET", "/metrics", Rule::Sum(Sum::Metrics)),
    ("GET", "/api/openapi.json", First),
    ("GET", "/api/docs", First),
    ("GET", "/api/docs/{name}", First),
    // LightJQ. Its workers take jobs of any name from one registry, so its jobs are on one shard; but limits
    // that it sets hold everywhere, and jobs of other doors are looked at where they are.
    ("GET", "/job/{id}", Job),
    ("DELETE", "/job/{id}", Job),
    ("GET", "/job/{id}/polling", Job),
    ("PUT", "/constraint/{name}", Every),
    ("DELETE", "/constraint/{name}", Every),
    // Jobq, at its three addresses.
    ("GET", "/api/v0/job", JobqList),
    ("POST", "/api/v0/job", JobqList),
    ("POST", "/api/v0/job/poll", JobqPoll),
    ("POST", "/api/v0/job/create", JobqCreate),
    ("GET", "/api/v0/job/{id}", Job),
    ("DELETE", "/api/v0/job/{id}", Job),
    ("POST", "/api/v0/job/{id}/state", Job),
    ("POST", "/api/v0/job/{id}/event", Job),
];

/// Before the paths of the addresses that are for clients of one generation of Jobq.
const JOBQ_BASES: [&str; 2] = ["/jobq/first", "/jobq/newest"];

/// The rule for a request, and the first segment of its path that a name in the row stands for.
pub(super) fn rule_of<'a>(method: &Method, path: &'a str) -> (Rule, &'a str) {
    let method = if *method == Method::HEAD { "GET" } else { method.as_str() };
    let of_jobq = JOBQ_BASES.iter().find_map(|base| path.strip_prefix(base));
    let path = of_jobq.unwrap_or(path);
    let rows = ROWS.iter().filter(|(of, ..)| *of == method);
    let mut fits = rows.filter_map(|(_, row, rule)| Some((*rule, fitted(row, path)?)));
    fits.next().unwrap_or((First, ""))
}

/// The first named segment, if the path is as the row says.
fn fitted<'a>(row: &str, path: &'a str) -> Option<&'a str> {
    let mut found = "";
    let (mut wanted, mut given) = (row.split('/'), path.split('/'));
    loop {
        match (wanted.next(), given.next()) {
            (None, None) => return Some(found),
            (Some(name), Some(segment)) if name.starts_with('{') && !segment.is_empty() => {
                if found.is_empty() {
                    found = segment;
                }
            }
            (Some(word), Some(segment)) if word == segment => {}
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_fit_their_rows() {
        for (method, path, rule, found) in [
            (Method::GET, "/api/v1/jobs/42", Job, "42"),
            (Method::HEAD, "/api/v1/jobs/42", Job, "42"),
            (Method::POST, "/api/v1/jobs/batch", SubmitMany, ""),
            (Method::GET, "/api/v1/jobs/export", List(Kind::Export), ""),
            (Method::GET, "/api/v1/leases/AA/after/7", Token, "AA"),
            (Method::GET, "/api/v1/queues/a%2Fb", Queue, "a%2Fb"),
            (Method::GET, "/jobq/first/api/v0/job/7", Job, "7"),
            (Method::POST, "/jobq/newest/api/v0/job/create", JobqCreate, ""),
            (Method::PUT, "/constraint/x", Every, "x"),
            (Method::GET, "/constraint/x", First, ""),
            (Method::POST, "/api/v1/jobs/", First, ""),
            (Method::GET, "/api/v1/queues/", First, ""),
            (Method::DELETE, "/api/v1/jobs", First, ""),
            (Method::GET, "/queues", First, ""),
            (Method::GET, "", First, ""),
        ] {
            assert_eq!(rule_of(&method, path), (rule, found), "{method} {path}");
        }
    }
}
