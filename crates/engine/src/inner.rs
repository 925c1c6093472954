//! What is behind the engine's one lock: the core's state, the open batch, and those who wait.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use spindle_core::Command;
use spindle_core::job::{Cause, Status};
use spindle_core::{
    BytesRef, Decision, Event, Found, JobId, JobImage, Place, Rejection, State, Type, decide,
};

use crate::answer::Answer;
use crate::commit::Recent;
use crate::commit::record::{ENTRY_HEADER_BYTES, HEADER_BYTES, RecordWriter};
use crate::door::{ConnectionId, Delivery, Gate, LeaseRef, Ticket};
use crate::observe::DroppedNews;
use crate::observe::Meters;
use crate::observe::Traffic;
use crate::observe::Workers;
use crate::options::Options;
use crate::read::is_in_feed;
use crate::updates::{JobqChangeSet, long_bytes};
use crate::wait::Calls;
use crate::wait::Reports;
use crate::wait::Waits;

/// A record that is complete and waits to be written.
#[derive(Debug, Clone)]
pub(crate) struct Sealed {
    pub position: u64,
    pub epoch: u64,
    pub bytes: Bytes,
    /// Whether the feed tells of something in it.
    pub told: bool,
}

/// Numbers people look at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Unfinished jobs whose TTL passed, since the start.
    pub expired_unfinished: u64,
    /// Finished jobs that went because a cap on them was reached, since the start: the sum of the
    /// next three.
    pub finished_dropped: u64,
    /// Those that were too many for their queue.
    pub finished_over_queue: u64,
    /// Those that were too many for the server.
    pub finished_over_count: u64,
    /// Those for which there was no room on disk.
    pub finished_over_bytes: u64,
    /// Payloads that failed their checksum, since the start.
    pub payloads_damaged: u64,
    /// Jobs submitted, since the start.
    pub submitted: u64,
    /// Leases given, since the start.
    pub leased: u64,
    /// Jobs done, since the start.
    pub completed: u64,
    /// Jobs that died, since the start.
    pub died: u64,
    /// Attempts that ended without completing a job that is to be tried again, since the start.
    pub requeued: u64,
}

impl Stats {
    fn count(&mut self, event: &Event) {
        match event {
            Event::Submitted(_) => self.submitted += 1,
            Event::Leased(_) => self.leased += 1,
            Event::Requeued(_) => self.requeued += 1,
            Event::Finished(image) if image.status() == Status::Done => self.completed += 1,
            Event::Finished(_) => self.died += 1,
            _ => {}
        }
    }
}

pub(crate) struct Inner {
    pub state: State,
    pub decision: Decision,
    pub batch: RecordWriter,
    /// The position the open batch will have.
    pub open_position: u64,
    /// Whether the feed will tell of something in the open batch.
    told: bool,
    /// Durable events the feed tells of are in records below this.
    pub feed_end: u64,
    pub sealed: VecDeque<Sealed>,
    pub recent: Recent,
    pub waits: Waits,
    /// What holders of live leases told.
    pub reports: Reports,
    /// Sleepers that were called and have not come yet.
    pub calls: Calls,
    pub next_id: u64,
    /// What a foreground handle must wait for: the record that reserved its id.
    pub ids_gate: Gate,
    pub undurable_bytes: usize,
    pub record_bytes_max: usize,
    pub foreground_bytes: usize,
    /// Foreground jobs that run although nobody waits for them any more.
    pub abandoned: BTreeSet<JobId>,
    /// The lease last handed to each connection that waited: undone if it never took it.
    pub delivered: HashMap<ConnectionId, (Ticket, LeaseRef)>,
    /// Those of them whose lease has ended: to be dropped.
    pub unwanted: Vec<JobId>,
    pub hold_expiry: bool,
    /// No new leases: the server stops.
    pub stopping: bool,
    /// What live items would take if the log were written anew.
    pub live_bytes: u64,
    pub stats: Stats,
    pub dropped_news: DroppedNews,
    /// How late scheduled jobs are; the commits' share is the log thread's.
    pub meters: Arc<Meters>,
    /// What went through each queue.
    pub traffic: Traffic,
    /// Who has asked for jobs.
    pub workers: Workers,
    /// Which jobs are Jobq's, and what of them is to be told to its door.
    pub jobq: JobqChangeSet,
    /// Queues in which jobs became ready during the command under way.
    pub woken: BTreeSet<Bytes>,
    pub now_ms: u64,
    pub options: Options,
    /// Leases decided, those included that were only looked for.
    #[cfg(test)]
    pub decided: u64,
}

