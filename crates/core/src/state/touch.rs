//! Jobq's states and events, folded and looked at.

use bytes::Bytes;

use super::*;
use crate::decide::touch::is_full;
use crate::event::{Event, PageMoved, StateSet};
use crate::job::JobId;

impl State {
    /// The number the next change of a Jobq job gets.
    pub(crate) fn next_touch(&self) -> u64 {
        self.last_touch + 1
    }

    /// The events of a job, if they are to go to the log as a page before the next one comes.
    pub fn full_page(&self, id: JobId) -> Option<&[Bytes]> {
        let rare = self.slot(self.live(id)?).find_rare()?;
        is_full(&rare.events).then_some(&rare.events)
    }

    /// Numbers are given in `decide`; the next one follows the highest seen.
    pub(super) fn note_touch(&mut self, event: &Event) {
        let touch = match event {
            Event::StateSet(set) => set.touch,
            _ => event.image().map_or(0, |image| image.rare().touch),
        };
        self.last_touch = self.last_touch.max(touch);
    }

    pub(super) fn on_state_set(&mut self, set: &StateSet, at: Place) {
        self.change(JobId(set.id), at, |slot| {
            let rare = slot.rare();
            if let Some(state) = &set.state {
                rare.state = Some(Bytes::copy_from_slice(state));
            }
            if let Some(page) = &set.page {
                rare.events.clear();
                rare.pages.push(page.clone());
            }
            if !set.event.is_empty() {
                rare.events.push(Bytes::copy_from_slice(&set.event));
            }
            rare.touched_ms = set.at_ms;
            rare.touch = set.touch;
        });
    }

    /// What a page says is as before: the job's revision stays.
    pub(super) fn on_page_moved(&mut self, moved: &PageMoved) {
        let Some(number) = self.live(JobId(moved.id)) else { return };
        let slot = &mut self.slots[number];
        let Some(rare) = slot.extra.as_mut().and_then(|extra| extra.rare.as_mut()) else { return };
        if let Some(page) = rare.pages.iter_mut().find(|page| **page == moved.old) {
            *page = moved.new.clone();
        }
    }
}
