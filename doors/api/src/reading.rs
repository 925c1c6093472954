//! Reading a job with its bytes.

use spindle_core::{JobId, JobImage};
use spindle_engine::{FetchError, Gated, JobRef};

use crate::api::Api;
use crate::view::{Bodies, Job};
use spindle_http::{Answered, no_job};

/// A job in full, once all that is shown of it is durable.
pub(crate) async fn job(api: &Api, which: JobRef) -> Answered<(u32, Job)> {
    let image = api.engine().jobs().get(which)?;
    let image = api.bridge().durable(image).await.ok_or_else(no_job)?;
    let bodies = api.bridge().durable(bodies(api, &image)?).await;
    let job = Job::new(api.engine(), &image, bodies, &api.options().host);
    Ok((image.revision, job))
}

fn bodies(api: &Api, image: &JobImage) -> Result<Gated<Bodies>, FetchError> {
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
