//! The server that a command talks to, and what its answers mean to a person.

use std::{
    env,
    io::{Error, ErrorKind},
};

use super::{
    line::Line,
    payload,
    session::{AskError, Session},
    web::{WebSession, authority},
    workq::WorkqSession,
};
use crate::{
    cli::Common,
    exit::{Code, Failure},
};

const URL: &str = "http://127.0.0.1:7420";
/// A body of the native API has at most 16 MiB; base64 takes a third more than what it carries.
const WEB_PAYLOAD_BYTES_MAX: usize = 11 << 20;
/// How long an answer may take: said to people when it took longer.
const ANSWER_SECONDS: u64 = 30;

/// Where the server is, and which of its doors is used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// The native API at this address.
    Web(String),
    /// The Workq door at this address.
    Workq(String),
}

impl Server {
    /// The server a command names: by its flags, or else by the environment.
    pub fn of(common: &Common) -> anyhow::Result<Self> {
        if let Some(address) = &common.workq {
            return Ok(Self::Workq(address.clone()));
        }
        match (&common.url, said("SPINDLE_WORKQ")) {
            (None, Some(address)) => Ok(Self::Workq(address)),
            (url, _) => Ok(Self::at(url.as_deref())?.0),
        }
    }

    /// The native API at a URL, or where the environment says, or where servers are; and its
    /// address alone.
    pub fn at(url: Option<&str>) -> anyhow::Result<(Self, String)> {
        let url = url.map(str::to_owned).or_else(|| said("SPINDLE_URL"));
        let url = url.unwrap_or_else(|| URL.to_owned());
        let authority = authority(&url).map_err(|told| Failure::with(Code::Usage, told))?;
        Ok((Self::Web(authority.to_owned()), authority.to_owned()))
    }

    /// The most bytes of a payload that this door takes.
    pub fn payload_bytes_max(&self) -> usize {
        match self {
            Self::Web(_) => WEB_PAYLOAD_BYTES_MAX,
            Self::Workq(_) => payload::block_bytes_max(),
        }
    }

    /// Opens a session; the error is ready to be shown.
    pub fn open(&self) -> anyhow::Result<Box<dyn Session>> {
        self.try_open(&Line::default()).map_err(|error| self.told(error, "server"))
    }

    /// Opens a session on this line.
    pub fn try_open(&self, line: &Line) -> Result<Box<dyn Session>, AskError> {
        Ok(match self {
            Self::Web(authority) => Box::new(WebSession::new(authority, line)),
            Self::Workq(address) => Box::new(WorkqSession::open(address, line)?),
        })
    }

    /// What a refusal means. `about` is what was asked for: `job 42`.
    pub fn told(&self, error: AskError, about: &str) -> anyhow::Error {
        match error {
            AskError::NotFound => Failure::with(Code::NotFound, not_there(about)),
            AskError::TimedOut => Failure::with(Code::Timeout, format!("{about}: timed out")),
            AskError::LeaseEnded => {
                Failure::with(Code::Error, format!("{about}: its lease has ended"))
            }
            AskError::Finished => {
                Failure::with(Code::Error, format!("{about}: it is finished already"))
            }
            AskError::Refused { text, code } => {
                let advice = code.as_deref().map(advice).unwrap_or_default();
                let told = format!("{about}: the server refused: {text}{advice}");
                Failure::with(Code::Error, told)
            }
            AskError::Failed(text) => Failure::with(
                Code::Error,
                format!("{about}: the server failed: {text}; its log says more"),
            ),
            AskError::Io(error) => Failure::with(Code::Error, self.lost(&error)),
            AskError::Strange(text) => {
                let (address, door) = match self {
                    Self::Web(address) => (address, "HTTP"),
                    Self::Workq(address) => (address, "Workq"),
                };
                let is = format!("is {address} really the address of a Spindle's {door} door?");
                Failure::with(Code::Error, format!("{text}; {is}"))
            }
            AskError::Unable(text) => Failure::with(Code::Usage, text),
        }
    }

    fn lost(&self, error: &Error) -> String {
        let (address, flags) = match self {
            Self::Web(authority) => (format!("http://{authority}"), "--url or SPINDLE_URL"),
            Self::Workq(address) => (address.clone(), "--workq or SPINDLE_WORKQ"),
        };
        match error.kind() {
            ErrorKind::ConnectionRefused => format!(
                "cannot connect to {address}: {error}; is the server running? start it with \
                 `spindle serve`, or name another address with {flags}"
            ),
            ErrorKind::InvalidInput => {
                format!("cannot connect to {address}: {error}; write it as ADDRESS:PORT")
            }
            ErrorKind::UnexpectedEof => {
                format!("the server at {address} closed the connection; did it stop?")
            }
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!("the server at {address} did not answer for {ANSWER_SECONDS} seconds")
            }
            _ => format!("the connection to {address} was lost: {error}"),
        }
    }
}

fn not_there(about: &str) -> String {
    // What people mistype most: nobody makes a queue before it has jobs.
    let lists = if about.starts_with("queue ") { "; `spindle queues` lists them" } else { "" };
    format!("there is no {about}{lists}")
}

/// What to do about a problem, where its own words do not say it.
fn advice(code: &str) -> &'static str {
    match code {
        "job_leased" => "; wait for its worker, or `spindle cancel` it",
        "job_finished" => "; `spindle retry` lets it run again",
        "job_not_finished" => "; `spindle why` tells what it waits for",
        "queue_full" => "; `spindle queues` shows what is in it",
        "unknown_host" => "; name the server by the address it listens on",
        _ => "",
    }
}

fn said(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}
