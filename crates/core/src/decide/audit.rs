//! What people do, with the entry in the audit log that describes it.

use crate::audit::{Action, AuditEntry};
use crate::command::Audited;
use crate::decide::{Context, Decided, EVENTS_MAX, decide_in, refuse_if};
use crate::event::Event;
use crate::rejection::Rejection;

pub(super) fn audited(cx: &mut Context<'_>, audited: &Audited) -> Decided {
    let Audited { command, entry } = audited;
    refuse_if(!entry.fits(), Rejection::OutOfRange("audit entry"))?;
    if let Some(command) = command {
        decide_in(cx, command)?;
        if cx.out.events.is_empty() {
            return Ok(());
        }
    }
    let entry = match entry.seq {
        0 => {
            let seq = cx.state.server().last_audit + 1;
            AuditEntry { seq, at_ms: cx.now_ms, ..entry.clone() }
        }
        seq => {
            let action = Action::Counted as i32;
            AuditEntry { seq, action, count: entry.count, ..AuditEntry::default() }
        }
    };
    cx.emit(Event::Audited(entry), true);
    Ok(())
}

/// Entries that are too old by now are not appended again.
pub(super) fn compact(cx: &mut Context<'_>, from: u64, below: u64) {
    let needed = cx.state.audit_entries_needing(from, below, cx.now_ms);
    let logged = !cx.state.faults().audit_not_compacted;
    needed.take(EVENTS_MAX).for_each(|entry| cx.emit(Event::Audited(entry.clone()), logged));
}
