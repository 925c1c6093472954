//! The ways to lose a server, and the options of a run.

use std::path::PathBuf;

use clap::ValueEnum;

/// How the server dies, and with what promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Mode {
    /// SIGKILL; what was written stays in the page cache
    Kill,
    /// SIGKILL and a power cut with --sync always: nothing acknowledged may be lost
    Power,
    /// A power cut with --sync os: acknowledged jobs must be lost, or the test proves nothing
    PowerOs,
    /// The disk fails a sync: the server must end, say why, and have acknowledged nothing that is lost
    Broken,
    /// SIGKILL while jobs come and go through every door
    Doors,
    /// Through every door, beside all that can go wrong: SIGSTOP, a full disk, short writes, no descriptors, floods of
    /// half-open connections, a clock that jumps; then SIGKILL and a power cut, or syncs or writes fail
    Chaos,
    /// Three nodes on a shared log, whose processes are killed and stopped and whose network is cut, while jobs come and
    /// go through every door of all nodes (partitions need root)
    Cluster,
    /// The disk runs full: new jobs are refused, the others are worked on (needs root)
    Full,
}

impl Mode {
    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Why it cannot be run by this user.
    pub fn impossible_here(self) -> Option<&'static str> {
        let needs_root = self == Self::Full && !nix::unistd::geteuid().is_root();
        needs_root.then_some("only root can mount a small disk to fill")
    }
}

/// What keeps the log of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogKind {
    /// Three servers of NATS JetStream, which sync always
    Nats,
    /// A PostgreSQL server and the standby that it waits for
    Pgsql,
}

impl LogKind {
    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nats => "nats",
            Self::Pgsql => "pgsql",
        }
    }
}

/// What to run.
#[derive(Clone, Debug)]
pub struct Options {
    pub cycles: u64,
    /// The longest a cycle's load lasts.
    pub seconds: f64,
    pub seed: u64,
    /// The server's program.
    pub program: PathBuf,
    /// The power-cut library.
    pub library: PathBuf,
    /// The logs of the clusters, one run for each.
    pub logs: Vec<LogKind>,
    /// How many shards clusters have.
    pub shards: u8,
}
