//! Reading jobs through the engine, and waiting for their ends.

use rand::Rng;
use rand::seq::IndexedRandom;
use spindle_access::Role;
use spindle_core::job::mix;
use spindle_core::{JobId, JobImage};
use spindle_engine::{JobRef, Ticket};

use super::asks::result_of;
use super::waits::{Wait, WaitFor};
use super::{Judged, Run, seen};
use crate::model::About;

/// Most that wait for batches at once.
const BATCH_WAITS_MAX: usize = 6;

impl Run {
    /// Somebody looks at a job, waits for its end, or stops waiting.
    pub(super) fn read(&mut self) -> Judged {
        let ids: Vec<u64> = self.model.jobs().map(|job| job.id).collect();
        let Some(id) = ids.choose(&mut self.rng).copied() else { return Ok(()) };
        let id = JobId(id);
        match self.rng.random_range(0..7) {
            0 if self.may(Role::Read, &About::Job(id))? => self.wait_for_result(id),
            1 => self.cancel_wait(),
            2 => self.report(),
            3 if self.may(Role::Read, &About::Job(id))? => self.read_image(id).map(drop),
            4.. if self.may(Role::Inspect, &About::Job(id))? => self.read_job(id),
            _ => Ok(()),
        }
    }

    /// A job with its payload and result.
    pub(super) fn read_job(&mut self, id: JobId) -> Judged {
        let image = self.read_image(id)?;
        image.map_or(Ok(()), |image| self.read_bytes(id, &image))
    }

    /// How a job stands; none: the server has ended.
    fn read_image(&mut self, id: JobId) -> Judged<Option<JobImage>> {
        let (image, gate) = match self.server.engine().jobs().get(JobRef::Id(id)) {
            Ok(image) => seen(image),
            Err(_) if self.server.is_dead() => return Ok(None),
            Err(error) => return Err(format!("job {id} cannot be read: {error}")),
        };
        let image = image.ok_or_else(|| format!("job {id} cannot be found"))?;
        self.model.compare_image(id, &image)?;
        let needs = self.history.last_change(id.0);
        self.history.answered(gate.0, needs, || format!("how job {id} stands"));
        Ok(Some(image))
    }

    fn read_bytes(&mut self, id: JobId, image: &JobImage) -> Judged {
        let engine = self.server.engine();
        if let Some(place) = &image.payload {
            match engine.jobs().bytes(place) {
                Ok(bytes) => self.judge_payload(id, &bytes)?,
                Err(_) if self.server.is_dead() => return Ok(()),
                Err(error) => return Err(format!("the payload of job {id}: {error}")),
            }
        }
        let result = image.outcome.as_ref().and_then(|outcome| outcome.bytes.as_ref());
        let Some(place) = result else { return Ok(()) };
        match engine.jobs().bytes(place) {
            Ok(bytes) if bytes == result_of(id, place.len as usize) => Ok(()),
            Ok(_) => Err(format!("the result of job {id} is not what was reported")),
            Err(_) if self.server.is_dead() => Ok(()),
            Err(error) => Err(format!("the result of job {id}: {error}")),
        }
    }

    fn wait_for_result(&mut self, id: JobId) -> Judged {
        let connection = self.rng.random_range(1..6);
        let wait_ms = self.rng.random_range(1..60_000);
        let caller = self.server.caller(connection);
        let reply = self.server.engine().waits().for_result(&caller, id, wait_ms, false);
        let finished = self.model.job(id).is_none_or(|job| job.status().is_finished());
        match reply {
            Ok(None) if finished => Ok(()),
            Ok(Some(ticket)) if !finished => {
                let deadline_ms = self.server.now_ms().saturating_add(wait_ms);
                let request = WaitFor::Result { job: id, until_leased: false };
                self.waits.add(ticket, Wait { connection, request, deadline_ms });
                Ok(())
            }
            other => Err(format!("waiting for job {id} (finished: {finished}) gave {other:?}")),
        }
    }

    /// Sometimes somebody waits for the end of a batch. The draws depend only on the step, so that
    /// this changes as little else as possible.
    pub(super) fn wait_for_batch(&mut self) -> Judged {
        let draw = mix(self.step ^ 0xba7c_e2d5);
        let is_one = |wait: &Wait| matches!(wait.request, WaitFor::BatchEnd { .. });
        let count = self.waits.iter().filter(|(_, wait)| is_one(wait)).count();
        let ids: Vec<JobId> = self.model.batches().map(|batch| batch.opened.id).collect();
        if !draw.is_multiple_of(12) || count >= BATCH_WAITS_MAX || ids.is_empty() {
            return Ok(());
        }
        let id = ids[(draw >> 8) as usize % ids.len()];
        let (connection, wait_ms) = ((draw >> 24) % 5 + 1, (draw >> 32) % 60_000 + 1);
        let caller = self.server.caller(connection);
        let reply = self.server.engine().waits().for_batch_end(&caller, id, wait_ms);
        let has_ended = self.model.batch(id).is_none_or(|batch| batch.ended_ms().is_some());
        match reply {
            Ok(None) if has_ended => Ok(()),
            Ok(Some(ticket)) if !has_ended => {
                let deadline_ms = self.server.now_ms().saturating_add(wait_ms);
                let request = WaitFor::BatchEnd { batch: id };
                self.waits.add(ticket, Wait { connection, request, deadline_ms });
                Ok(())
            }
            other => Err(format!("waiting for batch {id} (ended: {has_ended}) gave {other:?}")),
        }
    }

    fn cancel_wait(&mut self) -> Judged {
        let tickets: Vec<Ticket> = self.waits.iter().map(|(ticket, _)| ticket).collect();
        let Some(ticket) = tickets.choose(&mut self.rng).copied() else { return Ok(()) };
        let connection = self.waits.find(ticket).map_or(0, |wait| wait.connection);
        self.server.engine().waits().cancel(&self.server.caller(connection), ticket);
        self.stop_waiting(ticket)
    }
}
