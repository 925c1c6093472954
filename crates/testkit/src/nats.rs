//! NATS servers with JetStream, alone or as a cluster, on loopback.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use tempfile::TempDir;

use crate::attached::{Place, ServerProcess, remove_at_the_end};

/// Where `cargo xtask test` has put the server, in the target folder.
const PROGRAM: &str = "tools/nats/usr/sbin/nats-server";

/// Where servers listen that have an address of their own.
const CLIENTS_PORT: u16 = 4222;
const ROUTES_PORT: u16 = 6222;
const MONITORING_PORT: u16 = 8222;

/// No stream can have more servers.
const REPLICAS_MAX: usize = 5;

/// How long a server's answer is waited for; after that none will come.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);

/// New servers that are not ready after this time are replaced by others.
const STARTED_WITHIN: Duration = Duration::from_secs(30);

/// A new cluster that places no streams within this time is replaced by another one.
const PLACED_WITHIN: Duration = Duration::from_secs(10);

/// How servers are started.
#[derive(Clone, Copy, Debug)]
pub struct NatsSetup<'a> {
    /// How many; more than one are a cluster.
    pub servers: usize,
    /// `always`, or how often.
    pub sync_interval: &'a str,
    /// More lines for each server's configuration.
    pub more: &'a str,
    /// More lines for its JetStream.
    pub more_of_jetstream: &'a str,
    /// Where they run, each; those that are not named run on loopback.
    pub places: &'a [Place],
}

impl Default for NatsSetup<'_> {
    fn default() -> Self {
        NatsSetup {
            servers: 1,
            sync_interval: "always",
            more: "",
            more_of_jetstream: "",
            places: &[],
        }
    }
}

/// Running servers `n0`, `n1`, ...; dropping this kills them and removes their data.
pub struct NatsServers {
    members: Vec<Member>,
    folder: TempDir,
}

struct Member {
    place: Place,
    address: String,
    monitoring: String,
    process: Option<ServerProcess>,
}

impl NatsServers {
    /// One server.
    pub fn one() -> NatsServers {
        NatsServers::start(NatsSetup::default())
    }

    /// A cluster of three.
    pub fn three() -> NatsServers {
        NatsServers::start(NatsSetup { servers: 3, ..NatsSetup::default() })
    }

    /// Starts servers, and waits until they are ready.
    #[track_caller]
    pub fn start(setup: NatsSetup<'_>) -> NatsServers {
        // Another process may take a free port before the server does, and servers that start at
        // the same time may not find each other.
        for _ in 0..5 {
            let mut servers = NatsServers::written(setup);
            for index in 0..setup.servers {
                servers.members[index].process = Some(servers.spawn(index));
            }
            if servers.are_ready_within(STARTED_WITHIN) && servers.place_streams() {
                return servers;
            }
            for index in 0..setup.servers {
                eprintln!("NATS servers did not start; n{index} says: {}", servers.said(index));
            }
        }
        panic!("no NATS servers could be started");
    }

    /// Waits until a stream can have all servers, or as many as a stream may have. One new cluster
    /// in a hundred reports that all is well and finds no peers for half a minute or longer: the
    /// servers connect to each other at the same time, and their announcements are lost with the
    /// surplus connections.
    fn place_streams(&self) -> bool {
        let replicas = self.members.len().min(REPLICAS_MAX);
        let stream = format!(
            "{{\"name\":\"ready\",\"subjects\":[\"ready\"],\"storage\":\"memory\",\
             \"num_replicas\":{replicas}}}"
        );
        let ask = |verb: &str, question: &str| {
            let answer = ask(&self.members[0].address, &format!("STREAM.{verb}.ready"), question);
            answer.is_ok_and(|answer| !answer.contains("\"error\""))
        };
        let deadline = Instant::now() + PLACED_WITHIN;
        while replicas > 1 && !ask("CREATE", &stream) {
            if Instant::now() >= deadline {
                return false;
            }
            thread::park_timeout(Duration::from_millis(20));
        }
        replicas == 1 || ask("DELETE", "")
    }

