//! The states that users set, and the jobs' own events: their limits, and their fold.

use bytes::Bytes;

use super::*;
use crate::event::{Event, PageMoved, StateSet};
use crate::job::JobId;

/// The longest state: it is kept in memory.
const STATE_BYTES_MAX: usize = 64 * 1024;

/// The longest event: an event with both the old and the new state always fits.
const EVENT_BYTES_MAX: usize = 256 * 1024;

/// How many events of a job are kept in memory; then they go to the log as a page.
const PAGE_EVENTS: usize = 1_000;

/// How many bytes of events of a job are kept in memory.
const PAGE_BYTES: usize = 256 * 1024;

/// How many pages a job may have: a hundred thousand events, if they are short.
pub(crate) const PAGES_MAX: usize = 100;

pub(crate) fn state_fits(state: Option<&Bytes>) -> bool {
    state.is_none_or(|state| state.len() <= STATE_BYTES_MAX)
}

pub(crate) fn event_fits(event: Option<&Bytes>) -> bool {
    event.is_none_or(|event| event.len() <= EVENT_BYTES_MAX)
}

/// Whether a page of events is complete.
pub(crate) fn is_full(events: &[Bytes]) -> bool {
    events.len() >= PAGE_EVENTS || events.iter().map(Bytes::len).sum::<usize>() >= PAGE_BYTES
}

impl State {
    /// The number that the next change of a job's state or events gets.
    pub(crate) fn next_update(&self) -> u64 {
        self.last_update + 1
    }

    /// The events of a job, if they are to go to the log as a page before the next one comes.
    pub fn full_page(&self, id: JobId) -> Option<&[Bytes]> {
        let events = &self.live_job(self.find_live(id)?).options().events;
        is_full(events).then_some(events)
    }

    /// Numbers are given in `decide`; the next one follows the highest seen.
    pub(super) fn note_update(&mut self, event: &Event) {
        let update_seq = match event {
            Event::StateSet(set) => set.update_seq,
            _ => event.image().map_or(0, |image| image.options().update_seq),
        };
        self.last_update = self.last_update.max(update_seq);
    }

    pub(super) fn on_state_set(&mut self, set: &StateSet, at: Place) {
        self.change(JobId(set.id), at, |job| {
            let options = job.options_mut();
            if let Some(state) = &set.state {
                options.state = Some(Bytes::copy_from_slice(state));
            }
            if let Some(page) = &set.page {
                options.events.clear();
                options.pages.push(page.clone());
            }
            if !set.event.is_empty() {
                options.events.push(Bytes::copy_from_slice(&set.event));
            }
            options.updated_ms = set.at_ms;
            options.update_seq = set.update_seq;
        });
    }

    /// The page's contents are as before: the job's revision stays.
    pub(super) fn on_page_moved(&mut self, moved: &PageMoved) {
        let Some(number) = self.find_live(JobId(moved.id)) else { return };
        let job = &mut self.jobs.live[number];
        let Some(options) = job.extra.as_mut().and_then(|extra| extra.options.as_mut()) else {
            return;
        };
        if let Some(page) = options.pages.iter_mut().find(|page| **page == moved.old) {
            *page = moved.new.clone();
        }
    }
}
