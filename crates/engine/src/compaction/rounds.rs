//! Rounds of compaction, one bounded step at a time: jobs, then all other live data, then the trim.

use spindle_core::command::Compact;
use spindle_core::job::Cause;
use spindle_core::{BytesRef, Command, Event, Found, JobId, JobImage, Place, Rejection};
use spindle_log::{LogError, Position};

use super::progress::{Compactor, Round, Stage, Weighed};
use crate::admission::kept_back;
use crate::commit::Payload;
use crate::engine::Engine;
use crate::gate::Gate;
use crate::inner::Inner;
use crate::read::FetchError;

/// Jobs looked at in one hold of the lock.
const LOOKED_AT_MAX: usize = 512;
/// What a job takes besides its payload when it is appended again, with room to spare.
const IMAGE_BYTES: usize = 320;
/// A rough size for the payload and result of a finished job, whose sizes only its image knows.
const FINISHED_BYTES: usize = 704;
/// Below this much overhead a log is not worth rewriting, in segments.
const SLACK_SEGMENTS: u64 = 2;

/// A walk's estimate holds for one step per this many jobs that it passed.
const JOBS_PER_STEP: usize = 50_000;

/// A job to be appended again, or a page of its events, which goes before it. Its bytes are still in
/// the log ([`BytesRef`]) or in hand ([`Payload`]).
struct Old<B> {
    id: JobId,
    what: What,
    payload: Option<B>,
    result: Option<B>,
    pages: Vec<B>,
    /// About what it takes in the log besides those and its bare image.
    more_bytes: usize,
}

/// What is appended again.
enum What {
    Live { revision: u32 },
    Finished { place: Place, image: Option<Box<JobImage>> },
    Page { place: BytesRef },
}

impl<B> Old<B> {
    fn new(id: JobId, what: What) -> Old<B> {
        Old { id, what, payload: None, result: None, pages: Vec::new(), more_bytes: 0 }
    }

    /// About how many bytes it takes in the log.
    fn bytes(&self, len: impl Fn(&B) -> usize) -> usize {
        let parts = self.payload.iter().chain(&self.result).chain(&self.pages);
        IMAGE_BYTES + self.more_bytes + parts.map(len).sum::<usize>()
    }
}

fn len_of(place: &BytesRef) -> usize {
    place.len as usize
}

/// How the walk over the jobs stands after a step.
enum Walk {
    Goes,
    Ends,
    /// There is no room to append what comes next.
    Blocked,
}

impl Engine {
    /// Does one bounded step. Returns whether there is more to do at once.
    pub fn compaction_step(&self) -> Result<bool, LogError> {
        let mut compactor = self.shared.compactor.lock();
        let more = self.step_of(&mut compactor)?;
        let (log, admission) = (&*self.shared.log, &self.shared.admission);
        match &compactor.round {
            Some(Round { needed: Some(needed), .. }) => {
                admission.claim(log, *needed as u64 + kept_back(log));
            }
            None if !more && !compactor.weighed.is_stale => admission.release(log),
            _ => admission.renew(log),
        }
        self.answer_room(&mut self.shared.inner.lock());
        Ok(more)
    }

    fn step_of(&self, compactor: &mut Compactor) -> Result<bool, LogError> {
        compactor.weighed.is_stale = false;
        if self.shared.admission.is_blocked() && !self.may_trim(compactor) {
            compactor.round = None;
            return Ok(false);
        }
        let Some(round) = compactor.round.as_mut() else {
            compactor.round = self.begin_round(&mut compactor.weighed);
            return Ok(compactor.round.is_some());
        };
        if self.outgrows_reserve(round) {
            compactor.round = None;
            return Ok(true);
        }
        match &mut round.stage {
            Stage::Jobs => match self.compact_jobs(round, &mut compactor.weighed) {
                Walk::Goes => {}
                // Deletes make it shorter: the amount to append is estimated anew.
                Walk::Blocked => {
                    compactor.round = None;
                    return Ok(false);
                }
                Walk::Ends => {
                    let items = self.shared.inner.lock().state.items_needing(round.target);
                    round.stage = Stage::Items(items);
                }
            },
            Stage::Items(items) => {
                let next = items.pop();
                let gate = self.compact_item(next.as_ref(), items);
                if items.is_empty() {
                    round.stage = Stage::Trim(gate);
                }
            }
            Stage::Trim(gate) => {
                let early = self.shared.inner.lock().options.faults.trim_before_commit;
                if *gate <= self.durable() || early {
                    self.shared.log.trim_before(Position(round.target))?;
                    compactor.trims += 1;
                    compactor.round = None;
                }
            }
        }
        Ok(true)
    }

