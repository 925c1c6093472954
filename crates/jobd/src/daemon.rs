//! The two daemons as programs: flags, configuration, signals, the service manager.

use std::{
    io::{self, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::ExitCode,
    time::{Duration, SystemTime},
};

use anyhow::Context;
use clap::{Parser, Subcommand};
use spindle_jobd_master::{Master, server::ListenSettings};
use spindle_notify::NotifyState;
use spindle_tls::{FileError, ServerTls};
use tokio::{
    runtime,
    signal::unix::{Signal, SignalKind, signal},
    time::timeout,
};
use tracing::{error, info, warn};

use crate::{
    config::{ConfigError, Ini, LogConfig, MasterConfig, WorkerConfig},
    logging::Logs,
    table::{TableKind, open_table, schema_sql},
    worker::Worker,
};

/// Runs the jobs of a table, a process for each.
#[derive(Debug, Parser)]
#[command(name = "jobd", version, max_term_width = 100)]
struct WorkerFlags {
    #[command(flatten)]
    common: CommonFlags,
    #[command(subcommand)]
    command: Option<WorkerCommand>,
}

#[derive(Debug, Subcommand)]
enum WorkerCommand {
    /// Print the job table that a database needs
    Schema {
        /// Which database
        #[arg(value_parser = ["mysql", "pgsql", "sqlite"])]
        kind: String,
    },
}

/// Tells the workers of a table's targets that there is work.
#[derive(Debug, Parser)]
#[command(name = "jobd-master", version, max_term_width = 100)]
struct MasterFlags {
    #[command(flatten)]
    common: CommonFlags,
}

#[derive(Debug, clap::Args)]
struct CommonFlags {
    /// Configuration file; by default /etc/jobd.conf, of the master /etc/jobd-master.conf
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// Set an option over what the file says, such as -o port=7080 or -o targets.mail=5
    #[arg(short = 'o', long = "option", value_name = "KEY=VALUE")]
    options: Vec<String>,
    /// Listen for other machines without a password or without TLS
    #[arg(long)]
    insecure: bool,
}

impl CommonFlags {
    /// The configuration as it is now. Without `--config`, a program that was given options needs
    /// no file.
    fn read(&self, default: &str) -> Result<Ini, ConfigError> {
        let default = Path::new(default);
        let mut ini = match &self.config {
            Some(path) => Ini::read(path)?,
            None if !self.options.is_empty() && !default.exists() => Ini::parse(default, "")?,
            None => Ini::read(default)?,
        };
        for option in &self.options {
            ini.set_option(option);
        }
        if self.insecure {
            ini.set_option("insecure=1");
        }
        Ok(ini)
    }
}

/// How long a master's last answers may take. Clients that wait for the ends of jobs get none from
/// a master that goes, but the jobs run on.
const LAST_ANSWERS: Duration = Duration::from_secs(2);

/// What a signal wants.
enum Wanted {
    End,
    Reload,
}

/// The signals a daemon listens to.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
    reload: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            reload: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) -> Wanted {
        tokio::select! {
            _ = self.terminate.recv() => Wanted::End,
            _ = self.interrupt.recv() => Wanted::End,
            _ = self.reload.recv() => Wanted::Reload,
        }
    }
}

/// Notifies the service manager, if there is one.
fn notify_manager(state: NotifyState<'_>) {
    if let Err(error) = spindle_notify::notify(&[state]) {
        warn!(%error, "cannot notify the service manager");
    }
}

/// A thread that starts a process waits until the process has begun. On a busy machine with two
/// cores both would often wait, and none would be left for the database.
const THREADS_MIN: usize = 4;

/// `jobd` from its first word to its exit code.
pub fn worker_main() -> ExitCode {
    let flags = WorkerFlags::parse();
    if let Some(WorkerCommand::Schema { kind }) = flags.command {
        return print_schema(&kind);
    }
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut runtime = runtime::Builder::new_multi_thread();
    exit(runtime.worker_threads(cores.max(THREADS_MIN)), run_worker(&flags.common))
}

/// `jobd-master` from its first word to its exit code.
pub fn master_main() -> ExitCode {
    let flags = MasterFlags::parse();
    exit(&mut runtime::Builder::new_current_thread(), run_master(&flags.common))
}

/// Runs a program to its exit code.
fn exit(
    runtime: &mut runtime::Builder,
    program: impl Future<Output = anyhow::Result<()>>,
) -> ExitCode {
    let runtime = runtime.enable_all().build().context("cannot start");
    let outcome = runtime.and_then(|runtime| runtime.block_on(program));
    let Err(error) = outcome else { return ExitCode::SUCCESS };
    // A standard error that is gone leaves nowhere to report it.
    let _ = writeln!(io::stderr(), "error: {error:#}");
    let is_wrong_use = error.is::<ConfigError>() || error.is::<FileError>();
    ExitCode::from(if is_wrong_use { 2 } else { 1 })
}

