//! The audit log: the newest entries, bounded by number and age.
//!
//! Which entries stay depends on their numbers and times only, not on the order they are folded in:
//! so the fold of a compacted log has the same ones. An entry that is too old by the clock alone
//! stays in memory until the next one comes, but is no longer shown, dumped or compacted.

use super::*;
use crate::audit::{Action, AuditEntry};

/// An entry, and the record that has it.
#[derive(Debug, Clone)]
struct Kept {
    entry: AuditEntry,
    record: u64,
}

#[derive(Debug, Clone, Default)]
pub(super) struct AuditLog {
    entries: BTreeMap<u64, Kept>,
    /// Roughly how many bytes they all take in the log.
    bytes: u64,
}

impl AuditLog {
    fn put(&mut self, entry: &AuditEntry, record: u64) {
        self.bytes += entry.bytes();
        let before = self.entries.insert(entry.seq, Kept { entry: owned(entry), record });
        self.bytes -= before.map_or(0, |kept| kept.entry.bytes());
    }

    /// Drops entries beyond the maximum number, and those that are too old compared with the
    /// newest.
    fn shrink(&mut self, defaults: &Defaults) {
        let Some(newest_ms) = self.entries.last_key_value().map(|(_, kept)| kept.entry.at_ms)
        else {
            return;
        };
        while let Some(first) = self.entries.first_entry()
            && (is_old(&first.get().entry, newest_ms, defaults)
                || self.entries.len() > defaults.audit_entries_max)
        {
            self.bytes -= self.entries.pop_first().map_or(0, |(_, kept)| kept.entry.bytes());
        }
    }
}

fn is_old(entry: &AuditEntry, now_ms: u64, defaults: &Defaults) -> bool {
    entry.at_ms.saturating_add(defaults.audit_ms) <= now_ms
}

/// A copy that does not hold on to the record it was read from.
fn owned(entry: &AuditEntry) -> AuditEntry {
    let queue = entry.queue.as_ref().map(|name| Bytes::copy_from_slice(name));
    AuditEntry { queue, ..entry.clone() }
}

impl State {
    pub(super) fn on_audited(&mut self, entry: &AuditEntry, at: Place) {
        if entry.action == Action::Counted as i32 {
            // It may be gone, to make room for newer ones.
            if let Some(kept) = self.audit.entries.get_mut(&entry.seq) {
                kept.entry.count = entry.count;
            }
            return;
        }
        self.server.last_audit = self.server.last_audit.max(entry.seq);
        self.audit.put(entry, at.position);
        self.audit.shrink(&self.defaults);
    }

    /// Entries of the audit log with numbers below `before`, the newest first.
    pub fn audit_entries(&self, before: u64, now_ms: u64) -> impl Iterator<Item = &AuditEntry> {
        let entries = self.audit.entries.range(..before).rev().map(|(_, kept)| &kept.entry);
        entries.take_while(move |entry| !is_old(entry, now_ms, &self.defaults))
    }

    /// Roughly how many bytes the audit log takes on disk.
    pub fn audit_bytes(&self) -> u64 {
        self.audit.bytes
    }

    /// Whether some entry needs a record below this.
    pub(super) fn audit_needs(&self, below: u64) -> bool {
        self.audit.entries.values().any(|kept| kept.record < below)
    }

    /// Entries from a number on that need a record below `below`, the oldest first.
    pub(crate) fn audit_entries_needing(
        &self,
        from: u64,
        below: u64,
        now_ms: u64,
    ) -> impl Iterator<Item = &AuditEntry> {
        let needing = self.audit.entries.range(from..).filter(move |(_, it)| it.record < below);
        let entries = needing.map(|(_, kept)| &kept.entry);
        entries.filter(move |entry| !is_old(entry, now_ms, &self.defaults))
    }
}
