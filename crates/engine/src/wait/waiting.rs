//! All waits, as one part of the state behind the lock: it follows the events, answers the waits
//! for them, and notes which queues have something new.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use bytes::Bytes;
use spindle_core::event::BatchSet;
use spindle_core::job::Status;
use spindle_core::{Event, JobId, JobImage, Place, State};

use super::calls::Calls;
use super::list::{Wait, WaitFor, WaitList};
use super::output::Outputs;
use super::reports::Reports;
use crate::answer::Answer;
use crate::door::{ConnectionId, LeaseRef, Ticket};
use crate::gate::{Gate, Gated};
use crate::read::jobs_of;

#[derive(Debug, Default)]
pub(crate) struct Waiting {
    pub list: WaitList,
    /// What holders of live leases reported.
    pub reports: Reports,
    /// What workers wrote for people who look on.
    pub output: Outputs,
    /// Sleepers that were called and have not come yet.
    pub calls: Calls,
    /// Foreground jobs that run although nobody waits for them any more.
    abandoned: BTreeSet<JobId>,
    /// Those of them whose lease has ended: to be dropped.
    unwanted: Vec<JobId>,
    /// The lease last handed to each connection that waited: undone if it never took it.
    delivered: HashMap<ConnectionId, (Ticket, LeaseRef)>,
    /// Queues with waits in which something has changed.
    woken: BTreeSet<Bytes>,
}

impl Waiting {
    /// Follows an event that was folded at `place`; `tail` is what is decided so far.
    pub fn after_fold(&mut self, event: &Event, place: Place, state: &State, tail: Gate) {
        if self.list.has_followers() {
            for job in jobs_of(event) {
                self.notify_followers(job);
            }
        }
        match event {
            Event::Submitted(image) | Event::Retried(image) if image.status() == Status::Ready => {
                self.wake_queue(&image.queue);
            }
            Event::Requeued(requeued) => {
                self.reports.forget(JobId(requeued.id));
                self.list.stop_deadlines(JobId(requeued.id), false);
                self.on_ready_again(JobId(requeued.id), state);
            }
            Event::Deleted(deleted) => {
                self.reports.forget(JobId(deleted.id));
                self.list.stop_deadlines(JobId(deleted.id), false);
            }
            Event::Undeleted(undeleted) => self.on_ready_again(JobId(undeleted.id), state),
            Event::Ready(ready) => self.on_ready_again(JobId(ready.id), state),
            Event::BlockerEnded(ended) => self.on_ready_again(JobId(ended.id), state),
            Event::Edited(edited) => self.on_ready_again(JobId(edited.id), state),
            Event::Relabelled(relabelled) => self.on_ready_again(JobId(relabelled.id), state),
            Event::QueueSet(set) => self.wake_queue(&set.name),
            Event::Finished(image) => {
                self.abandoned.remove(&JobId(image.id));
                let gate = if image.foreground { Gate::OPEN } else { Gate(place.position + 1) };
                self.on_finished(image, gate);
            }
            Event::Gone(gone) => {
                for id in &gone.ids {
                    // Behind the tail, not this event's own record: a foreground job has none, and its
                    // answer could wait for ever.
                    self.on_gone(JobId(*id), tail);
                }
            }
            Event::BatchSet(BatchSet { batch: Some(batch) }) => {
                self.on_batch_changed(JobId(batch.id), state, Gate(place.position + 1));
            }
            Event::BatchesCounted(counted) => {
                for count in &counted.counts {
                    self.on_batch_changed(JobId(count.id), state, Gate(place.position + 1));
                }
            }
            Event::Leased(leased) => self.list.stop_deadlines(JobId(leased.id), true),
            _ => {}
        }
    }

    /// Answers those who wait for a job's end, and those who watch it.
    fn on_finished(&mut self, image: &JobImage, gate: Gate) {
        let id = JobId(image.id);
        let streamed_bytes = self.reports.forget(id);
        if self.list.count_for_job(id) == 0 {
            return;
        }
        let image = Arc::new(image.clone());
        for ticket in self.list.for_job(id) {
            let answer = match self.list.find(ticket).map(|wait| &wait.request) {
                Some(WaitFor::Watch { .. }) => {
                    Answer::Ended { image: image.clone(), streamed_bytes }
                }
                _ => Answer::Finished(image.clone()),
            };
            self.answer(ticket, Gated::new(answer, gate));
        }
    }

