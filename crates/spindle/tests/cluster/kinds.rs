//! Both kinds of shared logs, for tests that run on each of them.

use std::process::Command;

use serde_json::Value;
use spindle_testkit::{NatsServers, PostgresServer};

use crate::harness::{SPINDLE, database};

/// What keeps logs.
pub enum Servers {
    Postgres(PostgresServer),
    Nats(NatsServers),
}

impl Servers {
    /// One server of each kind.
    pub fn of_each_kind() -> [Servers; 2] {
        [Servers::Postgres(database()), Servers::Nats(NatsServers::one())]
    }

    /// The URL of a log of this name.
    pub fn url(&self, name: &str) -> String {
        match self {
            Servers::Postgres(server) => format!("{}?schema={name}", server.url("spindle")),
            Servers::Nats(servers) => {
                let (address, monitoring) = (&servers.addresses()[0], &servers.monitoring()[0]);
                format!("nats://{address}/{name}?replicas=1&monitoring={monitoring}")
            }
        }
    }
}

/// How a command ends, and what it says on both streams.
pub fn ended(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(SPINDLE).args(arguments).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(said).unwrap())
}

/// The object that a command prints which ends with this code.
#[track_caller]
pub fn object(code: i32, arguments: &[&str]) -> Value {
    let (ended, said) = ended(&[arguments, &["--json"]].concat());
    assert_eq!(ended, Some(code), "{arguments:?}: {said}");
    serde_json::from_str(said.lines().next().unwrap()).unwrap()
}

/// Checks that a command ends with this code and says these words.
#[track_caller]
pub fn is_refused(code: i32, arguments: &[&str], words: &[&str]) {
    let (ended, said) = ended(arguments);
    assert_eq!(ended, Some(code), "{arguments:?}: {said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not said: {said}");
    }
    assert!(!said.contains("secret"), "{said}");
}
