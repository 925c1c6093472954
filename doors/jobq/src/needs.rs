//! The role that each route requires of its caller.

use spindle_access::Role::{Inspect, Manage, Submit, Work};
use spindle_http::Needs::{All, Named, Nothing};
use spindle_http::Table;

/// One row for each route of `router.rs`, at each of its addresses. `Named`: handlers ask for the
/// queue, or for the job. Lists, queries and polls look at all jobs.
pub(crate) const NEEDS: Table = &[
    ("GET", "/api/v0/job", All(Inspect)),
    ("POST", "/api/v0/job", All(Inspect)),
    ("POST", "/api/v0/job/create", Named(Submit)),
    ("POST", "/api/v0/job/poll", All(Work)),
    ("GET", "/api/v0/job/{id}", Named(Inspect)),
    ("DELETE", "/api/v0/job/{id}", Named(Manage)),
    ("POST", "/api/v0/job/{id}/state", Named(Work)),
    ("POST", "/api/v0/job/{id}/event", Named(Work)),
    // There is no such route.
    ("*", "/api/v0/job/create", Nothing),
    ("*", "/api/v0/job/poll", Nothing),
    ("*", "/api/v0/{*rest}", Nothing),
];