    fn on_gone(&mut self, id: JobId, gate: Gate) {
        self.abandoned.remove(&id);
        self.reports.forget(id);
        self.output.forget(id);
        for ticket in self.list.for_job(id) {
            self.answer(ticket, Gated::new(Answer::Gone(id), gate));
        }
    }

    /// Answers the waits for a batch's end, if it has ended. Only an ended batch is dropped, so no wait is left when
    /// one is.
    fn on_batch_changed(&mut self, id: JobId, state: &State, gate: Gate) {
        let tickets = self.list.for_batch(id);
        if tickets.is_empty() {
            return;
        }
        let Some(batch) = state.batch(id).filter(|batch| batch.ended_ms.is_some()) else { return };
        let batch = Arc::new(batch.clone());
        for ticket in tickets {
            self.answer(ticket, Gated::new(Answer::BatchEnded(batch.clone()), gate));
        }
    }

    /// Something of a job has changed: those who follow it look again.
    pub fn notify_followers(&mut self, job: JobId) {
        self.answer_all(self.list.followers(job), &Answer::Changed(job));
    }

    fn on_ready_again(&mut self, id: JobId, state: &State) {
        if self.abandoned.contains(&id) && state.status(id) != Some(Status::Leased) {
            self.unwanted.push(id);
            return;
        }
        if let Some(job) = state.live(id).filter(|job| job.status() == Status::Ready) {
            self.wake_queue(job.queue());
        }
    }

    /// Something of a queue has changed: whoever waits for it may be served.
    pub fn wake_queue(&mut self, queue: &Bytes) {
        if self.list.has_queue(queue) || self.list.has_asleep(queue) {
            self.woken.insert(queue.clone());
        }
    }

    /// The next queue in which something has changed.
    pub fn next_woken(&mut self) -> Option<Bytes> {
        self.woken.pop_first()
    }

    /// Ends a wait with an answer. Returns the wait, if it was still there.
    pub fn answer(&mut self, ticket: Ticket, answer: Gated<Answer>) -> Option<Wait> {
        let wait = self.list.remove(ticket)?;
        wait.caller.deliver(ticket, answer);
        Some(wait)
    }

    /// Gives all these tickets the same answer, which waits for no record.
    pub fn answer_all(&mut self, tickets: Vec<Ticket>, answer: &Answer) {
        for ticket in tickets {
            self.answer(ticket, Gated::open(answer.clone()));
        }
    }

    /// A lease is on its way to a connection.
    pub fn note_delivered(&mut self, connection: ConnectionId, ticket: Ticket, lease: LeaseRef) {
        self.delivered.insert(connection, (ticket, lease));
    }

    /// The lease that is on its way to a connection as a ticket's answer: it has no holder now.
    pub fn take_delivered(&mut self, connection: ConnectionId, ticket: Ticket) -> Option<LeaseRef> {
        let (delivered, lease) = *self.delivered.get(&connection)?;
        (delivered == ticket).then(|| {
            self.delivered.remove(&connection);
            lease
        })
    }

    /// A connection is gone.
    pub fn forget_delivered(&mut self, connection: ConnectionId) {
        self.delivered.remove(&connection);
    }

    /// Nobody waits for a foreground job that runs, or somebody does again.
    pub fn set_abandoned(&mut self, job: JobId, abandoned: bool) {
        if abandoned {
            self.abandoned.insert(job);
        } else {
            self.abandoned.remove(&job);
        }
    }

    /// Whether a foreground job runs although nobody waits for it any more.
    pub fn is_abandoned(&self, job: JobId) -> bool {
        self.abandoned.contains(&job)
    }

    /// An abandoned job whose lease has ended.
    pub fn next_unwanted(&mut self) -> Option<JobId> {
        self.unwanted.pop()
    }
}
