//! Copies: of data folders (`backup`, `restore`), and of jobs (`export`, `import`).

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use super::{people::Native, reach::Papers, shared_log::LogArgs};

/// `spindle backup`.
#[derive(Debug, Args)]
pub struct BackupArgs {
    /// The URL of a running server, or a data folder that no server works on
    #[arg(value_name = "URL|DIR", value_hint = ValueHint::DirPath)]
    #[arg(required_unless_present = "log", conflicts_with = "log")]
    pub source: Option<String>,
    /// The folder for the backup: new, empty, or with an older backup of the same server or log
    #[arg(value_name = "BACKUP", value_hint = ValueHint::DirPath)]
    pub dest: PathBuf,
    /// Do not read the copies that an older backup in the folder has: faster, and damage to them is not noticed
    #[arg(long)]
    pub no_verify: bool,
    #[command(flatten)]
    pub shared: LogArgs,
    #[command(flatten)]
    pub papers: Papers,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What `spindle backup` says of itself.
pub const BACKUP_HELP: &str = "\
All that was durable when the backup began is in it, and every byte is checked. What an older backup in the folder has \
is read and not copied again, unless it is damaged; that one stays as it is until the new one is whole. A token needs the role admin for all queues. \
`spindle verify BACKUP` reads a backup through, `spindle restore` makes a data folder of it.\n\n\
A cluster is backed up from its log, `spindle backup --log URL BACKUP`, while its nodes run: nothing is written there.";

/// `spindle restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// The backup
    #[arg(value_name = "BACKUP", value_hint = ValueHint::DirPath)]
    pub backup: PathBuf,
    /// The data folder to make: new, or empty
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    #[arg(required_unless_present = "log", conflicts_with = "log")]
    pub folder: Option<PathBuf>,
    #[command(flatten)]
    pub shared: LogArgs,
    /// Print one JSON object
    #[arg(long)]
    pub json: bool,
}

/// What `spindle restore` says of itself.
pub const RESTORE_HELP: &str = "\
With --log it makes a shared log and fills it, for a cluster to go on where the backup ends. A log that is there already \
is refused. No node opens it before the restore has ended; one that was interrupted goes on when it is run again.";

/// `spindle export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The file to write, or - for standard output. One that was begun is continued
    #[arg(value_name = "FILE|-", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Done and dead jobs too; they are not imported
    #[arg(long)]
    pub all: bool,
    /// To standard output: begin with the job of this number
    #[arg(long, value_name = "ID", default_value_t = 0)]
    pub from: u64,
    #[command(flatten)]
    pub native: Native,
}

/// What `spindle export` says of itself.
pub const EXPORT_HELP: &str = "\
Each line is a JSON object with a `type`: export, constraint, queue, job, and end, which says how many there are. \
A token needs the role inspect for all queues.";

/// A running server of another kind, whose jobs `spindle import` takes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Source {
    /// beanstalkd: the jobs of all tubes
    Beanstalkd,
    /// gearmand: the background jobs of all functions
    Gearman,
    /// Sidekiq: its jobs in a Redis, at a URL or HOST:PORT
    RedisSidekiq,
    /// BullMQ: its jobs in a Redis, at a URL or HOST:PORT
    RedisBullmq,
    /// Workq: the jobs of `add` and `schedule`
    Workq,
}

/// `spindle import`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The file that `export` has written, or - for standard input; with --from, where the other
    /// server listens: HOST:PORT, or for Redis redis://USER@HOST:PORT/DB or rediss://
    #[arg(value_name = "FILE|-|ADDR", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Take the waiting jobs out of a running server of another kind
    #[arg(long, value_name = "KIND")]
    pub from: Option<Source>,
    /// Pass over jobs that the server refuses, instead of stopping before them
    #[arg(long)]
    pub skip_refused: bool,
    #[command(flatten)]
    pub other: FromArgs,
    #[command(flatten)]
    pub native: Native,
}

/// What `--from` takes.
#[derive(Debug, Args)]
pub struct FromArgs {
    /// With --from: only the jobs of this queue there; can be repeated
    #[arg(long, value_name = "NAME", requires = "from")]
    pub queue: Vec<String>,
    /// With --from: count what waits there, and change nothing
    #[arg(long, requires = "from")]
    pub dry_run: bool,
    /// What the names of its keys in Redis begin with
    #[arg(long, value_name = "PREFIX", requires = "from")]
    pub from_prefix: Option<String>,
    /// A file with the password of that Redis, which only you may read
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "from")]
    pub from_password_file: Option<PathBuf>,
    /// Certificates in PEM: with rediss:// that Redis must be vouched for by one of these, instead
    /// of by a public authority
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, requires = "from")]
    pub from_ca_file: Option<PathBuf>,
}

/// What `spindle import` says of itself.
pub const IMPORT_HELP: &str = "\
How far it came is kept in FILE.imported, so that it goes on there when it is run again. A job that was imported and is \
still kept is not made a second time. Constraints and queues that the server has already stay as they are. A token needs \
the roles admin and manage for all queues.\n\n\
--from KIND ADDR moves what waits in another server, job by job: each is deleted there once it is on disk here. It can be \
ended and run again at any time. What workers have there stays with them. A token needs the role submit; for gearman and \
workq, whose jobs come in the name of a door, the role admin for all queues.";
