//! The daemons as programs, on SQLite: flags, signals, exit codes, kills.

use std::{
    collections::HashMap,
    fs::{self, Permissions},
    io::{BufRead, BufReader, Read},
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    time::Duration,
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use rusqlite::Connection;
use serde_json::{Value, json};

use crate::peer::{Peer, until};

/// A program that is killed when a test is over.
pub struct Program(pub Child);

impl Program {
    pub fn jobd(arguments: &[String]) -> Self {
        Self::start(env!("CARGO_BIN_EXE_jobd"), arguments)
    }

    pub fn start(path: &str, arguments: &[String]) -> Self {
        let child = Command::new(path)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Self(child)
    }

    /// The address from the line with which a daemon says that it listens.
    pub fn address(&mut self) -> std::net::SocketAddr {
        let mut lines = BufReader::new(self.0.stdout.take().unwrap()).lines();
        let line = lines.find_map(|line| {
            let line = line.unwrap();
            Some(line.split_once("listening address=")?.1.to_owned())
        });
        let address = line.expect("it listens").parse().unwrap();
        // The rest must be read, so that the program does not block.
        std::thread::spawn(move || lines.for_each(drop));
        address
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.0.id()).unwrap();
        kill(Pid::from_raw(pid), signal).unwrap();
    }

    pub async fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("the program ends", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        })
        .await;
        status.unwrap()
    }

    fn stderr(&mut self) -> String {
        let mut text = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub struct Folder(tempfile::TempDir);

impl Folder {
    pub fn new(launcher: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("job.sh"), launcher).unwrap();
        Self(folder)
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// The options of a worker of this name.
    pub fn options(&self, name: &str, more: &[&str]) -> Vec<String> {
        let folder = self.path().display();
        let own = [
            "port=0".to_owned(),
            "log_level_console=info".to_owned(),
            format!("sqlite_file={folder}/jobs.db"),
            format!("state_file={folder}/{name}.state"),
            format!("launcher=sh {folder}/job.sh {folder} {{id}}"),
        ];
        let more = more.iter().map(|&option| option.to_owned());
        own.into_iter().chain(more).flat_map(|option| ["-o".to_owned(), option]).collect()
    }

    pub fn database(&self) -> Connection {
        let connection = Connection::open(self.file("jobs.db")).unwrap();
        connection.busy_timeout(Duration::from_secs(60)).unwrap();
        connection
    }

    pub fn insert(&self, ids: impl Iterator<Item = i64>, target: &str) {
        let mut connection = self.database();
        let transaction = connection.transaction().unwrap();
        for id in ids {
            transaction
                .execute(
                    "INSERT INTO jobs (id, target, time_created) VALUES (?1, ?2, 0)",
                    (id, target),
                )
                .unwrap();
        }
        transaction.commit().unwrap();
    }

    /// A worker makes the table in a file that is not there.
    pub async fn has_table(&self) {
        let query = "SELECT count(*) FROM sqlite_master WHERE name = 'jobs'";
        until("the table is there", || {
            self.database()
                .query_row(query, [], |row| row.get(0))
                .is_ok_and(|count: i64| count == 1)
        })
        .await;
    }

    pub fn count(&self, status: &str) -> i64 {
        let query = "SELECT count(*) FROM jobs WHERE status = ?1";
        self.database().query_row(query, [status], |row| row.get(0)).unwrap()
    }

    pub fn runs(&self) -> HashMap<i64, usize> {
        let text = fs::read_to_string(self.file("runs")).unwrap_or_default();
        let mut runs = HashMap::new();
        for line in text.lines() {
            *runs.entry(line.parse().unwrap()).or_default() += 1;
        }
        runs
    }
}

#[tokio::test]
async fn jobd_runs_on_sqlite_with_nothing_but_flags() {
    let folder = Folder::new("echo ran $2");
    let mut jobd = Program::jobd(&folder.options("a", &["targets.mail=2"]));
    let address = jobd.address();
    folder.has_table().await;
    folder.insert(1..=3, "mail");
    assert_eq!(Peer::connect(address).await.data("poll", json!({})).await, json!("ok"));
    until("all are done", || folder.count("done") == 3).await;
    let query = "SELECT result, return_code, sig, stdout FROM jobs WHERE id = 2";
    let row: (String, i64, Option<String>, String) = folder
        .database()
        .query_row(query, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))
        .unwrap();
    assert_eq!(row, ("ok".to_owned(), 0, None, "ran 2\n".to_owned()));
    jobd.signal(Signal::SIGTERM);
    assert_eq!(jobd.ended().await.code(), Some(0));
}

