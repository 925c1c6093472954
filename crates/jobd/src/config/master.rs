//! `jobd-master`'s configuration.

use std::time::Duration;

use spindle_jobd_master::MasterSettings;

use super::{ConfigError, Ini, ListenerFiles, LogConfig, listen, seconds};

/// What `/etc/jobd-master.conf` says.
#[derive(Clone, Debug)]
pub struct MasterConfig {
    /// What the master needs; port 7081 by default.
    pub master: MasterSettings,
    /// How it accepts encrypted connections.
    pub tls: ListenerFiles,
    /// Where logs go.
    pub log: LogConfig,
}

impl MasterConfig {
    /// The options of a file that was read.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn from_ini(ini: &Ini) -> Result<Self, ConfigError> {
        let mut master = MasterSettings::new(listen(ini, 7081)?);
        master.ping_interval = seconds(ini, "ping_interval", master.ping_interval)?;
        if master.ping_interval < Duration::from_millis(10) {
            return Err(ini.wrong("ping_interval", "at least 0.01 seconds"));
        }
        let throttle = master.poke_throttle_interval;
        master.poke_throttle_interval = seconds(ini, "poke_throttle_interval", throttle)?;
        Ok(Self { master, tls: ListenerFiles::read(ini)?, log: LogConfig::read(ini)? })
    }
}
