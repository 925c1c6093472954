//! jobd: a client of the server's master.
//!
//! A jobd job is a row that waits until a client names it; with Spindle as the table that is a
//! parked job. So the submitter puts a parked job in and asks the master for `run-manual`. The
//! master passes that on to the worker that serves the target, which releases the job and answers
//! when it has ended, no matter which worker ran it.

use std::{io, net::SocketAddr, time::Duration};

use serde_json::{Value, json};
use spindle_jobd_master::{
    link::{Connection, Link, RequestError},
    wire::raw,
};
use spindle_tls::stream::MaybeTls;
use tokio::{net::TcpStream, runtime};

use super::{Addresses, Submitter, Task};
use crate::{
    client::{
        session::AskError,
        web::{ApiRequest, Http},
    },
    demo::task::TTR_MS,
};

/// How long the end of a job is waited for.
pub(super) const END_WITHIN: Duration = Duration::from_secs(60);
/// Far more than any message of the demo has.
const MESSAGE_BYTES_MAX: usize = 1 << 20;

/// Connects to the master; the caller has to answer the master's requests.
pub(super) async fn connect(master: SocketAddr) -> io::Result<(Link, Connection)> {
    let stream = TcpStream::connect(master).await?;
    Link::open(MaybeTls::Plain(stream), MESSAGE_BYTES_MAX)
}

fn lost(error: RequestError) -> AskError {
    match error {
        // The worker is not registered yet, or again.
        RequestError::Refused(text) => AskError::Failed(text),
        other => AskError::Io(io::Error::other(other)),
    }
}

/// Puts parked jobs in, and lets the master run them.
pub struct JobdSubmitter {
    addresses: Addresses,
    http: Http,
    /// The job that is on the server, but that no `run-manual` has succeeded for.
    parked: Option<(usize, u64)>,
}

impl JobdSubmitter {
    /// At these doors.
    pub fn new(addresses: Addresses) -> Self {
        Self { addresses, http: addresses.http(), parked: None }
    }

    fn park(&mut self, task: &Task) -> Result<u64, AskError> {
        if let Some((number, id)) = self.parked
            && number == task.number
        {
            return Ok(id);
        }
        let job = json!({
            "queue": task.queue, "payload": task.payload, "parked": true, "ttr_ms": TTR_MS,
            "unique": {"key": task.key(), "mode": "existing"},
        });
        let answer: Value = self.http.ask(ApiRequest::post("/api/v1/jobs").with(&job))?;
        let id = answer.get("id").and_then(Value::as_u64);
        let id = id.ok_or_else(|| AskError::Strange(format!("{answer} has no id")))?;
        self.parked = Some((task.number, id));
        Ok(id)
    }

    async fn run_manual(&self, id: u64, target: &str) -> Result<(), AskError> {
        let (link, connection) = connect(self.addresses.jobd_master).await?;
        tokio::spawn(connection.run(|_, responder| responder.error("a client answers nothing")));
        let jobs = raw(&json!({ "jobs": [{"id": id, "target": target}] }));
        let answer = link.request_within(END_WITHIN, "run-manual", Some(&jobs)).await;
        link.close();
        let answer: Value = serde_json::from_str(answer.map_err(lost)?.get())
            .map_err(|error| AskError::Strange(error.to_string()))?;
        let name = id.to_string();
        let part = |part: &str| answer.get(part).and_then(|jobs| jobs.get(&name)).cloned();
        match (part("jobs"), part("errors")) {
            (Some(_), _) => Ok(()),
            // The job was released before the crash, and the answer to that was lost.
            (None, Some(Value::String(text))) if text.contains("!= manual") => Ok(()),
            _ => Err(AskError::Failed(format!("run-manual answered {answer}"))),
        }
    }
}

impl Submitter for JobdSubmitter {
    fn submit(&mut self, task: &Task) -> Result<String, AskError> {
        let id = self.park(task)?;
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(self.run_manual(id, task.queue))?;
        Ok(id.to_string())
    }

    fn move_to(&mut self, node: &Addresses) {
        (self.addresses, self.http) = (*node, node.http());
    }
}
