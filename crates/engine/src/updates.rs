//! What Jobq's door asks of the engine: to set states, to append events, to read long event logs,
//! and to hear which of Jobq's jobs have changed.
//!
//! Events beyond a page of a job are in the log, as bytes of their own: a chatty job costs no
//! memory, and carry-forward copies each page once. What a state or an event says is the door's.

use std::collections::{BTreeMap, BTreeSet};

use bytes::{BufMut, Bytes, BytesMut};
use spindle_core::command::Compact;
use spindle_core::job::{JobOptions, Origin, Outcome};
use spindle_core::{BytesRef, Command, Event, Found, JobId, JobImage, Rejection, Type};

use crate::door::Gate;
use crate::engine::{Engine, Refused};
use crate::inner::Inner;
use crate::read::{FetchError, JobRef};

/// A job as a change of its state or events finds it.
#[derive(Debug)]
pub struct Before<'a> {
    /// The door it came through.
    pub origin: Origin,
    /// Its state, as JSON text; none if the engine drives it.
    pub state: Option<&'a Bytes>,
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

/// What came of a [`Engine::update`].
#[derive(Debug)]
pub enum Updated<E> {
    /// The job as it is now, and what an answer about it must wait for.
    Done(Box<JobImage>, Gate),
    /// The door itself said no; an answer must wait for the gate.
    Declined(E, Gate),
}

/// A change of one of Jobq's jobs.
#[derive(Debug)]
pub enum JobqChange {
    /// It is gone.
    Gone(JobId),
    /// It is unfinished, and this now.
    Live {
        /// The job.
        image: Box<JobImage>,
        /// Its payload may be another one than before.
        payload_changed: bool,
    },
    /// It is done or dead: its image is in the log.
    Finished(JobId),
}

/// A slice of what has changed.
#[derive(Debug)]
pub struct JobqChanges {
    /// Everything told so far is void: this is the first slice of all jobs.
    pub restart: bool,
    /// In order of their numbers.
    pub changes: Vec<JobqChange>,
    /// The round goes on. At its end everything is told that had changed when it began.
    pub more: bool,
    /// What an answer made of it must wait for.
    pub gate: Gate,
}

/// Jobs told in one hold of the lock.
const JOBS_PER_SLICE: usize = 256;

/// Events told in one hold of the lock, roughly.
const EVENTS_PER_SLICE: usize = 8 * 1024;

/// More changes than this are not remembered one by one: then all jobs are told again.
const CHANGES_MAX: usize = 1 << 17;

/// Which jobs are Jobq's, and which of them have changed since they were last told.
#[derive(Debug, Default)]
pub(crate) struct JobqChangeSet {
    ids: BTreeSet<u64>,
    /// With whether the payload may be another one.
    changed: BTreeMap<u64, bool>,
    /// What was in `changed` when this round of telling began. New changes wait for the next, so
    /// that a round has an end however fast jobs change.
    telling: BTreeMap<u64, bool>,
    /// All jobs from this one on are to be told.
    walk: Option<u64>,
    /// The next slice is the first of a walk.
    restart: bool,
}

impl JobqChangeSet {
    /// Notes what an event says of Jobq's jobs. Others cost next to nothing.
    pub fn note(&mut self, event: &Event) {
        if let Some(image) = event.image() {
            if image.origin() == Origin::Jobq {
                let new = self.ids.insert(image.id);
                // A job carried forward is as before.
                if new || !matches!(event, Event::Compacted(_)) {
                    self.changed(image.id, !matches!(event, Event::Finished(_)));
                }
            }
            return;
        }
        if self.ids.is_empty() {
            return;
        }
        match event {
            Event::Gone(gone) => {
                for id in &gone.ids {
                    if self.ids.remove(id) {
                        self.changed(*id, false);
                    }
                }
            }
            Event::StateSet(set) => self.changed_if_ours(set.id),
            Event::Leased(leased) => self.changed_if_ours(leased.id),
            Event::Requeued(requeued) => self.changed_if_ours(requeued.id),
            Event::Edited(edited) => self.changed_if_ours(edited.id),
            Event::Ready(ready) => self.changed_if_ours(ready.id),
            _ => {}
        }
    }

    /// Says of a job that it is to be told again.
    fn changed_if_ours(&mut self, id: u64) {
        if self.ids.contains(&id) {
            self.changed(id, false);
        }
    }

