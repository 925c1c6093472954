//! Nodes as processes, and what they say.

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::Command;

use nix::sys::signal::Signal;
use serde_json::{Value, json};
use spindle_testkit::{
    PATIENCE, PostgresServer, Program, Said, SpindleServer, free_address, wait_until,
};
use tempfile::TempDir;

pub const SPINDLE: &str = env!("CARGO_BIN_EXE_spindle");

/// A database of a test of its own.
pub fn database() -> PostgresServer {
    PostgresServer::start(&["max_connections=100", "synchronous_commit=on"])
}

/// A node, which keeps its name, its folder and its addresses when it is killed.
pub struct Node {
    pub name: &'static str,
    pub http: String,
    pub workq: String,
    cluster: String,
    url: String,
    folder: TempDir,
    server: Option<SpindleServer>,
}

impl Node {
    /// One that is not started.
    pub fn new(url: String, name: &'static str) -> Node {
        let [http, workq, cluster] = [(); 3].map(|()| free_address());
        let folder = tempfile::tempdir().unwrap();
        Node { name, http, workq, cluster, url, folder, server: None }
    }

    pub fn arguments(&self) -> Vec<&str> {
        let data = self.folder.path().to_str().unwrap();
        let mut arguments = vec!["--log", &*self.url, "--node", self.name, "--data", data];
        arguments.extend(["--cluster-listen", &*self.cluster, "--http", &*self.http]);
        arguments.extend(["--workq", &*self.workq, "--gearman", "off", "--jobd-master", "off"]);
        arguments
    }

    pub fn start(&mut self) {
        self.start_with(&[]);
    }

    /// The same with more arguments.
    pub fn start_with(&mut self, more: &[&str]) {
        let arguments = [&self.arguments()[..], more].concat();
        self.server = Some(SpindleServer::start(SPINDLE, &arguments, "http"));
    }

    fn server(&self) -> &SpindleServer {
        self.server.as_ref().unwrap()
    }

    pub fn kill(&mut self) {
        self.server.take().unwrap().crash();
    }

    /// Stops it, and waits until none of its threads does anything any more.
    pub fn stop(&self) {
        self.server().signal(Signal::SIGSTOP);
        let tasks = format!("/proc/{}/task", self.server().id());
        let is_stopped = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T"))
        };
        wait_until("all threads are stopped", || {
            fs::read_dir(&tasks).unwrap().flatten().all(is_stopped)
        });
    }

    /// Lets it go on.
    pub fn go_on(&self) {
        self.server().signal(Signal::SIGCONT);
    }

    /// Ends it in order, and says with which code it has ended.
    pub fn end(&mut self) -> Option<i32> {
        let mut server = self.server.take().unwrap();
        server.ask_to_end();
        server.await_end().code()
    }

    /// A request of HTTP; none if its connection is refused, or closed unanswered.
    pub fn ask(&self, head: &str, body: &Value) -> Option<(u16, Value)> {
        ask(&self.http, head, body)
    }

    pub fn get(&self, path: &str) -> Option<(u16, Value)> {
        self.ask(&format!("GET {path}"), &Value::Null)
    }

    /// Asks until there is an answer.
    pub fn answer(&self, head: &str, body: &Value) -> (u16, Value) {
        let mut answer = None;
        wait_until(head, || {
            answer = self.ask(head, body);
            answer.is_some()
        });
        answer.unwrap()
    }

    pub fn says(&self, status: u16, word: &str) -> bool {
        self.get("/readyz") == Some((status, json!({ "status": word })))
    }

    pub fn leads(&self) -> bool {
        self.says(200, "ok")
    }

    pub fn follows(&self, leader: &str) -> bool {
        self.says(200, &format!("follower of {leader}"))
    }

    /// The output of a command of the program that asks this node.
    pub fn command(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(SPINDLE);
        let url = format!("http://{}", self.http);
        let output = command.args(arguments).args(["--url", &*url]).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }
}

/// As [`Node::ask`], of any server at this address.
pub fn ask(address: &str, head: &str, body: &Value) -> Option<(u16, Value)> {
    let stream = send(address, head, body)?;
    answer_of(stream)
}

/// Sends a request, and does not wait for its answer.
pub fn send(address: &str, head: &str, body: &Value) -> Option<TcpStream> {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(PATIENCE)).ok()?;
    let request = format!(
        "{head} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
        body.len()
    );
    stream.write_all(request.as_bytes()).ok()?;
    Some(stream)
}

/// The whole answer; none if the connection is closed before it has come.
pub fn answer_of(mut stream: TcpStream) -> Option<(u16, Value)> {
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
    });
    // An answer that was cut off is none.
    if length.is_some_and(|length: usize| length != body.len()) {
        return None;
    }
    Some((status, serde_json::from_str(body).unwrap_or_default()))
}

/// Nodes, and what keeps their log.
pub struct Cluster<S = PostgresServer> {
    pub nodes: Vec<Node>,
    pub servers: S,
}

impl Cluster {
    /// Nodes that have been started, in a database of their own.
    pub fn start(names: &[&'static str]) -> Cluster {
        let database = database();
        let url = database.url("spindle");
        Cluster::start_on(database, &url, names)
    }
}

impl<S> Cluster<S> {
    /// Nodes that have been started, on a log that these servers keep.
    pub fn start_on(servers: S, url: &str, names: &[&'static str]) -> Cluster<S> {
        let nodes = names.iter().map(|name| Node::new(url.to_owned(), name)).collect();
        let mut cluster = Cluster { nodes, servers };
        cluster.nodes.iter_mut().for_each(Node::start);
        cluster
    }

    /// Which one leads, once one does and all that run say so.
    pub fn leader(&self) -> usize {
        let mut leader = None;
        let running = || self.nodes.iter().filter(|node| node.server.is_some());
        wait_until("one leads, and the others follow it", || {
            leader = self.nodes.iter().position(|node| node.server.is_some() && node.leads());
            leader.is_some_and(|at| {
                let name = self.nodes[at].name;
                running().all(|node| node.name == name || node.follows(name))
            })
        });
        leader.unwrap()
    }

    /// Any other one.
    pub fn other_than(&self, at: usize) -> &Node {
        &self.nodes[(at + 1) % self.nodes.len()]
    }
}

/// When a test fails it is shown what each node said last.
impl<S> Drop for Cluster<S> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for node in &self.nodes {
            let Some(server) = &node.server else { continue };
            eprintln!("{} answers {:?}, and said:", node.name, node.get("/readyz"));
            while let Some(line) = server.said.next_line_within_a_moment() {
                eprintln!("{line}");
            }
        }
    }
}

/// Starts the program with arguments that it refuses. Returns its exit code and its message.
pub fn refused(arguments: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(SPINDLE);
    command.arg("serve").args(arguments).stderr(std::process::Stdio::piped());
    let mut program = Program::start(&mut command);
    let said = Said::by(program.stderr.take().unwrap());
    let code = program.await_end().code();
    (code, said.await_end())
}
