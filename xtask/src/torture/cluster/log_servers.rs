//! The servers that keep the log: three of NATS, or a PostgreSQL primary and its synchronous
//! standby.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use spindle_testkit::{NatsServers, NatsSetup, Place, PostgresServer};

use crate::torture::mode::LogKind;

/// The stream.
const STREAM: &str = "jobs";
/// The standby's name at the primary.
const STANDBY: &str = "standby";
const STANDBY_WITHIN: Duration = Duration::from_secs(60);
const POLL: Duration = Duration::from_millis(50);

/// Log servers, by number.
pub enum LogServers {
    Nats(NatsServers),
    /// The primary, and its standby.
    Pgsql(Vec<PostgresServer>),
}

impl LogServers {
    /// How many places are needed.
    pub fn count_of(kind: LogKind) -> usize {
        match kind {
            LogKind::Nats => 3,
            LogKind::Pgsql => 2,
        }
    }

    /// Starts them at these places.
    pub fn start(kind: LogKind, places: &[Place]) -> Result<Self> {
        Ok(match kind {
            LogKind::Nats => {
                let setup = NatsSetup { servers: places.len(), places, ..NatsSetup::default() };
                Self::Nats(NatsServers::start(setup))
            }
            LogKind::Pgsql => {
                let primary = PostgresServer::start_at(
                    places[0].clone(),
                    &["max_connections=200", "synchronous_commit=on"],
                );
                let standby = primary.standby_at(places[1].clone(), STANDBY);
                primary.sql(&format!("ALTER SYSTEM SET synchronous_standby_names = '{STANDBY}'"));
                primary.sql("SELECT pg_reload_conf()");
                let servers = Self::Pgsql(vec![primary, standby]);
                let deadline = Instant::now() + STANDBY_WITHIN;
                while !servers.are_ready() {
                    ensure!(Instant::now() < deadline, "the standby is not waited for");
                    thread::sleep(POLL);
                }
                servers
            }
        })
    }

    /// What `--log` is for nodes.
    pub fn url(&self) -> String {
        match self {
            Self::Nats(servers) => format!(
                "nats://{}/{STREAM}?replicas=3&monitoring={}",
                servers.addresses().join(","),
                servers.monitoring().join(",")
            ),
            Self::Pgsql(servers) => servers[0].url("spindle"),
        }
    }

    pub fn count(&self) -> usize {
        match self {
            Self::Nats(servers) => servers.addresses().len(),
            Self::Pgsql(servers) => servers.len(),
        }
    }

    /// The port for clients, the same for all of them.
    pub fn port(&self) -> Result<u16> {
        let address = match self {
            Self::Nats(servers) => servers.addresses()[0].clone(),
            Self::Pgsql(servers) => servers[0].address().to_owned(),
        };
        let (_, port) = address.rsplit_once(':').context("an address without a port")?;
        Ok(port.parse()?)
    }

    /// Whether the log takes records while any one of them is gone.
    pub fn survive_the_loss_of_one(&self) -> bool {
        matches!(self, Self::Nats(_))
    }

    /// Who leads the log of a shard: the leader of the stream, or the primary.
    pub fn leader(&self, shard: u8) -> Result<usize> {
        let stream = if shard == 0 { STREAM.to_owned() } else { format!("{STREAM}-{shard}") };
        match self {
            Self::Nats(servers) => servers.leader_of(&stream).context("nobody leads the stream"),
            Self::Pgsql(_) => Ok(0),
        }
    }

    /// Whether all of them run, and have all that the others have.
    pub fn are_ready(&self) -> bool {
        match self {
            Self::Nats(servers) => (0..self.count()).all(|index| servers.is_ready(index)),
            Self::Pgsql(servers) => {
                let synced = "SELECT count(*) FROM pg_stat_replication WHERE sync_state = 'sync'";
                servers.iter().all(PostgresServer::is_ready) && servers[0].sql(synced) == "1"
            }
        }
    }

    /// The NATS servers that run and are not ready. A PostgreSQL server either comes back or does
    /// not start.
    pub fn unready(&self) -> Vec<usize> {
        match self {
            Self::Nats(servers) => {
                (0..self.count()).filter(|index| !servers.is_ready(*index)).collect()
            }
            Self::Pgsql(_) => Vec::new(),
        }
    }

    /// Kills one with all of its processes, as a crash of its machine does.
    pub fn kill(&mut self, index: usize) {
        match self {
            Self::Nats(servers) => servers.crash(index),
            Self::Pgsql(servers) => servers[index].crash(),
        }
    }

    /// Starts one that was killed, with the data that it has.
    pub fn restart(&mut self, index: usize) {
        match self {
            Self::Nats(servers) => servers.restart(index),
            Self::Pgsql(servers) => servers[index].restart(),
        }
    }

    /// Sends all processes of one a signal.
    pub fn signal(&self, index: usize, signal: Signal) {
        match self {
            Self::Nats(servers) => servers.signal(index, signal),
            Self::Pgsql(servers) => servers[index].signal_all(signal),
        }
    }

    /// The first process of one that runs.
    pub fn process(&self, index: usize) -> Option<Pid> {
        let process = match self {
            Self::Nats(servers) => servers.process(index),
            Self::Pgsql(servers) => servers[index].process(),
        };
        process.filter(|process| !process.has_ended()).map(|process| process.pid())
    }

    /// Writes their output to files in this folder.
    pub fn keep_messages(&self, folder: &Path) -> Result<()> {
        for index in 0..self.count() {
            let said = match self {
                Self::Nats(servers) => servers.said(index),
                Self::Pgsql(servers) => servers[index].said(),
            };
            fs::write(folder.join(format!("log-server-{index}")), said)?;
        }
        Ok(())
    }
}
