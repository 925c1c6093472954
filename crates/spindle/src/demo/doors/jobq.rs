//! Jobq: jobs that the workers of any door lease.

use serde::Deserialize;

use super::{Addresses, Submitter, Task};
use crate::client::{
    session::AskError,
    web::{ApiRequest, Http},
};

/// Creates jobs.
pub struct JobqSubmitter(Http);

#[derive(Deserialize)]
struct Created {
    id: u64,
}

impl JobqSubmitter {
    /// At this door.
    pub fn new(http: Http) -> Self {
        Self(http)
    }
}

impl Submitter for JobqSubmitter {
    /// Jobq has no keys: a job whose answer was lost may be there twice, under two numbers.
    fn submit(&mut self, task: &Task) -> Result<String, AskError> {
        let path = format!("/api/v0/job/create?queue={}&ready=1", task.queue);
        let created: Created = self.0.ask(ApiRequest::post(&path).with(&task.payload))?;
        Ok(created.id.to_string())
    }

    fn move_to(&mut self, node: &Addresses) {
        self.0 = node.http();
    }
}
