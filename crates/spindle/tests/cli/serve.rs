//! `spindle serve`: how it starts, what it refuses, how it ends; and a session with it.

use std::{
    fs,
    io::Read,
    net::TcpListener,
    ops::{Deref, DerefMut},
    os::linux::net::SocketAddrExt,
    os::unix::net::{SocketAddr, UnixDatagram},
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
};

use nix::sys::signal::Signal;
use spindle_testkit::{PATIENCE, Program, SpindleServer};
use tempfile::TempDir;

use crate::fake_workq::{Said, await_exit, spindle, stderr, stdout};

/// A running server; dropping it kills it.
pub struct Served {
    server: SpindleServer,
    address: String,
}

impl Deref for Served {
    type Target = SpindleServer;

    fn deref(&self) -> &SpindleServer {
        &self.server
    }
}

impl DerefMut for Served {
    fn deref_mut(&mut self) -> &mut SpindleServer {
        &mut self.server
    }
}

pub fn serve(arguments: &[&str]) -> Served {
    serve_with(arguments, &[])
}

pub fn serve_with(arguments: &[&str], environment: &[(&str, &str)]) -> Served {
    let off = ["SPINDLE_SERVE_GEARMAN", "SPINDLE_SERVE_HTTP", "SPINDLE_SERVE_JOBD_MASTER"];
    let environment = [&off.map(|name| (name, "off")), environment].concat();
    let program = env!("CARGO_BIN_EXE_spindle");
    let server = SpindleServer::start_with(program, arguments, &environment, "workq");
    let address = server.address_of("workq");
    Served { server, address }
}

impl Served {
    pub fn spindle(&self, arguments: &[&str]) -> assert_cmd::Command {
        let mut command = spindle(arguments);
        command.env("SPINDLE_WORKQ", &self.address);
        command
    }

    /// Kills it, as a crash does.
    pub fn kill(&mut self) {
        self.crash();
    }

    /// Its orderly end.
    pub fn end(&mut self) -> ExitStatus {
        self.ask_to_end();
        self.await_end()
    }
}

/// A data folder inside a folder of its own.
pub fn data() -> (TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").to_str().unwrap().to_owned();
    (folder, data)
}

#[test]
fn a_session_at_the_shell() {
    let (_folder, data) = data();
    let mut served = serve(&["--workq", "127.0.0.1:0", "--data", &data]);
    let id = stdout(&served.spindle(&["add", "greet", "world"]).unwrap()).trim().to_owned();
    assert_eq!(stdout(&served.spindle(&["queues"]).unwrap()), "greet\t1\t0\n");
    let jobs = stdout(&served.spindle(&["jobs", "greet"]).unwrap());
    assert!(jobs.starts_with(&format!("{id}\tgreet\tready\t0\t0\t0\t")), "{jobs}");
    let early = served.spindle(&["result", &id]).output().unwrap();
    assert_eq!(early.status.code(), Some(4));
    let script = "printf 'hello '; cat";
    served.spindle(&["work", "greet", "--once", "--", "sh", "-c", script]).assert().success();
    assert_eq!(stdout(&served.spindle(&["result", &id]).unwrap()), "hello world");
    let job = stdout(&served.spindle(&["job", &id]).unwrap());
    assert!(job.contains("status\tdone\n"), "{job}");
    served.spindle(&["delete", &id]).assert().success();
    served.spindle(&["job", &id]).assert().code(3);
    assert_eq!(served.end().code(), Some(0));
}

#[test]
fn what_was_added_is_there_after_a_restart() {
    let (_folder, data) = data();
    let mut served = serve(&["--workq", "127.0.0.1:0", "--data", &data]);
    let id = stdout(&served.spindle(&["add", "q", "kept"]).unwrap()).trim().to_owned();
    served.kill();
    let served = serve(&["--workq", "127.0.0.1:0", "--data", &data]);
    let job = stdout(&served.spindle(&["job", &id]).unwrap());
    assert!(job.contains("payload\tkept\n"), "{job}");
}

#[test]
fn a_worker_outlives_a_restart_of_the_server_and_delivers() {
    let (folder, data) = data();
    let mut served = serve(&["--workq", "127.0.0.1:0", "--data", &data]);
    let address = served.address.clone();
    let id = stdout(&served.spindle(&["add", "q", "x"]).unwrap()).trim().to_owned();
    let go = folder.path().join("go");
    let script = format!("echo up >&2; until [ -e {} ]; do sleep 0.01; done", go.display());
    let mut worker = Program::start(
        Command::new(env!("CARGO_BIN_EXE_spindle"))
            .args(["work", "q", "--once", "--workq", &address, "--", "sh", "-c", &script])
            .stderr(Stdio::piped()),
    );
    let said = Said::by(worker.stderr.take().unwrap());
    said.await_line("up");
    served.kill();
    fs::write(&go, "").unwrap();
    said.await_line("trying again");
    let served = serve(&["--workq", &address, "--data", &data]);
    assert_eq!(await_exit(&mut worker).code(), Some(0));
    served.spindle(&["result", &id]).assert().success();
}

