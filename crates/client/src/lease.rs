//! The lease of a job that a worker has: requests about it, and whether it has ended.

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::watch;

use crate::client::{Client, How};
use crate::error::CallError;
use crate::transport::Request;

/// A lease. Code that learns from an answer of the server that it has ended notes that here.
pub(crate) struct Lease {
    client: Client,
    pub token: String,
    /// Why it has ended, if it has.
    end: watch::Sender<Option<String>>,
}

impl fmt::Debug for Lease {
    // Without the token, because its holder can end the lease.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lease").field("end", &self.end.borrow()).finish_non_exhaustive()
    }
}

impl Lease {
    pub fn new(client: Client, token: String) -> Self {
        Self { client, token, end: watch::Sender::default() }
    }

    /// Posts to one of the lease's paths, `extend` for example.
    pub async fn post(&self, action: &str, body: &Value, how: How<'_>) -> Result<(), CallError> {
        let path = self.path(action);
        let answered = self.client.call(Request::post(&path).with(body), how).await;
        self.noting_end(answered).map(drop)
    }

    /// Reads what one of the lease's paths has.
    pub async fn get<T: DeserializeOwned>(&self, what: &str) -> Result<T, CallError> {
        let path = self.path(what);
        self.noting_end(self.client.ask(Request::get(&path), How::REPEATABLE).await)
    }

    fn path(&self, action: &str) -> String {
        format!("/api/v1/leases/{}/{action}", self.token)
    }

    fn noting_end<T>(&self, answered: Result<T, CallError>) -> Result<T, CallError> {
        if let Some(reason) = answered.as_ref().err().and_then(end_of) {
            self.end.send_replace(Some(reason));
        }
        answered
    }

    /// Waits until an answer says that the lease has ended. Returns the reason.
    pub async fn ended(&self) -> String {
        let mut end = self.end.subscribe();
        let reason = end.wait_for(Option::is_some).await.expect("the sender is ours");
        reason.clone().unwrap_or_default()
    }
}

/// Why a lease has ended, if that is what the server says.
pub(crate) fn end_of(error: &CallError) -> Option<String> {
    let refusal = error.refusal()?;
    match refusal.code() {
        "lease_gone" => Some("gone".to_owned()),
        "lease_not_live" => {
            let reason = refusal.problem.more.get("reason").and_then(Value::as_str);
            Some(reason.unwrap_or("finished").to_owned())
        }
        _ => None,
    }
}
