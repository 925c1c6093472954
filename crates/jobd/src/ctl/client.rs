//! The connection to the daemon that is asked.

use std::time::Duration;

use serde_json::value::RawValue;
use thiserror::Error;
use tokio::{net::TcpStream, time::timeout};

use super::command::Command;
use crate::{
    link::{Link, RequestError},
    wire::raw,
};

const CONNECT_PATIENCE: Duration = Duration::from_secs(10);
/// Results of many jobs come in one message.
const ANSWER_BYTES_MAX: usize = 1 << 30;

/// Why there is no answer.
#[derive(Debug, Error)]
pub(super) enum AskError {
    #[error("Connection failure: {cause} ({address})")]
    Connect { address: String, cause: std::io::Error },
    #[error("{who} error: {cause}")]
    Refused { who: &'static str, cause: RequestError },
}

/// A daemon that can be asked.
#[derive(Debug)]
pub(super) struct Client {
    link: Link,
    password: Option<String>,
    who: &'static str,
}

impl Client {
    pub(super) async fn connect(
        host: &str,
        port: u16,
        password: Option<String>,
        is_master: bool,
    ) -> Result<Self, AskError> {
        let failed = |cause| AskError::Connect { address: format!("{host}:{port}"), cause };
        let connecting = timeout(CONNECT_PATIENCE, TcpStream::connect((host, port))).await;
        let stream =
            connecting.map_err(|_| failed(std::io::ErrorKind::TimedOut.into()))?.map_err(failed)?;
        let (link, connection) = Link::open(stream, ANSWER_BYTES_MAX).map_err(failed)?;
        tokio::spawn(connection.run(|request, responder| {
            responder.error(&format!("unknown request type: '{}'", request.kind));
        }));
        Ok(Self { link, password, who: if is_master { "Master" } else { "Worker" } })
    }

    pub(super) async fn ask(&self, command: &Command) -> Result<Box<RawValue>, AskError> {
        let data = command.data.as_ref().map(raw);
        let answer = self.link.request(command.kind, data.as_deref(), self.password.as_deref());
        answer.await.map_err(|cause| AskError::Refused { who: self.who, cause })
    }
}
