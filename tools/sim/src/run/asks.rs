//! Gives commands to the engine, and checks that its answers are those of the model.

use bytes::Bytes;
use rand::Rng;
use spindle_core::audit::Actor;
use spindle_core::command::{Audited, Claim, Finish, Lease, OpenBatch, Submit};
use spindle_core::job::{Cause, Origin};
use spindle_core::{BytesRef, Command, JobId, JobImage, Rejection, Status, Type};
use spindle_engine::{
    Audit, ConnectionId, Gate, Gated, JobRef, LeaseRef, LeaseReply, Payload, Refused, RetryError,
    WorkResult,
};

use super::people::unaudited;
use super::waits::{Wait, WaitFor};
use super::{Judged, Run, seen};

impl Run {
    pub(super) fn ask(&mut self, command: &Command) -> Judged {
        // No client asks for these two: they follow from connections.
        let undone = matches!(command, Command::Release { cause: Cause::Undone, .. });
        let asked = !undone && !matches!(command, Command::HolderGone { .. });
        if asked && !(self.is_admitted()? && self.is_allowed(command)?) {
            return Ok(());
        }
        match command {
            // The engine gives these commands itself.
            Command::Compact(_)
            | Command::SetState { page: Some(_), .. }
            | Command::AddEvent { page: Some(_), .. }
            | Command::Persist { .. }
            | Command::NoteRelabelled { .. }
            | Command::FireSchedule(_)
            | Command::ReserveIds { .. }
            | Command::ReturnIds { .. }
            | Command::Recover { .. }
            | Command::Tick { .. } => return Ok(()),
            Command::Submit(submit) => {
                let joins = submit.origin == Origin::Gearman && self.rng.random_ratio(5, 6);
                let mut submit = submit.clone();
                if joins && self.rng.random_ratio(1, 3) {
                    self.aim_at_unfinished(&mut submit);
                }
                self.submit_somehow(&submit, joins)?;
                // A client asks again at once, or another one submits the same in the background.
                if self.rng.random_ratio(1, 6) {
                    self.take_deliveries()?;
                    // It may wait for something that will not happen any more.
                    self.happen_what_is_due()?;
                    submit.foreground &= self.rng.random_ratio(1, 2);
                    self.submit_somehow(&submit, joins)?;
                }
            }
            Command::Lease(lease) => self.lease(lease)?,
            Command::Finish(finish) => self.finish(finish)?,
            Command::HolderGone { holder } => self.connection_gone(*holder)?,
            Command::Retry { image, .. } => self.retry(JobId(image.id))?,
            Command::Audited(audited) => self.audited(audited)?,
            Command::OpenBatch(open) => self.open_batch(open)?,
            Command::Release {
                claim: Claim::Token { id, epoch, attempt },
                cause: Cause::Undone,
            } if *epoch == self.model.epoch => {
                let refused = self.refusals(command);
                self.server.engine().leases().undo(LeaseRef { job: *id, attempt: *attempt });
                if refused.is_empty() {
                    self.change(|model, now_ms| model.apply(command, now_ms, None))?;
                }
            }
            other => {
                let other = &self.with_payload(other);
                let reply = self.server.engine().jobs().execute(other);
                let matched = self.as_matched(other);
                self.judge(&matched, reply)?;
            }
        }
        self.counts.commands += 1;
        Ok(())
    }

    pub(super) fn refusals(&self, command: &Command) -> crate::model::Refusals {
        self.model.refusals(command, self.server.now_ms())
    }

    /// The reply to a command that gives nothing back but its acknowledgement.
    pub(super) fn judge(&mut self, command: &Command, reply: Gated<Result<(), Refused>>) -> Judged {
        let (reply, gate) = seen(reply);
        match reply {
            Ok(()) => {
                let refusals = self.refusals(command);
                if !refusals.is_empty() {
                    return Err(format!("accepted, and should be {refusals:?}"));
                }
                let id = subject(command);
                let before = self.model.clone();
                self.change(|model, now_ms| model.apply(command, now_ms, None))?;
                self.note_full(command);
                let is_undo = matches!(unaudited(command), Command::Undelete { .. });
                self.counts.undone += u64::from(is_undo);
                let is_seal = matches!(command, Command::SealQueue { .. });
                self.counts.queues_sealed += u64::from(is_seal);
                let is_left = matches!(command, Command::LeaveQueue { .. });
                self.counts.queues_left += u64::from(is_left);
                let logged = id.is_none_or(|id| before.job(id).is_some_and(|job| !job.foreground));
                let needs = match id {
                    Some(id) if logged => self.history.last_change(id.0),
                    Some(_) => 0,
                    None => self.history.now(),
                };
                self.history
                    .answered(gate.0, needs, || format!("the acknowledgement of {command:?}"));
                Ok(())
            }
            Err(refused) => self.judge_refused(command, refused, gate),
        }
    }

