//! The servers that keep the log that nodes share: three NATS servers, or PostgreSQL with a
//! synchronous standby, all of which sync.

use super::slow;
use crate::suite::Bound;
use anyhow::{Result, bail};
use spindle_testkit::{NatsServers, NatsSetup, PostgresServer, wait_until};

/// What the log is called on NATS.
const STREAM: &str = "bench";

/// How many servers of NATS keep each record.
pub(super) const REPLICAS: usize = 3;

/// How much each NATS server may store. It is fixed because streams go to the servers with the most
/// space left, and the servers do not all see the same free space on the disk they share.
const STORE: &str = "max_file_store: 20GB";

/// Of 16 MiB each.
const WAL_SEGMENTS: usize = 32;

/// Which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeper {
    Nats,
    Postgres,
}

/// A running keeper; dropping it ends its servers.
pub(super) enum Keeping {
    Nats(NatsServers),
    Postgres { primary: Box<PostgresServer>, _standby: Box<PostgresServer> },
}

impl Keeper {
    /// For people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Nats => "NATS",
            Self::Postgres => "PostgreSQL",
        }
    }

    /// The least rate of life cycles, relative to that of a server with a log of its own.
    pub(crate) fn rate_min(self) -> Bound {
        match self {
            Self::Nats => Bound::AtLeast(0.25),
            Self::Postgres => Bound::AtLeast(0.3),
        }
    }

    /// Starts its servers, which have nothing yet.
    pub(super) fn start(self) -> Keeping {
        match self {
            Self::Nats => Keeping::nats(REPLICAS),
            Self::Postgres => {
                let kept = format!("min_wal_size={}MB", WAL_SEGMENTS * 16);
                let primary = PostgresServer::start(&["max_connections=100", &kept]);
                let standby = primary.standby("standby");
                primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
                primary.sql("SELECT pg_reload_conf()");
                wait_until("commits that wait for the standby", || {
                    primary.sql("SELECT sync_state FROM pg_stat_replication") == "sync"
                });
                use_wal(&primary, &standby);
                Keeping::Postgres { primary: Box::new(primary), _standby: Box::new(standby) }
            }
        }
    }
}

/// Makes both servers write as many WAL segments as the measurement needs, and keep them for reuse.
/// A server that has run for a while has such segments; a fresh one fills each with zeros and syncs
/// it while commits wait.
fn use_wal(primary: &PostgresServer, standby: &PostgresServer) {
    for _ in 0..WAL_SEGMENTS {
        primary.sql("SELECT txid_current(), pg_switch_wal()");
    }
    for server in [primary, standby] {
        server.sql("CHECKPOINT");
    }
}

impl Keeping {
    /// A number of NATS servers, some of which keep each stream.
    pub(super) fn nats(servers: usize) -> Self {
        let setup = NatsSetup { servers, more_of_jetstream: STORE, ..NatsSetup::default() };
        Self::Nats(NatsServers::start(setup))
    }

    /// What `--log` takes.
    pub(super) fn url(&self) -> String {
        match self {
            Self::Nats(servers) => {
                let hosts = servers.addresses().join(",");
                let monitoring = servers.monitoring().join(",");
                format!("nats://{hosts}/{STREAM}?replicas={REPLICAS}&monitoring={monitoring}")
            }
            Self::Postgres { primary, .. } => primary.url("spindle"),
        }
    }

    /// Limits the bytes that each of its servers can write per second.
    pub(super) fn slow_down(&self, bytes_per_s: u64) -> Result<()> {
        let all = match self {
            Self::Nats(servers) => (0..servers.addresses().len())
                .filter_map(|at| servers.process(at).map(|process| process.pid()))
                .collect::<Vec<_>>(),
            Self::Postgres { .. } => bail!("only servers of NATS are slowed down"),
        };
        let folder = std::env::temp_dir();
        all.into_iter().try_for_each(|process| slow::limit(process, &folder, bytes_per_s))
    }

    /// Kills the server that the others have elected to lead the stream. `None` if there is no
    /// leader.
    pub(super) fn kill_leader(&mut self) -> Option<usize> {
        let Self::Nats(servers) = self else { return None };
        let mut leader = None;
        wait_until("a leader of the stream", || {
            leader = servers.leader_of(STREAM);
            leader.is_some()
        });
        servers.crash(leader?);
        leader
    }

    /// Starts that server again.
    pub(super) fn restart(&mut self, server: usize) {
        if let Self::Nats(servers) = self {
            servers.restart(server);
            servers.await_ready();
        }
    }
}
