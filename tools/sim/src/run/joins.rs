//! Submits that may join an existing job, and watchers of jobs.

use rand::Rng;
use rand::seq::IndexedRandom;
use spindle_core::command::{Claim, Submit};
use spindle_core::{Command, JobId, Status};
use spindle_engine::{Answer, Gate, Gated, Joined, News, Refused, Ticket};

use super::asks::last_job;
use super::waits::{Wait, WaitFor};
use super::{Judged, Run, seen};

/// Most watchers at once.
const WATCHERS_MAX: usize = 60;

/// A job that was logged for a caller that joined it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Persisted {
    id: JobId,
    /// What the answer waits for.
    gate: Gate,
}

impl Run {
    pub(super) fn submit_or_join(&mut self, submit: &Submit) -> Judged {
        let unfinished =
            |id: &JobId| self.model.job(*id).is_some_and(|job| !job.status().is_finished());
        let holder = submit.keys.first().and_then(|key| self.model.key_holder(key));
        let found = holder.filter(unfinished);
        let watched =
            submit.foreground || (self.rng.random_ratio(1, 3) && self.waits.count() < WATCHERS_MAX);
        let connection = self.rng.random_range(1..6);
        let caller = watched.then(|| self.server.caller(connection));
        let (job, salt) = self.new_job(submit);
        let len = job.payload.len();
        let last = self.server.engine().inspect(last_job);
        let in_memory = found.is_some_and(|id| self.model.job(id).is_some_and(|j| j.foreground));
        let logs = !submit.foreground && (found.is_none() || in_memory);
        let full = self.server.is_full() && logs;
        let reply = self.server.engine().jobs().submit_or_join(caller.as_ref(), job);
        let (reply, gate) = seen(reply);
        let joined = match reply {
            Err(Refused::DiskFull | Refused::LogCannotGrow) if full => return self.judge_full(),
            Ok(_) if full => return Err("a submit was accepted on a full disk".into()),
            Err(refused) if found.is_none() => {
                let refused = (Err(refused), gate);
                return self.judge_new(submit, refused, (salt, len), last).map(|_| ());
            }
            Err(refused) => return Err(format!("should join {found:?}, and {refused}")),
            Ok(joined) => joined,
        };
        if joined.watch.is_some() != watched || joined.new != found.is_none() {
            return Err(format!("should join {found:?}, and got {joined:?}"));
        }
        match found {
            None => {
                let made = (Ok(Some(joined.job)), gate);
                self.judge_new(submit, made, (salt, len), last)?;
            }
            Some(id) => self.judge_joined(id, submit, Gated::new(joined, gate), in_memory)?,
        }
        if let Some(ticket) = joined.watch {
            let request = WaitFor::Watch { job: joined.job };
            self.waits.add(ticket, Wait { connection, request, deadline_ms: u64::MAX });
        }
        Ok(())
    }

    /// Gives a submit the key of some unfinished job.
    pub(super) fn aim_at_unfinished(&mut self, submit: &mut Submit) {
        let named: Vec<_> = self
            .model
            .jobs()
            .filter(|job| !job.status().is_finished() && job.origin() == submit.origin)
            .filter_map(|job| Some((job.queue.clone(), job.options().keys.first()?.clone())))
            .collect();
        if let Some((queue, key)) = named.choose(&mut self.rng).cloned() {
            submit.queue = queue;
            submit.keys = vec![key];
        }
    }

