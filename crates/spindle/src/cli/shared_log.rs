//! Which shared log a command is about.

use std::path::PathBuf;

use clap::{Args, ValueHint};

use crate::config::{LogSync, parse_log_sync};

/// The log of a cluster, named as for `spindle serve`.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// The log that the servers of a cluster share: postgres://USER@HOST/DATABASE,
    /// nats://HOST:PORT/STREAM or tls://HOST:PORT/STREAM
    #[arg(long, value_name = "URL")]
    pub log: Option<String>,
    /// With --log: a file with the password for its server, which only you may read
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "log")]
    pub log_password_file: Option<PathBuf>,
    /// With --log: certificates in PEM; its server must be vouched for by one of these
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "log")]
    pub log_ca_file: Option<PathBuf>,
    /// With --log: what its server has to do before it acknowledges: always or os
    #[arg(long, value_name = "WHEN", default_value = "always", value_parser = parse_log_sync, requires = "log")]
    pub log_sync: LogSync,
}
