//! Where the server is, which token and certificates a client uses, and how long it tries.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hyper::header::HeaderValue;
use parking_lot::Mutex;
use spindle_access::{Token, read_secret};
use spindle_tls::FileError;
use spindle_tls::client::{ClientFiles, Identity, Trust};

use crate::url::{BaseUrl, bearer};

/// Where servers are, if nobody says otherwise.
const DEFAULT_URL: &str = "http://127.0.0.1:7420";

/// Where the server is, which token and certificates a client uses, and how long it tries.
#[derive(Debug, Clone)]
pub struct Options {
    url: String,
    token: Option<String>,
    token_file: Option<PathBuf>,
    ca_file: Option<PathBuf>,
    cert_file: Option<PathBuf>,
    key_file: Option<PathBuf>,
    pub(crate) request_timeout: Duration,
    pub(crate) retry_for: Duration,
}

/// Which of a client's options cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The URL; the text says how to write it.
    #[error("{0}")]
    Url(String),
    /// A certificate without its key, or the other way round.
    #[error("a client certificate needs its key, and a key its certificate")]
    HalfAnIdentity,
    /// A file for TLS.
    #[error(transparent)]
    File(#[from] FileError),
    /// The token, or the file with it.
    #[error("{0}")]
    Token(String),
}

impl Options {
    /// The server at this URL: `http://` or `https://`, with the path that a proxy puts before it.
    /// Nothing is taken from the environment.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            token: None,
            token_file: None,
            ca_file: None,
            cert_file: None,
            key_file: None,
            request_timeout: Duration::from_secs(60),
            retry_for: Duration::from_secs(10),
        }
    }

    /// As the environment says: `SPINDLE_URL` (else `http://127.0.0.1:7420`), `SPINDLE_TOKEN_FILE`,
    /// `SPINDLE_TOKEN`, `SPINDLE_CA_FILE`, `SPINDLE_CERT`, `SPINDLE_KEY`.
    #[must_use]
    pub fn from_env() -> Self {
        let text = |name| env::var(name).ok().filter(|value| !value.is_empty());
        let said = |name| env::var_os(name).filter(|value: &OsString| !value.is_empty());
        let path = |name| said(name).map(PathBuf::from);
        Self {
            token: text("SPINDLE_TOKEN"),
            token_file: path("SPINDLE_TOKEN_FILE"),
            ca_file: path("SPINDLE_CA_FILE"),
            cert_file: path("SPINDLE_CERT"),
            key_file: path("SPINDLE_KEY"),
            ..Self::new(text("SPINDLE_URL").unwrap_or_else(|| DEFAULT_URL.to_owned()))
        }
    }

    /// The token that identifies the client. A [token file](Self::token_file) takes precedence over it.
    #[must_use]
    pub fn token(self, token: impl Into<String>) -> Self {
        Self { token: Some(token.into()), ..self }
    }

    /// A file with the token, which others must not be able to read. It is read again when the
    /// server refuses its token.
    #[must_use]
    pub fn token_file(self, path: impl Into<PathBuf>) -> Self {
        Self { token_file: Some(path.into()), ..self }
    }

    /// PEM: the server's certificate must be signed by one of these, and not by a public authority.
    #[must_use]
    pub fn ca_file(self, path: impl Into<PathBuf>) -> Self {
        Self { ca_file: Some(path.into()), ..self }
    }

    /// PEM: a certificate to show to the server, and its private key.
    #[must_use]
    pub fn certificate(self, cert: impl Into<PathBuf>, key: impl Into<PathBuf>) -> Self {
        Self { cert_file: Some(cert.into()), key_file: Some(key.into()), ..self }
    }

    /// How long a request may take, beyond what it waits for. Default 60 s.
    #[must_use]
    pub fn request_timeout(self, time: Duration) -> Self {
        Self { request_timeout: time, ..self }
    }

    /// How long a request is repeated while the server is away or busy. Default 10 s.
    #[must_use]
    pub fn retry_for(self, time: Duration) -> Self {
        Self { retry_for: time, ..self }
    }

    /// The URL, with the files that connections are encrypted with.
    pub(crate) fn base(&self) -> Result<BaseUrl, ConfigError> {
        let identity = match (&self.cert_file, &self.key_file) {
            (Some(certificate), Some(key)) => {
                Some(Identity { certificate: certificate.clone(), key: key.clone() })
            }
            (None, None) => None,
            _ => return Err(ConfigError::HalfAnIdentity),
        };
        let trust = self.ca_file.clone().map_or(Trust::Public, Trust::File);
        let base = BaseUrl::parse(&self.url).map_err(ConfigError::Url)?;
        Ok(base.with_files(&ClientFiles { trust, identity })?)
    }

    pub(crate) fn token_source(&self) -> Result<TokenSource, ConfigError> {
        let token = match (&self.token_file, &self.token) {
            (Some(file), _) => Some(read_token(file)?),
            (None, Some(text)) => {
                let bad = |reason| ConfigError::Token(format!("the token: {reason}"));
                Some(Token::parse(text).map_err(bad)?)
            }
            (None, None) => None,
        };
        Ok(TokenSource { file: self.token_file.clone(), token: Mutex::new(token) })
    }
}

/// The token that identifies the client. A token from a file may change while the program runs.
#[derive(Debug)]
pub(crate) struct TokenSource {
    file: Option<PathBuf>,
    token: Mutex<Option<Token>>,
}

impl TokenSource {
    /// The header with which requests identify the client.
    pub fn authorization(&self) -> Option<HeaderValue> {
        bearer(self.token.lock().as_ref()?)
    }

    /// Reads the file again. True if it has another token than the one that was refused.
    pub fn reload(&self, refused: Option<&HeaderValue>) -> bool {
        if let Some(Ok(token)) = self.file.as_deref().map(read_token) {
            *self.token.lock() = Some(token);
        }
        self.authorization().as_ref() != refused
    }
}

fn read_token(path: &Path) -> Result<Token, ConfigError> {
    let text = read_secret(path).map_err(|error| ConfigError::Token(error.to_string()))?;
    let bad = |reason| ConfigError::Token(format!("{}: {reason}", path.display()));
    Token::parse(&text).map_err(bad)
}