/// What an item takes in the log besides its payload, roughly.
const ITEM_BYTES: u64 = 128;

impl Inner {
    pub fn new(state: State, options: Options, record_bytes_max: usize) -> Inner {
        Inner {
            state,
            decision: Decision::default(),
            batch: RecordWriter::default(),
            open_position: 0,
            told: false,
            feed_end: 0,
            sealed: VecDeque::new(),
            recent: Recent::new(options.payload_memory_bytes),
            waits: Waits::default(),
            reports: Reports::default(),
            calls: Calls::default(),
            next_id: 1,
            ids_gate: Gate::OPEN,
            undurable_bytes: 0,
            record_bytes_max,
            foreground_bytes: 0,
            abandoned: BTreeSet::new(),
            delivered: HashMap::new(),
            unwanted: Vec::new(),
            hold_expiry: false,
            stopping: false,
            live_bytes: 0,
            stats: Stats::default(),
            dropped_news: DroppedNews::default(),
            meters: Arc::default(),
            traffic: Traffic::default(),
            workers: Workers::default(),
            jobq: JobqChangeSet::default(),
            woken: BTreeSet::new(),
            now_ms: 0,
            options,
            #[cfg(test)]
            decided: 0,
        }
    }

    // ---- gates ----

    /// What a negative answer must wait for: everything decided so far.
    pub fn tail(&self) -> Gate {
        Gate(self.open_position + u64::from(!self.batch.is_empty()))
    }

    /// What an answer must wait for that depends on the command just decided.
    pub fn own_gate(&self) -> Gate {
        if self.options.faults.answer_before_sync { Gate::OPEN } else { self.tail() }
    }

    /// What an answer about a job must wait for.
    pub fn gate_of(&self, found: &Found<'_>) -> Gate {
        match found.last() {
            Some(last) => Gate((last + 1).min(self.tail().0)),
            None => self.tail(),
        }
    }

    // ---- the batch ----

    /// Closes the open batch, if there is something in it.
    pub fn seal(&mut self) {
        if self.batch.is_empty() {
            return;
        }
        let epoch = self.state.server().epoch;
        let bytes = self.batch.seal(epoch, self.now_ms);
        let position = self.open_position;
        self.recent.push(position, bytes.clone());
        let told = std::mem::take(&mut self.told);
        self.sealed.push_back(Sealed { position, epoch, bytes, told });
        self.open_position += 1;
    }

    /// Makes sure that this many more entry bytes fit into the open batch.
    fn make_room(&mut self, entry_bytes: usize) {
        if !self.batch.is_empty()
            && self.batch.len() + entry_bytes + ENTRY_HEADER_BYTES > self.record_bytes_max
        {
            self.seal();
        }
    }

    /// Where bytes will be if they are put next. Nothing is written yet.
    pub fn place_for(&mut self, len: usize, kind: Type) -> BytesRef {
        if len == 0 {
            return BytesRef::empty(kind);
        }
        if len > self.chunk_bytes_max() {
            self.seal();
        } else {
            // The event that names the bytes should find room behind them.
            self.make_room(len + EVENT_ROOM_BYTES);
        }
        BytesRef::logged(self.open_position, self.batch.next_offset(), len as u32, kind)
    }