    fn judge_refused(&mut self, command: &Command, refused: Refused, gate: Gate) -> Judged {
        let command = unaudited(command);
        let Refused::Rejected(rejection) = refused else {
            return Err(format!("answered {refused}"));
        };
        self.counts.queue_full += u64::from(rejection == Rejection::QueueFull);
        self.counts.server_full += u64::from(rejection == Rejection::ServerFull);
        let refusals = self.refusals(command);
        if !refusals.allow(&rejection) {
            return Err(format!("refused as {rejection:?}, and should be {refusals:?}"));
        }
        let needs = match &rejection {
            Rejection::KeyTaken(id) => self.history.birth(id.0),
            Rejection::NotFound
            | Rejection::Finished
            | Rejection::NotFinished
            | Rejection::NotHeld
            | Rejection::Leased
            | Rejection::Deleted
            | Rejection::NotDeleted
            | Rejection::Stale => subject(command).map_or(0, |id| self.history.last_change(id.0)),
            _ => 0,
        };
        self.history.answered(gate.0, needs, || format!("{rejection:?} to {command:?}"));
        Ok(())
    }

    fn submit_somehow(&mut self, submit: &Submit, joins: bool) -> Judged {
        if joins { self.submit_or_join(submit) } else { self.submit(submit) }
    }

    pub(super) fn submit(&mut self, submit: &Submit) -> Judged {
        let (job, salt) = self.new_job(submit);
        let len = job.payload.len();
        let connection = self.rng.random_range(1..6);
        let wait_ms = self.rng.random_range(1..30_000);
        let mut ticket = None;
        let last = self.server.engine().inspect(last_job);
        let full = self.server.is_full() && !submit.foreground;
        let reply = if submit.foreground {
            let caller = self.server.caller(connection);
            let waiting = self.server.engine().jobs().submit_and_wait(&caller, job, wait_ms);
            waiting.map(|made| {
                ticket = Some(made?);
                Ok(None)
            })
        } else {
            self.server.engine().jobs().submit(job).map(|made| made.map(Some))
        };
        let (reply, gate) = seen(reply);
        match reply {
            Err(Refused::DiskFull | Refused::LogCannotGrow) if full => return self.judge_full(),
            Ok(_) if full => return Err("a submit was accepted on a full disk".into()),
            _ => {}
        }
        let reply = (reply, gate);
        let made = self.judge_new(submit, reply, (salt, len), last)?;
        if let (Some(job), Some(ticket)) = (made, ticket) {
            let deadline_ms = self.server.now_ms().saturating_add(wait_ms);
            let request = WaitFor::Result { job, until_leased: true };
            self.waits.add(ticket, Wait { connection, request, deadline_ms });
        }
        Ok(())
    }

    /// The reply to a submit that makes a job or is refused: its number and gate, as far as they
    /// are known. `last` was the newest job before it, `bytes` what its payload is made from.
    pub(super) fn judge_new(
        &mut self,
        submit: &Submit,
        (reply, gate): (Result<Option<JobId>, Refused>, Gate),
        (salt, len): (u64, usize),
        last: JobId,
    ) -> Judged<Option<JobId>> {
        let mut submit = submit.clone();
        if submit.constraints_revision == Submit::UNMATCHED {
            submit.labels = self.model.labels_for(&submit.queue, &[]);
            submit.constraints_revision = self.model.constraints_revision;
        }
        submit.id = self.unused_id(last);
        submit.payload.len = u32::try_from(len).expect("it is short");
        // Only the engine knows places; the model keeps the salt that the bytes were made from
        // instead.
        submit.payload.position = salt;
        let answer = match reply {
            Ok(answer) => answer,
            Err(refused) => {
                let command = Command::Submit(Box::new(submit));
                return self.judge_refused(&command, refused, gate).map(|()| None);
            }
        };
        let made = self
            .server
            .engine()
            .inspect(|state| state.jobs_from(JobId(last.0 + 1)).next().map(|found| found.id()));
        let id = made.ok_or("a submitted job is not there")?;
        if let Some(next) = self.next_id.replace(JobId(id.0 + 1)).filter(|next| *next != id) {
            return Err(format!("job {id} comes next, and should be {next}"));
        }
        submit.id = id;
        let (foreground, fresh) = (submit.foreground, !self.known_ids.contains(&id.0));
        let command = Command::Submit(Box::new(submit));
        let refusals = self.refusals(&command);
        if !refusals.is_empty() || !fresh || answer.is_some_and(|other| other != id) {
            return Err(format!(
                "accepted as {id}, answered {answer:?}, and should be {refusals:?}"
            ));
        }
        self.change(|model, now_ms| model.apply(&command, now_ms, None))?;
        if answer.is_some() {
            if gate.0 <= self.server.durable() {
                self.known_ids.insert(id.0);
            }
            let needs = if foreground { 0 } else { self.history.birth(id.0) };
            self.history.answered(gate.0, needs, || format!("the acknowledgement of job {id}"));
        }
        self.note_chunks(id);
        Ok(Some(id))
    }

