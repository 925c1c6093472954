//! `jobd-master`'s configuration.

use std::{net::SocketAddr, time::Duration};

use super::{ConfigError, Ini, ListenConfig, LogConfig, seconds};
use crate::server::{Gate, Limits};

const PING_INTERVAL: Duration = Duration::from_secs(30);
const POKE_THROTTLE_INTERVAL: Duration = Duration::from_millis(500);

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
    /// A master inside another program, which asks nobody for a password.
    pub fn inside(address: SocketAddr, connections_max: usize, insecure: bool) -> Self {
        Self {
            listen: ListenConfig {
                host: address.ip().to_string(),
                port: address.port(),
                gate: Gate::default(),
                insecure,
                limits: Limits { connections_max, ..Limits::default() },
            },
            ping_interval: PING_INTERVAL,
            poke_throttle_interval: POKE_THROTTLE_INTERVAL,
            log: LogConfig::default(),
        }
    }

    /// The options of a file that was read.
    ///
    /// # Errors
    /// [`ConfigError`].
    pub fn from_ini(ini: &Ini) -> Result<Self, ConfigError> {
        let ping_interval = seconds(ini, "ping_interval", PING_INTERVAL.as_secs_f64())?;
        if ping_interval < Duration::from_millis(10) {
            return Err(ini.wrong("ping_interval", "at least 0.01 seconds"));
        }
        Ok(Self {
            listen: ListenConfig::read(ini, 7081)?,
            ping_interval,
            poke_throttle_interval: seconds(
                ini,
                "poke_throttle_interval",
                POKE_THROTTLE_INTERVAL.as_secs_f64(),
            )?,
            log: LogConfig::read(ini)?,
        })
    }
}
