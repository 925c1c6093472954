//! Reading a job with its bytes.

use spindle_core::{JobId, JobImage};
use spindle_engine::{FetchError, Gate, JobRef};

use crate::api::Api;
use crate::view::{Bodies, Job};
use spindle_http::{Answered, no_job};

/// Bytes may be carried to newer records while they are read: then the job is looked up again.
const TRIES: usize = 8;

/// A job in full, once all that is told of it is durable.
pub(crate) async fn job(api: &Api, which: JobRef) -> Answered<(u32, Job)> {
    let (read, gate) = look(api, which)?;
    api.desk().durable(gate).await;
    let (image, bodies) = read.ok_or_else(no_job)?;
    let job = Job::new(api.engine(), &image, bodies, &api.options().host);
    Ok((image.revision, job))
}

type Read = (JobImage, Bodies);

fn look(api: &Api, which: JobRef) -> Answered<(Option<Read>, Gate)> {
    let mut tries = 0;
    loop {
        tries += 1;
        let (image, gate) = api.engine().job(which)?;
        let Some(image) = image else { return Ok((None, gate)) };
        match bodies(api, &image) {
            Ok(bodies) => return Ok((Some((image, bodies)), gate)),
            Err(FetchError::Moved) if tries < TRIES => {}
            Err(error) => return Err(error.into()),
        }
    }
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