    /// A number that is not in use, for a refused job, whose number is never told.
    fn unused_id(&self, last: JobId) -> JobId {
        let batches = self.model.batches().map(|batch| batch.opened.id);
        JobId(batches.chain([last]).max().map_or(1, |id| id.0.max(1)) + 1)
    }

    /// The engine gives the number of a batch.
    fn open_batch(&mut self, open: &OpenBatch) -> Judged {
        let full = self.server.is_full();
        let reply = self.server.engine().batches().open(open.clone());
        let (reply, gate) = seen(reply);
        let last = self.server.engine().inspect(last_job);
        let mut open = open.clone();
        open.id = match reply {
            Err(Refused::DiskFull | Refused::LogCannotGrow) if full => return self.judge_full(),
            Ok(_) if full => return Err("a batch was opened on a full disk".into()),
            Ok(id) => id,
            Err(_) => self.unused_id(last),
        };
        if let (Ok(id), Some(next)) = (&reply, self.next_id)
            && *id != next
        {
            return Err(format!("batch {id} comes next, and should be {next}"));
        }
        if let Ok(id) = &reply {
            if self.known_ids.contains(&id.0) {
                return Err(format!("batch {id} has a number that a job had"));
            }
            self.next_id = Some(JobId(id.0 + 1));
            if gate.0 <= self.server.durable() {
                self.known_ids.insert(id.0);
            }
            self.counts.batches += 1;
        }
        let command = Command::OpenBatch(Box::new(open));
        self.judge(&command, Gated::new(reply.map(|_| ()), gate))
    }

    fn lease(&mut self, lease: &Lease) -> Judged {
        let wait_ms = if self.rng.random_ratio(1, 3) && self.waits.count() < 12 {
            self.rng.random_range(1..20_000)
        } else {
            0
        };
        let caller = self.server.caller(lease.holder);
        let reply = self.server.engine().leases().take(&caller, lease.clone(), wait_ms);
        let (reply, gate) = seen(reply);
        match reply {
            Ok(LeaseReply::Leased(job)) => self.judge_lease(lease, &job, gate),
            Ok(LeaseReply::Nothing) if wait_ms == 0 => self.judge_nothing(lease),
            Ok(LeaseReply::Waiting(ticket)) if wait_ms > 0 => {
                self.judge_nothing(lease)?;
                let deadline_ms = self.server.now_ms().saturating_add(wait_ms);
                let request = WaitFor::Lease(Box::new(lease.clone()));
                self.waits.add(ticket, Wait { connection: lease.holder, request, deadline_ms });
                Ok(())
            }
            Ok(other) => Err(format!("answered {other:?} to a wait of {wait_ms}")),
            Err(refused) => self.judge_refused(&Command::Lease(lease.clone()), refused, gate),
        }
    }

    fn judge_nothing(&mut self, lease: &Lease) -> Judged {
        self.end_spent()?;
        let (choices, certain) = self.model.lease_choices(lease, self.server.now_ms());
        if !certain {
            return Ok(());
        }
        Err(format!("nothing was leased, and should be one of {choices:?}"))
    }

    /// Ready jobs without tries left that a lease came upon are dead by now, in the engine as in
    /// the model.
    pub(super) fn end_spent(&mut self) -> Judged {
        let tried = |job: &&JobImage| job.status() == Status::Ready && job.attempts > 0;
        let tried: Vec<JobId> = self.model.jobs().filter(tried).map(|job| JobId(job.id)).collect();
        for id in tried.into_iter().filter(|id| self.model.is_spent(*id)).collect::<Vec<_>>() {
            let status = self.server.engine().inspect(|state| state.status(id));
            if status.is_none_or(|status| status.is_finished()) {
                self.change(|model, now_ms| model.end_spent(id, now_ms))?;
            }
        }
        Ok(())
    }

