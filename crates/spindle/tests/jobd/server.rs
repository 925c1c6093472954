//! A server as a program, and who talks to it.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::{TcpListener, TcpStream},
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Nothing here takes nearly so long.
pub const WITHIN: Duration = Duration::from_secs(60);

/// A running server; dropping it kills it.
pub struct Served {
    child: Child,
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
        let more = more.iter().map(|&text| text.to_owned()).collect::<Vec<_>>();
        let child = start(folder.path().join("data"), [&http, &master, &workq], &more);
        Served { child, folder, http, master, workq }
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Ends it without a word.
    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts it again on the data and the ports it had.
    pub fn restart(&mut self) {
        let ports = [&self.http, &self.master, &self.workq];
        self.child = start(self.file("data"), ports, &[]);
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), Signal::SIGTERM).unwrap();
    }

    pub fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        until("the server ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    /// Asks the native API.
    pub fn ask(&self, head: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(&self.http).unwrap();
        stream.set_read_timeout(Some(WITHIN)).unwrap();
        write!(
            stream,
            "{head} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n{body}",
            self.http,
            body.len()
        )
        .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap_or_default())
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
        let (_, told) = self.ask(&format!("GET /api/v1/queues/{queue}"), &Value::Null);
        told["jobs"][status].as_i64().unwrap_or(0)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start(data: PathBuf, [http, master, workq]: [&String; 3], more: &[String]) -> Child {
    let mut child = Command::new(env!("CARGO_BIN_EXE_spindle"))
        .arg("serve")
        .arg("--data")
        .arg(data)
        .args(["--http", http, "--jobd-master", master, "--workq", workq, "--gearman", "off"])
        .args(more)
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let greeting = lines.find(|line| line.as_ref().is_ok_and(|line| line.contains("workq on ")));
    let greeting = greeting.expect("the server greets").unwrap();
    assert!(greeting.contains(&format!("jobd-master on {master}")), "{greeting}");
    // Read on, so that the server never writes to nobody.
    std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
    child
}

fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// Somebody who speaks jobd's protocol.
pub struct Peer(BufReader<TcpStream>);

impl Peer {
    pub fn connect(address: impl std::net::ToSocketAddrs) -> Peer {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(WITHIN)).unwrap();
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

/// Waits until something is so.
pub fn until(what: &str, is_so: impl FnMut() -> bool) {
    within(WITHIN, what, is_so);
}

/// Waits until something is so, less long than a worker's question to the server lasts by itself.
pub fn until_taken_back(what: &str, is_so: impl FnMut() -> bool) {
    within(Duration::from_secs(20), what, is_so);
}

fn within(time: Duration, what: &str, mut is_so: impl FnMut() -> bool) {
    let give_up = Instant::now() + time;
    while !is_so() {
        assert!(Instant::now() < give_up, "never came true: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// The lines of a file that may not be there yet.
pub fn lines(path: &std::path::Path) -> Vec<String> {
    fs::read_to_string(path).unwrap_or_default().lines().map(str::to_owned).collect()
}
