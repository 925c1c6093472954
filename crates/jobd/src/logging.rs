//! Logs to standard output and to a file, each from a level of its own that can change while the
//! program runs.

use std::{
    fs::{File, OpenOptions},
    io::{self, IsTerminal, Write},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use parking_lot::Mutex;
use thiserror::Error;
use tracing::Subscriber;
use tracing_subscriber::{
    Layer,
    filter::dynamic_filter_fn,
    fmt::{self, MakeWriter},
    layer::{Filter, SubscriberExt},
    registry::LookupSpan,
    util::SubscriberInitExt,
};

use crate::config::{Level, LogConfig};

/// Why logs cannot go where they should.
#[derive(Debug, Error)]
#[error("cannot write the log file {}: {cause}; change log_file", .path.display())]
pub struct LogError {
    path: PathBuf,
    cause: io::Error,
}

/// What is being logged, and where; change it with [`Logs::apply`].
#[derive(Debug)]
pub struct Logs {
    console: Arc<AtomicU8>,
    file: Arc<AtomicU8>,
    target: LogFile,
}

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

impl<'a> MakeWriter<'a> for LogFile {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

fn rank(level: Level) -> u8 {
    match level {
        Level::Error => 1,
        Level::Warn => 2,
        Level::Info => 3,
        Level::Debug => 4,
        Level::Trace => 5,
    }
}

fn rank_of(level: &tracing::Level) -> u8 {
    match *level {
        tracing::Level::ERROR => 1,
        tracing::Level::WARN => 2,
        tracing::Level::INFO => 3,
        tracing::Level::DEBUG => 4,
        tracing::Level::TRACE => 5,
    }
}

/// Lets through what is as grave as the limit says at that moment.
fn up_to<S>(limit: &Arc<AtomicU8>) -> impl Filter<S> + 'static
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    let limit = Arc::clone(limit);
    dynamic_filter_fn(move |about, _| rank_of(about.level()) <= limit.load(Ordering::Relaxed))
}

impl Logs {
    /// Begins to log. Once in a process.
    ///
    /// # Errors
    /// [`LogError`].
    pub fn begin(config: &LogConfig) -> Result<Self, LogError> {
        let logs =
            Self { console: Arc::default(), file: Arc::default(), target: LogFile::default() };
        logs.apply(config)?;
        let console = fmt::layer()
            .with_writer(io::stdout)
            .with_ansi(io::stdout().is_terminal())
            .with_filter(up_to(&logs.console));
        let file = fmt::layer()
            .with_writer(logs.target.clone())
            .with_ansi(false)
            .with_filter(up_to(&logs.file));
        // Fails when a subscriber is there already, which then hears everything.
        let _ = tracing_subscriber::registry().with(console).with(file).try_init();
        Ok(logs)
    }

    /// Changes levels and file. The file is opened again, so that a rotated one is let go.
    ///
    /// # Errors
    /// [`LogError`]; nothing has changed then.
    pub fn apply(&self, config: &LogConfig) -> Result<(), LogError> {
        let open = |path: &PathBuf| {
            let opened = OpenOptions::new().create(true).append(true).open(path);
            opened.map_err(|cause| LogError { path: path.clone(), cause })
        };
        let file = config.file.as_ref().map(open).transpose()?;
        let file_rank = if file.is_some() { rank(config.level_file) } else { 0 };
        *self.target.0.lock() = file;
        self.file.store(file_rank, Ordering::Relaxed);
        self.console.store(rank(config.level_console), Ordering::Relaxed);
        Ok(())
    }
}

/// Begins to log to standard error, for a program whose standard output is data.
pub fn begin_on_stderr(level: Level) {
    let limit = rank(level);
    let layer = fmt::layer()
        .with_writer(io::stderr)
        .with_ansi(io::stderr().is_terminal())
        .with_filter(dynamic_filter_fn(move |about, _| rank_of(about.level()) <= limit));
    // Fails when a subscriber is there already, which then hears everything.
    let _ = tracing_subscriber::registry().with(layer).try_init();
}