    /// A lease that was given, at once or to one who waited.
    pub(super) fn judge_lease(
        &mut self,
        lease: &Lease,
        given: &spindle_engine::LeasedJob,
        gate: Gate,
    ) -> Judged {
        let known = self.finished();
        self.end_spent()?;
        let now_ms = self.server.now_ms();
        let (mut choices, _) = self.model.lease_choices(lease, now_ms);
        if !choices.contains(&given.id) && self.finished() > known {
            // It waited for a spent job, and went on in the tick that ended that job.
            self.follow_tick()?;
            (choices, _) = self.model.lease_choices(lease, now_ms);
        }
        if !choices.contains(&given.id) {
            return Err(format!("leased {}, and should be one of {choices:?}", given.id));
        }
        if self.model.is_spent(given.id) {
            return Err(format!("leased {}, which has no tries left", given.id));
        }
        let job = self.model.job(given.id).expect("it was one of the choices");
        let attempts_max = self.model.tries(job).attempts_max;
        let must_last = attempts_max > 0 || self.server.has_durable_leases();
        let own = (must_last && !job.foreground) || !job.options().labels.is_empty();
        self.counts.durable_leases += u64::from(own);
        if let Some((among_keys, is_ahead)) = self.model.turn_taken(given.id) {
            self.counts.fair_turns += u64::from(among_keys);
            self.counts.fair_turns_ahead += u64::from(among_keys && is_ahead);
        }
        let made_ready = self.history.last_change(given.id.0);
        let command = Command::Lease(lease.clone());
        let leased = Some(given.id);
        self.change(|model, now_ms| model.apply(&command, now_ms, leased))?;
        let job = self.model.job(given.id).expect("it was leased");
        let token = (job.lease.as_ref().map(|lease| lease.epoch), job.attempts);
        if token != (Some(given.epoch), given.attempt) {
            return Err(format!("the token of {given:?} should be {token:?}"));
        }
        let needs = if own { self.history.now() } else { made_ready };
        self.history.answered(gate.0, needs, || format!("the lease of job {}", given.id));
        if gate.0 <= self.server.durable() {
            self.known_epoch = self.known_epoch.max(given.epoch);
        }
        if self.server.is_dead() {
            return Ok(());
        }
        match self.server.engine().leases().payload(given) {
            Ok(Some(payload)) => self.judge_payload(given.id, &payload),
            Ok(None) => Err(format!("leased job {} has no payload", given.id)),
            Err(error) if self.server.is_dead() => {
                let _ = error;
                Ok(())
            }
            Err(error) => Err(format!("the payload of leased job {}: {error}", given.id)),
        }
    }

    pub(super) fn judge_payload(&self, id: JobId, payload: &Bytes) -> Judged {
        let place = self.model.job(id).and_then(|job| job.payload.as_ref());
        let (salt, len) = place.map_or((0, 0), |place| (place.position, place.len as usize));
        if *payload == pattern(salt, len) {
            return Ok(());
        }
        let right = pattern(salt, len);
        let same = right.iter().zip(payload).take_while(|(right, got)| right == got).count();
        let got = payload.len();
        Err(format!("job {id} has {got} bytes for the {len} submitted, {same} of them the same"))
    }

    fn finish(&mut self, finish: &Finish) -> Judged {
        let len = finish.result.as_ref().map_or(0, |result| result.len as usize);
        let id = finish.claim.id();
        let result = WorkResult {
            success: finish.success,
            retry: finish.retry,
            result: Payload::new(result_of(id, len), Type::Bytes),
            message: finish.message.clone(),
            error: finish.error.clone(),
            code: finish.code.clone(),
            worker_finished_at: finish.worker_finished_at.clone(),
        };
        let foreground = self.model.job(id).is_some_and(|job| job.foreground);
        let mut known = finish.clone();
        known.result = Some(if foreground {
            BytesRef::in_memory(result_of(id, len), Type::Bytes)
        } else {
            BytesRef::logged(1, 9, len as u32, Type::Bytes)
        });
        // Small results are always taken, large ones where they fit.
        let taken = len + finish.message.len() + finish.error.len() + finish.code.len();
        let may_not_fit = self.server.is_full() && !foreground && taken > 4_096;
        let cannot_fit = may_not_fit && taken as u64 > self.server.room_bytes() / 2;
        let engine = self.server.engine();
        let reply = match finish.claim {
            Claim::Unfinished { id } => engine.jobs().finish_unfinished(JobRef::Id(id), result),
            claim => engine.leases().finish(claim, result),
        };
        let (reply, gate) = seen(reply);
        match reply {
            Err(Refused::DiskFull | Refused::LogCannotGrow) if may_not_fit => {
                return self.judge_full();
            }
            Ok(()) if cannot_fit => return Err("a result was taken that fits nowhere".into()),
            _ => {}
        }
        let reply = Gated::new(reply, gate);
        self.judge(&Command::Finish(Box::new(known)), reply)
    }

