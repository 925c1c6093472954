//! The three programs' ini files: the specification's names and defaults, and a few more.
//!
//! Errors name the file, the line and the option, and say what to do.

mod ctl;
mod exposed;
mod ini;
mod logging;
mod master;
mod tls;
mod worker;

pub use ctl::CtlConfig;
pub use ini::{ConfigError, Ini};
pub use logging::LogConfig;
pub use master::MasterConfig;
pub use tls::ListenerFiles;
pub use worker::{MasterAddress, WorkerConfig};

use std::time::Duration;

use spindle_budget::{BYTES_MAX, Budgets};
use spindle_jobd_master::server::{Access, Limits, ListenPlaces, ListenSettings};

/// Where a daemon listens: the options that the two have in common.
fn listen(ini: &Ini, port: u16) -> Result<ListenSettings, ConfigError> {
    let limits = Limits::default();
    let connections = ini.number("max_connections", 1, 1_000_000)?;
    let message_bytes = ini.number("max_message_bytes", 1024, 1 << 30)?;
    let message_bytes_max = message_bytes.unwrap_or(limits.message_bytes_max);
    // Two messages fit, however long they may be.
    let bytes_max = BYTES_MAX.max(2 * message_bytes_max);
    Ok(ListenSettings {
        host: ini.text("host").unwrap_or("127.0.0.1").to_owned(),
        port: ini.number("port", 0, u16::MAX)?.unwrap_or(port),
        access: Access {
            password: password(ini, "password"),
            always_allow_localhost: ini.flag("always_allow_localhost")?,
        },
        insecure: ini.flag("insecure")?,
        limits: Limits { message_bytes_max, ..limits },
        places: connections.map(ListenPlaces::alone).unwrap_or_default(),
        budgets: Budgets::new(bytes_max, bytes_max),
        ..ListenSettings::default()
    })
}

/// A password; an empty one is none.
fn password(ini: &Ini, key: &str) -> Option<String> {
    ini.text(key).filter(|password| !password.is_empty()).map(str::to_owned)
}

/// Seconds, with a fraction if need be.
fn seconds(ini: &Ini, key: &str, default: Duration) -> Result<Duration, ConfigError> {
    /// A year.
    const MAX_S: f64 = 31_536_000.0;
    let Some(text) = ini.text(key) else { return Ok(default) };
    let value = text.parse::<f64>().ok().filter(|value| (0.0..=MAX_S).contains(value));
    let value = value.ok_or_else(|| ini.wrong(key, "a number of seconds, such as 10 or 0.5"))?;
    Ok(Duration::from_secs_f64(value))
}