    fn judge_joined(
        &mut self,
        id: JobId,
        submit: &Submit,
        joined: Gated<Joined>,
        in_memory: bool,
    ) -> Judged {
        let (joined, gate) = seen(joined);
        if joined.job != id {
            return Err(format!("should join {id}, and got {joined:?}"));
        }
        self.counts.joins += 1;
        let persists = in_memory && !submit.foreground;
        let gate = if self.planted.join_answered_early { Gate::OPEN } else { gate };
        if persists {
            let payload = self.model.job(id).and_then(|job| job.payload.clone());
            let payload = payload.ok_or("a job in memory has no payload")?;
            let command = Command::Persist { id, payload, keep_ms: submit.keep_ms };
            self.change(|model, now_ms| model.apply(&command, now_ms, None))?;
            self.waits.keep(id);
            self.counts.persists += 1;
            self.persisted.push(Persisted { id, gate });
            self.note_chunks(id);
        }
        let logged = persists || !in_memory;
        let needs = if logged { self.history.last_change(id.0) } else { 0 };
        self.history.answered(gate.0, needs, || format!("that a submit joined job {id}"));
        if persists && self.rng.random_ratio(1, 4) {
            self.end_soon(3);
        }
        Ok(())
    }

    /// Counts the jobs logged for joining callers that a crash left. The history has checked that
    /// no acknowledged one is missing.
    pub(super) fn count_persisted(&mut self, durable: u64) {
        for Persisted { id, gate } in std::mem::take(&mut self.persisted) {
            let left = self.model.job(id).is_some();
            self.counts.persists_kept += u64::from(left && gate.0 <= durable);
            self.counts.persists_cut += u64::from(!left && gate.0 > durable);
        }
    }

    /// The holder of a lease reports: each watcher of the job gets the report once, at once.
    pub(super) fn report(&mut self) -> Judged {
        let leased: Vec<(u64, u64, u32)> = self
            .model
            .jobs()
            .filter(|job| job.status() == Status::Leased)
            .filter_map(|job| Some((job.id, job.lease.as_ref()?.epoch, job.attempts)))
            .collect();
        let watched: Vec<_> =
            leased.iter().filter(|(id, ..)| !self.watchers(JobId(*id)).is_empty()).collect();
        let Some((id, epoch, attempt)) = watched.choose(&mut self.rng).copied().copied() else {
            return Ok(());
        };
        let id = JobId(id);
        let stale = self.rng.random_ratio(1, 5);
        let claim = Claim::Token { id, epoch, attempt: attempt.wrapping_add(u32::from(stale)) };
        let news = News::Warning(bytes::Bytes::from_static(b"slow"));
        let (reply, _) = seen(self.server.engine().leases().report(claim, news.clone()));
        if reply.is_ok() == stale {
            return Err(format!("a report by {claim:?} was answered {reply:?}"));
        }
        let letters = self.server.take_letters();
        let tickets: Vec<Ticket> = letters.iter().map(|letter| letter.ticket).collect();
        let expected = if stale { Vec::new() } else { self.watchers(id) };
        let right = |answer: &Answer| match answer {
            Answer::Reported { job, news: got, .. } => *job == id && *got == news,
            _ => false,
        };
        if tickets != expected
            || !letters.iter().all(|letter| right(&seen(letter.answer.clone()).0))
        {
            return Err(format!(
                "{expected:?} should get the report of job {id}, and it was {letters:?}"
            ));
        }
        self.counts.news += tickets.len() as u64;
        Ok(())
    }

    fn watchers(&self, id: JobId) -> Vec<Ticket> {
        let watches = |wait: &Wait| matches!(wait.request, WaitFor::Watch { job } if job == id);
        self.waits.iter().filter(|(_, wait)| watches(wait)).map(|(ticket, _)| ticket).collect()
    }

    /// Checks that no caller still waits for the end of a job or of a batch that has ended.
    pub(super) fn check_ends_told(&self) -> Judged {
        for (ticket, wait) in self.waits.iter() {
            let has_ended = match wait.request {
                WaitFor::Result { job, .. } | WaitFor::Watch { job } => {
                    self.model.job(job).is_none_or(|job| job.status().is_finished())
                }
                WaitFor::BatchEnd { batch } => {
                    self.model.batch(batch).is_none_or(|batch| batch.ended_ms().is_some())
                }
                WaitFor::Lease(_) => false,
            };
            if has_ended {
                return Err(format!("{ticket:?} did not get its end: {wait:?}"));
            }
        }
        Ok(())
    }
}
