//! The server that a command talks to, and what its answers mean to a person.

use std::{
    env,
    ffi::OsString,
    fmt,
    io::{Error, ErrorKind},
    path::PathBuf,
    sync::Arc,
};

use rustls::{CertificateError, ClientConfig};
use spindle_access::{Token, read_secret};
use spindle_tls::{
    FileError,
    client::{ClientFiles, Identity, Trust},
    distrust,
};

use super::{
    Line, payload,
    session::{AskError, Session},
    web::{BaseUrl, WebSession},
    workq::WorkqSession,
};
use crate::{
    cli::{Common, Papers, Reach},
    exit::{Code, Failure},
};

const URL: &str = "http://127.0.0.1:7420";
/// A body of the native API has at most 16 MiB; base64 takes a third more than what it carries.
const WEB_PAYLOAD_BYTES_MAX: usize = 11 << 20;
/// How long an answer may take; the error for people names it.
const ANSWER_SECONDS: u64 = 30;

/// Where the server is, and which of its doors is used.
#[derive(Debug, Clone)]
pub enum Server {
    /// The native API at this URL.
    Web(BaseUrl),
    /// The Workq door.
    Workq(WorkqAddress),
}

impl Server {
    /// The server a command names: by its flags, or else by the environment.
    pub fn of(common: &Common) -> anyhow::Result<Self> {
        let address = match (&common.workq, &common.reach.url, said("SPINDLE_WORKQ")) {
            (Some(address), _, _) => address.clone(),
            (None, None, Some(address)) => address,
            _ => return Ok(Self::Web(Self::url(&common.reach)?)),
        };
        let is_encrypted = common.tls || said("SPINDLE_TLS").is_some_and(|text| text == "true");
        let Papers { ca_file, cert, key, .. } = &common.reach.papers;
        if !is_encrypted && [ca_file, cert, key].into_iter().any(Option::is_some) {
            let message = "--ca-file, --cert and --key are for encrypted connections: add --tls";
            return Err(Failure::with(Code::Usage, message.to_owned()));
        }
        let tls = is_encrypted.then(|| {
            let files = files(&common.reach.papers)?;
            anyhow::Ok(Arc::new(files.config().map_err(unusable)?))
        });
        let (tls, token) = (tls.transpose()?, token(&common.reach.papers)?);
        Ok(Self::Workq(WorkqAddress { address, tls, token }))
    }

    /// The URL that a command names, else that of the environment, else the default.
    pub fn url(reach: &Reach) -> anyhow::Result<BaseUrl> {
        let (url, name) = match (&reach.url, said("SPINDLE_URL")) {
            (Some(url), _) => (url.clone(), "--url"),
            (None, Some(url)) => (url, "SPINDLE_URL"),
            (None, None) => (URL.to_owned(), "--url"),
        };
        Self::at_url(&url, name, &reach.papers)
    }

    /// A URL that was given as `name`.
    pub fn at_url(url: &str, name: &str, papers: &Papers) -> anyhow::Result<BaseUrl> {
        let base = BaseUrl::parse(url)
            .map_err(|message| Failure::with(Code::Usage, format!("{name}: {message}")))?
            .with_token(token(papers)?);
        base.with_files(&files(papers)?).map_err(unusable)
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
        self.try_open(&Line::default()).map_err(|error| self.explain(error, "server"))
    }

    /// Opens a session on this line.
    pub fn try_open(&self, line: &Line) -> Result<Box<dyn Session>, AskError> {
        Ok(match self {
            Self::Web(base) => Box::new(WebSession::new(base, line)),
            Self::Workq(at) => Box::new(WorkqSession::open(at, line)?),
        })
    }

    /// What a refusal means. `about` is what was asked for: `job 42`.
    pub fn explain(&self, error: AskError, about: &str) -> anyhow::Error {
        match error {
            AskError::NotFound => Failure::with(Code::NotFound, not_there(about)),
            AskError::TimedOut => Failure::with(Code::Timeout, format!("{about}: timed out")),
            AskError::LeaseLost(lost) => {
                Failure::with(Code::Error, format!("{about} {}", lost.description()))
            }
            AskError::Refused { text, code } => {
                let advice = code.as_deref().map(advice).unwrap_or_default();
                let message = format!("{about}: the server refused: {text}{advice}");
                Failure::with(Code::Error, message)
            }
            AskError::Failed(text) => Failure::with(
                Code::Error,
                format!("{about}: the server failed: {text}; its log says more"),
            ),
            AskError::Io(error) => Failure::with(Code::Error, self.lost(&error)),
            AskError::Away(text) => Failure::with(
                Code::Error,
                format!("{about}: {text}; is the server behind it running?"),
            ),
            AskError::Unusable(text) => Failure::with(Code::Error, text),
            AskError::Strange(text) => Failure::with(
                Code::Error,
                match self {
                    Self::Web(base) => format!(
                        "{base} is no HTTP door of Spindle: {text}; name its URL with --url or \
                         SPINDLE_URL"
                    ),
                    Self::Workq(WorkqAddress { address, .. }) => format!(
                        "{address} is no Workq door: {text}; name its address with --workq or \
                         SPINDLE_WORKQ"
                    ),
                },
            ),
            AskError::Unable(text) => Failure::with(Code::Usage, text),
        }
    }

