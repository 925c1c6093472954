//! The processes of a cluster: started, hit by a fault, healed, and waited for.

use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use spindle_testkit::Place;

use super::faults::{Member, Plan, Roles};
use super::log_servers::LogServers;
use super::network::{Network, Permitted};
use super::node::{CLUSTER_PORT, Node, OfShard};
use crate::torture::mode::LogKind;
use crate::torture::server::Addresses;

const NODES: [&str; 3] = ["one", "two", "three"];
/// After a fault is over, the cluster must be whole again within this time.
const WHOLE_WITHIN: Duration = Duration::from_secs(120);
/// A log server that is not ready after this time is restarted.
const CAUGHT_UP_WITHIN: Duration = Duration::from_secs(30);
const POLL: Duration = Duration::from_millis(50);

/// Nodes and the servers of their log. Dropping this kills them, and finally removes their network.
pub struct Cluster {
    nodes: Vec<Node>,
    log: LogServers,
    url: String,
    shards: u8,
    program: PathBuf,
    restarts: u64,
    /// Why there is no network to cut.
    no_network: Option<String>,
    network: Option<Network>,
}

impl Cluster {
    /// Starts all, and waits until each shard is led. What nodes write goes to folders in this one.
    pub fn start(kind: LogKind, shards: u8, program: &Path, root: &Path) -> Result<Self> {
        let log_count = LogServers::count_of(kind);
        let names = ["node-0", "node-1", "node-2", "log-0", "log-1", "log-2"];
        let names = &names[..NODES.len() + log_count];
        let (network, no_network) = match Network::make(names)? {
            Permitted::Yes(network) => (Some(network), None),
            Permitted::No(reason) => (None, Some(reason)),
        };
        let place = |index| network.as_ref().map_or(Place::Loopback, |it| it.place(index));
        let places: Vec<Place> = (NODES.len()..names.len()).map(place).collect();
        let log = LogServers::start(kind, &places)?;
        let nodes = NODES.iter().enumerate();
        let nodes = nodes.map(|(index, name)| Node::new(name, place(index), root));
        let nodes = nodes.collect::<Result<Vec<_>>>()?;
        let (url, program) = (log.url(), program.to_path_buf());
        let mut cluster =
            Self { nodes, log, url, shards, program, restarts: 0, network, no_network };
        for node in &mut cluster.nodes {
            node.start(&cluster.program, &cluster.url, shards)?;
        }
        cluster.await_whole(0)?;
        Ok(cluster)
    }

    /// The addresses for clients, by node.
    pub fn addresses(&self) -> Vec<Addresses> {
        self.nodes.iter().map(Node::addresses).collect()
    }

    /// Why connections can not be cut, if they can not.
    pub fn no_network(&self) -> Option<&str> {
        self.no_network.as_deref()
    }

    /// Whether clients are answered while any one process is gone.
    pub fn survives_the_loss_of_one(&self) -> bool {
        self.log.survive_the_loss_of_one()
    }

    /// How many shards there are.
    pub fn shards(&self) -> u8 {
        self.shards
    }

    /// Lets a queue begin to move to a shard. False if it is there, or has not come to rest since it moved last.
    pub fn move_queue(&self, queue: &str, to: u8) -> Result<bool> {
        self.nodes[0].move_queue(queue, to)
    }

    /// Waits until all run and agree on the leader of each shard. Returns the leader of this shard
    /// and that of its log.
    pub fn await_whole(&self, shard: u8) -> Result<Roles> {
        let deadline = Instant::now() + WHOLE_WITHIN;
        loop {
            if let Some(node) = self.nodes.iter().find(|node| node.has_ended()) {
                bail!("the node {} ended by itself\n{}", node.name, self.messages());
            }
            let why_not = match self.roles(shard) {
                Ok(roles) => return Ok(roles),
                Err(why) => why,
            };
            if Instant::now() > deadline {
                let text = format!("not whole within {WHOLE_WITHIN:?}\n{}", self.messages());
                return Err(why_not.context(text));
            }
            thread::sleep(POLL);
        }
    }

    fn roles(&self, shard: u8) -> Result<Roles> {
        ensure!(self.log.are_ready(), "a server of the log is not ready");
        let said = self.nodes.iter().map(Node::says).collect::<Result<Vec<_>>>()?;
        ensure!(said.iter().all(|(status, _)| *status == 200), "not all are ready: {said:?}");
        let said = self.nodes.iter().map(Node::says_of_shards).collect::<Result<Vec<_>>>()?;
        let leaders: Vec<usize> = (0..usize::from(self.shards))
            .map(|at| self.leader(&said, at))
            .collect::<Result<_>>()?;
        let (nodes, log_servers) = (self.nodes.len(), self.log.count());
        let log_leader = self.log.leader(shard)?;
        Ok(Roles { leader: leaders[usize::from(shard)], nodes, log_leader, log_servers })
    }

    /// The leader of a shard, if all nodes name it, the leader included.
    fn leader(&self, said: &[Vec<OfShard>], shard: usize) -> Result<usize> {
        let of_shard = said.iter().map(|all| all.get(shard).context("a shard is missing"));
        let of_shard = of_shard.collect::<Result<Vec<_>>>()?;
        let leads = |at: &usize| of_shard.iter().all(|it| it.leader == self.nodes[*at].name);
        let leader = (0..of_shard.len()).find(leads);
        let leader = leader.filter(|leader| {
            let does = |at: usize| if at == *leader { "leader" } else { "follower" };
            of_shard.iter().enumerate().all(|(at, it)| it.role == does(at))
        });
        leader.with_context(|| format!("the nodes do not agree on who leads: {said:?}"))
    }