    fn chunk_bytes_max(&self) -> usize {
        self.record_bytes_max - HEADER_BYTES - ENTRY_HEADER_BYTES - EVENT_ROOM_BYTES
    }

    /// Writes bytes to the place they were promised. Larger ones than a record go as chunks, each
    /// in a record of its own.
    pub fn put_bytes(&mut self, bytes: &[u8], crc: u32) {
        if bytes.is_empty() {
            return;
        }
        if bytes.len() <= self.chunk_bytes_max() {
            self.batch.put_bytes(bytes, crc);
            self.undurable_bytes += bytes.len() + ENTRY_HEADER_BYTES;
            return;
        }
        for chunk in bytes.chunks(self.chunk_bytes_max()) {
            self.batch.put_bytes(chunk, crc32c::crc32c(chunk));
            self.undurable_bytes += chunk.len() + ENTRY_HEADER_BYTES;
            self.seal();
        }
    }

    // ---- commands ----

    /// Lets happen what is due. Call before every command, with the lock held; `true` means there
    /// is more: let others in between.
    pub fn tick(&mut self, now_ms: u64) -> bool {
        self.now_ms = self.now_ms.max(now_ms);
        let now_ms = self.now_ms;
        let rebases = self.state.is_rebasing();
        if rebases {
            self.state.rebase();
        }
        if self.state.has_surplus() {
            self.run(&Command::Tick { hold_expiry: self.hold_expiry }).ok();
        }
        if now_ms < self.state.due_hint_ms() {
            let more = self.state.has_surplus();
            if rebases && !more {
                self.dispatch_promoted();
            }
            return more;
        }
        self.state.wake_buckets(now_ms);
        self.run(&Command::Tick { hold_expiry: self.hold_expiry }).ok();
        self.state.renew_due_hint(self.hold_expiry);
        let more = now_ms >= self.state.due_hint_ms() || self.state.has_surplus();
        if !more {
            self.dispatch_promoted();
        }
        more
    }

    /// Decides, logs, folds; tells those who waited for it.
    pub fn run(&mut self, command: &Command) -> Result<(), Rejection> {
        self.run_with(command, |_| {})
    }

    /// As [`Inner::run`]; `before` writes the bytes the command refers to, once it is accepted.
    pub fn run_with(
        &mut self,
        command: &Command,
        before: impl FnOnce(&mut Inner),
    ) -> Result<(), Rejection> {
        let mut decision = std::mem::take(&mut self.decision);
        let decided = decide(&self.state, command, self.now_ms, &mut decision);
        if !decision.blocked.is_empty() {
            self.state.apply_hints(&decision, self.now_ms);
        }
        if decided.is_ok() {
            before(self);
            for (event, logged) in &decision.events {
                self.happen(event, *logged);
            }
        }
        self.decision = decision;
        if decided.is_ok() {
            // An end may have freed a bucket: those who wait for what it held back come now.
            self.dispatch_promoted();
        }
        decided
    }

    /// Logs and folds one event.
    pub fn happen(&mut self, event: &Event, logged: bool) {
        let place = if logged {
            self.make_room(EVENT_ROOM_BYTES + long_bytes(event));
            let place = Place { position: self.open_position, offset: self.batch.next_offset() };
            let before = self.batch.len();
            self.batch.put_event(event);
            self.told |= is_in_feed(event);
            self.undurable_bytes += self.batch.len() - before;
            place
        } else {
            Place { position: self.open_position, offset: 0 }
        };
        if let Event::Ready(ready) = event {
            self.note_lag(JobId(ready.id));
        }
        self.fold_one(event, place);
        self.after_fold(event, place);
    }

    /// Folds an event, as when it is read from the log.
    pub fn fold_one(&mut self, event: &Event, place: Place) {
        self.before_fold(event);
        self.state.evolve(event, place);
        if let Event::Requeued(requeued) = event {
            self.live_bytes += self.streamed_bytes(JobId(requeued.id));
        }
    }