#[tokio::test]
async fn hangup_reloads_targets_log_levels_and_the_log_file() {
    let folder = Folder::new("exit 0");
    let config = folder.file("jobd.conf");
    let log = folder.file("jobd.log");
    let write = |level: &str, targets: &str| {
        let path = folder.path().display();
        let text = format!(
            "port = 0\nlog_level_console = info\nlog_file = {}\nlog_level_file = {level}\n\
             sqlite_file = {path}/jobs.db\nstate_file = {path}/a.state\nlauncher = true {{id}}\n\
             [targets]\n{targets}",
            log.display()
        );
        fs::write(&config, text).unwrap();
    };
    write("error", "a = 1\n");
    let mut jobd = Program::jobd(&["--config".to_owned(), config.display().to_string()]);
    let mut peer = Peer::connect(jobd.address()).await;
    assert_eq!(peer.status().await["targets"].as_object().unwrap().len(), 1);
    assert_eq!(fs::read_to_string(&log).unwrap(), "");
    // Rotated away: the old file is let go.
    fs::rename(&log, folder.file("jobd.log.1")).unwrap();
    write("info", "a = 5\nb = 2\n");
    jobd.signal(Signal::SIGHUP);
    until("the log says so", || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains("reloaded"))
    })
    .await;
    let targets = peer.status().await["targets"].clone();
    assert_eq!(
        (&targets["a"]["concurrency"], &targets["b"]["concurrency"]),
        (&json!(5), &json!(2))
    );
    // A broken file changes nothing.
    fs::write(&config, "port = x\n").unwrap();
    jobd.signal(Signal::SIGHUP);
    until("the log says so", || {
        fs::read_to_string(&log).is_ok_and(|text| text.contains("not reloaded"))
    })
    .await;
    assert_eq!(peer.status().await["targets"], targets);
}

#[tokio::test]
async fn a_daemon_warns_of_a_secret_that_all_users_may_read_and_serves() {
    let folder = Folder::new("exit 0");
    let (config, log) = (folder.file("daemon.conf"), folder.file("daemon.log"));
    let path = folder.path().display();
    let text = format!(
        "port = 0\nlog_level_console = info\nlog_level_file = info\nlog_file = {}\n\
         sqlite_file = {path}/jobs.db\nstate_file = {path}/a.state\nlauncher = true {{id}}\n\
         password = sesame\n",
        log.display()
    );
    fs::write(&config, text).unwrap();
    let set_mode = |mode| fs::set_permissions(&config, Permissions::from_mode(mode)).unwrap();
    let warnings = || fs::read_to_string(&log).unwrap_or_default().matches("chmod 600").count();
    let says = |part: &str| fs::read_to_string(&log).is_ok_and(|text| text.contains(part));
    for path in [env!("CARGO_BIN_EXE_jobd"), env!("CARGO_BIN_EXE_jobd-master")] {
        set_mode(0o644);
        let _ = fs::remove_file(&log);
        let mut daemon =
            Program::start(path, &["--config".to_owned(), config.display().to_string()]);
        daemon.address();
        let warning = format!("may read password in {} (mode 0644)", config.display());
        until("it warns", || says(&warning)).await;
        assert!(!says("sesame"));
        set_mode(0o640);
        daemon.signal(Signal::SIGHUP);
        until("it has read the file", || says("reloaded")).await;
        assert_eq!(warnings(), 1);
        set_mode(0o604);
        daemon.signal(Signal::SIGHUP);
        until("it warns of the new mode", || says("(mode 0604)")).await;
    }
}

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let folder = Folder::new("");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = format!("port={}", taken.local_addr().unwrap().port());
    for (options, code, expected) in [
        (vec!["launcher=true"], 2, "launcher has no {id}"),
        (vec!["targets.a=none"], 2, "command line: a = \"none\": expected how many jobs"),
        (vec!["spindle_url=http://localhost"], 2, "a worker has one job table"),
        (vec!["host=0.0.0.0"], 1, "can be reached from other machines and no password is set"),
        (vec!["host=0.0.0.0", "password=p"], 1, "and TLS is not required; set password (or"),
        (vec!["tls=on"], 2, "tls = \"on\": expected off, optional or required"),
        (vec!["tls=required"], 2, "tls needs tls_cert and tls_key"),
        (vec!["tls_cert=a.pem"], 2, "tls_cert and tls_key go together"),
        (vec!["tls_client_ca=a.pem"], 2, "tls_client_ca needs tls_cert and tls_key"),
        (
            vec!["tls_cert=/no/file", "tls_key=/no/file"],
            2,
            "cannot serve TLS: cannot read /no/file",
        ),
        (vec!["master_sslcert=a.pem"], 2, "master_sslcert and master_sslkey go together"),
        (vec!["master_sslrootcert=a.pem"], 2, "mean nothing without master_tls = 1"),
        (vec![&port], 1, "change host or port in the configuration"),
    ] {
        let mut jobd = Program::jobd(&folder.options("a", &options));
        assert_eq!(jobd.ended().await.code(), Some(code), "{options:?}");
        let stderr = jobd.stderr();
        assert!(stderr.starts_with("error: ") && stderr.contains(expected), "{stderr}");
    }
    let config = ["--config".to_owned(), "/no/such/file".to_owned()];
    for program in [env!("CARGO_BIN_EXE_jobd"), env!("CARGO_BIN_EXE_jobd-master")] {
        let mut program = Program::start(program, &config);
        assert_eq!(program.ended().await.code(), Some(2));
        assert!(program.stderr().contains("cannot read /no/such/file"));
    }
}

