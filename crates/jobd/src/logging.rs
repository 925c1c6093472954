//! Logs to standard output and to a file, each from a level of its own that can change while the
//! program runs.

use std::{
    fs::{File, OpenOptions},
    io::{self, IsTerminal, Write},
    path::PathBuf,
    sync::Arc,
};

use parking_lot::{Mutex, RwLock};
use thiserror::Error;
use tracing::{Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    Layer,
    filter::dynamic_filter_fn,
    fmt,
    layer::{Filter, SubscriberExt},
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use crate::config::LogConfig;

/// Why logs cannot go where they should.
#[derive(Debug, Error)]
#[error("cannot write the log file {}: {cause}; change log_file", .path.display())]
pub struct LogError {
    path: PathBuf,
    cause: io::Error,
}

/// The levels of both logs and the log file; change them with [`Logs::apply`].
#[derive(Debug)]
pub struct Logs {
    console: Arc<RwLock<LevelFilter>>,
    file: Arc<RwLock<LevelFilter>>,
    target: LogFile,
}

/// The log file, if there is one.
#[derive(Clone, Debug, Default)]
struct LogFile(Arc<Mutex<Option<File>>>);

impl Write for LogFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut *self.0.lock() {
            Some(file) => file.write(bytes),
            None => Ok(bytes.len()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.lock().as_mut().map_or(Ok(()), Write::flush)
    }
}

/// Lets through events up to the level that is set at that moment.
fn up_to<S>(limit: &Arc<RwLock<LevelFilter>>) -> impl Filter<S> + 'static
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let limit = Arc::clone(limit);
    dynamic_filter_fn(move |about, _| *about.level() <= *limit.read())
}

impl Logs {
    /// Begins to log. Once in a process.
    pub fn begin(config: &LogConfig) -> Result<Self, LogError> {
        let off = || Arc::new(RwLock::new(LevelFilter::OFF));
        let logs = Self { console: off(), file: off(), target: LogFile::default() };
        logs.apply(config)?;
        let target = logs.target.clone();
        let console = fmt::layer()
            .with_writer(io::stdout)
            .with_ansi(io::stdout().is_terminal())
            .with_filter(up_to(&logs.console));
        let file = fmt::layer()
            .with_writer(move || target.clone())
            .with_ansi(false)
            .with_filter(up_to(&logs.file));
        // Fails when the process has a subscriber already, which then gets everything.
        let _ = tracing_subscriber::registry().with(console).with(file).try_init();
        Ok(logs)
    }

    /// Changes levels and file. The file is opened again, so that a rotated one is closed.
    /// Nothing has changed after an error.
    pub fn apply(&self, config: &LogConfig) -> Result<(), LogError> {
        let open = |path: &PathBuf| {
            let opened = OpenOptions::new().create(true).append(true).open(path);
            opened.map_err(|cause| LogError { path: path.clone(), cause })
        };
        let file = config.file.as_ref().map(open).transpose()?;
        *self.file.write() = if file.is_some() { config.level_file } else { LevelFilter::OFF };
        *self.console.write() = config.level_console;
        *self.target.0.lock() = file;
        Ok(())
    }
}

/// Begins to log to standard error, for a program whose standard output is data.
pub fn begin_on_stderr(level: LevelFilter) {
    let layer = fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_filter(level);
    // Fails when the process has a subscriber already, which then gets everything.
    let _ = tracing_subscriber::registry().with(layer).try_init();
}
