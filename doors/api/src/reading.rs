//! Reading a job with its bytes.

use bytes::Bytes;
use spindle_access::{Role, Target};
use spindle_core::{JobId, JobImage};
use spindle_engine::{FetchError, Gated, JobRef};

use crate::api::Api;
use crate::typed::to_json;
use crate::view::{Bodies, Job};
use spindle_http::{Answered, Pass, no_job, work_on_bytes};

/// A job in full as JSON, with its revision, once all that is shown of it is durable. Who may not
/// inspect jobs sees it without payload and result.
pub(crate) async fn job(api: &Api, which: JobRef, pass: &mut Pass) -> Answered<(u32, Bytes)> {
    let is_whole = pass.allows_as(Role::Inspect, Target::Server).is_ok();
    let image = api.engine().jobs().get(which)?;
    let image = api.bridge().durable(image).await.ok_or_else(no_job)?;
    let (revision, bytes) = (image.revision, bytes_of(&image));
    let reader = api.clone();
    let bytes = if is_whole { bytes } else { 0 };
    let shown = work_on_bytes(bytes, move || {
        let bodies =
            if is_whole { bodies(&reader, &image)? } else { Gated::open(Bodies::default()) };
        let shown = |bodies| Job::new(reader.engine(), &image, bodies, &reader.options().host);
        Ok::<_, FetchError>(bodies.map(|bodies| to_json(&shown(bodies), bytes)))
    });
    let shown = shown.await?;
    Ok((revision, api.bridge().durable(shown).await))
}

/// How long a job's payload and result are.
pub(crate) fn bytes_of(image: &JobImage) -> usize {
    let result = image.outcome.as_ref().and_then(|outcome| outcome.bytes.as_ref());
    image.payload.iter().chain(result).map(|place| place.len as usize).sum()
}

pub(crate) fn bodies(api: &Api, image: &JobImage) -> Result<Gated<Bodies>, FetchError> {
    let jobs = api.engine().jobs();
    let mut bodies = Bodies::default();
    match &image.payload {
        None => bodies.payload_damaged = true,
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
    let has_result = image.outcome.as_ref().is_some_and(|outcome| outcome.bytes.is_some());
    Ok(jobs.result(image)?.map(|result| {
        bodies.result = Some(result).filter(|_| has_result);
        bodies
    }))
}
