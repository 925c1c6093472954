//! Reading a job with its bytes.

use spindle_core::{JobId, JobImage};
use spindle_engine::{FetchError, JobRef};

use crate::api::Api;
use crate::view::{Bodies, Job};
use spindle_http::{Answered, no_job};

/// A job in full, once all that is shown of it is durable.
pub(crate) async fn job(api: &Api, which: JobRef) -> Answered<(u32, Job)> {
    let (read, gate) = api.bridge().job_with(which, |image| bodies(api, image))?;
    api.bridge().durable(gate).await;
    let (image, bodies) = read.ok_or_else(no_job)?;
    let job = Job::new(api.engine(), &image, bodies, &api.options().host);
    Ok((image.revision, job))
}

fn bodies(api: &Api, image: &JobImage) -> Result<Bodies, FetchError> {
    let engine = api.engine();
    let mut bodies = Bodies::default();
    match &image.payload {
        None => bodies.payload_damaged = true,
        Some(place) => match engine.payload(JobId(image.id), place) {
            Ok(bytes) => bodies.payload = Some(bytes),
            Err(FetchError::Damaged(_)) => {
                // The engine has just ended the job for it.
                engine.end_turn();
                bodies.payload_damaged = true;
            }
            Err(error) => return Err(error),
        },
    }
    if let Some(place) = image.outcome.as_ref().and_then(|outcome| outcome.bytes.as_ref()) {
        bodies.result = Some(engine.bytes(place)?);
    }
    Ok(bodies)
}