    fn changed(&mut self, id: u64, payload: bool) {
        if self.walk.is_some_and(|from| id >= from) {
            return;
        }
        *self.changed.entry(id).or_default() |= payload;
        if self.changed.len() > CHANGES_MAX {
            self.walk_all();
        }
    }

    /// All jobs are to be told, whatever was told before.
    pub fn walk_all(&mut self) {
        self.changed.clear();
        self.telling.clear();
        self.walk = Some(0);
        self.restart = true;
    }

    /// The next few jobs to be told.
    fn take(&mut self, limit: usize) -> Vec<(u64, bool)> {
        if !self.has_more() {
            std::mem::swap(&mut self.changed, &mut self.telling);
        }
        let mut taken = Vec::new();
        while taken.len() < limit {
            let Some(first) = self.telling.pop_first() else { break };
            taken.push(first);
        }
        let Some(from) = self.walk else { return taken };
        let left = limit - taken.len();
        let walked: Vec<u64> = self.ids.range(from..).take(left).copied().collect();
        self.walk = match walked.last() {
            _ if left == 0 => Some(from),
            Some(last) if walked.len() == left => Some(last + 1),
            _ => None,
        };
        taken.extend(walked.into_iter().map(|id| (id, true)));
        taken
    }

    fn give_back(&mut self, id: u64, payload: bool) {
        *self.telling.entry(id).or_default() |= payload;
    }

    /// Whether the round goes on.
    fn has_more(&self) -> bool {
        self.walk.is_some() || !self.telling.is_empty()
    }
}

