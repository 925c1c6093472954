//! `jobd-master`'s configuration.

use std::time::Duration;

use super::{ConfigError, Ini, ListenConfig, LogConfig, seconds};

/// What `/etc/jobd-master.conf` says.
#[derive(Clone, Debug)]
pub struct MasterConfig {
    /// Where to listen; port 7081 by default.
    pub listen: ListenConfig,
    /// `ping_interval`, 30 s by default.
    pub ping_interval: Duration,
    /// `poke_throttle_interval`, 0.5 s by default.
    pub poke_throttle_interval: Duration,
    /// Where logs go.
    pub log: LogConfig,
}

impl MasterConfig {
    /// The options of a file that was read.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn from_ini(ini: &Ini) -> Result<Self, ConfigError> {
        let ping_interval = seconds(ini, "ping_interval", 30.0)?;
        if ping_interval < Duration::from_millis(10) {
            return Err(ini.wrong("ping_interval", "at least 0.01 seconds"));
        }
        Ok(Self {
            listen: ListenConfig::read(ini, 7081)?,
            ping_interval,
            poke_throttle_interval: seconds(ini, "poke_throttle_interval", 0.5)?,
            log: LogConfig::read(ini)?,
        })
    }
}
