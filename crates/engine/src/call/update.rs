//! States and events of jobs that a door drives itself: setting states, appending events, reading
//! long lists of events.
//!
//! Events beyond a page of a job are in the log, as bytes of their own: a chatty job costs no
//! memory, and compaction copies each page once. The meaning of states and events is up to the
//! door.

use bytes::{BufMut, Bytes, BytesMut};
use spindle_core::command::Compact;
use spindle_core::job::Origin;
use spindle_core::{Command, JobId, JobImage, Rejection, Type};

use crate::answer::Refused;
use crate::commit::Payload;
use crate::engine::Engine;
use crate::gate::Gated;
use crate::inner::Inner;
use crate::read::{FetchError, JobRef, retried};
use crate::views::Jobs;

/// All events of a finished job are logged again with each new one, so there is room for a few
/// notes only.
const FINISHED_EVENTS_BYTES_MAX: u64 = 1 << 20;

/// A job as a change of its state or events finds it.
#[derive(Debug)]
pub struct Before {
    /// The door it came through.
    pub origin: Origin,
    /// Its state, as JSON text; none if the engine drives it.
    pub state: Option<Bytes>,
    /// The time of the change.
    pub now_ms: u64,
}

/// A change of a job's state or events.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobUpdate {
    /// The new state, as JSON text; none leaves it.
    pub state: Option<Bytes>,
    /// What is appended to the events.
    pub event: Bytes,
}

/// The outcome of a [`Jobs::update`].
#[derive(Debug)]
pub enum Updated<E> {
    /// The job as it is now.
    Done(Box<JobImage>),
    /// The door itself refused the update.
    Declined(E),
}

impl Jobs<'_> {
    /// Changes a job's state, or appends an event to it: `compose` returns the change, given the
    /// job as it is now. It runs without the lock, and again if the job changed meanwhile; with a
    /// `revision`, only that state of the job is changed. A finished job takes events, and no
    /// state.
    pub fn update<E>(
        &self,
        id: JobId,
        revision: Option<u32>,
        compose: impl Fn(&Before) -> Result<JobUpdate, E>,
    ) -> Gated<Result<Updated<E>, Refused>> {
        loop {
            let before = self.0.enter().before_update(id);
            let (before, seen) = match before {
                Ok(before) => before,
                Err(rejection) => return self.0.enter().refused(rejection),
            };
            let mut read = Gated::open(());
            let before = read.absorb(before);
            let update = match compose(&before) {
                Ok(update) => update,
                Err(declined) => return read.map(|()| Ok(Updated::Declined(declined))),
            };
            let mut inner = self.0.enter();
            match inner.update(self.0, id, revision.unwrap_or(seen), update) {
                Err(Refused::Rejected(Rejection::Stale)) if revision.is_none() => {}
                updated => return inner.closed(updated),
            }
        }
    }

    /// Appends an event to a finished job: its image is in the log only, so it is logged again with
    /// the event in it.
    pub fn add_event_to_finished(
        &self,
        id: JobId,
        event: &Bytes,
    ) -> Result<Gated<Result<JobImage, Refused>>, FetchError> {
        let engine = self.0;
        loop {
            let inner = engine.enter();
            let Some(place) = inner.finished_place(id) else {
                return Ok(inner.refused(Rejection::NotFound));
            };
            if inner.state.deletion(id).is_some() {
                return Ok(inner.refused(Rejection::NotFound));
            }
            drop(inner);
            let mut image = match engine.finished_image(place) {
                Err(FetchError::Moved) => continue,
                read => read?,
            };
            if image.options().update_bytes() + event.len() as u64 > FINISHED_EVENTS_BYTES_MAX {
                return Ok(Gated::open(Err(Rejection::OutOfRange("number of events").into())));
            }
            let mut inner = engine.enter();
            // Compacted or retried since its image was read: then the image is an old one.
            if inner.finished_place(id) != Some(place) {
                continue;
            }
            let now_ms = inner.now_ms;
            let options = image.options_mut();
            options.events.push(event.clone());
            options.updated_ms = now_ms;
            let bytes = options.update_bytes() as usize;
            let fits = engine.check_length().and_then(|()| engine.check_reserve(&inner, bytes));
            let added = fits.and_then(|()| {
                inner.run(&Command::Compact(Compact::Finished(Box::new(image.clone()))))?;
                inner.changes.changed_if_ours(id.0);
                Ok(image)
            });
            return Ok(inner.changed(added));
        }
    }

    /// One page of a job's older events, wherever compaction has moved it meanwhile. `index` counts the
    /// job's pages from 0; none: the job is gone, or has no such page.
    pub fn event_page(&self, id: JobId, index: usize) -> Result<Option<Vec<Bytes>>, FetchError> {
        retried(|| {
            let image = self.get(JobRef::Id(id))?;
            let image = image.without_waiting("a page is read for an answer that has its own gate");
            let page = image.as_ref().and_then(|image| image.options().pages.get(index));
            page.map(|place| Ok(events_of(self.bytes(place)?))).transpose()
        })
    }
}