#[test]
fn a_signal_ends_an_idle_worker_without_losing_its_next_job() {
    let served = serve(&["--workq", "127.0.0.1:0", "--memory"]);
    let mut worker = Program::start(
        Command::new(env!("CARGO_BIN_EXE_spindle"))
            .args(["work", "q", "--workq", &served.address, "--", "true"])
            .stderr(Stdio::null()),
    );
    // A queue that was never used is listed while a worker waits for it.
    while stdout(&served.spindle(&["queues"]).unwrap()).is_empty() {}
    worker.signal(Signal::SIGTERM);
    assert_eq!(await_exit(&mut worker).code(), Some(0));
    let id = stdout(&served.spindle(&["add", "q"]).unwrap()).trim().to_owned();
    let job = stdout(&served.spindle(&["job", &id]).unwrap());
    assert!(job.contains("status\tready\n"), "{job}");
}

#[test]
fn the_greeting_says_what_is_served_from_where() {
    let (_folder, data) = data();
    let served = serve_with(
        &["--sync", "interval:20"],
        &[("SPINDLE_SERVE_WORKQ", "127.0.0.1:0"), ("SPINDLE_SERVE_DATA", &data)],
    );
    let version = env!("CARGO_PKG_VERSION");
    let address = &served.address;
    let line = format!("spindle {version}: workq on {address}, data in {data}, sync interval:20");
    assert!(served.greeting().ends_with(&line), "{}", served.greeting());
    assert!(!served.greeting().contains('\x1b'), "no colour when it is not a terminal");
    assert!(!served.address.ends_with(":0"), "{}", served.address);
}

#[test]
fn a_server_in_memory_leaves_no_folder() {
    let (_folder, data) = data();
    let mut served = serve(&["--workq", "127.0.0.1:0", "--memory", "--data", &data]);
    assert!(served.greeting().contains("data in memory only"), "{}", served.greeting());
    served.spindle(&["add", "q"]).assert().success();
    assert_eq!(served.end().code(), Some(0));
    assert!(!Path::new(&data).exists());
}

#[test]
fn a_second_signal_ends_the_server_at_once() {
    let served = serve(&["--workq", "127.0.0.1:0", "--memory", "--shutdown-timeout", "1h"]);
    let mut runs = Program::start(
        Command::new(env!("CARGO_BIN_EXE_spindle"))
            .args(["run", "q", "--wait", "1h", "--workq", &served.address])
            .stderr(Stdio::null()),
    );
    while stdout(&served.spindle(&["queues"]).unwrap()) != "q\t1\t0\n" {}
    let mut served = served;
    served.signal(Signal::SIGINT);
    served.said.await_line("SIGINT: stopping, at most 1h");
    served.signal(Signal::SIGTERM);
    assert_eq!(served.await_end().code(), Some(143));
    assert_eq!(await_exit(&mut runs).code(), Some(1));
}

#[test]
fn an_answer_that_is_never_ready_ends_with_the_shutdown_timeout() {
    let served = serve(&["--workq", "127.0.0.1:0", "--memory", "--shutdown-timeout", "100ms"]);
    let mut runs = Program::start(
        Command::new(env!("CARGO_BIN_EXE_spindle"))
            .args(["run", "q", "--wait", "1h", "--workq", &served.address])
            .stderr(Stdio::null()),
    );
    while stdout(&served.spindle(&["queues"]).unwrap()) != "q\t1\t0\n" {}
    let mut served = served;
    assert_eq!(served.end().code(), Some(0));
    assert_eq!(await_exit(&mut runs).code(), Some(4));
}