    /// Bookkeeping that needs what is about to go.
    fn before_fold(&mut self, event: &Event) {
        self.jobq.note(event);
        match event {
            Event::StateSet(set) if !self.state.is_foreground(JobId(set.id)) => {
                self.live_bytes += set.event.len() as u64;
            }
            Event::Gone(gone) => {
                self.note_dropped(gone);
                for id in &gone.ids {
                    self.before_gone(JobId(*id), gone.cause());
                }
            }
            Event::Finished(image) => {
                if image.foreground {
                    let len = image.payload.as_ref().map_or(0, |payload| payload.len as usize);
                    self.foreground_bytes = self.foreground_bytes.saturating_sub(len);
                } else {
                    self.forget_live(JobId(image.id));
                }
            }
            Event::Requeued(requeued) => {
                let told = self.streamed_bytes(JobId(requeued.id));
                self.live_bytes = self.live_bytes.saturating_sub(told);
            }
            Event::Persisted(image) => {
                let len = image.payload.as_ref().map_or(0, |payload| payload.len as usize);
                self.foreground_bytes = self.foreground_bytes.saturating_sub(len);
                self.live_bytes += live_cost(image);
            }
            Event::Compacted(image)
                if !image.status().is_finished()
                    && self.state.status(JobId(image.id)).is_none() =>
            {
                self.live_bytes += live_cost(image);
            }
            Event::Submitted(image) | Event::Retried(image) => {
                if image.foreground {
                    self.foreground_bytes +=
                        image.payload.as_ref().map_or(0, |payload| payload.len as usize);
                } else {
                    self.live_bytes += live_cost(image);
                }
            }
            _ => {}
        }
    }

    fn note_lag(&self, id: JobId) {
        if let Some(Found::Live(job)) = self.state.job(id)
            && let Some(run_at_ms) = job.run_at_ms()
        {
            self.meters.lag_ms.note(self.now_ms.saturating_sub(run_at_ms));
        }
    }

    fn before_gone(&mut self, id: JobId, cause: Cause) {
        match self.state.job(id) {
            Some(Found::Live(job)) => {
                if job.is_foreground() {
                    let len = job.payload().len as usize;
                    self.foreground_bytes = self.foreground_bytes.saturating_sub(len);
                } else {
                    self.forget_live(id);
                }
                self.stats.expired_unfinished += u64::from(cause == Cause::Expired);
            }
            Some(Found::Finished(_)) | None => {}
        }
    }

    /// A live job goes or ends: what it takes is no longer part of what lives.
    fn forget_live(&mut self, id: JobId) {
        let Some(Found::Live(job)) = self.state.job(id) else { return };
        let cost = ITEM_BYTES + u64::from(job.payload().len) + job.update_bytes();
        self.live_bytes = self.live_bytes.saturating_sub(cost + self.streamed_bytes(id));
    }

    /// What a live job's last result and the words of its workers take, if it is logged.
    fn streamed_bytes(&self, id: JobId) -> u64 {
        match self.state.job(id) {
            Some(Found::Live(job)) if !job.is_foreground() => {
                let result = job.outcome().and_then(|outcome| outcome.bytes.as_ref());
                result.map_or(0, |result| u64::from(result.len)) + job.words_len() as u64
            }
            _ => 0,
        }
    }

