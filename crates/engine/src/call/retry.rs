//! Finished jobs run again.

use bytes::Bytes;
use spindle_core::{Command, Rejection, Type};
use spindle_log::Space;

use crate::door::Gate;
use crate::engine::{Engine, Refused, RetryError};
use crate::read::{FetchError, JobRef};

impl Engine {
    /// Lets a done or dead job run again, with another payload if one is given.
    pub fn retry(&self, which: JobRef, payload: Option<(Bytes, Type)>) -> Result<Gate, RetryError> {
        let crc = payload.as_ref().map_or(0, |(bytes, _)| crc32c::crc32c(bytes));
        if let Some((bytes, _)) = &payload {
            let (bytes, max) = (bytes.len(), self.shared.inner.lock().options.payload_bytes_max);
            if bytes > max {
                return Err(Refused::TooLarge { bytes, max }.into());
            }
            if self.shared.log.space() == Space::ReserveOnly {
                return Err(Refused::DiskFull.into());
            }
        }
        loop {
            let (found, gate) = self.find(which);
            let (id, _) = found.ok_or(Refused::Rejected(Rejection::NotFound, gate))?;
            let Some(place) = self.finished_place(id) else {
                return Err(Refused::Rejected(Rejection::NotFinished, gate).into());
            };
            let mut image = match self.finished_image(place) {
                Err(FetchError::Moved) => continue,
                read => Box::new(read?),
            };
            let matched_by = match self.match_retry(&mut image, payload.as_ref()) {
                Err(FetchError::Moved) => continue,
                matched => matched?,
            };
            let mut inner = self.enter();
            self.check_room(&inner)?;
            if inner.state.server().constraints_revision != matched_by {
                drop(inner);
                self.refresh_rules();
                continue;
            }
            // Carried or retried since its image was read: then the image is an old one.
            if inner.finished_place(id) != Some(place) {
                continue;
            }
            let bytes = payload.as_ref().map(|(bytes, _)| bytes.clone()).unwrap_or_default();
            let payload = payload.as_ref().map(|(bytes, kind)| inner.place_for(bytes.len(), *kind));
            let command = Command::Retry { image, payload };
            let retried = inner.run_with(&command, |inner| inner.put_bytes(&bytes, crc));
            return match retried {
                Ok(()) => Ok(inner.own_gate()),
                Err(rejection) => Err(self.refuse(&inner, rejection).into()),
            };
        }
    }
}
