//! Reading a job with its bytes.

use bytes::Bytes;
use serde::Deserialize;
use spindle_access::{Role, Target};
use spindle_core::{JobId, JobImage};
use spindle_engine::{FetchError, Gated, JobRef};
use utoipa::IntoParams;

use crate::api::Api;
use crate::numbers::bounded;
use crate::typed::to_json;
use crate::view::{Bodies, Job};
use spindle_http::{Answered, Pass, no_job, work_on_bytes};

/// The largest `bytes_max`.
pub(crate) const SHOW_BYTES_MAX: u32 = 65_536;

/// How much of a job to show.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ShowAsked {
    /// Of a payload that has more bytes show only the first, as `payload_preview`; leave out a
    /// result that has more. At most 65536; if not said, they are shown whatever their length.
    #[param(maximum = 65_536)]
    bytes_max: Option<u32>,
}

impl ShowAsked {
    pub fn bytes_max(&self) -> Answered<u32> {
        let Some(bytes_max) = self.bytes_max else { return Ok(u32::MAX) };
        bounded("bytes_max", bytes_max, 0..=SHOW_BYTES_MAX)
    }
}

/// A job in full as JSON, with its revision, once all that is shown of it is durable. A client that
/// may not inspect jobs gets it without payload and result. A payload longer than `bytes_max` is
/// cut to its beginning, and such a result is left out.
pub(crate) async fn job(
    api: &Api,
    which: JobRef,
    bytes_max: u32,
    pass: &mut Pass,
) -> Answered<(u32, Bytes)> {
    let is_whole = pass.allows_as(Role::Inspect, Target::Server).is_ok();
    let image = api.engine().jobs().get(which)?;
    let image = api.bridge().durable(image).await.ok_or_else(no_job)?;
    let (revision, bytes) = (image.revision, bytes_of(&image, bytes_max));
    let reader = api.clone();
    let bytes = if is_whole { bytes } else { 0 };
    let shown = work_on_bytes(bytes, move || {
        let bodies = match is_whole {
            true => bodies(&reader, &image, bytes_max)?,
            false => Gated::open(Bodies::default()),
        };
        let shown = |bodies| Job::new(reader.engine(), &image, bodies, &reader.options().host);
        Ok::<_, FetchError>(bodies.map(|bodies| to_json(&shown(bodies), bytes)))
    });
    let shown = shown.await?;
    Ok((revision, api.bridge().durable(shown).await))
}

/// How long a job's payload and result are, as far as [`bodies`] reads them.
pub(crate) fn bytes_of(image: &JobImage, bytes_max: u32) -> usize {
    let result = image.outcome.as_ref().and_then(|outcome| outcome.bytes.as_ref());
    image.payload.iter().chain(result).map(|place| place.len.min(bytes_max) as usize).sum()
}

/// A job's payload and result, if they are no longer than `bytes_max`; of a longer payload its
/// beginning.
pub(crate) fn bodies(
    api: &Api,
    image: &JobImage,
    bytes_max: u32,
) -> Result<Gated<Bodies>, FetchError> {
    let jobs = api.engine().jobs();
    let mut bodies = Bodies::default();
    match &image.payload {
        None => bodies.payload_damaged = true,
        Some(place) if place.len > bytes_max => {
            bodies.beginning = jobs.payload_beginning(JobId(image.id), place, bytes_max);
        }
        Some(place) => {
            // The engine ends a job whose payload is damaged.
            let _turn = api.bridge().turn();
            match jobs.payload(JobId(image.id), place) {
                Ok(bytes) => bodies.payload = Some(bytes),
                Err(FetchError::Damaged(_)) => bodies.payload_damaged = true,
                Err(error) => return Err(error),
            }
        }
    }
    let result = image.outcome.as_ref().and_then(|outcome| outcome.bytes.as_ref());
    let has_result = result.is_some();
    if result.is_some_and(|place| place.len > bytes_max) {
        return Ok(Gated::open(bodies));
    }
    Ok(jobs.result(image)?.map(|result| {
        bodies.result = Some(result).filter(|_| has_result);
        bodies
    }))
}
