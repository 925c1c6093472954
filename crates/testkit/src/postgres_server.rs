//! PostgreSQL servers for tests: on a free port, in a temporary folder, gone with the test.

use std::fs::{self, File, Permissions};
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

use crate::PATIENCE;
use crate::attached::{Place, ServerProcess, remove_at_the_end};

/// What it writes, in its folder.
const LOG: &str = "server.log";
/// Where servers listen that have an address of their own.
const PORT: u16 = 5432;
/// Lets in clients with an address in a network of the server.
const NEIGHBOURS: &str = "host all all samenet trust\nhost replication all samenet trust\n";

/// A server and its data. The user `spindle` may do all, without a password unless `pg_hba.conf` is
/// changed; dropping this ends the server and removes its data.
#[derive(Debug)]
pub struct PostgresServer {
    folder: TempDir,
    place: Place,
    address: String,
    options: Vec<String>,
    process: Option<ServerProcess>,
}

impl PostgresServer {
    /// Makes an empty database and starts a server on it, with settings like `fsync=off`.
    pub fn start(settings: &[&str]) -> PostgresServer {
        PostgresServer::start_at(Place::Loopback, settings)
    }

    /// The same at a given place. Clients with an address in its network are let in.
    pub fn start_at(place: Place, settings: &[&str]) -> PostgresServer {
        let mut server = PostgresServer::prepared(place, settings);
        let mut command = as_ordinary_user("initdb");
        command.args(["--username=spindle", "--auth=trust", "--encoding=UTF8", "--locale=C"]);
        run(command.args(["--no-sync", "--pgdata"]).arg(server.data()));
        if server.place != Place::Loopback {
            let path = server.data().join("pg_hba.conf");
            let may_come_in = fs::read_to_string(&path).unwrap() + NEIGHBOURS;
            fs::write(path, may_come_in).unwrap();
        }
        server.restart();
        server
    }

