//! Finding entries of the audit log.

use bytes::Bytes;
use spindle_core::JobId;
use spindle_core::audit::{Action, AuditEntry};

use crate::gate::Gated;
use crate::views::AuditLog;

/// Entries looked at in one hold of the lock.
const LOOKED_AT_MAX: usize = 1_000;

/// Which entries are meant: those that match all fields that are set.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    /// Of this token or certificate, by the name of its entry in the tokens file.
    pub who: Option<String>,
    /// With this action.
    pub action: Option<Action>,
    /// About this queue, or a job that was in it.
    pub queue: Option<Bytes>,
    /// About this job.
    pub job: Option<JobId>,
    /// Made at this time or later.
    pub from_ms: Option<u64>,
    /// Made before this time.
    pub before_ms: Option<u64>,
}

impl AuditFilter {
    fn takes(&self, entry: &AuditEntry) -> bool {
        let name = entry.actor.as_ref().map_or("", |actor| &actor.name);
        self.who.as_ref().is_none_or(|who| who == name)
            && self.action.is_none_or(|action| entry.action == action as i32)
            && self.queue.as_ref().is_none_or(|queue| entry.queue.as_ref() == Some(queue))
            && self.job.is_none_or(|job| entry.job == Some(job.0))
            && self.from_ms.is_none_or(|from| entry.at_ms >= from)
            && self.before_ms.is_none_or(|before| entry.at_ms < before)
    }
}

/// Some entries, the newest first.
#[derive(Debug)]
pub struct AuditPage {
    /// The entries that match, among those that were looked at.
    pub entries: Vec<AuditEntry>,
    /// Entries with numbers below this are still to be looked at; none if there are no more.
    pub next: Option<u64>,
}

impl AuditLog<'_> {
    /// At most `limit` entries with numbers below `before`, as far as one hold of the lock may see.
    pub fn page(&self, before: u64, filter: &AuditFilter, limit: usize) -> Gated<AuditPage> {
        self.0.read(|inner| {
            let mut page = AuditPage { entries: Vec::new(), next: None };
            let mut below = before;
            for (looked_at, entry) in inner.state.audit_entries(before, inner.now_ms).enumerate() {
                if looked_at == LOOKED_AT_MAX || page.entries.len() == limit {
                    page.next = Some(below);
                    break;
                }
                below = entry.seq;
                if filter.takes(entry) {
                    page.entries.push(entry.clone());
                }
            }
            page
        })
    }
}