#[tokio::test]
async fn the_master_is_a_program_too() {
    let options = ["-o", "port=0", "-o", "log_level_console=info"].map(str::to_owned);
    let mut master = Program::start(env!("CARGO_BIN_EXE_jobd-master"), &options);
    let mut peer = Peer::connect(master.address()).await;
    assert_eq!(peer.status().await["workers"], json!([]));
    master.signal(Signal::SIGTERM);
    assert_eq!(master.ended().await.code(), Some(0));
}

/// Two workers share a table and are killed again and again, at moments that differ from run to run.
/// Whatever happens, a row is run at most once, and in the end each is done, or running and listed
/// by the worker that had started it. A row that had not begun is run by the next worker that takes it.
#[tokio::test]
async fn killed_workers_lose_no_row_and_run_none_twice() {
    const ROWS: i64 = 600;
    const KILLS: usize = 20;
    let folder = Folder::new("echo $2 >> $1/runs; sleep 0.01");
    let names = ["a", "b"];
    let start = |name: &str| {
        let mut jobd =
            Program::jobd(&folder.options(name, &["targets.t=4", "sqlite_fetch_limit=20"]));
        let address = jobd.address();
        (jobd, address)
    };
    let mut workers: Vec<_> = names.iter().map(|name| start(name)).collect();
    folder.has_table().await;
    folder.insert(1..=ROWS, "t");
    for (_, address) in &workers {
        Peer::connect(*address).await.data("poll", json!({})).await;
    }
    for kills in 1..=KILLS {
        let enough = usize::try_from(ROWS).unwrap() * kills / (KILLS + 1);
        until("some more are run", || folder.runs().len() >= enough).await;
        tokio::time::sleep(Duration::from_millis(rand::random_range(0..30))).await;
        let at = kills % names.len();
        workers[at].0.0.kill().unwrap();
        workers[at].0.0.wait().unwrap();
        workers[at] = start(names[at]);
    }
    until("none is left", || folder.count("waiting") + folder.count("accepted") == 0).await;
    let mut listed: Vec<i64> = Vec::new();
    until("all have ended", || {
        let running = folder.count("running");
        running + folder.count("done") == ROWS
    })
    .await;
    // What runs now ends soon; what stays `running` is listed.
    for _ in 0..600 {
        listed.clear();
        for (_, address) in &workers {
            let status = Peer::connect(*address).await.status().await;
            if let Some(Value::Object(rows)) = status.get("unfinished") {
                listed.extend(rows.keys().map(|id| id.parse::<i64>().unwrap()));
            }
        }
        if i64::try_from(listed.len()).unwrap() == folder.count("running") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(i64::try_from(listed.len()).unwrap(), folder.count("running"));
    let runs = folder.runs();
    let twice: Vec<_> = runs.iter().filter(|(_, times)| **times > 1).collect();
    assert!(twice.is_empty(), "run more than once: {twice:?}");
    for id in 1..=ROWS {
        assert!(runs.contains_key(&id) || listed.contains(&id), "{id} was neither run nor listed");
    }
}

#[tokio::test]
async fn every_program_tells_its_version() {
    for (path, name) in [
        (env!("CARGO_BIN_EXE_jobd"), "jobd"),
        (env!("CARGO_BIN_EXE_jobd-master"), "jobd-master"),
        (env!("CARGO_BIN_EXE_jobctl"), "jobctl"),
    ] {
        let output = Command::new(path).arg("--version").output().unwrap();
        let expected = format!("{name} {}\n", env!("CARGO_PKG_VERSION"));
        assert_eq!((output.status.code(), output.stdout), (Some(0), expected.into_bytes()));
    }
}

/// How many lines a daemon writes to its console and to its file at these levels, for one job.
async fn lines_at(console: &str, file: &str) -> (usize, usize) {
    let folder = Folder::new("exit 0");
    let log = folder.file("jobd.log");
    let levels = [
        &format!("log_level_console={console}"),
        &format!("log_level_file={file}"),
        &format!("log_file={}", log.display()),
        "targets.t=1",
    ];
    let mut jobd = Program::jobd(&folder.options("a", &levels));
    let mut stdout = jobd.0.stdout.take().unwrap();
    folder.has_table().await;
    folder.insert(1..=1, "t");
    // Without a poll, rows are looked for only at the start.
    jobd.signal(Signal::SIGTERM);
    jobd.ended().await;
    let mut text = String::new();
    stdout.read_to_string(&mut text).unwrap();
    (text.lines().count(), fs::read_to_string(&log).unwrap().lines().count())
}

#[tokio::test]
async fn console_and_log_file_have_levels_of_their_own() {
    let (console, file) = lines_at("error", "info").await;
    assert!(console == 0 && file >= 3, "{console} {file}");
    let (console, file) = lines_at("trace", "warn").await;
    assert!(console >= 4 && file == 0, "{console} {file}");
}