    /// A fault begins, and is seen to have happened.
    pub fn hit(&mut self, plan: &Plan) -> Result<()> {
        for member in &plan.killed {
            let pid = self.process(*member)?;
            match *member {
                Member::Node(index) => self.nodes[index].kill()?,
                Member::Log(index) => self.log.kill(index),
            }
            ensure!(!Path::new(&format!("/proc/{pid}")).exists(), "{member:?} lives");
        }
        for member in &plan.stopped {
            self.signal(*member, Signal::SIGSTOP)?;
            await_stopped(self.process(*member)?)?;
        }
        for (from, to) in &plan.cut {
            let (from, to) = (self.place_of(*from), self.place_of(*to));
            self.network.as_mut().context("no network to cut")?.cut(from, to)?;
        }
        if let (Some((from, to)), Some(network)) = (plan.cut.first(), &self.network) {
            let port = match to {
                Member::Node(_) => CLUSTER_PORT,
                Member::Log(_) => self.log.port()?,
            };
            network.ensure_cut(self.place_of(*from), self.place_of(*to), port)?;
        }
        Ok(())
    }

    /// The fault is over. Log servers that were killed are there before nodes are started.
    pub fn heal(&mut self, plan: &Plan) -> Result<()> {
        if let Some(network) = &mut self.network {
            network.heal()?;
        }
        for member in &plan.stopped {
            self.signal(*member, Signal::SIGCONT)?;
        }
        let killed = |wanted: fn(&Member) -> Option<usize>| plan.killed.iter().filter_map(wanted);
        for index in killed(|it| if let Member::Log(index) = it { Some(*index) } else { None }) {
            self.log.restart(index);
        }
        self.bring_log_back()?;
        for index in killed(|it| if let Member::Node(index) = it { Some(*index) } else { None }) {
            self.nodes[index].start(&self.program, &self.url, self.shards)?;
        }
        Ok(())
    }

    /// Waits until all servers of the log are ready. One in some hundred servers of NATS that were killed never
    /// catches up, until it is started once more.
    fn bring_log_back(&mut self) -> Result<()> {
        let deadline = Instant::now() + WHOLE_WITHIN;
        let mut patience = Instant::now() + CAUGHT_UP_WITHIN;
        while !self.log.are_ready() {
            ensure!(Instant::now() < deadline, "the log is not ready\n{}", self.messages());
            if Instant::now() > patience {
                for index in self.log.unready() {
                    eprintln!("log server {index} does not catch up: it is started anew");
                    self.log.kill(index);
                    self.log.restart(index);
                    self.restarts += 1;
                }
                patience = Instant::now() + CAUGHT_UP_WITHIN;
            }
            thread::sleep(POLL);
        }
        Ok(())
    }

    /// How many servers of the log were started anew because they did not catch up.
    pub fn restarts(&self) -> u64 {
        self.restarts
    }

    fn process(&self, member: Member) -> Result<Pid> {
        let pid = match member {
            Member::Node(index) => self.nodes[index].process().map(|process| process.pid()),
            Member::Log(index) => self.log.process(index),
        };
        pid.with_context(|| format!("{member:?} does not run"))
    }

    fn signal(&self, member: Member, signal: Signal) -> Result<()> {
        match member {
            Member::Node(index) => {
                let process = self.nodes[index].process().context("it does not run")?;
                process.signal(signal);
            }
            Member::Log(index) => self.log.signal(index, signal),
        }
        Ok(())
    }

    /// Nodes come first in the network.
    fn place_of(&self, member: Member) -> usize {
        match member {
            Member::Node(index) => index,
            Member::Log(index) => self.nodes.len() + index,
        }
    }

    /// Kills all nodes at once, and starts them again.
    pub fn restart_all_nodes(&mut self) -> Result<()> {
        for node in &mut self.nodes {
            node.kill()?;
        }
        for node in &mut self.nodes {
            node.start(&self.program, &self.url, self.shards)?;
        }
        self.await_whole(0).map(drop)
    }

    /// Writes the output of the log servers beside that of the nodes.
    pub fn keep_messages(&self, root: &Path) -> Result<()> {
        self.log.keep_messages(root)
    }

    /// Each node's status, and the end of its output.
    pub fn messages(&self) -> String {
        let each = self.nodes.iter().map(|node| {
            let says = match node.says() {
                Ok((status, word)) => format!("{status} {word}"),
                Err(e) => format!("nothing: {e:#}"),
            };
            format!("--- {} says {says}, and wrote last:\n{}", node.name, node.messages())
        });
        each.collect::<Vec<_>>().join("\n")
    }
}

/// Waits until no thread of a process does anything any more.
fn await_stopped(pid: Pid) -> Result<()> {
    let deadline = Instant::now() + WHOLE_WITHIN;
    loop {
        let tasks = fs::read_dir(format!("/proc/{pid}/task"))?;
        let is_stopped = |task: fs::DirEntry| {
            let stat = fs::read_to_string(task.path().join("stat")).unwrap_or_default();
            stat.rsplit(')').next().is_some_and(|rest| rest.starts_with(" T"))
        };
        if tasks.flatten().all(is_stopped) {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "process {pid} is not stopped");
        thread::sleep(Duration::from_millis(1));
    }
}
