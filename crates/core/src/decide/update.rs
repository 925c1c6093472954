//! Jobq's states and events. A user's state is data to the core: it changes nothing about when a
//! job runs.

use bytes::Bytes;

use crate::decide::{Decision, is_logged, live};
use crate::event::{Event, StateSet};
use crate::job::JobId;
use crate::payload::BytesRef;
use crate::rejection::Rejection;
use crate::state::State;

/// The longest state: it is kept in memory.
pub const STATE_BYTES_MAX: usize = 64 * 1024;

/// The longest event: one that tells the old and the new state always fits.
pub const EVENT_BYTES_MAX: usize = 256 * 1024;

/// So many events of a job are kept in memory; then they go to the log as a page.
pub const PAGE_EVENTS: usize = 1_000;

/// So many bytes of events of a job are kept in memory.
pub const PAGE_BYTES: usize = 256 * 1024;

/// So many pages a job may have: a hundred thousand events, if they are short.
pub const PAGES_MAX: usize = 100;

/// What is new about a job.
pub(super) struct Change<'a> {
    pub state: Option<&'a Bytes>,
    pub event: &'a Bytes,
    pub page: Option<&'a BytesRef>,
}

pub(super) fn update(
    state: &State,
    id: JobId,
    revision: Option<u32>,
    change: Change<'_>,
    now_ms: u64,
    out: &mut Decision,
) -> Result<(), Rejection> {
    let number = live(state, id)?;
    let slot = state.slot(number);
    if revision.is_some_and(|revision| revision != slot.revision) {
        return Err(Rejection::Stale);
    }
    if !state_fits(change.state) {
        return Err(Rejection::OutOfRange("state"));
    }
    if !event_fits(Some(change.event)) {
        return Err(Rejection::OutOfRange("event"));
    }
    let options = slot.find_options();
    if change.page.is_some() {
        if options.is_some_and(|options| options.pages.len() >= PAGES_MAX) {
            return Err(Rejection::OutOfRange("number of events"));
        }
    } else if options.is_some_and(|options| is_full(&options.events)) {
        return Err(Rejection::OutOfRange("page of events"));
    }
    let set = StateSet {
        id: id.0,
        state: change.state.cloned(),
        event: change.event.clone(),
        at_ms: now_ms,
        update_seq: state.next_update(),
        page: change.page.cloned(),
    };
    out.emit(Event::StateSet(set), is_logged(slot));
    Ok(())
}

pub(super) fn state_fits(state: Option<&Bytes>) -> bool {
    state.is_none_or(|state| state.len() <= STATE_BYTES_MAX)
}

pub(super) fn event_fits(event: Option<&Bytes>) -> bool {
    event.is_none_or(|event| event.len() <= EVENT_BYTES_MAX)
}

/// Whether a page of events is complete.
pub fn is_full(events: &[Bytes]) -> bool {
    events.len() >= PAGE_EVENTS || events.iter().map(Bytes::len).sum::<usize>() >= PAGE_BYTES
}
