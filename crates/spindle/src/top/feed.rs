//! Asks the server for what is shown, and does what a person wants done, on a thread of its own.

use std::{
    io,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread,
    time::Duration,
};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    client::{
        Native,
        view::{Job, Queue},
        web::{ApiRequest, encoded},
    },
    exit::whole,
    queue_name::QueueName,
};

/// How often the server is asked.
pub const EVERY: Duration = Duration::from_secs(2);
/// Items of one page of a list. The server has its own maximum for workers.
const PAGE: u32 = 200;
/// How many bytes of a payload are read in a list, and for one job.
const PREVIEW_BYTES: u32 = 120;
const PAYLOAD_BYTES: u32 = 4_096;

/// What is to be shown. The cursors are those of a page, none for the first one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Wanted {
    /// Queues.
    Queues(Option<String>),
    /// Workers.
    Workers(Option<String>),
    /// Jobs of a queue or of all, of one status or of all.
    Jobs {
        /// The queue.
        queue: Option<QueueName>,
        /// The status, as the API names it.
        status: Option<&'static str>,
        /// The page.
        cursor: Option<String>,
    },
    /// One job.
    Job(String),
}

/// What a person wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Give out no more jobs of a queue.
    Pause(QueueName),
    /// Give them out again.
    Resume(QueueName),
    /// Let a job run again.
    Retry(String),
    /// End a job as dead.
    Cancel(String),
}

/// What the feed is to do.
#[derive(Debug, PartialEq, Eq)]
pub enum Order {
    /// Show this from now on.
    Show(Wanted),
    /// Do this.
    Do(Change),
}

/// The server itself.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Server {
    /// Its version.
    pub version: String,
    /// How long it has been up.
    pub uptime_ms: u64,
    /// Whether it takes jobs: `ok`, or why not.
    pub status: String,
    /// Jobs that it has.
    pub jobs: u64,
    /// Queues that it has.
    pub queues: u64,
    /// What its log takes.
    pub log_bytes: u64,
}

/// What the server answered.
#[derive(Debug)]
pub enum Body {
    /// Queues.
    Queues(Vec<Queue>),
    /// Workers.
    Workers(Vec<Value>),
    /// Jobs.
    Jobs(Vec<Job>),
    /// One job, and why it is not running.
    Job(Box<Job>, Vec<String>),
}

/// What the feed has to say.
#[derive(Debug)]
pub enum Update {
    /// What was wanted, with the cursor of the page behind it.
    Page(Wanted, Server, Body, Option<String>),
    /// A person's wish was done, or why not.
    Done(String),
    /// Why there is no answer.
    Failed(String),
}

/// The thread, and how it is spoken to.
pub struct Feed {
    orders: Sender<Order>,
    updates: Receiver<Update>,
}

impl Feed {
    /// Begins to ask this server. It ends with the program.
    pub fn start(native: Native) -> io::Result<Self> {
        let (orders, taken) = channel();
        let (says, updates) = channel();
        let body = move || serve(&native, &taken, &says);
        thread::Builder::new().name("feed".to_owned()).spawn(body)?;
        Ok(Self { orders, updates })
    }

    /// Tells it what to do. It is done at once, if the server answers.
    pub fn order(&self, order: Order) {
        // The thread lives as long as this sender, so sending does not fail.
        let _ = self.orders.send(order);
    }

    /// What it has to say, if anything.
    pub fn update(&self) -> Option<Update> {
        self.updates.try_recv().ok()
    }
}

fn serve(native: &Native, orders: &Receiver<Order>, says: &Sender<Update>) {
    let mut wanted = Wanted::Queues(None);
    loop {
        let mut next = match orders.recv_timeout(EVERY) {
            Ok(order) => Some(order),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => return,
        };
        // Of several orders that came while the server was asked, the last view counts.
        while let Some(order) = next {
            match order {
                Order::Show(other) => wanted = other,
                Order::Do(change) => {
                    let done = make(native, &change);
                    let text = done.unwrap_or_else(|error| whole(&error));
                    let _ = says.send(Update::Done(text));
                }
            }
            next = orders.try_recv().ok();
        }
        let page = ask(native, &wanted);
        let update = page.unwrap_or_else(|error| Update::Failed(whole(&error)));
        if says.send(update).is_err() {
            return;
        }
    }
}

