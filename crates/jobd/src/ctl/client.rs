//! The connection to the daemon that is asked.

use std::{future::Future, pin::pin, time::Duration};

use serde_json::value::RawValue;
use spindle_jobd_master::{
    link::{Link, RequestError},
    wire::raw,
};
use spindle_tls::client::ClientFiles;
use thiserror::Error;
use tokio::time::timeout;

use super::command::Command;
use crate::connect::{Names, connect};

/// Results of many jobs come in one message.
const ANSWER_BYTES_MAX: usize = 1 << 30;

const TLS_NAMES: Names = Names { plain: "leave --tls out", authority: "--ca-file or sslrootcert" };

/// Why there is no answer.
#[derive(Debug, Error)]
pub(super) enum AskError {
    #[error("Connection failure: {cause} ({address})")]
    Connect { address: String, cause: std::io::Error },
    #[error("Connection failure: none within {} s ({address}); --timeout waits longer",
        .patience.as_secs_f32())]
    Unreachable { address: String, patience: Duration },
    #[error("{who} error: {cause}")]
    Refused { who: &'static str, cause: RequestError },
    #[error("{who} error: no answer within {} s ({address}); {hint}", .patience.as_secs_f32())]
    Silent { who: &'static str, address: String, patience: Duration, hint: &'static str },
}

/// Where a daemon listens, and how to ask it.
#[derive(Debug)]
pub(super) struct Address {
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) is_master: bool,
    pub(super) password: Option<String>,
    pub(super) tls: Option<ClientFiles>,
    /// How long to wait for the connection, and for an answer. Without it: as long as it takes.
    pub(super) patience: Option<Duration>,
}

/// A daemon that can be asked.
#[derive(Debug)]
pub(super) struct Client<'a> {
    link: Link,
    address: &'a Address,
}

impl<'a> Client<'a> {
    pub(super) async fn connect(address: &'a Address) -> Result<Self, AskError> {
        let failed = |cause| AskError::Connect { address: address.shown(), cause };
        let connecting = connect(&address.host, address.port, address.tls.as_ref(), &TLS_NAMES);
        let stream = match address.patience {
            None => connecting.await,
            Some(patience) => timeout(patience, connecting)
                .await
                .map_err(|_| AskError::Unreachable { address: address.shown(), patience })?,
        };
        let (link, connection) =
            Link::open(stream.map_err(failed)?, ANSWER_BYTES_MAX).map_err(failed)?;
        tokio::spawn(connection.run(|request, responder| {
            responder.error(&format!("unknown request type: '{}'", request.kind));
        }));
        Ok(Self { link, address })
    }

    pub(super) async fn ask(&self, command: &Command) -> Result<Box<RawValue>, AskError> {
        let who = self.address.who();
        let data = command.data.as_ref().map(raw);
        let password = self.address.password.as_deref();
        let answer = self.link.request(command.kind, data.as_deref(), password);
        let answer = match self.address.patience {
            None => Some(answer.await),
            Some(patience) if command.waits_for_jobs() => self.while_alive(patience, answer).await,
            Some(patience) => timeout(patience, answer).await.ok(),
        };
        match answer {
            Some(answer) => answer.map_err(|cause| AskError::Refused { who, cause }),
            None => Err(self.silent(command)),
        }
    }

    /// Waits as long as the daemon gives signs of life. Pings make it give some.
    async fn while_alive<T>(
        &self,
        patience: Duration,
        answer: impl Future<Output = T>,
    ) -> Option<T> {
        let mut answer = pin!(answer);
        loop {
            let reads = self.link.reads();
            self.link.ping();
            match timeout(patience, &mut answer).await {
                Ok(answer) => return Some(answer),
                Err(_) if self.link.reads() == reads => return None,
                Err(_) => {}
            }
        }
    }

    fn silent(&self, command: &Command) -> AskError {
        let hint = match command.kind {
            "pause" | "continue" if self.address.is_master => {
                "the original's master never answers this, and does it all the same"
            }
            "run-manual" => "not even to pings: the jobs may run all the same",
            _ => "--timeout waits longer",
        };
        AskError::Silent {
            who: self.address.who(),
            address: self.address.shown(),
            patience: self.address.patience.unwrap_or_default(),
            hint,
        }
    }
}

impl Address {
    fn who(&self) -> &'static str {
        if self.is_master { "Master" } else { "Worker" }
    }

    fn shown(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}
