//! One node of Spindle: a process that is killed, stopped and started again.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use spindle_testkit::{Place, ServerProcess};

use crate::torture::doors::Http;
use crate::torture::server::Addresses;

/// Where nodes listen that have an address of their own.
const WORKQ_PORT: u16 = 9922;
const GEARMAN_PORT: u16 = 4730;
const HTTP_PORT: u16 = 7420;
pub const CLUSTER_PORT: u16 = 9931;
const QUOTED_BYTES: usize = 6_000;
const CLUSTER_PATH: &str = "/api/v1/cluster";

/// A node's status of one shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfShard {
    /// The node that it takes for the leader.
    pub leader: String,
    /// What it does itself.
    pub role: String,
}

/// A node, which keeps its name, its folder and its addresses when it is killed.
pub struct Node {
    pub name: &'static str,
    place: Place,
    addresses: Addresses,
    cluster: String,
    folder: PathBuf,
    process: Option<ServerProcess>,
}

impl Node {
    /// A node that is not started yet. Its data and its messages go to a folder of its name.
    pub fn new(name: &'static str, place: Place, root: &Path) -> Result<Self> {
        let address = |port| place.address(port).parse::<SocketAddr>();
        let addresses = Addresses {
            workq: address(WORKQ_PORT)?,
            gearman: address(GEARMAN_PORT)?,
            http: address(HTTP_PORT)?,
            papers: None,
        };
        let (cluster, folder) = (place.address(CLUSTER_PORT), root.join(name));
        fs::create_dir_all(&folder)?;
        Ok(Self { name, place, addresses, cluster, folder, process: None })
    }

    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Starts it on this log, without waiting for it.
    pub fn start(&mut self, program: &Path, log: &str, shards: u8) -> Result<()> {
        ensure!(self.process.is_none(), "{} runs", self.name);
        let mut command = self.place.attached(&[], program);
        command.args(["serve", "--log", log, "--node", self.name, "--cluster-listen"]);
        command.args([&self.cluster, "--jobd-master", "off", "--data"]).arg(&self.folder);
        if !self.addresses.http.ip().is_loopback() {
            command.args(["--insecure", "cluster"]);
        }
        for (door, address) in [
            ("workq", self.addresses.workq),
            ("gearman", self.addresses.gearman),
            ("http", self.addresses.http),
        ] {
            command.args([&format!("--{door}"), &address.to_string()]);
            if !address.ip().is_loopback() {
                command.args(["--insecure", door]);
            }
        }
        if shards > 1 {
            command.args(["--shards", &shards.to_string()]);
        }
        let messages = File::options().create(true).append(true).open(self.messages_path())?;
        self.process = Some(ServerProcess::start(command, &messages));
        Ok(())
    }

    pub fn process(&self) -> Option<&ServerProcess> {
        self.process.as_ref()
    }

    pub fn kill(&mut self) -> Result<()> {
        self.process.take().with_context(|| format!("{} does not run", self.name))?.kill();
        Ok(())
    }

    /// Whether it ended though nobody killed it.
    pub fn has_ended(&self) -> bool {
        self.process.as_ref().is_some_and(ServerProcess::has_ended)
    }

    /// What it says of itself, with the status of the answer: `ok`, `follower of one`, `no_leader` and so on.
    pub fn says(&self) -> Result<(u16, String)> {
        let answer = Http::connect(self.addresses.http)?.get("/readyz")?;
        let word = match &answer.body["status"] {
            Value::String(word) => word.clone(),
            other => other.to_string(),
        };
        Ok((answer.status, word))
    }

    /// Its status of each shard; an error if a shard has no leader.
    pub fn says_of_shards(&self) -> Result<Vec<OfShard>> {
        let answer = Http::connect(self.addresses.http)?.get(CLUSTER_PATH)?;
        let shards = match answer.body["shards"].as_array() {
            Some(shards) => &shards[..],
            None => std::slice::from_ref(&answer.body),
        };
        let of_shard = |shard: &Value| {
            let text = |field: &str| shard[field].as_str().map(str::to_owned);
            let said = text("leader").zip(text("role"));
            let (leader, role) = said.with_context(|| format!("nobody leads: {shard}"))?;
            Ok(OfShard { leader, role })
        };
        shards.iter().map(of_shard).collect()
    }

    /// Lets a queue move to this shard. False if it is there, or has not come to rest since it moved last.
    pub fn move_queue(&self, queue: &str, to: u8) -> Result<bool> {
        const ACCEPTED: u16 = 202;
        let mut http = Http::connect(self.addresses.http)?;
        let cluster = http.get(CLUSTER_PATH)?.body;
        let mut moved = cluster["moved"].as_array().into_iter().flatten();
        if moved.any(|it| it["name"] == queue && !it["drains"].is_null()) {
            return Ok(false);
        }
        let answer = http.post(&format!("/api/v1/queues/{queue}/move?to={to}"), &Value::Null)?;
        ensure!(answer.status == ACCEPTED, "moving {queue} to shard {to}: {answer:?}");
        Ok(!answer.body["drains"].is_null())
    }

    fn messages_path(&self) -> PathBuf {
        self.folder.join("messages")
    }

    /// The end of what it wrote to standard error.
    pub fn messages(&self) -> String {
        let text = fs::read_to_string(self.messages_path()).unwrap_or_default();
        let from = text.floor_char_boundary(text.len().saturating_sub(QUOTED_BYTES));
        text[from..].to_owned()
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }
}
