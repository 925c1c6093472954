//! Deferred answers.

use spindle_core::JobId;
use spindle_engine::{Answer, Delivery};

use super::waits::WaitFor;
use super::{Judged, Run, seen};

impl Run {
    /// Judges the deferred answers that came, and checks that no caller waits for something that is
    /// there.
    pub(super) fn take_deliveries(&mut self) -> Judged {
        for delivery in self.server.take_letters() {
            if self.trace {
                println!("    {delivery:?}");
            }
            self.judge_delivery(&delivery)?;
        }
        self.end_spent()?;
        self.check_ends_told()?;
        let now_ms = self.server.now_ms();
        // A rate that allows a start again is due like everything that time causes, and waits for
        // room on a full disk.
        if self.server.held().due {
            return Ok(());
        }
        for (ticket, wait) in self.waits.iter() {
            if let WaitFor::Lease(lease) = &wait.request {
                let (choices, certain) = self.model.lease_choices(lease, now_ms);
                if certain && choices.iter().any(|id| !self.model.is_spent(*id)) {
                    return Err(format!("{ticket:?} waits while {choices:?} are ready"));
                }
            }
        }
        Ok(())
    }

    fn judge_delivery(&mut self, delivery: &Delivery) -> Judged {
        let (ticket, gate) = (delivery.ticket, delivery.answer.gate());
        let (answer, _) = seen(delivery.answer.clone());
        let wait = self.waits.find(ticket).cloned();
        let wait = wait.ok_or_else(|| format!("{delivery:?} to nobody"))?;
        match (&answer, &wait.request) {
            (Answer::TimedOut, _) => {
                if !wait.is_over(&self.model, self.server.now_ms()) {
                    return Err(format!("{ticket:?} timed out too early: {wait:?}"));
                }
                self.stop_waiting(ticket)
            }
            (Answer::Leased(job), WaitFor::Lease(lease)) => {
                self.judge_turn(ticket, job.id)?;
                self.waits.remove(ticket);
                self.judge_lease(lease, job, gate)
            }
            (Answer::Finished(image), WaitFor::Result { job, .. })
            | (Answer::Ended { image, .. }, WaitFor::Watch { job })
                if image.id == job.0 =>
            {
                // It may have ended because a lease found it without tries left.
                self.end_spent()?;
                self.waits.remove(ticket);
                self.counts.ends += u64::from(matches!(wait.request, WaitFor::Watch { .. }));
                let known = self.model.job(*job);
                if known.is_some_and(|known| known.status() != image.status()) {
                    return Err(format!("{image:?} was the end of {known:?}"));
                }
                let needs = self.history.last_change(job.0);
                self.history.answered(gate.0, needs, || format!("the end of job {job}"));
                Ok(())
            }
            (Answer::Gone(id), WaitFor::Result { job, .. } | WaitFor::Watch { job })
                if id == job =>
            {
                self.waits.remove(ticket);
                self.counts.ends += u64::from(matches!(wait.request, WaitFor::Watch { .. }));
                if self.model.job(*id).is_some() {
                    return Err(format!("job {id} was reported gone, and is there"));
                }
                let needs = self.history.last_change(id.0);
                self.history.answered(gate.0, needs, || format!("that job {id} is gone"));
                Ok(())
            }
            (Answer::BatchEnded(batch), WaitFor::BatchEnd { batch: id }) if batch.id == id.0 => {
                // Its last job may have ended as above.
                self.end_spent()?;
                self.waits.remove(ticket);
                self.counts.batch_ends += 1;
                let known = self.model.batch(*id);
                if batch.ended_ms.is_none()
                    || known.is_some_and(|known| known.ended_ms() != batch.ended_ms)
                {
                    return Err(format!("{batch:?} was the end of {known:?}"));
                }
                let needs = self.history.batch_end(id.0);
                self.history.answered(gate.0, needs, || format!("the end of batch {id}"));
                Ok(())
            }
            _ => Err(format!("{delivery:?} to {wait:?}")),
        }
    }

    /// A job goes to the longest waiter that can take its payload.
    fn judge_turn(&self, ticket: spindle_engine::Ticket, id: JobId) -> Judged {
        let now_ms = self.server.now_ms();
        let earlier = self.waits.iter().take_while(|(other, _)| *other < ticket);
        for (other, wait) in earlier {
            if let WaitFor::Lease(lease) = &wait.request
                && self.model.lease_choices(lease, now_ms).0.contains(&id)
            {
                return Err(format!("{ticket:?} got job {id} before {other:?}, {wait:?}"));
            }
        }
        Ok(())
    }
}
