//! The states that users set, and the jobs' own events. They are data to the core: they change
//! nothing about when a job runs.

use bytes::Bytes;

use crate::decide::{Context, Decided, refuse_if};
use crate::event::{Event, StateSet};
use crate::job::JobId;
use crate::payload::BytesRef;
use crate::rejection::Rejection;
use crate::state::{PAGES_MAX, event_fits, is_full, state_fits};

/// What is new about a job.
pub(super) struct Change<'a> {
    pub state: Option<&'a Bytes>,
    pub event: &'a Bytes,
    pub page: Option<&'a BytesRef>,
}

pub(super) fn update(
    cx: &mut Context<'_>,
    id: JobId,
    revision: Option<u32>,
    change: Change<'_>,
) -> Decided {
    let job = cx.state.live_job(cx.unchanged(id, revision)?);
    refuse_if(job.deletion().is_some(), Rejection::NotFound)?;
    refuse_if(!state_fits(change.state), Rejection::OutOfRange("state"))?;
    refuse_if(!event_fits(Some(change.event)), Rejection::OutOfRange("event"))?;
    let is_last = change.page.is_some() && job.options().pages.len() >= PAGES_MAX;
    refuse_if(is_last, Rejection::OutOfRange("number of events"))?;
    let is_missing = change.page.is_none() && is_full(&job.options().events);
    refuse_if(is_missing, Rejection::OutOfRange("page of events"))?;
    let set = StateSet {
        id: id.0,
        state: change.state.cloned(),
        event: change.event.clone(),
        at_ms: cx.now_ms,
        update_seq: cx.state.next_update(),
        page: change.page.cloned(),
    };
    cx.emit(Event::StateSet(set), job.is_logged());
    Ok(())
}
