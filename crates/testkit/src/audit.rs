//! What requests leave in the audit log.

use spindle_core::audit::{Actor, AuditEntry};
use spindle_engine::{AuditFilter, Engine};

use crate::opened;

/// The entries that come after this moment.
pub struct Audited<'a> {
    engine: &'a Engine,
    seen: u64,
}

impl<'a> Audited<'a> {
    /// Begins to look.
    pub fn from_now(engine: &'a Engine) -> Audited<'a> {
        let seen = all(engine).first().map_or(0, |newest| newest.seq);
        Audited { engine, seen }
    }

    /// What has come since, the newest first.
    pub fn entries(&self) -> Vec<AuditEntry> {
        all(self.engine).into_iter().filter(|entry| entry.seq > self.seen).collect()
    }

    /// Asserts that one entry has come, of this actor, or none.
    #[track_caller]
    pub fn expect(&self, by: Option<&Actor>, what: &str) {
        let entries = self.entries();
        let actors: Vec<_> = entries.iter().filter_map(|entry| entry.actor.as_ref()).collect();
        assert_eq!(actors, by.into_iter().collect::<Vec<_>>(), "{what}: {entries:?}");
    }
}

fn all(engine: &Engine) -> Vec<AuditEntry> {
    opened(engine.audit().page(u64::MAX, &AuditFilter::default(), usize::MAX)).entries
}