#[derive(Deserialize)]
struct Why {
    #[serde(default)]
    reasons: Vec<Reason>,
}

#[derive(Deserialize)]
struct Reason {
    text: String,
}

fn ask(native: &Native, wanted: &Wanted) -> anyhow::Result<Update> {
    if let Wanted::Job(id) = wanted {
        let path = format!("/api/v1/jobs/{}", encoded(id));
        let about = format!("job {id}");
        let job =
            native.ask(ApiRequest::get(&format!("{path}?bytes_max={PAYLOAD_BYTES}")), &about)?;
        let why: Why = native.ask(ApiRequest::get(&format!("{path}/why")), &about)?;
        let reasons = why.reasons.into_iter().map(|reason| reason.text).collect();
        let body = Body::Job(Box::new(job), reasons);
        return Ok(Update::Page(wanted.clone(), Server::default(), body, None));
    }
    let server = native.ask(ApiRequest::get("/api/v1/server"), "server")?;
    let mut page: Value = native.ask(ApiRequest::get(&path(wanted)), "list")?;
    let next = page.get("next_cursor").and_then(Value::as_str).map(str::to_owned);
    let mut items = |name: &str| page.get_mut(name).map(Value::take).unwrap_or_default();
    let body = match wanted {
        Wanted::Queues(_) => Body::Queues(serde_json::from_value(items("queues"))?),
        Wanted::Workers(_) => Body::Workers(serde_json::from_value(items("workers"))?),
        _ => Body::Jobs(serde_json::from_value(items("jobs"))?),
    };
    Ok(Update::Page(wanted.clone(), server, body, next))
}

/// The request for a list.
fn path(wanted: &Wanted) -> String {
    let (mut path, cursor) = match wanted {
        Wanted::Queues(cursor) => (format!("/api/v1/queues?limit={PAGE}"), cursor),
        Wanted::Workers(cursor) => ("/api/v1/workers?".to_owned(), cursor),
        Wanted::Jobs { queue, status, cursor } => {
            let mut path =
                format!("/api/v1/jobs?limit={PAGE}&order=desc&payload_preview={PREVIEW_BYTES}");
            if let Some((field, name)) = queue.as_ref().map(QueueName::field) {
                path += &format!("&{field}={}", encoded(&name));
            }
            if let Some(status) = status {
                path += &format!("&status={status}");
            }
            (path, cursor)
        }
        Wanted::Job(id) => (format!("/api/v1/jobs/{}", encoded(id)), &None),
    };
    if let Some(cursor) = cursor {
        path += &format!("&cursor={}", encoded(cursor));
    }
    path
}

/// Does what a person wants, and says what was done.
fn make(native: &Native, change: &Change) -> anyhow::Result<String> {
    let (path, about, done) = match change {
        Change::Pause(name) => {
            (format!("{}/pause?create=false", name.path()), format!("queue {name}"), "is paused")
        }
        Change::Resume(name) => {
            (format!("{}/resume", name.path()), format!("queue {name}"), "goes on")
        }
        Change::Retry(id) => {
            (format!("/api/v1/jobs/{}/retry", encoded(id)), format!("job {id}"), "runs again")
        }
        Change::Cancel(id) => {
            (format!("/api/v1/jobs/{}/cancel", encoded(id)), format!("job {id}"), "is cancelled")
        }
    };
    let mut asking = ApiRequest::post(&path);
    if matches!(change, Change::Retry(_)) {
        asking = asking.with(&json!({}));
    }
    native.answer(asking, &about)?;
    Ok(format!("{about} {done}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_cursors_cannot_leave_their_place_in_a_request() {
        let queue = Some(QueueName::of(&b"a&status=dead"[..]));
        let wanted = Wanted::Jobs { queue, status: Some("ready"), cursor: Some("4&x".into()) };
        let path = path(&wanted);
        assert!(path.ends_with("&queue=a%26status%3Ddead&status=ready&cursor=4%26x"), "{path}");
        let bytes =
            Wanted::Jobs { queue: Some(QueueName::of(&b"\xff"[..])), status: None, cursor: None };
        assert!(super::path(&bytes).ends_with("&queue_base64=%2Fw%3D%3D"));
    }
}
