//! Reports the ends of leases. Reports that come while a request is under way are collected for the next
//! one: the busier a worker is, the more reports share a wait for the server's disk.

use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};

use crate::client::{Client, How};
use crate::error::{CallError, Problem, Refusal};
use crate::transport::Request;

/// How many reports the server takes in one request.
const REPORTS_MAX: usize = 100;
/// A larger report goes alone: a request with many reports stays far below what the server takes.
const SHARED_BYTES_MAX: usize = 64 * 1024;

/// What a worker says of a lease that it ends.
#[derive(Debug, Clone)]
pub(crate) struct LeaseReport {
    pub lease_token: String,
    /// `complete`, `fail` or `release`.
    pub action: &'static str,
    /// A JSON object: the fields of the request of that name.
    pub body: String,
}

struct Waiting {
    report: LeaseReport,
    /// How long it is worth repeating.
    retry_for: Duration,
    answer: oneshot::Sender<Result<(), Arc<CallError>>>,
}

#[derive(Deserialize)]
struct Answers {
    answers: Vec<Entry>,
}

#[derive(Deserialize)]
struct Entry {
    problem: Option<Problem>,
}

/// Where reports are handed in.
#[derive(Debug, Clone)]
pub(crate) struct Reporter {
    client: Client,
    waiting: mpsc::UnboundedSender<Waiting>,
}

impl Reporter {
    /// Reports through this client until the last clone of it is dropped.
    pub fn start(client: Client) -> Self {
        let (waiting, collected) = mpsc::unbounded_channel();
        tokio::spawn(send_all(client.clone(), collected));
        Self { client, waiting }
    }

    /// Reports the end of a lease. A refusal is the same as for a request with this report alone.
    pub async fn report(
        &self,
        report: LeaseReport,
        retry_for: Duration,
    ) -> Result<(), Arc<CallError>> {
        if report.body.len() > SHARED_BYTES_MAX {
            return alone(&self.client, &report, retry_for).await;
        }
        let (answer, answered) = oneshot::channel();
        // The receiver lives as long as this sender does.
        let _ = self.waiting.send(Waiting { report, retry_for, answer });
        match answered.await {
            Ok(answer) => answer,
            // The runtime ends, and with it the attempt that waits.
            Err(_) => std::future::pending().await,
        }
    }
}

async fn send_all(client: Client, mut collected: mpsc::UnboundedReceiver<Waiting>) {
    let mut batch = Vec::with_capacity(REPORTS_MAX);
    while collected.recv_many(&mut batch, REPORTS_MAX).await > 0 {
        let retry_for = batch.iter().map(|one: &Waiting| one.retry_for).max().unwrap_or_default();
        let answers = match batch.as_slice() {
            [one] => vec![alone(&client, &one.report, retry_for).await],
            many => together(&client, many, retry_for).await,
        };
        for (one, answer) in batch.drain(..).zip(answers) {
            // A report that a stop has given up is not waited for any more.
            let _ = one.answer.send(answer);
        }
    }
}

async fn alone(
    client: &Client,
    report: &LeaseReport,
    retry_for: Duration,
) -> Result<(), Arc<CallError>> {
    let path = format!("/api/v1/leases/{}/{}", report.lease_token, report.action);
    let request = Request::post(&path).with_json(report.body.clone());
    let how = How { retry_for: Some(retry_for), ..How::REPEATABLE };
    client.call(request, how).await.map(drop).map_err(Arc::new)
}

async fn together(
    client: &Client,
    batch: &[Waiting],
    retry_for: Duration,
) -> Vec<Result<(), Arc<CallError>>> {
    let texts = batch.iter().map(|Waiting { report, .. }| {
        let LeaseReport { lease_token, action, body } = report;
        format!("{{\"lease_token\":\"{lease_token}\",\"{action}\":{body}}}")
    });
    let body = format!("{{\"leases\":[{}]}}", texts.collect::<Vec<_>>().join(","));
    let request = Request::post("/api/v1/leases/batch").with_json(body);
    let how = How { retry_for: Some(retry_for), ..How::REPEATABLE };
    let answered = client.call_and_tell(request, how).await.and_then(|(answer, is_repeated)| {
        let read = serde_json::from_slice::<Answers>(&answer.bytes);
        Ok((read.map_err(CallError::Strange)?.answers, is_repeated))
    });
    match answered {
        Ok((answers, is_repeated)) => {
            let outcomes = answers.into_iter().map(|entry| match entry.problem {
                None => Ok(()),
                Some(problem) => {
                    let refusal = Refusal { is_repeated, ..Refusal::of_entry(problem) };
                    Err(Arc::new(refusal.into()))
                }
            });
            outcomes.collect()
        }
        Err(error) => {
            let error = Arc::new(error);
            batch.iter().map(|_| Err(Arc::clone(&error))).collect()
        }
    }
}
