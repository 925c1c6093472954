//! LightJQ: a pusher, and a worker that asks.

use serde::Deserialize;
use serde_json::{Value, json};

use super::{Addresses, Submitter, TAKE_WAIT, Taken, Task, Worker};
use crate::{
    client::{
        session::AskError,
        web::{ApiRequest, Http},
    },
    demo::task::TTR_MS,
};

/// Submits jobs.
pub struct LightJqSubmitter(Http);

#[derive(Deserialize)]
struct Submitted {
    job_id: String,
}

impl LightJqSubmitter {
    /// At this door.
    pub fn new(http: Http) -> Self {
        Self(http)
    }
}

impl Submitter for LightJqSubmitter {
    /// LightJQ has no keys: a job whose answer was lost may be there twice, under two numbers.
    fn submit(&mut self, task: &Task) -> Result<String, AskError> {
        let job = json!({
            "name": task.queue, "argument": task.payload, "keep_result": true,
            "timeout": TTR_MS / 1000,
        });
        let submitted: Submitted = self.0.ask(in_json(ApiRequest::post("/job").with(&job)))?;
        Ok(submitted.job_id)
    }

    fn move_to(&mut self, node: &Addresses) {
        self.0 = node.http();
    }
}

/// A worker that is registered, and asks for its jobs.
pub struct LightJqWorker {
    http: Http,
    name: &'static str,
    /// Its id; none before it has registered. It keeps it over restarts of the server.
    id: Option<String>,
    is_registered: bool,
}

#[derive(Deserialize)]
struct Registered {
    worker_id: String,
}

#[derive(Deserialize)]
struct Given {
    job_id: String,
    argument: Value,
}

impl LightJqWorker {
    /// For the jobs of this name.
    pub fn new(http: Http, name: &'static str) -> Self {
        Self { http, name, id: None, is_registered: false }
    }

    /// A request that says who asks.
    fn signed<'a>(&self, asking: ApiRequest<'a>) -> ApiRequest<'a> {
        let mut asking = in_json(asking);
        asking.headers.extend(self.id.clone().map(|id| ("worker-id", id)));
        asking
    }

    fn register(&mut self) -> Result<(), AskError> {
        let names = [self.name];
        let worker = json!({ "name": "demo", "max_jobs": 1, "names": names });
        let asking = self.signed(ApiRequest::post("/worker").with(&worker));
        let registered: Registered = self.http.ask(asking)?;
        self.id = Some(registered.worker_id);
        self.is_registered = true;
        Ok(())
    }
}

impl Worker for LightJqWorker {
    fn take(&mut self) -> Result<Option<Taken>, AskError> {
        if !self.is_registered {
            self.register()?;
        }
        let path = format!("/worker/job?timeout={}", TAKE_WAIT.as_secs());
        let asking = self.signed(ApiRequest::get(&path).waiting(TAKE_WAIT));
        // A restarted server does not know the workers of before.
        let given = self.http.ask_for_any::<Given>(asking);
        let given = given.inspect_err(|_| self.is_registered = false)?;
        Ok(given.map(|given| Taken {
            claim: given.job_id,
            payload: given.argument.to_string().into_bytes(),
        }))
    }

    fn finish(&mut self, taken: &Taken) -> Result<(), AskError> {
        let done = json!({ "job_id": taken.claim, "type": "success", "result": {"done": true} });
        self.http.answer(self.signed(ApiRequest::post("/done").with(&done)))?;
        Ok(())
    }

    fn move_to(&mut self, node: &Addresses) {
        self.http = node.http();
    }
}

/// A request that is to be answered in JSON.
fn in_json(mut asking: ApiRequest<'_>) -> ApiRequest<'_> {
    asking.headers.push(("accept", "application/json".to_owned()));
    asking
}