#[test]
fn a_folder_in_use_is_told_with_the_process_that_has_it() {
    let (_folder, data) = data();
    let served = serve(&["--workq", "127.0.0.1:0", "--data", &data]);
    let output = spindle(&["serve", "--workq", "127.0.0.1:0", "--data", &data]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let answer = stderr(&output);
    assert!(answer.contains(&data) && answer.contains(&served.id().to_string()), "{answer}");
    let output = spindle(&["verify", &data]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stdout(&output).contains("in use"), "{}", stdout(&output));
}

#[test]
fn a_taken_port_is_told_with_its_door_and_its_flag() {
    let served = serve(&["--workq", "127.0.0.1:0", "--memory"]);
    let output = spindle(&["serve", "--workq", &served.address, "--memory"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let answer = stderr(&output);
    for part in ["workq: cannot listen", &served.address, "--workq"] {
        assert!(answer.contains(part), "{part}: {answer}");
    }
}

#[test]
fn a_folder_that_cannot_be_written_is_told() {
    let (folder, data) = data();
    fs::write(&data, "a file").unwrap();
    let output = spindle(&["serve", "--workq", "127.0.0.1:0", "--data", &data]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains(&data), "{}", stderr(&output));
    let other = folder.path().to_str().unwrap();
    let output = spindle(&["serve", "--workq", "127.0.0.1:0", "--data", other]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no log"), "{}", stderr(&output));
}

#[test]
fn systemd_hears_when_the_server_is_ready_and_when_it_stops() {
    let (folder, _) = data();
    let path = folder.path().join("notify");
    let socket = UnixDatagram::bind(&path).unwrap();
    is_told_of_start_and_end(&socket, path.to_str().unwrap());
    // A name with `@` before it is no path.
    let name = format!("spindle-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    is_told_of_start_and_end(&UnixDatagram::bind_addr(&address).unwrap(), &format!("@{name}"));
}

fn is_told_of_start_and_end(socket: &UnixDatagram, name: &str) {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    let environment = [("NOTIFY_SOCKET", name)];
    let mut served = serve_with(&["--workq", "127.0.0.1:0", "--memory"], &environment);
    let heard = || {
        let mut buffer = [0; 256];
        let count = socket.recv(&mut buffer).unwrap();
        String::from_utf8_lossy(&buffer[..count]).trim().to_owned()
    };
    assert_eq!(heard(), "READY=1");
    assert_eq!(served.end().code(), Some(0));
    assert_eq!(heard(), "STOPPING=1");
}

#[test]
fn a_strange_name_in_the_environment_is_warned_of() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command = spindle(&["serve", "--memory", "--workq", &address]);
    let output = command.env("SPINDLE_SERVE_SINK", "os").output().unwrap();
    assert!(stderr(&output).contains("WARN SPINDLE_SERVE_SINK"), "{}", stderr(&output));
    let mut command = spindle(&["serve", "--memory", "--workq", &address]);
    let quiet = command.env("SPINDLE_SERVE_LOG_LEVEL", "error").env("SPINDLE_SERVE_SINK", "os");
    assert!(!stderr(&quiet.output().unwrap()).contains("WARN"));
}

#[test]
fn a_damaged_folder_is_refused_and_told_and_can_be_repaired() {
    let (_folder, data) = data();
    let mut served = serve(&["--workq", "127.0.0.1:0", "--data", &data]);
    for queue in ["first", "second", "third"] {
        served.spindle(&["add", queue, "x"]).assert().success();
    }
    assert_eq!(served.end().code(), Some(0));
    let sound = spindle(&["verify", &data]).unwrap();
    assert!(stdout(&sound).starts_with("verdict\tsound\n"), "{}", stdout(&sound));
    damage(&segment(&data), b"second");

    let output = spindle(&["serve", "--workq", "127.0.0.1:0", "--data", &data]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("spindle verify"), "{}", stderr(&output));
    let output = spindle(&["verify", "--json", &data]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["verdict"], &report["sound"]), (&"damaged".into(), &false.into()));
    assert!(report["damage"]["offset"].as_u64().unwrap() > 0);

    let events =
        report["dropped"].as_array().unwrap().iter().flat_map(|record| record["events"].as_array());
    let submitted: Vec<_> =
        events.flatten().filter(|event| event["event"] == "submitted").collect();
    assert_eq!(submitted.len(), 1, "{submitted:?}");
    assert_eq!(submitted[0]["queue"], "third");

    let original = fs::read(segment(&data)).unwrap();
    let repaired = stdout(&spindle(&["verify", "--repair", &data]).unwrap());
    assert!(repaired.starts_with("verdict\trepaired\n"), "{repaired}");
    assert!(
        repaired.lines().any(
            |line| line.starts_with("dropped\t") && line.ends_with("nothing of it can be read")
        )
    );
    let job = format!("submitted job {} of third", submitted[0]["jobs"][0]);
    assert!(
        repaired.lines().any(|line| line.starts_with("dropped\t") && line.contains(&job)),
        "{repaired}"
    );
    let name = segment(&data).file_name().unwrap().to_owned();
    let kept = Path::new(&data).join("repair-1").join(name);
    assert_eq!(fs::read(kept).unwrap(), original);
    let served = serve(&["--workq", "127.0.0.1:0", "--data", &data]);
    assert_eq!(stdout(&served.spindle(&["queues"]).unwrap()), "first\t1\t0\n");
}

pub fn segment(data: &str) -> PathBuf {
    let mut names = fs::read_dir(data).unwrap().map(|entry| entry.unwrap().path());
    names.find(|path| path.extension().is_some_and(|is| is == "segment")).unwrap()
}

/// Changes one letter of a text that stands in a file.
pub fn damage(file: &Path, text: &[u8]) {
    let mut bytes = Vec::new();
    fs::File::open(file).unwrap().read_to_end(&mut bytes).unwrap();
    let at = bytes.windows(text.len()).position(|window| window == text).unwrap();
    bytes[at] ^= 1;
    fs::write(file, bytes).unwrap();
}
