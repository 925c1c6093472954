//! Jobq's states and events, folded and looked at.

use bytes::Bytes;

use super::*;
use crate::decide::update::is_full;
use crate::event::{Event, PageMoved, StateSet};
use crate::job::JobId;

impl State {
    /// The number the next change of a Jobq job gets.
    pub(crate) fn next_update(&self) -> u64 {
        self.last_update + 1
    }

    /// The events of a job, if they are to go to the log as a page before the next one comes.
    pub fn full_page(&self, id: JobId) -> Option<&[Bytes]> {
        let options = self.slot(self.live(id)?).find_options()?;
        is_full(&options.events).then_some(&options.events)
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
        self.change(JobId(set.id), at, |slot| {
            let options = slot.options();
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

    /// What a page says is as before: the job's revision stays.
    pub(super) fn on_page_moved(&mut self, moved: &PageMoved) {
        let Some(number) = self.live(JobId(moved.id)) else { return };
        let slot = &mut self.slots[number];
        let Some(options) = slot.extra.as_mut().and_then(|extra| extra.options.as_mut()) else {
            return;
        };
        if let Some(page) = options.pages.iter_mut().find(|page| **page == moved.old) {
            *page = moved.new.clone();
        }
    }
}
