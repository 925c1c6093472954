//! The server that a command talks to, and what its answers mean to a person.

use std::{
    io::{Error, ErrorKind},
    time::Duration,
};

use spindle_workq::{
    client::{Client, ClientError},
    wire::Uuid,
};

use crate::{
    cli::Common,
    exit::{Code, Failure},
};

/// How long an answer may take beyond what a command itself waits for.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// Where the server is.
#[derive(Debug, Clone)]
pub struct Server {
    address: String,
}

impl Server {
    /// The server a command names.
    pub fn of(common: &Common) -> Self {
        Self { address: common.workq.clone() }
    }

    /// Opens a connection; the error is ready to be shown.
    pub fn connect(&self) -> anyhow::Result<Client> {
        self.try_connect().map_err(|error| match error {
            ClientError::Io(error) => {
                let what = format!("cannot connect to {}: {error}{}", self.address, hint(&error));
                Failure::with(Code::Error, what)
            }
            other => self.told(other, "server"),
        })
    }

    /// Opens a connection.
    pub fn try_connect(&self) -> Result<Client, ClientError> {
        Client::connect(self.address.as_str(), ANSWER_WITHIN)
    }

    /// What a refusal means. `about` is what was asked for: `job 6ba7...`.
    pub fn told(&self, error: ClientError, about: &str) -> anyhow::Error {
        match error {
            ClientError::NotFound => Failure::with(Code::NotFound, format!("there is no {about}")),
            ClientError::Timeout => Failure::with(Code::Timeout, format!("{about}: timed out")),
            ClientError::Client(text) => {
                Failure::with(Code::Error, format!("{about}: the server refused: {text}"))
            }
            ClientError::Server(text) => Failure::with(
                Code::Error,
                format!("{about}: the server failed: {text}; its log says more"),
            ),
            ClientError::Io(error) => Failure::with(Code::Error, self.lost(&error)),
            ClientError::Protocol(text) => {
                let is = format!("is {} really the address of a Workq door?", self.address);
                Failure::with(Code::Error, format!("{text}; {is}"))
            }
        }
    }

    fn lost(&self, error: &Error) -> String {
        let Self { address } = self;
        match error.kind() {
            ErrorKind::UnexpectedEof => {
                format!("the server at {address} closed the connection; did it stop?")
            }
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                let seconds = ANSWER_WITHIN.as_secs();
                format!("the server at {address} did not answer for {seconds} seconds")
            }
            _ => format!("the connection to {address} was lost: {error}"),
        }
    }
}

fn hint(error: &Error) -> &'static str {
    match error.kind() {
        ErrorKind::ConnectionRefused => {
            "; is the server running? start it with `spindle serve`, or name another address \
             with --workq or SPINDLE_WORKQ"
        }
        ErrorKind::InvalidInput => "; write it as ADDRESS:PORT",
        _ => "",
    }
}

/// An id for a job that was given none.
pub fn fresh_id() -> Uuid {
    Uuid::from_bytes(uuid::Uuid::new_v4().into_bytes())
}