    /// Makes the server last for all tests of a program; it ends with it.
    #[must_use]
    pub fn shared(self) -> &'static PostgresServer {
        let remover = remove_at_the_end(self.folder.path());
        &Box::leak(Box::new((self, remover))).0
    }

    /// A standby of this server with the same settings, which it knows by this name.
    pub fn standby(&self, name: &str) -> PostgresServer {
        self.standby_at(Place::Loopback, name)
    }

    /// The same at a given place.
    pub fn standby_at(&self, place: Place, name: &str) -> PostgresServer {
        let mut standby = PostgresServer::prepared(place, &[]);
        standby.options.clone_from(&self.options);
        let mut command = as_ordinary_user("pg_basebackup");
        let source = format!("{} user=spindle application_name={name}", self.parameters());
        command.args(["--checkpoint=fast", "--no-sync", "--write-recovery-conf", "--dbname"]);
        run(command.arg(source).arg("--pgdata").arg(standby.data()));
        standby.restart();
        standby
    }

    fn prepared(place: Place, settings: &[&str]) -> PostgresServer {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        // PostgreSQL refuses a folder that others may read.
        fs::set_permissions(&data, Permissions::from_mode(0o700)).unwrap();
        if is_root() {
            // PostgreSQL refuses root; Debian's package brings this user.
            let postgres = nix::unistd::User::from_name("postgres").unwrap().unwrap();
            for folder in [folder.path(), &data] {
                let (user, group) = (postgres.uid.as_raw(), postgres.gid.as_raw());
                chown(folder, Some(user), Some(group)).unwrap();
            }
        }
        let options = settings.iter().flat_map(|&setting| ["-c".to_owned(), setting.to_owned()]);
        PostgresServer {
            folder,
            address: place.address(PORT),
            place,
            options: options.collect(),
            process: None,
        }
    }

    /// Its data folder, with `pg_hba.conf` in it.
    pub fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// Host and port.
    pub fn address(&self) -> &str {
        &self.address
    }

    fn parameters(&self) -> String {
        let (host, port) = self.address.rsplit_once(':').unwrap();
        format!("host={host} port={port}")
    }

    /// The URL for a user, who may have a password behind a colon.
    pub fn url(&self, user: &str) -> String {
        format!("postgres://{user}@{}/postgres", self.address)
    }

    /// Starts it on the port and data that it had, and waits until it takes connections.
    pub fn restart(&mut self) {
        assert!(self.process.is_none(), "it runs");
        let log_path = self.folder.path().join(LOG);
        let log = File::options().create(true).append(true).open(&log_path).unwrap();
        let mut process = ServerProcess::start(self.command(), &log);
        let deadline = Instant::now() + PATIENCE;
        while TcpStream::connect(&self.address).is_err()
            || self.try_sql("spindle", "SELECT 1").is_err()
        {
            let said = || fs::read_to_string(&log_path).unwrap_or_default();
            assert!(Instant::now() < deadline, "PostgreSQL does not start: {}", said());
            if process.has_ended() {
                // The processes of a killed server need a moment to notice.
                process = ServerProcess::start(self.command(), &log);
            }
            thread::park_timeout(Duration::from_millis(20));
        }
        self.process = Some(process);
    }

    fn command(&self) -> Command {
        let (host, port) = self.address.rsplit_once(':').unwrap();
        let mut command = self.place.attached(ordinary_user(), &program("postgres"));
        command.args(["-h", host, "-p", port, "-D"]).arg(self.data());
        command.arg("-k").arg(self.folder.path()).args(&self.options);
        command
    }

    /// Kills it without a word.
    pub fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }

    /// Kills all of its processes, as a crash of its machine does.
    pub fn crash(&mut self) {
        self.signal_all(Signal::SIGKILL);
        self.kill();
    }

    /// Whether it runs and takes statements.
    pub fn is_ready(&self) -> bool {
        self.process.is_some() && self.try_sql("spindle", "SELECT 1").is_ok()
    }

    /// Sends its first process a signal.
    pub fn signal(&self, signal: Signal) {
        let pids = fs::read_to_string(self.data().join("postmaster.pid")).unwrap();
        let pid = pids.lines().next().unwrap().parse().unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }

    /// Sends all of its processes a signal.
    pub fn signal_all(&self, signal: Signal) {
        let first = self.process().expect("it runs").pid();
        // From now on there are no new ones.
        kill(first, Signal::SIGSTOP).unwrap();
        let children = fs::read_to_string(format!("/proc/{first}/task/{first}/children")).unwrap();
        for child in children.split_whitespace() {
            // It may have ended by itself.
            let _ = kill(Pid::from_raw(child.parse().unwrap()), signal);
        }
        kill(first, signal).unwrap();
    }

    /// Its first process, while it runs.
    pub fn process(&self) -> Option<&ServerProcess> {
        self.process.as_ref()
    }

    /// What it has written to its log.
    pub fn said(&self) -> String {
        fs::read_to_string(self.folder.path().join(LOG)).unwrap_or_default()
    }

    /// What statements answer: a line for each row, with `|` between columns.
    #[track_caller]
    pub fn sql(&self, statements: &str) -> String {
        self.sql_as("spindle", statements)
    }

    /// The same as another role.
    #[track_caller]
    pub fn sql_as(&self, role: &str, statements: &str) -> String {
        self.try_sql(role, statements).unwrap_or_else(|error| panic!("{statements}: {error}"))
    }

    fn try_sql(&self, role: &str, statements: &str) -> Result<String, String> {
        // Over the Unix socket, where the settings of TLS and passwords for hosts do not apply.
        let mut command = Command::new(program("psql"));
        let (_, port) = self.address.rsplit_once(':').unwrap();
        command.arg("--host").arg(self.folder.path()).args(["--port", port]);
        command.args(["--username", role, "--dbname=postgres", "--no-psqlrc", "--quiet"]);
        command.args(["--tuples-only", "--no-align", "--set=ON_ERROR_STOP=1", "--command"]);
        let output = command.arg(statements).env_clear().output().unwrap();
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(String::from_utf8(output.stdout).unwrap().trim_end().to_owned())
    }

    /// Makes a primary of a standby.
    pub fn promote(&self) {
        assert_eq!(self.sql("SELECT pg_promote()"), "t");
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }
}

#[track_caller]
fn run(command: &mut Command) {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(output.status.success(), "{command:?}: {output:?}");
}

fn as_ordinary_user(name: &str) -> Command {
    Place::Loopback.attached(ordinary_user(), &program(name))
}

fn ordinary_user() -> &'static [&'static str] {
    if is_root() { &["--reuid=postgres", "--regid=postgres", "--clear-groups"] } else { &[] }
}

/// Debian keeps PostgreSQL's server programs apart, by version.
fn program(name: &str) -> PathBuf {
    let versions = fs::read_dir(Path::new("/usr/lib/postgresql")).into_iter().flatten();
    let programs = versions.map(|version| version.unwrap().path().join("bin").join(name));
    programs.filter(|program| program.is_file()).max().unwrap_or_else(|| PathBuf::from(name))
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}