    fn connection_gone(&mut self, holder: u64) -> Judged {
        self.server.engine().waits().connection_gone(ConnectionId(holder), None);
        for ticket in self.waits.of_connection(holder) {
            self.stop_waiting(ticket)?;
        }
        self.change_many(|model, now_ms, _| {
            model.apply(&Command::HolderGone { holder }, now_ms, None);
        })
    }

    /// A wait ends without a result, in the model.
    pub(super) fn stop_waiting(&mut self, ticket: spindle_engine::Ticket) -> Judged {
        let wait = self.waits.remove(ticket).ok_or("nobody waits with that ticket")?;
        match self.waits.stopped(&wait, &self.model) {
            Some(id) => self.change(|model, _| model.forget(id)),
            None => Ok(()),
        }
    }

    fn retry(&mut self, id: JobId) -> Judged {
        let mut image = self.model.job(id).cloned().unwrap_or_default();
        let labels = self.model.labels_for(&image.queue, &[]);
        if labels != image.options().labels {
            image.options_mut().labels = labels;
        }
        let mut payload = None;
        if self.rng.random_ratio(1, 4) {
            let (salt, len) = (self.rng.random(), self.rng.random_range(1..2_000));
            payload = Some((salt, len));
        }
        let bytes = payload.map(|(salt, len)| Payload::new(pattern(salt, len), Type::Json));
        let place = payload.map(|(salt, len)| BytesRef::logged(salt, 9, len as u32, Type::Json));
        let command =
            Command::Retry { image: Box::new(JobImage { id: id.0, ..image }), payload: place };
        let entry = self.entry_for(&command, &Actor::default());
        let audited = Audited { command: Some(command), entry: entry.unwrap_or_default() };
        let command = Command::Audited(Box::new(audited));
        let full = self.server.is_full() && bytes.is_some();
        let mut audit = Audit::new(Actor::default());
        let retried = self.server.engine().people(&mut audit).retry(JobRef::Id(id), bytes);
        let (reply, gate) = seen(retried);
        let reply = match reply {
            Ok(()) => Ok(()),
            Err(RetryError::Refused(Refused::DiskFull | Refused::LogCannotGrow)) if full => {
                return self.judge_full();
            }
            Err(RetryError::Refused(refused)) => Err(refused),
            Err(_) if self.server.is_dead() => return Ok(()),
            Err(error) => return Err(format!("job {id} cannot be retried: {error}")),
        };
        self.judge(&command, Gated::new(reply, gate))
    }
}

/// The job a command is about, if it is about one.
fn subject(command: &Command) -> Option<JobId> {
    match command {
        Command::Extend(extend) => Some(extend.claim.id()),
        Command::Finish(finish) => Some(finish.claim.id()),
        Command::DropTimeout { claim } | Command::Release { claim, .. } => Some(claim.id()),
        Command::Retry { image, .. } => Some(JobId(image.id)),
        Command::Edit(edit) => Some(edit.id),
        Command::Cancel { id }
        | Command::Delete { id, .. }
        | Command::DeleteLater { id, .. }
        | Command::Undelete { id }
        | Command::ResultRead { id, .. }
        | Command::PayloadDamaged { id }
        | Command::SetState { id, .. }
        | Command::AddEvent { id, .. }
        | Command::Relabel { id, .. } => Some(*id),
        _ => None,
    }
}

pub(super) fn last_job(state: &spindle_core::State) -> JobId {
    state.jobs_from(JobId(0)).last().map_or(JobId(0), |found| found.id())
}

/// Bytes that are the same for the same salt and length, and unlike others'.
pub(super) fn pattern(salt: u64, len: usize) -> Bytes {
    let mut word = salt | 1;
    (0..len)
        .map(|_| {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (word >> 56) as u8
        })
        .collect()
}

/// The bytes of a result of this length.
pub(super) fn result_of(id: JobId, len: usize) -> Bytes {
    pattern(id.0 ^ 0x7e5a17, len)
}
