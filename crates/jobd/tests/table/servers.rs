//! Database servers of our own: on a free port, in a temporary folder, gone with the test.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use spindle_testkit::ServerProcess;
use tempfile::TempDir;

/// A server that does not come up within this time fails the test.
const START_MAX: Duration = Duration::from_secs(60);

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Mariadb,
    Pgsql,
}

/// A running server and its data.
#[derive(Debug)]
pub struct Server {
    kind: Kind,
    pub port: u16,
    folder: TempDir,
    options: Vec<String>,
    process: Option<ServerProcess>,
}

impl Server {
    /// Makes an empty database folder and starts a server on it.
    pub fn start(kind: Kind) -> Self {
        Self::start_with(kind, &[])
    }

    /// The same with more options.
    pub fn start_with(kind: Kind, options: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let options = options.iter().map(ToString::to_string).collect();
        std::fs::create_dir(folder.path().join("tmp")).unwrap();
        let mut server = Self { kind, port: free_port(), folder, options, process: None };
        server.prepare();
        server.restart();
        server
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    fn prepare(&self) {
        let data = self.data();
        let mut command = match self.kind {
            Kind::Mariadb => {
                let mut command = Command::new("mariadb-install-db");
                command.args(["--no-defaults", "--auth-root-authentication-method=normal"]);
                command.arg("--skip-test-db").arg(option("--datadir", &data));
                if is_root() {
                    command.arg("--user=root");
                }
                command
            }
            Kind::Pgsql => {
                std::fs::create_dir(&data).unwrap();
                if is_root() {
                    // PostgreSQL refuses root; Debian's package brings this user.
                    let postgres = nix::unistd::User::from_name("postgres").unwrap().unwrap();
                    for folder in [self.folder.path(), &data] {
                        let (uid, gid) = (postgres.uid.as_raw(), postgres.gid.as_raw());
                        chown(folder, Some(uid), Some(gid)).unwrap();
                    }
                }
                let mut command = as_ordinary_user(&postgresql_program("initdb"));
                command.args(["--username=jobd", "--auth=trust", "--encoding=UTF8"]);
                command.args(["--locale=C", "--no-sync", "--pgdata"]).arg(&data);
                command
            }
        };
        // A starting MariaDB deletes the temporary files of others in the same folder.
        command.env("TMPDIR", self.folder.path().join("tmp"));
        let output = command.output().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        assert!(output.status.success(), "{command:?}: {output:?}");
    }

    /// Starts it on the port and data it had.
    pub fn restart(&mut self) {
        assert!(self.process.is_none(), "it runs");
        let log_file = self.folder.path().join("server.log");
        let log = File::options().create(true).append(true).open(&log_file).unwrap();
        let give_up = Instant::now() + START_MAX;
        let mut process = ServerProcess::start(self.command(), &log);
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let log_text = || std::fs::read_to_string(&log_file).unwrap_or_default();
            assert!(Instant::now() < give_up, "{:?} did not start: {}", self.kind, log_text());
            if process.has_ended() {
                // The processes of a killed PostgreSQL need a moment to notice.
                process = ServerProcess::start(self.command(), &log);
            }
            thread::sleep(Duration::from_millis(20));
        }
        self.process = Some(process);
    }

    fn command(&self) -> Command {
        let (data, folder) = (self.data(), self.folder.path());
        let mut command = match self.kind {
            Kind::Mariadb => {
                let mut command = Command::new("setpriv");
                command.args(["--pdeathsig", "SIGKILL", "mariadbd", "--no-defaults"]);
                command.args(["--skip-networking=0", "--bind-address=127.0.0.1"]);
                command.arg(format!("--port={}", self.port)).arg(option("--datadir", &data));
                command.arg(option("--socket", &folder.join("socket")));
                command.arg(option("--pid-file", &folder.join("pid")));
                if is_root() {
                    command.arg("--user=root");
                }
                command
            }
            Kind::Pgsql => {
                let mut command = as_ordinary_user(&postgresql_program("postgres"));
                command.args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-D"]).arg(&data);
                command.arg("-k").arg(folder);
                command
            }
        };
        command.args(&self.options).env("TMPDIR", folder.join("tmp"));
        command
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.process.take().expect("it runs").kill();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }
}

fn as_ordinary_user(program: &Path) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "SIGKILL"]);
    if is_root() {
        command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups"]);
    }
    command.arg(program).current_dir("/");
    command
}

/// Debian keeps PostgreSQL's server programs apart, by version.
fn postgresql_program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten();
    let programs = versions.map(|version| version.unwrap().path().join("bin").join(name));
    programs.filter(|program| program.is_file()).max().unwrap_or_else(|| PathBuf::from(name))
}

fn option(name: &str, path: &Path) -> String {
    format!("{name}={}", path.display())
}

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}