    /// Trims done since the start.
    pub fn trims(&self) -> u64 {
        self.shared.compactor.lock().trims
    }

    /// Whether a round has come to its trim, and nothing that the trim waits for is missing.
    fn may_trim(&self, compactor: &Compactor) -> bool {
        let stage = compactor.round.as_ref().map(|round| &round.stage);
        matches!(stage, Some(Stage::Trim(gate)) if *gate <= self.durable())
    }

    /// A round that began while there was room may need more room than the reserve has: on a full
    /// disk one segment at a time is compacted, and the room that it needs is claimed.
    fn outgrows_reserve(&self, round: &Round) -> bool {
        !matches!(round.stage, Stage::Trim(_))
            && round.needed.is_none()
            && self.shared.log.space().is_reserve()
    }

    /// Starts a round when the log is over twice the size of its live data. On a full disk, and while the log is nearly
    /// as long as it may be, a segment that is worth it and fits into the reserve is enough: dead data is then the only
    /// room there is, and compaction must give it back before the reserve is used up by the records of deletes.
    fn begin_round(&self, weighed: &mut Weighed) -> Option<Round> {
        let log = &self.shared.log;
        let first = log.first();
        let segment_end = log.segment_end_before(first)?;
        let segment_bytes = log.bytes_between(first, segment_end);
        let live = {
            let inner = self.shared.inner.lock();
            let state = &inner.state;
            inner.footprint.live_bytes()
                + state.finished_bytes()
                + state.audit_bytes()
                + state.schedules_bytes()
        };
        let kept = log.bytes_on_disk();
        if log.space().is_reserve() || self.is_log_nearly_full() {
            // Changes wait for this check: it has to see what they have freed.
            if !self.has_room() {
                weighed.steps_left = 0;
            }
            let needed = self.bytes_below(segment_end, weighed);
            let pays =
                needed as u64 <= segment_bytes / 4 * 3 || kept > live + live / 8 + segment_bytes;
            let round = Round::new(segment_end.0, Some(needed));
            return (pays && self.has_room_for(needed, || needed)).then_some(round);
        }
        if kept <= 2 * live + SLACK_SEGMENTS * segment_bytes {
            return None;
        }
        // Far enough that the round pays: down to about one and a half times the live data.
        let excess = kept - live - live / 2;
        let mut target = segment_end;
        while log.bytes_between(first, target) < excess {
            match log.segment_end_before(target) {
                Some(next) if next > target => target = next,
                _ => break,
            }
        }
        // No lock on the batch is needed to keep payloads from being promised a place below the
        // target: the target lies in closed segments, and the open batch is behind those.
        Some(Round::new(target.0, None))
    }

    /// About how many bytes must be appended again to drop what is below a position.
    fn bytes_below(&self, target: Position, weighed: &mut Weighed) -> usize {
        if weighed.target == target.0 && weighed.steps_left > 0 {
            weighed.steps_left -= 1;
            weighed.is_stale = true;
            return weighed.bytes;
        }
        let mut bytes = 0;
        let mut from = Some(JobId(0));
        while let Some(id) = from {
            let (old, next) = self.shared.inner.lock().old_jobs(id, target.0);
            bytes += old.iter().map(|job| job.bytes(len_of)).sum::<usize>();
            from = next;
        }
        let steps_left = self.shared.inner.lock().state.jobs_count() / JOBS_PER_STEP;
        *weighed = Weighed { target: target.0, bytes, steps_left, is_stale: false };
        bytes
    }