    /// Tells those who waited for what just happened.
    fn after_fold(&mut self, event: &Event, place: Place) {
        self.stats.count(event);
        self.count_traffic(event);
        match event {
            Event::Submitted(image) | Event::Retried(image) if image.status() == Status::Ready => {
                self.wake_queue(&image.queue);
            }
            Event::Requeued(requeued) => {
                self.forget_report(JobId(requeued.id));
                self.waits.set_leased(JobId(requeued.id), false);
                self.on_ready_again(JobId(requeued.id));
            }
            Event::Ready(ready) => self.on_ready_again(JobId(ready.id)),
            Event::Edited(edited) => self.on_ready_again(JobId(edited.id)),
            Event::Relabelled(relabelled) => self.on_ready_again(JobId(relabelled.id)),
            Event::QueueSet(set) => self.wake_queue(&set.name),
            Event::Finished(image) => {
                self.abandoned.remove(&JobId(image.id));
                let gate = if image.foreground { Gate::OPEN } else { Gate(place.position + 1) };
                self.tell_finished(image, gate);
            }
            Event::Gone(gone) => {
                // A foreground job's end is in no record: waiting for one could be for ever.
                let gate = self.tail();
                for id in &gone.ids {
                    self.abandoned.remove(&JobId(*id));
                    self.forget_report(JobId(*id));
                    self.tell_all(JobId(*id), gate, Answer::Gone);
                }
            }
            Event::Leased(leased) => {
                self.waits.set_leased(JobId(leased.id), true);
            }
            _ => {}
        }
    }

    fn on_ready_again(&mut self, id: JobId) {
        if self.abandoned.contains(&id) && self.state.status(id) != Some(Status::Leased) {
            self.unwanted.push(id);
            return;
        }
        if let Some(Found::Live(job)) = self.state.job(id)
            && job.status() == Status::Ready
        {
            let queue = job.queue().clone();
            self.wake_queue(&queue);
        }
    }

    pub fn wake_queue(&mut self, queue: &Bytes) {
        let waited_for = self.waits.has_queue(queue) || self.waits.has_asleep(queue);
        if waited_for {
            self.woken.insert(queue.clone());
        }
    }

    fn tell_all(&mut self, id: JobId, gate: Gate, answer: impl Fn(JobId) -> Answer) {
        if !self.waits.has_any_for_job(id) {
            return;
        }
        for ticket in self.waits.for_job(id) {
            self.deliver(ticket, answer(id), gate);
        }
    }

    /// Ends a wait with an answer.
    pub fn deliver(&mut self, ticket: Ticket, answer: Answer, gate: Gate) {
        if let Some(wait) = self.remove_wait(ticket) {
            let connection = wait.caller.connection;
            wait.caller.mailbox.deliver(Delivery { connection, ticket, answer, gate });
        }
    }

    // ---- ids ----

    /// The next id. Blocks are reserved well ahead, so that no answer waits for one.
    pub fn take_id(&mut self) -> JobId {
        if self.next_id + ID_BLOCK / 2 >= self.state.server().ids_until {
            let until = self.state.server().ids_until + ID_BLOCK;
            if self.run(&Command::ReserveIds { until }).is_ok() {
                self.ids_gate = self.own_gate();
            }
        }
        let id = self.next_id;
        self.next_id += 1;
        JobId(id)
    }

    /// Gives back all ids that are reserved and were never taken. A submit that comes all the same
    /// reserves a block anew before it takes its id.
    pub fn return_ids(&mut self) {
        self.run(&Command::ReturnIds { from: self.next_id }).ok();
    }

    /// Gives back the id taken last: the submit was refused.
    pub fn return_id(&mut self, id: JobId) {
        if self.next_id == id.0 + 1 {
            self.next_id = id.0;
        }
    }
}

/// Ids are reserved in blocks of this many.
pub(crate) const ID_BLOCK: u64 = 1 << 16;

/// Room kept behind bytes in a record for the event that names them. Images with more than this
/// (Jobq's long event lists) get a record of their own.
pub(crate) const EVENT_ROOM_BYTES: usize = 16 * 1024;

fn live_cost(image: &JobImage) -> u64 {
    let touched = image.options.as_ref().map_or(0, |options| options.update_bytes());
    let len = |place: Option<&BytesRef>| place.map_or(0, |place| u64::from(place.len));
    let result = image.outcome.as_ref().and_then(|outcome| outcome.bytes.as_ref());
    let bytes = len(image.payload.as_ref()) + len(result) + image.words_len() as u64;
    ITEM_BYTES + bytes + touched
}
