//! A server of the real program that can be killed and started again at the same place.

use std::time::Duration;

use spindle_client::{Client, Options};
use spindle_testkit::SpindleServer;
use tempfile::TempDir;

/// A running server; dropping it kills it.
pub struct Served {
    server: SpindleServer,
    data: TempDir,
    more: Vec<String>,
    /// Where its HTTP door listens.
    pub http: String,
}

impl Served {
    /// A server on a folder of its own.
    pub fn new() -> Self {
        Self::with(&[])
    }

    /// The same with more arguments.
    pub fn with(more: &[&str]) -> Self {
        let data = tempfile::tempdir().unwrap();
        let more: Vec<String> = more.iter().map(|text| (*text).to_owned()).collect();
        let server = start(&data, "127.0.0.1:0", &more);
        Self { http: server.address_of("http"), server, data, more }
    }

    /// Kills it, and starts it again.
    pub fn crash(&mut self) {
        self.server.crash();
        self.server = start(&self.data, &self.http, &self.more);
    }

    /// A client of it.
    pub fn client(&self) -> Client {
        client(&format!("http://{}", self.http))
    }
}

/// A patient client of what listens there.
pub fn client(url: &str) -> Client {
    Client::new(&Options::new(url).retry_for(Duration::from_secs(60))).unwrap()
}

fn start(data: &TempDir, http: &str, more: &[String]) -> SpindleServer {
    let data = data.path().to_str().unwrap();
    let doors = ["--http", http, "--workq", "off", "--gearman", "off", "--jobd-master", "off"];
    let mut arguments = [&doors[..], &["--data", data]].concat();
    arguments.extend(more.iter().map(String::as_str));
    SpindleServer::start(env!("CARGO_BIN_EXE_spindle"), &arguments, "http")
}
