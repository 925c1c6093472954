//! `jobctl`'s configuration.

use super::{ConfigError, Ini, Level, password};

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
    /// `log_level`, `warn` by default.
    pub log_level: Level,
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
            log_level: Level::read(ini, "log_level")?,
        })
    }
}
