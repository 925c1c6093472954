//! A real Redis.

use std::{
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use redis::{Client, Connection, FromRedisValue};
use spindle_testkit::{Certificates, Program, free_address};
use tempfile::TempDir;

use super::{
    held::{Interrupted, Victim},
    text,
};
use crate::serve::Served;

/// A Redis on a free port, which syncs what it is told. It ends with its handle.
pub struct RedisServer {
    pub address: String,
    folder: TempDir,
    arguments: Vec<String>,
    program: Program,
}

impl RedisServer {
    pub fn start(arguments: &[&str]) -> RedisServer {
        let (address, folder) = (free_address(), tempfile::tempdir().unwrap());
        let (_, port) = address.split_once(':').unwrap();
        let arguments: Vec<String> = ["--port", port, "--save", ""]
            .iter()
            .chain(arguments)
            .map(|argument| (*argument).to_owned())
            .collect();
        let program = run(&folder, &arguments);
        let server = RedisServer { address, folder, arguments, program };
        if !server.arguments.iter().any(|argument| argument == "--requirepass") {
            server.connect();
        }
        server
    }

    /// One whose port speaks TLS only.
    pub fn with_tls(certificates: &Certificates) -> RedisServer {
        let (address, folder) = (free_address(), tempfile::tempdir().unwrap());
        let (_, port) = address.split_once(':').unwrap();
        let (files, ca) = (certificates.server(), certificates.ca());
        let (certificate, key) = (text(&files.certificate), text(&files.key));
        let arguments = ["--port", "0", "--tls-port", port, "--tls-cert-file", certificate]
            .into_iter()
            .chain(["--tls-key-file", key, "--tls-ca-cert-file", text(&ca)])
            .chain(["--tls-auth-clients", "no", "--save", ""])
            .map(str::to_owned)
            .collect::<Vec<_>>();
        let program = run(&folder, &arguments);
        RedisServer { address, folder, arguments, program }
    }

    /// Kills it, and starts it again with what it had synced.
    pub fn crash_and_restart(&mut self) {
        self.program.crash();
        self.program = run(&self.folder, &self.arguments);
        self.connect();
    }

    /// Imports its jobs to `new`, whose arguments are `arguments`, and kills something in the middle
    /// of each import. A batch is taken with one script and removed with the next.
    pub fn interrupt_imports(&mut self, kind: &'static str, new: &mut Served, arguments: &[&str]) {
        let address = self.address.clone();
        for (request, victim) in [
            (1, Victim::Import),
            (2, Victim::Old),
            (1, Victim::New),
            (2, Victim::Import),
            (3, Victim::Old),
            (2, Victim::New),
        ] {
            let import = Interrupted { kind, old: &address, mark: "EVAL", request, victim };
            import.run(new, arguments, || self.crash_and_restart());
        }
    }

    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    pub fn connect(&self) -> Connection {
        let client = Client::open(self.url()).unwrap();
        loop {
            let connected = client.get_connection();
            match connected.and_then(|mut it| self.ping(&mut it).map(|()| it)) {
                Ok(connection) => return connection,
                Err(_) => thread::sleep(Duration::from_millis(5)),
            }
        }
    }

    fn ping(&self, connection: &mut Connection) -> redis::RedisResult<()> {
        redis::cmd("PING").query(connection)
    }

    /// One command and its answer.
    pub fn ask<T: FromRedisValue>(&self, words: &[&str]) -> T {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command.query(&mut self.connect()).unwrap()
    }
}

fn run(folder: &TempDir, arguments: &[String]) -> Program {
    let mut command = Command::new("redis-server");
    command
        .args(["--bind", "127.0.0.1", "--appendonly", "yes", "--appendfsync", "always", "--dir"])
        .arg(folder.path())
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    Program::start(&mut command)
}
