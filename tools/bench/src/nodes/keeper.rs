//! What keeps the log that nodes share: three NATS servers, or PostgreSQL with a standby that is waited
//! for, all of which sync.

use crate::http::HttpClient;
use crate::suite::Bound;
use anyhow::{Context, Result};
use serde_json::Value;
use spindle_testkit::{NatsServers, PostgresServer, wait_until};

/// Which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Keeper {
    Nats,
    Postgres,
}

/// One that runs; dropping it ends its servers.
pub(super) enum Keeping {
    Nats(NatsServers),
    Postgres { primary: PostgresServer, _standby: PostgresServer },
}

impl Keeper {
    /// For people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Nats => "NATS",
            Self::Postgres => "PostgreSQL",
        }
    }

    /// What the rate of life cycles is at least, beside that of a server with a log of its own.
    pub(crate) fn rate_min(self) -> Bound {
        match self {
            Self::Nats => Bound::AtLeast(0.25),
            Self::Postgres => Bound::AtLeast(0.3),
        }
    }

    /// Starts its servers, which have nothing yet.
    pub(super) fn start(self) -> Keeping {
        match self {
            Self::Nats => Keeping::Nats(NatsServers::three()),
            Self::Postgres => {
                let primary = PostgresServer::start(&["max_connections=100"]);
                let standby = primary.standby("standby");
                primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'standby'");
                primary.sql("SELECT pg_reload_conf()");
                wait_until("commits that wait for the standby", || {
                    primary.sql("SELECT sync_state FROM pg_stat_replication") == "sync"
                });
                Keeping::Postgres { primary, _standby: standby }
            }
        }
    }
}

impl Keeping {
    /// What `--log` takes.
    pub(super) fn url(&self) -> String {
        match self {
            Self::Nats(servers) => {
                let hosts = servers.addresses().join(",");
                let monitoring = servers.monitoring().join(",");
                format!("nats://{hosts}/bench?replicas=3&monitoring={monitoring}")
            }
            Self::Postgres { primary, .. } => primary.url("spindle"),
        }
    }

    /// The servers, if they elect a leader among themselves.
    pub(super) fn electors(&mut self) -> Option<&mut NatsServers> {
        match self {
            Self::Nats(servers) => Some(servers),
            Self::Postgres { .. } => None,
        }
    }
}

/// Which of the servers leads the stream.
pub(super) fn leader_of_stream(servers: &NatsServers) -> Result<usize> {
    let monitoring = servers.monitoring();
    let address = monitoring.first().context("there are servers")?;
    let address = address.trim_start_matches("http://").parse()?;
    let mut client = HttpClient::connect(address)?;
    let said = client.ask_json("GET", "/jsz?streams=true", &Value::Null)?;
    let leader = &said["account_details"][0]["stream_detail"][0]["cluster"]["leader"];
    let leader = leader.as_str().with_context(|| format!("nobody leads the stream: {said}"))?;
    Ok(servers.index_of(leader))
}
