//! `jobctl`'s configuration.

use std::time::Duration;

use spindle_tls::client::ClientFiles;
use tracing::level_filters::LevelFilter;

use super::{ConfigError, Ini, logging::level, password, seconds, tls::client_files};

/// What `~/.jobctl.conf` says. Flags win over it.
#[derive(Clone, Debug)]
pub struct CtlConfig {
    /// `master`: talk to a master.
    pub master: bool,
    /// `host`.
    pub host: Option<String>,
    /// `port`.
    pub port: Option<u16>,
    /// `password`.
    pub password: Option<String>,
    /// `tls`, `sslrootcert`, `sslcert`, `sslkey`: how connections are encrypted; none: not at all.
    pub tls: Option<ClientFiles>,
    /// `timeout`: how long to wait for the connection and for an answer, 10 s by default; 0 means
    /// for ever.
    pub timeout: Duration,
    /// `log_level`, `warn` by default.
    pub log_level: LevelFilter,
}

impl CtlConfig {
    /// The options of a file that was read.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn from_ini(ini: &Ini) -> Result<Self, ConfigError> {
        Ok(Self {
            master: ini.flag("master")?,
            host: ini.text("host").map(str::to_owned),
            port: ini.number("port", 1, u16::MAX)?,
            password: password(ini, "password"),
            tls: client_files(ini, "")?,
            timeout: seconds(ini, "timeout", Duration::from_secs(10))?,
            log_level: level(ini, "log_level")?,
        })
    }
}