impl Engine {
    /// Changes a job's state, or appends an event to it: `compose` says what, from how the job is
    /// now. It runs under the lock, so it copies and does not parse. A finished job takes events,
    /// and no state.
    pub fn update<E>(
        &self,
        id: JobId,
        revision: Option<u32>,
        compose: impl Fn(&Before<'_>) -> Result<JobUpdate, E>,
    ) -> Result<Updated<E>, Refused> {
        let mut inner = self.enter();
        self.check_room(&inner)?;
        let Some(Found::Live(job)) = inner.state.job(id) else {
            let finished = inner.state.job(id).is_some();
            let rejection = if finished { Rejection::Finished } else { Rejection::NotFound };
            return Err(self.refuse(&inner, rejection));
        };
        let before = Before { origin: job.origin(), state: job.state(), now_ms: inner.now_ms };
        let gate = inner.gate_of(&Found::Live(job));
        let JobUpdate { state, event } = match compose(&before) {
            Ok(update) => update,
            Err(declined) => return Ok(Updated::Declined(declined, gate)),
        };
        let foreground = inner.state.is_foreground(id);
        let full = inner.state.full_page(id).filter(|_| !foreground).map(page_of);
        if !foreground {
            let long = [Some(&event), state.as_ref(), full.as_ref()];
            self.check_reserve(&inner, long.into_iter().flatten().map(Bytes::len).sum())?;
        }
        let crc = full.as_ref().map_or(0, |page| crc32c::crc32c(page));
        let page = full.as_ref().map(|page| inner.place_for(page.len(), Type::Bytes));
        let command = match state {
            Some(state) => Command::SetState { id, revision, state, event, page },
            None => Command::AddEvent { id, event, page },
        };
        let run = inner.run_with(&command, |inner| {
            if let Some(page) = &full {
                inner.put_bytes(page, crc);
            }
        });
        match run {
            Ok(()) => {
                let gate = if foreground { Gate::OPEN } else { inner.own_gate() };
                let image = inner.state.image(id).expect("it was there, and no event removes it");
                Ok(Updated::Done(Box::new(image), gate))
            }
            Err(rejection) => Err(self.refuse(&inner, rejection)),
        }
    }

    /// Appends an event to a finished job: its image is in the log only, so it is told again with
    /// the event in it.
    pub fn add_event_to_finished(
        &self,
        id: JobId,
        event: &Bytes,
    ) -> Result<Result<(JobImage, Gate), Refused>, FetchError> {
        loop {
            let (place, gate) = {
                let inner = self.enter();
                if let Err(refused) = self.check_room(&inner) {
                    return Ok(Err(refused));
                }
                (inner.finished_place(id), inner.tail())
            };
            let Some(place) = place else {
                return Ok(Err(Refused::Rejected(Rejection::NotFound, gate)));
            };
            let mut image = match self.finished_image(place) {
                Err(FetchError::Moved) => continue,
                read => read?,
            };
            if image.options().update_bytes() + event.len() as u64 > FINISHED_EVENTS_BYTES_MAX {
                let rejection = Rejection::OutOfRange("number of events");
                return Ok(Err(Refused::Rejected(rejection, Gate::OPEN)));
            }
            let mut inner = self.enter();
            // Carried or retried since its image was read: then the image is an old one.
            if inner.finished_place(id) != Some(place) {
                continue;
            }
            let now_ms = inner.now_ms;
            let options = image.options_mut();
            options.events.push(event.clone());
            options.updated_ms = now_ms;
            if let Err(refused) = self.check_reserve(&inner, options.update_bytes() as usize) {
                return Ok(Err(refused));
            }
            let carried = Command::Compact(Compact::Finished(Box::new(image.clone())));
            return Ok(match inner.run(&carried) {
                Ok(()) => {
                    inner.jobq.changed_if_ours(id.0);
                    Ok((image, inner.own_gate()))
                }
                Err(rejection) => Err(self.refuse(&inner, rejection)),
            });
        }
    }

    /// One page of a job's older events, wherever it was carried meanwhile. `index` counts the
    /// job's pages from 0; none: the job is gone, or has no such page.
    pub fn event_page(&self, id: JobId, index: usize) -> Result<Option<Vec<Bytes>>, FetchError> {
        for _ in 0..TRIES {
            let (Some(image), _) = self.job(JobRef::Id(id))? else { return Ok(None) };
            let Some(place) = image.options().pages.get(index) else { return Ok(None) };
            match self.bytes(place) {
                Ok(page) => return Ok(Some(events_of(page))),
                Err(FetchError::Moved) => {}
                Err(error) => return Err(error),
            }
        }
        Err(FetchError::Moved)
    }

    /// What has changed of Jobq's jobs since the last call: for the one who keeps a copy of them.
    /// The first call ever, and one after very many changes, tells all of them, in slices.
    pub fn jobq_changes(&self) -> JobqChanges {
        let mut inner = self.enter();
        let restart = std::mem::take(&mut inner.jobq.restart);
        let taken = inner.jobq.take(JOBS_PER_SLICE);
        let mut changes = Vec::with_capacity(taken.len());
        let mut events = 0;
        for (id, payload_changed) in taken {
            if events > EVENTS_PER_SLICE {
                inner.jobq.give_back(id, payload_changed);
                continue;
            }
            changes.push(match inner.state.job(JobId(id)) {
                Some(Found::Live(job)) => {
                    let image = inner.state.image(job.id()).expect("it is live");
                    events += image.options().events.len();
                    JobqChange::Live { image: Box::new(image), payload_changed }
                }
                Some(Found::Finished(_)) => JobqChange::Finished(JobId(id)),
                None => JobqChange::Gone(JobId(id)),
            });
        }
        JobqChanges { restart, changes, more: inner.jobq.has_more(), gate: inner.tail() }
    }

    /// How many of Jobq's jobs the next [`Engine::jobq_changes`] have to tell, roughly.
    pub fn jobq_changes_waiting(&self) -> usize {
        let inner = self.shared.inner.lock();
        let walk = inner.jobq.walk.map_or(0, |_| inner.jobq.ids.len());
        walk + inner.jobq.changed.len() + inner.jobq.telling.len()
    }

    /// Whoever kept a copy of Jobq's jobs has lost it: all of them are to be told again.
    pub fn jobq_restart_changes(&self) {
        self.shared.inner.lock().jobq.walk_all();
    }
}

/// Looking up a page that is being carried is tried this often.
const TRIES: usize = 16;

/// Events of a finished job are told again with each new one: this is a note or two, not a log.
const FINISHED_EVENTS_BYTES_MAX: u64 = 1 << 20;

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

/// What [`page_of`] has put together. The page has a checksum of its own: what does not fit is not
/// there.
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

impl Inner {
    /// Tells a page of a job's events again, if it still is one of them.
    pub(crate) fn compact_page(&mut self, id: JobId, old: BytesRef, bytes: &[u8]) {
        let new = self.place_for(bytes.len(), old.kind());
        let crc = crc32c::crc32c(bytes);
        let command = Command::Compact(Compact::Page { id, old, new });
        self.run_with(&command, |inner| inner.put_bytes(bytes, crc)).ok();
    }
}

/// What an event brings that may be long: so much room it needs in a record besides its fixed part.
pub(crate) fn long_bytes(event: &Event) -> usize {
    match event {
        Event::StateSet(set) => set.event.len() + set.state.as_ref().map_or(0, Bytes::len),
        Event::Requeued(requeued) => requeued.outcome.as_deref().map_or(0, Outcome::words_len),
        _ => event.image().map_or(0, |image| {
            image.options.as_deref().map_or(0, options_bytes) + image.words_len()
        }),
    }
}

fn options_bytes(options: &JobOptions) -> usize {
    let texts = options.events.iter().chain(&options.tags).chain(&options.state);
    let keys = options.keys.iter().map(|key| &key.name);
    texts.chain(keys).map(|text| text.len() + 16).sum::<usize>() + 32 * options.pages.len()
}

#[cfg(test)]
mod tests {
    use spindle_core::job::{Attempt, Words};

