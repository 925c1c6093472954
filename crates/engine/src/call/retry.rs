//! Finished jobs run again.

use spindle_core::{Command, Found, Rejection};

use crate::answer::Refused;
use crate::commit::Payload;
use crate::gate::Gated;
use crate::read::{FetchError, JobRef};
use crate::views::Jobs;

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

impl Jobs<'_> {
    /// Lets a done or dead job run again, with another payload if one is given.
    pub fn retry(&self, job: JobRef, payload: Option<Payload>) -> Gated<Result<(), RetryError>> {
        let payload = payload.map(Payload::with_checksum);
        if let Some(payload) = &payload {
            let fits = self.0.shared.inner.lock().check_len(payload);
            if let Err(refused) = fits.and_then(|()| self.0.check_space()) {
                return Gated::open(Err(refused.into()));
            }
        }
        loop {
            match self.try_retry(job, payload.as_ref()) {
                Ok(None) => {}
                Ok(Some(answer)) => return answer.map(|retried| retried.map_err(RetryError::from)),
                Err(error) => return Gated::open(Err(error.into())),
            }
        }
    }

    /// None: the job or the constraints changed meanwhile.
    fn try_retry(
        &self,
        job: JobRef,
        payload: Option<&Payload>,
    ) -> Result<Option<Gated<Result<(), Refused>>>, FetchError> {
        let engine = self.0;
        let (id, place) = {
            let inner = engine.enter();
            match inner.look_up(job) {
                None => return Ok(Some(inner.refused(Rejection::NotFound))),
                Some(Found::Live(_)) => return Ok(Some(inner.refused(Rejection::NotFinished))),
                Some(Found::Finished(stub)) => (stub.id(), stub.image()),
            }
        };
        let mut image = match engine.finished_image(place) {
            Err(FetchError::Moved) => return Ok(None),
            read => Box::new(read?),
        };
        let matched_by = match engine.match_retry(&mut image, payload) {
            Err(FetchError::Moved) => return Ok(None),
            matched => matched?,
        };
        let mut inner = engine.enter();
        if inner.state.server().constraints_revision != matched_by {
            drop(inner);
            engine.refresh_rules();
            return Ok(None);
        }
        // Compacted or retried since its image was read: then the image is an old one.
        if inner.finished_place(id) != Some(place) {
            return Ok(None);
        }
        let place = payload.map(|payload| inner.batch.place_for(payload));
        let retried = inner.run_with(&Command::Retry { image, payload: place }, payload);
        Ok(Some(inner.changed(retried)))
    }
}