    /// Addresses, configuration and folders of servers that do not run yet.
    fn written(setup: NatsSetup<'_>) -> NatsServers {
        let folder = tempfile::tempdir().unwrap();
        let place = |index| setup.places.get(index).cloned().unwrap_or_default();
        let routes: Vec<String> =
            (0..setup.servers).map(|index| place(index).address(ROUTES_PORT)).collect();
        let all_routes: Vec<String> = routes.iter().map(|at| format!("nats://{at}")).collect();
        let mut members = Vec::new();
        for (index, route) in routes.iter().enumerate() {
            let place = place(index);
            let [address, monitoring] =
                [CLIENTS_PORT, MONITORING_PORT].map(|port| place.address(port));
            let path = |name: &str| folder.path().join(format!("n{index}{name}"));
            let mut text = format!(
                "server_name: n{index}\nlisten: \"{address}\"\nhttp: \"{monitoring}\"\n\
                 log_file: \"{}\"\n\
                 jetstream {{\nstore_dir: \"{}\"\nsync_interval: {}\n{}\n}}\n{}\n",
                path(".log").display(),
                path("").display(),
                setup.sync_interval,
                setup.more_of_jetstream,
                setup.more,
            );
            if setup.servers > 1 {
                let routes = all_routes.join("\", \"");
                write!(
                    text,
                    "cluster {{\nname: test\nlisten: \"{route}\"\nroutes: [\"{routes}\"]\n}}\n"
                )
                .unwrap();
            }
            fs::write(path(".conf"), text).unwrap();
            members.push(Member { place, address, monitoring, process: None });
        }
        NatsServers { members, folder }
    }

    /// Makes the servers last for all tests of a program; they end with it.
    #[must_use]
    pub fn shared(self) -> &'static NatsServers {
        let remover = remove_at_the_end(self.folder.path());
        &Box::leak(Box::new((self, remover))).0
    }

    fn spawn(&self, index: usize) -> ServerProcess {
        let program = nats_program();
        let output = File::create(self.folder.path().join(format!("n{index}.out"))).unwrap();
        let configuration = self.folder.path().join(format!("n{index}.conf"));
        let mut command = self.members[index].place.attached(&[], &program);
        command.arg("--config").arg(configuration);
        ServerProcess::start(command, &output)
    }

    /// Waits until all that were started are ready; false when one has ended, or when the time is over.
    fn are_ready_within(&self, time: Duration) -> bool {
        let deadline = Instant::now() + time;
        let runs = |index: &usize| self.members[*index].process.is_some();
        let running: Vec<usize> = (0..self.members.len()).filter(runs).collect();
        while !running.iter().all(|index| self.is_ready(*index)) {
            let gone = |index: &usize| self.members[*index].process.as_ref().unwrap().has_ended();
            if running.iter().any(gone) || Instant::now() >= deadline {
                return false;
            }
            // The server logs every request that it answers with a failure, so there is a pause
            // between requests.
            thread::park_timeout(Duration::from_millis(10));
        }
        true
    }

    /// Waits until all servers that run are ready. One in fifty that were restarted says for ever that its copy
    /// of a stream is not current ("group node unhealthy"), or does not hear another one that it is
    /// connected to: that one is restarted once more, as an operator would do.
    #[track_caller]
    pub fn await_ready(&mut self) {
        for _ in 0..4 {
            if self.are_ready_within(STARTED_WITHIN) {
                return;
            }
            for index in 0..self.members.len() {
                if self.members[index].process.is_some() && !self.is_ready(index) {
                    self.crash(index);
                    self.restart(index);
                }
            }
        }
        panic!("NATS servers are not ready");
    }

    /// Whether a server runs, says that all is well with it, and hears all others that run.
    pub fn is_ready(&self, index: usize) -> bool {
        let Member { process, monitoring, .. } = &self.members[index];
        process.is_some() && is_healthy(monitoring) && self.hears_others(index)
    }

    /// Whether all others that run have told a server that they vote: their announcements can be
    /// lost with surplus connections.
    fn hears_others(&self, index: usize) -> bool {
        let Ok(routes) = asked(&self.members[index].monitoring, "/routez?subs=1") else {
            return false;
        };
        let votes = |other: usize| {
            let name = format!("\"remote_name\": \"n{other}\"");
            let is_it = |route: &str| route.contains(&name) && route.contains("$NRG.V._meta_");
            routes.split("\"rid\":").any(is_it)
        };
        let others = (0..self.members.len()).filter(|other| *other != index);
        others.filter(|other| self.members[*other].process.is_some()).all(votes)
    }

    /// The process of a server that runs.
    pub fn process(&self, index: usize) -> Option<&ServerProcess> {
        self.members[index].process.as_ref()
    }

    /// Their addresses for clients.
    pub fn addresses(&self) -> Vec<String> {
        self.members.iter().map(|member| member.address.clone()).collect()
    }

    /// Their addresses as URLs.
    pub fn urls(&self) -> Vec<String> {
        self.addresses().into_iter().map(|address| format!("nats://{address}")).collect()
    }

    /// The URLs of their monitoring.
    pub fn monitoring(&self) -> Vec<String> {
        self.members.iter().map(|member| format!("http://{}", member.monitoring)).collect()
    }

    /// Which server leads a stream, if one does.
    pub fn leader_of(&self, stream: &str) -> Option<usize> {
        let running = self.members.iter().find(|member| member.process.is_some())?;
        let said = ask(&running.address, &format!("STREAM.INFO.{stream}"), "").ok()?;
        let (_, rest) = said.split_once("\"leader\":\"")?;
        let (leader, _) = rest.split_once('"')?;
        Some(self.index_of(leader))
    }

    /// Which server has this name.
    #[track_caller]
    pub fn index_of(&self, name: &str) -> usize {
        let index = name.strip_prefix('n').and_then(|index| index.parse().ok());
        index.filter(|index| *index < self.members.len()).unwrap_or_else(|| panic!("no {name}"))
    }

    /// Kills a server, as a crash does.
    pub fn crash(&mut self, index: usize) {
        if let Some(process) = self.members[index].process.take() {
            process.kill();
        }
    }

    /// Starts a server that was killed, with the data that it has.
    pub fn restart(&mut self, index: usize) {
        self.members[index].process = Some(self.spawn(index));
    }

    /// Sends a server a signal.
    pub fn signal(&self, index: usize, signal: Signal) {
        self.members[index].process.as_ref().unwrap().signal(signal);
    }

    /// What a server has written to its log and its output.
    pub fn said(&self, index: usize) -> String {
        let read = |name: &str| {
            let path = self.folder.path().join(format!("n{index}{name}"));
            fs::read_to_string(path).unwrap_or_default()
        };
        read(".log") + &read(".out")
    }
}