    use super::*;
    use crate::inner::EVENT_ROOM_BYTES;

    #[test]
    fn a_page_gives_back_the_events_it_was_made_of() {
        let events = [Bytes::from_static(b"one"), Bytes::new(), Bytes::from(vec![7; 70_000])];
        assert_eq!(events_of(page_of(&events)), events);
        let cut = page_of(&events).slice(..20);
        assert_eq!(events_of(cut), events[..2]);
    }

    #[test]
    fn an_event_takes_no_more_than_the_room_that_is_made_for_it() {
        let text = |len: usize| Bytes::from(vec![b'x'; len]);
        let (message, error, code) = (text(256), text(256), text(64));
        let words = Some(Box::new(Words { message, error, code }));
        let attempt = Attempt { worker: text(1024), words, ended_ms: 1, ..Attempt::default() };
        let outcome = Outcome { message: text(16_384), error: text(16_384), ..Outcome::default() };
        let image = JobImage {
            history: vec![attempt; 32],
            outcome: Some(Box::new(outcome.clone())),
            ..JobImage::default()
        };
        let requeued = spindle_core::event::Requeued {
            outcome: Some(Box::new(outcome)),
            ..Default::default()
        };
        for event in [Event::Finished(image), Event::Requeued(requeued)] {
            let mut bytes = Vec::new();
            event.encode(&mut bytes);
            let room = EVENT_ROOM_BYTES + long_bytes(&event);
            assert!(bytes.len() <= room, "{} of {}: {}", bytes.len(), room, event.name());
        }
    }

    fn submitted(id: u64, origin: Origin) -> Event {
        Event::Submitted(JobImage { id, origin: origin as i32, ..JobImage::default() })
    }

    #[test]
    fn changes_are_told_once_and_a_walk_tells_all() {
        let mut jobs = JobqChangeSet::default();
        for id in 1..=5 {
            jobs.note(&submitted(id, Origin::Jobq));
        }
        jobs.note(&submitted(6, Origin::Workq));
        assert_eq!(jobs.take(2), [(1, true), (2, true)]);
        let ids = |taken: Vec<(u64, bool)>| taken.into_iter().map(|(id, _)| id).collect::<Vec<_>>();
        assert_eq!(ids(jobs.take(9)), [3, 4, 5]);
        assert!(!jobs.has_more() && jobs.take(9).is_empty());
        jobs.walk_all();
        assert_eq!(ids(jobs.take(2)), [1, 2]);
        let gone = spindle_core::event::Gone { ids: vec![1, 4], cause: 8 };
        jobs.note(&Event::Gone(gone));
        assert_eq!(ids(jobs.take(9)), [3, 5], "4 was not told yet, and is gone");
        assert!(!jobs.has_more());
        assert_eq!(ids(jobs.take(9)), [1], "it was told, so its end is news");
    }

    #[test]
    fn too_many_changes_become_a_walk() {
        let mut jobs = JobqChangeSet::default();
        for id in 1..=CHANGES_MAX as u64 + 1 {
            jobs.note(&submitted(id, Origin::Jobq));
        }
        assert!(jobs.changed.is_empty() && jobs.restart);
        assert_eq!(jobs.take(2), [(1, true), (2, true)]);
    }
}
