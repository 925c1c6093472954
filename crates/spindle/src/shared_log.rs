//! Opens the log that several nodes share, by its URL.

use std::{error::Error, path::Path, sync::Arc};

use spindle_access::read_secret;
use spindle_cluster::OpenLog;
use spindle_log::{Opening, SharedLog};
use spindle_log_nats::{NatsLog, NatsLogOptions, OpenError as NatsOpenError, SyncCheck};
use spindle_log_pgsql::{OpenError as PgsqlOpenError, PgsqlLog, PgsqlLogOptions};

use crate::{
    cli::LogArgs,
    config::{Config, LogSync, refuse_log_url},
    exit::{Code, Failure},
};

/// How to open the log of a shard that the settings name. A node does it each time that it begins to follow.
///
/// # Errors
///
/// When the URL or a file that the settings name cannot be used. No server was asked then.
pub fn opener(config: &Config, shard: u8) -> anyhow::Result<OpenLog> {
    let place = Place {
        url: config.log.as_deref().unwrap_or_default(),
        password_file: config.log_password_file.as_deref(),
        ca_file: config.log_ca_file.as_deref(),
        sync: config.log_sync,
    };
    let options = place.options(Opening::Node)?;
    let options = options.of_shard(shard).map_err(|error| unusable("log", &error))?;
    Ok(Box::new(move || options.open()))
}

/// Opens the log that a command names; the command has to name one.
///
/// # Errors
///
/// [`Code::Usage`] when the URL or a file will not do, [`Code::NotFound`] when there is no log.
pub fn open(args: &LogArgs, opening: Opening) -> anyhow::Result<Arc<dyn SharedLog>> {
    let url = args.log.as_deref().unwrap_or_default();
    refuse_log_url(url).map_err(|reason| Failure::with(Code::Usage, reason))?;
    let place = Place {
        url,
        password_file: args.log_password_file.as_deref(),
        ca_file: args.log_ca_file.as_deref(),
        sync: args.log_sync,
    };
    place.options(opening)?.open().map_err(|error| {
        let pgsql = error.downcast_ref::<PgsqlOpenError>();
        let nats = error.downcast_ref::<NatsOpenError>();
        let is_absent = matches!(pgsql, Some(PgsqlOpenError::Absent { .. }))
            || matches!(nats, Some(NatsOpenError::Absent { .. }));
        let code = if is_absent { Code::NotFound } else { Code::Error };
        Failure::with(code, format!("cannot open the shared log: {error}"))
    })
}

/// Where a log is, and what is asked of its servers.
struct Place<'a> {
    url: &'a str,
    password_file: Option<&'a Path>,
    ca_file: Option<&'a Path>,
    sync: LogSync,
}

/// One variant for each kind of log.
enum Options {
    Pgsql(PgsqlLogOptions),
    Nats(NatsLogOptions),
}

impl Options {
    fn of_shard(self, shard: u8) -> Result<Self, PgsqlOpenError> {
        Ok(match self {
            Self::Pgsql(options) => Self::Pgsql(options.of_shard(shard)?),
            Self::Nats(options) => Self::Nats(options.of_shard(shard)),
        })
    }

    fn open(&self) -> Result<Arc<dyn SharedLog>, Box<dyn Error + Send + Sync>> {
        Ok(match self {
            Self::Pgsql(options) => Arc::new(PgsqlLog::open(options)?),
            Self::Nats(options) => Arc::new(NatsLog::open(options)?),
        })
    }
}

impl Place<'_> {
    fn options(&self, opening: Opening) -> anyhow::Result<Options> {
        let password = self.password_file.map(read_secret).transpose();
        let password = password.map_err(|error| unusable("log-password-file", &error))?;
        match self.url.split("://").next().unwrap_or_default() {
            "postgres" | "postgresql" => {
                let options = self.pgsql_options(password.as_deref());
                let mut options = options.map_err(|error| unusable("log", &error))?;
                options.opening = opening;
                Ok(Options::Pgsql(options))
            }
            // `nats` and `tls`: the settings take no other scheme.
            _ => {
                let options = self.nats_options(password.as_deref());
                let options = options.map_err(|error| unusable("log", &error))?;
                Ok(Options::Nats(NatsLogOptions { opening, ..options }))
            }
        }
    }

    fn pgsql_options(&self, password: Option<&str>) -> Result<PgsqlLogOptions, PgsqlOpenError> {
        let mut options = PgsqlLogOptions::from_url(self.url)?;
        if let Some(password) = password {
            options = options.with_password(password);
        }
        if let Some(file) = self.ca_file {
            options = options.with_authority(file)?;
        }
        options.accept_unsafe_server = self.sync == LogSync::Os;
        Ok(options)
    }

    fn nats_options(&self, password: Option<&str>) -> Result<NatsLogOptions, NatsOpenError> {
        let mut options = NatsLogOptions::from_url(self.url)?;
        if let Some(password) = password {
            options = options.with_password(password);
        }
        if let Some(file) = self.ca_file {
            options = options.with_authority(file);
        }
        if self.sync == LogSync::Os {
            options.sync = SyncCheck::Os;
        }
        Ok(options)
    }
}

fn unusable(setting: &str, error: &dyn std::fmt::Display) -> anyhow::Error {
    Failure::with(Code::Usage, format!("--{setting}: {error}"))
}
