//! The audit log: all entries in a row, the newest last.

use spindle_core::State;
use spindle_core::audit::{Action, Actor, AuditEntry};

use super::Model;

/// The parts of an entry that are compared: all but the text for people, which only the engine
/// makes.
type Compared<'a> = (u64, u64, &'a Option<Actor>, i32, Option<u64>, Option<&'a [u8]>, Option<u64>);

impl Model {
    /// A change and its entry happen together: a new one, or the count of one that is there.
    pub(crate) fn apply_audited(&mut self, entry: &AuditEntry, now_ms: u64) {
        if entry.seq > 0 {
            let known = self.audit.iter_mut().find(|known| known.seq == entry.seq);
            known.into_iter().for_each(|known| known.count = entry.count);
            return;
        }
        self.last_audit += 1;
        self.audit.push(AuditEntry { seq: self.last_audit, at_ms: now_ms, ..entry.clone() });
        let too_many = self.audit.len().saturating_sub(self.defaults.audit_entries_max);
        self.audit.drain(..too_many);
    }

    /// Entries that are there still, the newest first.
    fn audit_kept(&self, now_ms: u64) -> impl Iterator<Item = &AuditEntry> {
        let is_young = move |entry: &&AuditEntry| entry.at_ms + self.defaults.audit_ms > now_ms;
        self.audit.iter().rev().filter(is_young)
    }

    pub(super) fn compare_audit(&self, state: &State, now_ms: u64) -> Result<(), String> {
        // The log's time does not go back, whatever the clock of the next server says: what compaction left
        // behind as too old is too old.
        let now_ms = now_ms.max(self.latest_ms);
        let expected: Vec<_> = self.audit_kept(now_ms).map(compared).collect();
        let found: Vec<_> = state.audit_entries(u64::MAX, now_ms).map(compared).collect();
        if expected != found {
            return Err(format!("the audit log should be {expected:?} and is {found:?}"));
        }
        Ok(())
    }
}

fn compared(entry: &AuditEntry) -> Compared<'_> {
    let AuditEntry { seq, at_ms, actor, action, job, queue, count, .. } = entry;
    (*seq, *at_ms, actor, *action, *job, queue.as_deref(), *count)
}

/// The action that an entry has for an edit.
pub(crate) fn action_of(edit: &spindle_core::command::Edit) -> Action {
    match edit.parked {
        _ if edit.queue.is_some() => Action::Move,
        Some(true) => Action::Park,
        Some(false) => Action::Release,
        None => Action::Edit,
    }
}
