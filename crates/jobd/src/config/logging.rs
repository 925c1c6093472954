//! `log_file`, `log_level_file`, `log_level_console`.

use std::path::PathBuf;

use super::{ConfigError, Ini};

/// A minimum level of logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Only what went wrong.
    Error,
    /// What a person should look at too.
    Warn,
    /// What happens.
    Info,
    /// How it happens.
    Debug,
    /// Every message.
    Trace,
}

impl Level {
    fn from_name(name: &str) -> Option<Self> {
        Some(match name.to_ascii_lowercase().as_str() {
            "error" => Self::Error,
            "warn" => Self::Warn,
            "info" => Self::Info,
            "debug" => Self::Debug,
            "trace" => Self::Trace,
            _ => return None,
        })
    }

    pub(super) fn read(ini: &Ini, key: &str) -> Result<Self, ConfigError> {
        let Some(name) = ini.text(key) else { return Ok(Self::Warn) };
        Self::from_name(name).ok_or_else(|| ini.wrong(key, "trace, debug, info, warn or error"))
    }
}

/// Where logs go and which.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogConfig {
    /// `log_file`.
    pub file: Option<PathBuf>,
    /// `log_level_file`, `warn` by default.
    pub level_file: Level,
    /// `log_level_console`, `warn` by default; these go to standard output.
    pub level_console: Level,
}

impl Default for LogConfig {
    fn default() -> Self {
        Self { file: None, level_file: Level::Warn, level_console: Level::Warn }
    }
}

impl LogConfig {
    pub(super) fn read(ini: &Ini) -> Result<Self, ConfigError> {
        Ok(Self {
            file: ini.text("log_file").filter(|file| !file.is_empty()).map(PathBuf::from),
            level_file: Level::read(ini, "log_level_file")?,
            level_console: Level::read(ini, "log_level_console")?,
        })
    }
}
