//! Opens the log that several nodes share, by its URL.

use std::sync::Arc;

use spindle_access::read_secret;
use spindle_cluster::OpenLog;
use spindle_log::SharedLog;
use spindle_log_nats::{NatsLog, NatsLogOptions, SyncCheck};
use spindle_log_pgsql::{PgsqlLog, PgsqlLogOptions};

use crate::{
    config::{Config, LogSync},
    exit::{Code, Failure},
};

/// How to open the log that the settings name. A node does it each time that it begins to follow.
///
/// # Errors
///
/// When the URL or a file that the settings name cannot be used. No server was asked then.
pub fn opener(config: &Config) -> anyhow::Result<OpenLog> {
    let url = config.log.as_deref().unwrap_or_default();
    let password = config.log_password_file.as_deref().map(read_secret).transpose();
    let password = password.map_err(|error| unusable("log-password-file", &error))?;
    // One arm for each kind of log, which makes its options of the URL, the password and the settings.
    match url.split("://").next().unwrap_or_default() {
        "postgres" | "postgresql" => {
            let options = pgsql_options(url, password.as_deref(), config);
            let options = options.map_err(|error| unusable("log", &error))?;
            Ok(Box::new(move || Ok(Arc::new(PgsqlLog::open(&options)?) as Arc<dyn SharedLog>)))
        }
        // `nats` and `tls`: the settings take no other scheme.
        _ => {
            let options = nats_options(url, password.as_deref(), config);
            let options = options.map_err(|error| unusable("log", &error))?;
            Ok(Box::new(move || Ok(Arc::new(NatsLog::open(&options)?) as Arc<dyn SharedLog>)))
        }
    }
}

fn pgsql_options(
    url: &str,
    password: Option<&str>,
    config: &Config,
) -> Result<PgsqlLogOptions, spindle_log_pgsql::OpenError> {
    let mut options = PgsqlLogOptions::from_url(url)?;
    if let Some(password) = password {
        options = options.with_password(password);
    }
    if let Some(file) = &config.log_ca_file {
        options = options.with_authority(file)?;
    }
    options.accept_unsafe_server = config.log_sync == LogSync::Os;
    Ok(options)
}

fn nats_options(
    url: &str,
    password: Option<&str>,
    config: &Config,
) -> Result<NatsLogOptions, spindle_log_nats::OpenError> {
    let mut options = NatsLogOptions::from_url(url)?;
    if let Some(password) = password {
        options = options.with_password(password);
    }
    if let Some(file) = &config.log_ca_file {
        options = options.with_authority(file);
    }
    if config.log_sync == LogSync::Os {
        options.sync = SyncCheck::Os;
    }
    Ok(options)
}

fn unusable(setting: &str, error: &dyn std::fmt::Display) -> anyhow::Error {
    Failure::with(Code::Usage, format!("--{setting}: {error}"))
}
