//! The role that each page requires of its visitor.

use spindle_access::Role::{Admin, Inspect, Manage, Read, Submit};
use spindle_http::Needs::{All, Named, Nothing, Server};
use spindle_http::Table;

/// One row for each route of `router.rs`. `Named`: the API checks the queue, job, schedule or batch
/// when the page asks it. The API checks everything else as well, but here a page is refused before
/// it asks anything.
pub(crate) const NEEDS: Table = &[
    ("GET", "/", All(Read)),
    ("GET", "/queues", All(Read)),
    ("GET", "/queue", Named(Read)),
    ("GET", "/queue/settings", Named(Manage)),
    ("POST", "/queue/settings", Named(Manage)),
    ("GET", "/queue/{action}", Named(Manage)),
    ("POST", "/queue/{action}", Named(Manage)),
    ("GET", "/jobs", Named(Read)),
    ("GET", "/dead", Named(Read)),
    ("GET", "/scheduled", Named(Read)),
    ("GET", "/search", Named(Read)),
    ("GET", "/jobs/all/{action}", Named(Manage)),
    ("POST", "/jobs/all/{action}", Named(Manage)),
    ("GET", "/jobs/{id}", Named(Read)),
    ("GET", "/jobs/{id}/bytes/{which}", Named(Inspect)),
    ("GET", "/jobs/{id}/{action}", Named(Manage)),
    ("POST", "/jobs/{id}/{action}", Named(Manage)),
    ("GET", "/workers", All(Read)),
    ("GET", "/jobd", All(Read)),
    ("GET", "/jobd/{action}", All(Manage)),
    ("POST", "/jobd/{action}", All(Manage)),
    ("GET", "/schedules", All(Read)),
    ("GET", "/schedule", Named(Read)),
    ("GET", "/schedule/edit", Named(Manage)),
    ("POST", "/schedule/edit", Named(Manage)),
    ("GET", "/schedule/{action}", Named(Manage)),
    ("POST", "/schedule/{action}", Named(Manage)),
    ("GET", "/batches", All(Read)),
    ("GET", "/batches/{id}", Named(Read)),
    ("GET", "/batches/{id}/seal", Named(Submit)),
    ("POST", "/batches/{id}/seal", Named(Submit)),
    ("GET", "/batches/{id}/cancel", Named(Manage)),
    ("POST", "/batches/{id}/cancel", Named(Manage)),
    ("GET", "/constraints", All(Read)),
    ("GET", "/constraint", All(Read)),
    ("GET", "/constraint/edit", All(Manage)),
    ("POST", "/constraint/edit", All(Manage)),
    ("GET", "/constraint/remove", All(Manage)),
    ("POST", "/constraint/remove", All(Manage)),
    ("GET", "/audit", All(Admin)),
    ("GET", "/server", Server(Read)),
    ("GET", "/submit", Server(Submit)),
    ("POST", "/submit", Named(Submit)),
    // It tells that something happened, not what.
    ("GET", "/live", Named(Read)),
    ("GET", "/login", Nothing),
    ("POST", "/login", Nothing),
    ("POST", "/logout", Nothing),
    ("POST", "/theme", Nothing),
    ("POST", "/columns", Nothing),
    ("GET", "/assets/{name}", Nothing),
];