    /// Whether there is room to append the rest of the round, `bytes` of it now. On a full disk the
    /// last eighth of the reserve is for clients, which can free what compaction cannot; only when
    /// half of what is left is enough for all of the rest, it is better spent on that.
    fn has_room_for(&self, bytes: usize, rest: impl FnOnce() -> usize) -> bool {
        let log = &self.shared.log;
        if !log.space().is_reserve() {
            return true;
        }
        let kept_back = kept_back(&**log);
        let undurable = self.shared.inner.lock().batch.undurable_bytes() as u64;
        let room = log.room_bytes().saturating_sub(undurable);
        // The size of the rest is an estimate, `bytes` is exact.
        bytes as u64 + kept_back <= room || (rest().max(bytes) as u64) <= room / 2
    }

    /// Appends the next few jobs again.
    fn compact_jobs(&self, round: &mut Round, weighed: &mut Weighed) -> Walk {
        let (old, next) = self.shared.inner.lock().old_jobs(round.from, round.target);
        let mut again = None;
        let mut fetched = Vec::with_capacity(old.len());
        for job in old {
            let id = job.id;
            match self.fetch(job) {
                Ok(job) => fetched.push(job),
                // It moved or went meanwhile: look again.
                Err(FetchError::Moved) => again = again.or(Some(id)),
                Err(error) => self.give_up(id, &error),
            }
        }
        let bytes = fetched.iter().map(|job| job.bytes(Payload::len)).sum();
        let target = Position(round.target);
        if bytes > 0 && !self.has_room_for(bytes, || self.bytes_below(target, weighed)) {
            return Walk::Blocked;
        }
        if let Some(needed) = &mut round.needed {
            *needed = needed.saturating_sub(bytes);
        }
        let mut inner = self.enter();
        for job in fetched {
            if let Some(id) = inner.compact_one(job) {
                again = Some(again.map_or(id, |other: JobId| other.min(id)));
            }
        }
        self.leave(inner);
        match again.or(next) {
            Some(from) => {
                round.from = from;
                Walk::Goes
            }
            None => Walk::Ends,
        }
    }

    fn fetch(&self, mut old: Old<BytesRef>) -> Result<Old<Payload>, FetchError> {
        if let What::Finished { place, image: read } = &mut old.what {
            let image = self.finished_image(*place)?;
            old.payload.clone_from(&image.payload);
            old.result = image.outcome.as_ref().and_then(|outcome| outcome.bytes.clone());
            old.pages.clone_from(&image.options().pages);
            old.more_bytes = image.words_len();
            *read = Some(Box::new(image));
        }
        let fetch = |place: BytesRef| Ok(Payload::new(self.jobs().bytes(&place)?, place.kind()));
        let needed = |place: &BytesRef| place.needs().is_some();
        Ok(Old {
            id: old.id,
            what: old.what,
            payload: old.payload.filter(needed).map(fetch).transpose()?,
            result: old.result.filter(needed).map(fetch).transpose()?,
            pages: old.pages.into_iter().map(fetch).collect::<Result<_, FetchError>>()?,
            more_bytes: old.more_bytes,
        })
    }

    /// A job whose bytes are damaged cannot be compacted: an unfinished one is dead, a finished one
    /// is deleted, and both are logged as errors.
    fn give_up(&self, id: JobId, error: &FetchError) {
        tracing::error!("job {id} cannot be compacted: {error}");
        let mut inner = self.enter();
        inner.numbers.stats.payloads_damaged += 1;
        if inner.run(&Command::PayloadDamaged { id }).is_err() {
            inner.run(&Command::Delete { id, cause: Cause::Damaged }).ok();
        }
        self.leave(inner);
    }

    /// Appends one item again that is not a job. Returns what its record waits for.
    fn compact_item(&self, item: Option<&Compact>, items: &mut Vec<Compact>) -> Gate {
        let mut inner = self.enter();
        if let Some(item) = item
            && inner.run(&Command::Compact(item.clone())).is_ok()
        {
            items.extend(inner.rest_of(item));
        }
        let gate = inner.tail();
        self.leave(inner);
        gate
    }
}