impl Drop for NatsServers {
    fn drop(&mut self) {
        if thread::panicking() {
            for (index, member) in self.members.iter().enumerate() {
                eprintln!("n{index} said:\n{}", self.said(index));
                for path in ["/healthz", "/routez?subs=1"] {
                    match asked(&member.monitoring, path) {
                        Ok(answer) => eprintln!("{path}: {answer}"),
                        Err(error) => eprintln!("{path}: {error}"),
                    }
                }
            }
        }
        (0..self.members.len()).for_each(|index| self.crash(index));
    }
}

/// The server's program, which is there: tests are in `TARGET/debug/deps`, programs in `TARGET/release`.
#[track_caller]
pub fn nats_program() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let mut places = exe.ancestors().skip(1).take(3).map(|folder| folder.join(PROGRAM));
    places.find(|program| program.exists()).unwrap_or_else(|| {
        panic!(
            "{PROGRAM} is missing: `cargo xtask test` puts it there, and `cargo xtask nats-server` \
             does only that"
        )
    })
}

/// What JetStream answers a client that needs no login. While servers elect a leader there may be
/// no answer at all.
fn ask(address: &str, subject: &str, question: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWERED_WITHIN))?;
    let bytes = question.len();
    write!(
        stream,
        "CONNECT {{\"verbose\":false}}\r\nSUB _INBOX.ready 1\r\n\
         PUB $JS.API.{subject} _INBOX.ready {bytes}\r\n{question}\r\n"
    )?;
    let mut lines = BufReader::new(stream).lines();
    let mut line = || lines.next().unwrap_or_else(|| Err(ErrorKind::UnexpectedEof.into()));
    while !line()?.starts_with("MSG ") {}
    line()
}

/// Whether a server says that all is well with it.
fn is_healthy(address: &str) -> bool {
    asked(address, "/healthz").is_ok_and(|answer| answer.starts_with("HTTP/1.0 200"))
}

/// What a server's monitoring says.
fn asked(address: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWERED_WITHIN))?;
    // HTTP/1.0 has no chunked bodies.
    write!(stream, "GET {path} HTTP/1.0\r\nHost: nats\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    Ok(answer)
}
