//! The engine's calls by what they are about. A view is a borrowed engine: it costs nothing.

use crate::engine::Engine;

macro_rules! views {
    ($($(#[$about:meta])* $call:ident $View:ident;)*) => {
        $(
            $(#[$about])*
            #[derive(Clone, Copy)]
            pub struct $View<'a>(pub(crate) &'a Engine);
        )*

        impl Engine {
            $(
                $(#[$about])*
                pub fn $call(&self) -> $View<'_> {
                    $View(self)
                }
            )*
        }
    };
}

views! {
    /// Jobs: submitting, looking up, changing and deleting them, and their payloads and results.
    jobs Jobs;
    /// Leases: taking jobs, working on them, and ending attempts.
    leases Leases;
    /// Waits: for the end of a job, for news of it, for work.
    waits Waits;
    /// Queues: lists, numbers and settings.
    queues Queues;
    /// Constraints, and the matching of jobs against them.
    constraints Constraints;
    /// Schedules: lists, and what is due.
    schedules Schedules;
    /// Batches: opening and sealing them, and looking at them.
    batches Batches;
    /// Queues that move between shards.
    moves Moves;
    /// The feed of everything that happens.
    feed Feed;
    /// Numbers for people and dashboards.
    observe Observe;
    /// What people did.
    audit AuditLog;
    /// The copy of one door's jobs that somebody keeps beside the engine.
    replica Replica;
}
