//! Finished jobs run again.

use spindle_core::audit::Action;
use spindle_core::{Command, Found, Rejection};

use crate::answer::Refused;
use crate::audit::{Audit, Deed, People};
use crate::commit::Payload;
use crate::engine::Engine;
use crate::gate::Gated;
use crate::read::{FetchError, JobRef};

/// Why a job is not run again.
#[derive(Debug, thiserror::Error)]
pub enum RetryError {
    /// The call was refused.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// The job's image could not be read.
    #[error(transparent)]
    Fetch(#[from] FetchError),
}

impl People<'_> {
    /// Lets a done or dead job run again, with another payload if one is given.
    pub fn retry(self, job: JobRef, payload: Option<Payload>) -> Gated<Result<(), RetryError>> {
        let payload = payload.map(Payload::with_checksum);
        if let Some(payload) = &payload {
            let fits = self.engine.shared.inner.lock().check_len(payload);
            if let Err(refused) = fits.and_then(|()| self.engine.check_space()) {
                return Gated::open(Err(refused.into()));
            }
        }
        loop {
            match self.engine.try_retry(self.audit, job, payload.as_ref()) {
                Ok(None) => {}
                Ok(Some(answer)) => return answer.map(|retried| retried.map_err(RetryError::from)),
                Err(error) => return Gated::open(Err(error.into())),
            }
        }
    }
}

impl Engine {
    /// None: the job or the constraints changed meanwhile.
    fn try_retry(
        &self,
        audit: &mut Audit,
        job: JobRef,
        payload: Option<&Payload>,
    ) -> Result<Option<Gated<Result<(), Refused>>>, FetchError> {
        let (id, place) = {
            let inner = self.enter();
            match inner.look_up(job) {
                None => return Ok(Some(inner.refused(Rejection::NotFound))),
                Some(Found::Live(_)) => return Ok(Some(inner.refused(Rejection::NotFinished))),
                Some(Found::Finished(stub)) => (stub.id(), stub.image()),
            }
        };
        let mut image = match self.finished_image(place) {
            Err(FetchError::Moved) => return Ok(None),
            read => Box::new(read?),
        };
        let matched_by = match self.match_retry(&mut image, payload) {
            Err(FetchError::Moved) => return Ok(None),
            matched => matched?,
        };
        let mut inner = self.enter();
        if inner.state.server().constraints_revision != matched_by {
            drop(inner);
            self.refresh_rules();
            return Ok(None);
        }
        // Compacted or retried since its image was read: then the image is an old one.
        if inner.finished_place(id) != Some(place) {
            return Ok(None);
        }
        let place = payload.map(|payload| inner.batch.place_for(payload));
        let detail = payload.map_or("", |_| "with another payload").to_owned();
        let deed = Deed::to_job(&inner, id, Action::Retry, detail);
        let retry = Command::Retry { image, payload: place };
        let retried = inner.run_for(audit, deed, Some(retry), payload);
        Ok(Some(inner.changed(retried)))
    }
}