fn print_schema(kind: &str) -> ExitCode {
    let kind = match kind {
        "mysql" => TableKind::Mysql,
        "pgsql" => TableKind::Pgsql,
        _ => TableKind::Sqlite,
    };
    match io::stdout().write_all(schema_sql(kind).as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

const WORKER_CONFIG: &str = "/etc/jobd.conf";
const MASTER_CONFIG: &str = "/etc/jobd-master.conf";

/// A configuration, and what to warn of.
type Configured<C> = (C, Vec<String>);

fn worker_config(flags: &CommonFlags) -> Result<Configured<WorkerConfig>, ConfigError> {
    let ini = flags.read(WORKER_CONFIG)?;
    let config = WorkerConfig::from_ini(&ini)?;
    let unknown = WorkerConfig::unknown_options(&ini);
    Ok((config, warnings(&ini, unknown)))
}

fn master_config(flags: &CommonFlags) -> Result<Configured<MasterConfig>, ConfigError> {
    let ini = flags.read(MASTER_CONFIG)?;
    let config = MasterConfig::from_ini(&ini)?;
    let unknown = ini.unknown(&[], &[]);
    Ok((config, warnings(&ini, unknown)))
}

fn warnings(ini: &Ini, unknown: Vec<String>) -> Vec<String> {
    let unknown = unknown.iter().map(|option| format!("unknown option, ignored: {option}"));
    ini.exposed().into_iter().chain(unknown).collect()
}

/// Begins to log, then to listen to signals.
fn begin(log: &LogConfig, warnings: &[String]) -> anyhow::Result<(Logs, Signals)> {
    let logs = Logs::begin(log)?;
    warn_of(warnings);
    Ok((logs, Signals::new().context("cannot listen to signals")?))
}

fn warn_of(warnings: &[String]) {
    for warning in warnings {
        warn!("{warning}");
    }
}

/// Says which protection an address lacks that other machines can reach.
fn warn_of_insecure(settings: &ListenSettings, address: SocketAddr) {
    if let Some(missing) = settings.missing(address) {
        warn!(%address, "insecure: other machines can reach this address, and {missing}");
    }
}

/// Has the certificate's files read again; what is wrong with them leaves the old ones in force.
fn reload_tls(tls: Option<&ServerTls>) {
    let Some(tls) = tls else { return };
    let path = tls.files().certificate.display();
    let now = SystemTime::now();
    match tls.reload(now) {
        Ok(()) => {
            info!("new connections get the certificate in {path} now");
            tls.warn_of_flaws(now);
        }
        Err(error) => error!(%error, "the old certificate stays in force"),
    }
}

async fn run_worker(flags: &CommonFlags) -> anyhow::Result<()> {
    let (mut config, warnings) = worker_config(flags)?;
    let (logs, mut signals) = begin(&config.log, &warnings)?;
    let tls = config.tls.load_into(&mut config.listen).context("cannot serve TLS")?;
    let table = open_table(&config.table);
    let mut worker = Worker::start(&config, table).await?;
    warn_of_insecure(&config.listen, worker.address());
    notify_manager(NotifyState::Ready);
    loop {
        let wanted = tokio::select! {
            () = worker.ended() => return Ok(()),
            wanted = signals.next() => wanted,
        };
        match wanted {
            Wanted::End => {
                notify_manager(NotifyState::Stopping);
                worker.stop();
            }
            Wanted::Reload => match worker_config(flags) {
                Ok((config, warnings)) => {
                    warn_of(&warnings);
                    worker.retarget(config.targets);
                    reload_tls(tls.as_deref());
                    reopen(&logs, &config.log);
                }
                Err(error) => error!(%error, "not reloaded"),
            },
        }
    }
}

async fn run_master(flags: &CommonFlags) -> anyhow::Result<()> {
    let (mut config, warnings) = master_config(flags)?;
    let (logs, mut signals) = begin(&config.log, &warnings)?;
    let tls = config.tls.load_into(&mut config.master.listen).context("cannot serve TLS")?;
    let master = Master::start(&config.master).await?;
    info!(address = %master.address(), "listening");
    warn_of_insecure(&config.master.listen, master.address());
    notify_manager(NotifyState::Ready);
    loop {
        match signals.next().await {
            Wanted::End => {
                notify_manager(NotifyState::Stopping);
                if timeout(LAST_ANSWERS, master.finish()).await.is_err() {
                    warn!("some answers were not ready in time");
                }
                return Ok(());
            }
            Wanted::Reload => match master_config(flags) {
                Ok((config, warnings)) => {
                    warn_of(&warnings);
                    reload_tls(tls.as_deref());
                    reopen(&logs, &config.log);
                }
                Err(error) => error!(%error, "not reloaded"),
            },
        }
    }
}

fn reopen(logs: &Logs, config: &LogConfig) {
    match logs.apply(config) {
        Ok(()) => info!("reloaded"),
        Err(error) => error!(%error, "logs stay as they were"),
    }
}
