//! A submitter and a worker for each protocol, made of the clients that the program has anyway.
//!
//! They connect at the first request, and again at the first request after an error: the server may
//! have been killed in between.
//!
//! - `session`: the native API and Workq, by the sessions of the commands
//! - `gearman`: by the door's client
//! - `lightjq`, `jobq`: requests in JSON to the HTTP door
//! - `jobd`: a client of the master; `jobd_worker`: a worker that is registered there

mod gearman;
mod jobd;
mod jobd_worker;
mod jobq;
mod lightjq;
mod session;

use std::{ffi::OsString, net::SocketAddr, time::Duration};

use serde_json::json;
use spindle_client::http::Method;

pub use self::jobd_worker::{Registration, Targets};
use self::{
    gearman::{GearmanSubmitter, GearmanWorker},
    jobd::JobdSubmitter,
    jobq::JobqSubmitter,
    lightjq::{LightJqSubmitter, LightJqWorker},
    session::{SessionSubmitter, SessionWorker},
};
use super::{
    route::{Door, ROUTES, Route},
    task::{TTR_MS, Task},
};
use crate::{
    client::{
        Line,
        server::{Server, WorkqAddress},
        session::AskError,
        web::{ApiRequest, BaseUrl, Http},
    },
    queue_name::QueueName,
};

/// How long a worker waits for a job before it says that there is none.
const TAKE_WAIT: Duration = Duration::from_secs(1);

/// Where the server's doors are.
#[derive(Debug, Clone, Copy)]
pub struct Addresses {
    /// The native API, LightJQ, Jobq, the pages.
    pub http: SocketAddr,
    /// Workq.
    pub workq: SocketAddr,
    /// Gearman.
    pub gearman: SocketAddr,
    /// jobd's master.
    pub jobd_master: SocketAddr,
}

impl Addresses {
    /// The flags of `serve` for these doors.
    pub fn flags(&self) -> impl Iterator<Item = OsString> {
        let Self { http, workq, gearman, jobd_master } = *self;
        let doors = [
            ("--http", http),
            ("--workq", workq),
            ("--gearman", gearman),
            ("--jobd-master", jobd_master),
        ];
        doors.into_iter().flat_map(|(flag, at)| [flag.into(), at.to_string().into()])
    }

    /// The HTTP door's URL. Nobody needs a token there.
    pub fn base(&self) -> BaseUrl {
        BaseUrl::parse(&format!("http://{}", self.http)).expect("an address makes a URL")
    }

    /// A client of the HTTP door.
    pub fn http(&self) -> Http {
        Http::new(&self.base(), &Line::default())
    }

    fn server(&self, door: Door) -> Server {
        match door {
            Door::Workq => {
                let address = self.workq.to_string();
                Server::Workq(WorkqAddress { address, tls: None, token: None })
            }
            _ => Server::Web(self.base()),
        }
    }
}

/// Puts jobs in through one door.
pub trait Submitter: Send {
    /// Submits a job, and answers with a name of it that the native API knows. Submitting a job
    /// again whose answer was lost makes no second one where the protocol has a way to say that.
    fn submit(&mut self, task: &Task) -> Result<String, AskError>;

    /// Goes on at the same door of another node of a cluster.
    fn move_to(&mut self, node: &Addresses);
}

/// Works the jobs of one queue through one door.
pub trait Worker: Send {
    /// The next job, if one comes within a second.
    fn take(&mut self) -> Result<Option<Taken>, AskError>;

    /// Reports a job as done.
    fn finish(&mut self, taken: &Taken) -> Result<(), AskError>;

    /// Goes on at the same door of another node of a cluster, with the job that it has.
    fn move_to(&mut self, node: &Addresses);
}

/// A job that a worker has.
pub struct Taken {
    /// What the door calls it.
    pub claim: String,
    /// Its payload, as the door gives it.
    pub payload: Vec<u8>,
}

/// The submitter of a route.
pub fn submitter(route: &Route, addresses: &Addresses) -> Box<dyn Submitter> {
    match route.submits {
        Door::Api | Door::Workq => Box::new(SessionSubmitter::new(addresses, route.submits)),
        Door::Gearman => Box::new(GearmanSubmitter::new(addresses.gearman)),
        Door::Jobd => Box::new(JobdSubmitter::new(*addresses)),
        Door::Jobq => Box::new(JobqSubmitter::new(addresses.http())),
        Door::LightJq => Box::new(LightJqSubmitter::new(addresses.http())),
    }
}

/// The worker of a route. jobd's worker gets its jobs over the native API, as `jobd` does with
/// `spindle_url`; requests that come through the master are answered by [`Registration`].
pub fn worker(route: &Route, addresses: &Addresses) -> Box<dyn Worker> {
    match route.works {
        Door::Gearman => Box::new(GearmanWorker::new(addresses.gearman, route.queue)),
        Door::LightJq => Box::new(LightJqWorker::new(addresses.http(), route.queue)),
        Door::Jobd => Box::new(SessionWorker::new(addresses, Door::Api, route.queue, "jobd")),
        door => Box::new(SessionWorker::new(addresses, door, route.queue, "demo")),
    }
}

/// Sets the routes' queues so that a job that a crash took from its worker comes back soon.
pub fn prepare(http: &Http) -> Result<(), AskError> {
    for route in &ROUTES {
        let path = format!("{}/settings", QueueName::of(route.queue).path());
        let settings = json!({ "ttr_default_ms": TTR_MS, "backoff": {"base_ms": 100} });
        http.answer(ApiRequest::of(Method::PUT, &path).with(&settings))?;
    }
    Ok(())
}
