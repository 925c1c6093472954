//! `log_file`, `log_level_file`, `log_level_console`.

use std::path::PathBuf;

use tracing::{Level, level_filters::LevelFilter};

use super::{ConfigError, Ini};

/// Where logs go, and from which level on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// `log_file`.
    pub file: Option<PathBuf>,
    /// `log_level_file`, `warn` by default.
    pub level_file: LevelFilter,
    /// `log_level_console`, `warn` by default; these go to standard output.
    pub level_console: LevelFilter,
}

impl LogConfig {
    pub(super) fn read(ini: &Ini) -> Result<Self, ConfigError> {
        Ok(Self {
            file: ini.text("log_file").filter(|file| !file.is_empty()).map(PathBuf::from),
            level_file: level(ini, "log_level_file")?,
            level_console: level(ini, "log_level_console")?,
        })
    }
}

/// A level by its name; `warn` by default.
pub(super) fn level(ini: &Ini, key: &str) -> Result<LevelFilter, ConfigError> {
    let name = ini.text(key).unwrap_or("warn");
    // The library would also accept numbers as levels.
    let is_name = name.bytes().all(|byte| byte.is_ascii_alphabetic());
    let level = name.parse::<Level>().ok().filter(|_| is_name);
    level
        .map(LevelFilter::from_level)
        .ok_or_else(|| ini.wrong(key, "trace, debug, info, warn or error"))
}