impl Inner {
    /// A job as an update finds it, and the revision it has.
    fn before_update(&self, id: JobId) -> Result<(Gated<Before>, u32), Rejection> {
        let found = self.state.job(id).ok_or(Rejection::NotFound)?;
        let job = found.live().ok_or(Rejection::Finished)?;
        let state = job.options().state.clone();
        let before = Before { origin: job.origin(), state, now_ms: self.now_ms };
        Ok((Gated::new(before, self.gate_of(&found)), job.revision()))
    }

    fn update<E>(
        &mut self,
        engine: &Engine,
        id: JobId,
        revision: u32,
        update: JobUpdate,
    ) -> Result<Gated<Updated<E>>, Refused> {
        let JobUpdate { state, event } = update;
        if self.state.live(id).is_none_or(|job| job.revision() != revision) {
            return Err(self.before_update(id).err().unwrap_or(Rejection::Stale).into());
        }
        let foreground = self.state.is_foreground(id);
        // A new state takes the place of the old one, and may be what ends the job.
        if state.is_none() && !foreground {
            engine.check_length()?;
        }
        let full = self.state.full_page(id).filter(|_| !foreground).map(page_of);
        if !foreground {
            let long = [Some(&event), state.as_ref(), full.as_ref()];
            engine.check_reserve(self, long.into_iter().flatten().map(Bytes::len).sum())?;
        }
        let full = full.map(|page| Payload::new(page, Type::Bytes));
        let page = full.as_ref().map(|page| self.batch.place_for(page));
        let command = match state {
            Some(state) => Command::SetState { id, revision: Some(revision), state, event, page },
            None => Command::AddEvent { id, event, page },
        };
        self.run_with(&command, full.as_ref())?;
        let image = self.state.image(id).expect("it was there, and no event removes it");
        Ok(Gated::new(Updated::Done(Box::new(image)), self.own_gate_if(!foreground)))
    }
}

/// Events in a row: the length of each, then its bytes.
fn page_of(events: &[Bytes]) -> Bytes {
    let len = events.iter().map(|event| 4 + event.len()).sum();
    let mut page = BytesMut::with_capacity(len);
    for event in events {
        page.put_u32_le(event.len() as u32);
        page.put_slice(event);
    }
    page.freeze()
}

/// The events that [`page_of`] has put together. The page has a checksum of its own, so an event
/// that does not fit is simply left out.
fn events_of(mut page: Bytes) -> Vec<Bytes> {
    let mut events = Vec::new();
    while let Some(head) = page.first_chunk::<4>() {
        let len = u32::from_le_bytes(*head) as usize;
        if page.len() < 4 + len {
            break;
        }
        let mut event = page.split_to(4 + len);
        events.push(event.split_off(4));
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_gives_back_the_events_it_was_made_of() {
        let events = [Bytes::from_static(b"one"), Bytes::new(), Bytes::from(vec![7; 70_000])];
        assert_eq!(events_of(page_of(&events)), events);
        let cut = page_of(&events).slice(..20);
        assert_eq!(events_of(cut), events[..2]);
    }
}
