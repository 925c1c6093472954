//! A server as a program, and a client of it.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::ExitStatus,
    time::Duration,
};

use serde_json::{Value, json};
use spindle_testkit::{HttpRequest, SpindleServer, free_address, wait_within};
pub use spindle_testkit::{PATIENCE, wait_until as until};
use tempfile::TempDir;

/// A running server; dropping it kills it.
pub struct Served {
    server: SpindleServer,
    folder: TempDir,
    pub http: String,
    pub master: String,
    pub workq: String,
}

impl Served {
    pub fn new() -> Served {
        Self::with(&[])
    }

    pub fn with(more: &[&str]) -> Served {
        let folder = tempfile::tempdir().unwrap();
        // Ports of its own, so that it can come back where it was.
        let [http, master, workq] = [free_address(), free_address(), free_address()];
        let server = start(&folder.path().join("data"), [&http, &master, &workq], more);
        Served { server, folder, http, master, workq }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Kills it.
    pub fn kill(&mut self) {
        self.server.crash();
    }

    /// Starts it again on the data and the ports it had.
    pub fn restart(&mut self) {
        let ports = [&*self.http, &self.master, &self.workq];
        self.server = start(&self.file("data"), ports, &[]);
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        self.server.ask_to_end();
    }

    pub fn ended(&mut self) -> ExitStatus {
        self.server.await_end()
    }

    /// Asks the native API.
    pub fn ask(&self, head: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, body) = HttpRequest::send(&self.http, head, &body).answer();
        (status, serde_json::from_str(&body).unwrap_or_default())
    }

    /// Submits a job and answers its number.
    pub fn submit(&self, queue: &str, mut fields: Value) -> i64 {
        fields["queue"] = json!(queue);
        let (status, taken) = self.ask("POST /api/v1/jobs", &fields);
        assert_eq!(status, 201, "{taken}");
        taken["id"].as_i64().unwrap()
    }

    pub fn job(&self, id: i64) -> Value {
        let (status, job) = self.ask(&format!("GET /api/v1/jobs/{id}"), &Value::Null);
        assert_eq!(status, 200, "{job}");
        job
    }

    pub fn status(&self, id: i64) -> String {
        self.job(id)["status"].as_str().unwrap().to_owned()
    }

    /// How many jobs of a queue have a status, as the server counts them.
    pub fn count(&self, queue: &str, status: &str) -> i64 {
        let (_, shown) = self.ask(&format!("GET /api/v1/queues/{queue}"), &Value::Null);
        shown["jobs"][status].as_i64().unwrap_or(0)
    }
}

fn start(data: &Path, [http, master, workq]: [&str; 3], more: &[&str]) -> SpindleServer {
    let doors = ["--http", http, "--jobd-master", master, "--workq", workq, "--gearman", "off"];
    let arguments = [&doors[..], &["--data", data.to_str().unwrap()], more].concat();
    let server = SpindleServer::start(env!("CARGO_BIN_EXE_spindle"), &arguments, "workq");
    assert_eq!(server.address_of("jobd-master"), master);
    server
}

/// A client that speaks jobd's protocol.
pub struct Peer(BufReader<TcpStream>);

impl Peer {
    pub fn connect(address: impl std::net::ToSocketAddrs) -> Peer {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Peer(BufReader::new(stream))
    }

    pub fn send(&mut self, kind: &str, data: Value) {
        let message = json!([0, {"no": 1, "type": kind, "data": data}]);
        self.0.get_mut().write_all(format!("{message}\u{4}").as_bytes()).unwrap();
    }

    /// The next answer, or nothing when the connection ends.
    pub fn hear(&mut self) -> Option<Value> {
        let mut bytes = Vec::new();
        self.0.read_until(4, &mut bytes).unwrap();
        bytes.pop()?;
        let mut answer: Value = serde_json::from_slice(&bytes).unwrap();
        Some(answer[1].take())
    }

    pub fn ask(&mut self, kind: &str, data: Value) -> Value {
        self.send(kind, data);
        self.hear().expect("an answer")
    }

    /// The answer's data.
    pub fn data(&mut self, kind: &str, data: Value) -> Value {
        let mut answer = self.ask(kind, data);
        assert!(answer.get("error").is_none(), "{kind}: {answer}");
        answer["data"].take()
    }
}

/// Waits until something is so, for a shorter time than a worker's request to the server would take by
/// itself.
pub fn until_taken_back(what: &str, is_so: impl FnMut() -> bool) {
    wait_within(Duration::from_secs(20), what, is_so);
}

/// The lines of a file that may not be there yet.
pub fn lines(path: &Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}