    fn lost(&self, error: &Error) -> String {
        let (address, door, flags, form) = match self {
            Self::Web(base) => (base.with_port(), "HTTP", "--url or SPINDLE_URL", URL),
            Self::Workq(address) => {
                (address.to_string(), "Workq", "--workq or SPINDLE_WORKQ", "127.0.0.1:9922")
            }
        };
        match error.kind() {
            ErrorKind::ConnectionRefused => format!(
                "cannot connect to {address}: {error}; is the server running? start it with \
                 `spindle serve`, or name another address with {flags}"
            ),
            ErrorKind::InvalidInput => {
                format!("cannot connect to {address}: {error}; write it as {form}")
            }
            ErrorKind::HostUnreachable | ErrorKind::NetworkUnreachable => {
                format!("cannot connect to {address}: {error}; is {flags} right?")
            }
            ErrorKind::UnexpectedEof => format!(
                "the server at {address} closed the connection; did it stop, or is that not its \
                 {door} door?"
            ),
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!("the server at {address} did not answer for {ANSWER_SECONDS} seconds")
            }
            _ => format!("the connection to {address} was lost: {error}"),
        }
    }
}

impl fmt::Display for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Web(base) => base.fmt(f),
            Self::Workq(at) => write!(f, "Workq at {at}"),
        }
    }
}

/// Where a Workq door is, and how to connect to it.
#[derive(Debug, Clone)]
pub struct WorkqAddress {
    /// Its host and port.
    pub address: String,
    /// The connection is encrypted with this.
    pub tls: Option<Arc<ClientConfig>>,
    /// The token to authenticate with.
    pub token: Option<Token>,
}

impl fmt::Display for WorkqAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.address)
    }
}

/// The files that a command names for TLS: by its flags, or else by the environment.
fn files(reach: &Papers) -> anyhow::Result<ClientFiles> {
    let named =
        |flag: &Option<PathBuf>, name| flag.clone().or_else(|| said_os(name).map(PathBuf::from));
    let trust = named(&reach.ca_file, "SPINDLE_CA_FILE").map_or(Trust::Public, Trust::File);
    let certificate = named(&reach.cert, "SPINDLE_CERT");
    let identity = match (certificate, named(&reach.key, "SPINDLE_KEY")) {
        (Some(certificate), Some(key)) => Some(Identity { certificate, key }),
        (None, None) => None,
        (Some(_), None) => return Err(Failure::with(Code::Usage, "--cert needs --key".to_owned())),
        (None, Some(_)) => return Err(Failure::with(Code::Usage, "--key needs --cert".to_owned())),
    };
    Ok(ClientFiles { trust, identity })
}

fn unusable(error: FileError) -> anyhow::Error {
    Failure::with(Code::Error, format!("{error}; see --ca-file, --cert and --key"))
}

/// What is said of a server whose certificate will not do.
pub fn untrusted(server: impl fmt::Display, error: &CertificateError) -> String {
    let why = distrust(error, "--ca-file or SPINDLE_CA_FILE");
    format!("the certificate of {server} is not trusted: {why}")
}

fn not_there(about: &str) -> String {
    // Queues' names are mistyped most: queues are not made before they have jobs. Batches are removed
    // some time after their end.
    let lists = match about.split_once(' ') {
        Some(("queue", _)) => "; `spindle queues` lists them",
        Some(("batch", _)) => "; `spindle batch list` lists those that are kept",
        _ => "",
    };
    format!("there is no {about}{lists}")
}

/// What to do about a problem, where its own words do not say it.
fn advice(code: &str) -> &'static str {
    match code {
        "job_leased" => "; wait for its worker, or `spindle cancel` it",
        "job_finished" => "; `spindle retry` lets it run again",
        "job_not_finished" => "; `spindle why` tells what it waits for",
        "queue_full" => "; `spindle queues` shows what is in it",
        "unauthorized" => "; name a file with a token with --token-file or SPINDLE_TOKEN_FILE",
        "unknown_host" => "; name the server by the address it listens on",
        _ => "",
    }
}

/// The token that says who asks, if there is one.
fn token(reach: &Papers) -> anyhow::Result<Option<Token>> {
    let unusable = |message: String| Failure::with(Code::Usage, message);
    let (path, name) = match (&reach.who.token_file, said_os("SPINDLE_TOKEN_FILE")) {
        (Some(path), _) => (path.clone(), "--token-file"),
        (None, Some(path)) => (path.into(), "SPINDLE_TOKEN_FILE"),
        (None, None) => {
            let token = said("SPINDLE_TOKEN").map(|text| Token::parse(&text)).transpose();
            return token.map_err(|reason| unusable(format!("SPINDLE_TOKEN: {reason}")));
        }
    };
    let text = read_secret(&path).map_err(|error| unusable(format!("{name}: {error}")))?;
    let token = Token::parse(&text);
    token.map(Some).map_err(|reason| unusable(format!("{name}: {}: {reason}", path.display())))
}

fn said(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

fn said_os(name: &str) -> Option<OsString> {
    env::var_os(name).filter(|value| !value.is_empty())
}