impl Inner {
    /// Jobs from a number on that need a record below `target`, as many as one step may append, and
    /// where to go on.
    fn old_jobs(&self, from: JobId, target: u64) -> (Vec<Old<BytesRef>>, Option<JobId>) {
        let mut old = Vec::new();
        let mut bytes = 0;
        for (looked_at, found) in self.state.jobs_from(from).enumerate() {
            if looked_at >= LOOKED_AT_MAX || bytes >= self.options.compaction_bytes {
                return (old, Some(found.id()));
            }
            if found.oldest_record().is_none_or(|oldest_record| oldest_record >= target) {
                continue;
            }
            let id = found.id();
            let job = match found {
                Found::Live(job) => {
                    let pages = job.options().pages.iter();
                    for place in pages.filter(|page| page.needs().is_some_and(|at| at < target)) {
                        if bytes >= self.options.compaction_bytes {
                            return (old, Some(id));
                        }
                        let what = What::Page { place: place.clone() };
                        let page = Old { pages: vec![place.clone()], ..Old::new(id, what) };
                        bytes += page.bytes(len_of);
                        old.push(page);
                    }
                    Old {
                        payload: Some(job.payload()),
                        result: job.outcome().and_then(|outcome| outcome.bytes.clone()),
                        more_bytes: job.words_len(),
                        ..Old::new(id, What::Live { revision: job.revision() })
                    }
                }
                Found::Finished(stub) => {
                    let what = What::Finished { place: stub.image(), image: None };
                    Old { more_bytes: FINISHED_BYTES, ..Old::new(id, what) }
                }
            };
            bytes += job.bytes(len_of);
            old.push(job);
        }
        (old, None)
    }

    /// Appends one job again. Returns its number if it changed meanwhile and must be looked at anew.
    fn compact_one(&mut self, job: Old<Payload>) -> Option<JobId> {
        let Old { id, what, payload, result, mut pages, .. } = job;
        match what {
            What::Live { revision } => {
                if self.state.live(id).is_none_or(|job| job.revision() != revision) {
                    // Changed, or ended: its new image may still need the bytes of the old one.
                    return self.state.status(id).map(|_| id);
                }
                let (payload, result) = (self.append(payload), self.append(result));
                let command = Command::Compact(Compact::Job { id, revision, payload, result });
                return (self.run(&command) == Err(Rejection::Stale)).then_some(id);
            }
            What::Page { place } => {
                let payload = pages.pop()?;
                let new = self.batch.place_for(&payload);
                // Unless it is no page of the job any more.
                let command = Command::Compact(Compact::Page { id, old: place, new });
                self.run_with(&command, Some(&payload)).ok();
            }
            What::Finished { place, image } => {
                let mut image = image?;
                // Retried meanwhile, and perhaps finished anew: then this image is an old one.
                if self.finished_place(id) != Some(place) {
                    return self.state.status(id).map(|_| id);
                }
                image.payload = self.append(payload).or(image.payload);
                if let (Some(place), Some(outcome)) = (self.append(result), image.outcome.as_mut())
                {
                    outcome.bytes = Some(place);
                }
                if !pages.is_empty() {
                    let pages = pages.into_iter().filter_map(|page| self.append(Some(page)));
                    image.options_mut().pages = pages.collect();
                }
                self.run(&Command::Compact(Compact::Finished(image))).ok();
            }
        }
        None
    }

    fn append(&mut self, payload: Option<Payload>) -> Option<BytesRef> {
        let payload = payload?;
        let place = self.batch.place_for(&payload);
        self.batch.put_payload(&payload);
        Some(place)
    }

    /// The part of a constraint's buckets, or of the audit log, that did not fit into the last
    /// step.
    fn rest_of(&self, item: &Compact) -> Option<Compact> {
        let last = self.cut_off_at(|event| match event {
            Event::BucketSet(image) => Some(image.label.value),
            Event::Audited(entry) => Some(entry.seq),
            _ => None,
        })?;
        let from = last.checked_add(1)?;
        match *item {
            Compact::Constraint { number, .. } => Some(Compact::Constraint { number, from }),
            Compact::Audit { below, .. } => Some(Compact::Audit { from, below }),
            _ => None,
        }
    }
}
