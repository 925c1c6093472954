//! The role that each route requires of its caller.

use spindle_access::Role::{Inspect, Manage, Read, Submit, Work};
use spindle_http::Needs::{All, Named, Nothing};
use spindle_http::Table;

/// One row for each route of `router.rs`. `Named`: handlers ask for the job's name, or for the job.
pub(crate) const NEEDS: Table = &[
    ("POST", "/job", Named(Submit)),
    // It shows the result.
    ("GET", "/job/{id}", Named(Inspect)),
    ("DELETE", "/job/{id}", Named(Manage)),
    ("GET", "/job/{id}/polling", Named(Inspect)),
    // Access to the names that a worker takes is also checked each time it is to get a job.
    ("POST", "/worker", Named(Work)),
    ("DELETE", "/worker", Named(Work)),
    ("GET", "/worker/job", Named(Work)),
    ("POST", "/done", Named(Work)),
    ("PUT", "/constraint/{name}", All(Manage)),
    ("GET", "/constraint/{name}", All(Read)),
    ("DELETE", "/constraint/{name}", All(Manage)),
    ("GET", "/lightjq/openapi.json", Nothing),
];
