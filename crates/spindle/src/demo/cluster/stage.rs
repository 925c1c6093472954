//! All servers of a cluster on this machine, their folder, and who leads.

use std::{
    ffi::OsString,
    fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, bail};
use serde::Deserialize;
use tempfile::TempDir;

use super::{
    nats::{self, Program},
    server::Server,
};
use crate::{
    cli::DemoArgs,
    client::{
        Line,
        web::{ApiRequest, BaseUrl, Http},
    },
    demo::{
        doors::Addresses,
        process::{free_addresses, this_program},
    },
    exit::{Code, Failure},
};

/// The nodes.
const NODES: [&str; 3] = ["node-1", "node-2", "node-3"];
/// How often the start of the demo's own log servers is tried: of a hundred new clusters of NATS one finds
/// no peers, and another program may take a port first.
const START_TRIES: u32 = 3;
/// How often to check whether a server is ready, or leads, and how many times in all; and how many times
/// if all of it can be tried again.
const LOOK: Duration = Duration::from_millis(20);
const LOOKS_MAX: u32 = 3_000;
const LOOKS_OF_A_TRY: u32 = 750;

/// What the cluster is made with.
#[derive(Debug)]
pub struct Plan {
    log: Log,
    folder: Option<PathBuf>,
}

/// Who keeps the log.
#[derive(Debug)]
enum Log {
    /// Servers that run already: the flags of a node that name it.
    Given(Vec<OsString>),
    /// Servers of the demo's own.
    Own(Program),
}

impl Plan {
    /// What the command line says.
    ///
    /// # Errors
    ///
    /// When nothing can keep a log, or the folder has something in it.
    pub fn of(args: &DemoArgs) -> anyhow::Result<Self> {
        let log = match &args.log {
            Some(url) => {
                let mut flags = vec!["--log".into(), url.into()];
                let files = [
                    ("--log-password-file", &args.log_password_file),
                    ("--log-ca-file", &args.log_ca_file),
                ];
                for (flag, file) in files {
                    flags.extend(file.iter().flat_map(|file| [flag.into(), file.into()]));
                }
                flags.extend(
                    args.log_sync.iter().flat_map(|when| ["--log-sync".into(), when.into()]),
                );
                Log::Given(flags)
            }
            None => Log::Own(Program::find(args.nats_server.as_deref())?),
        };
        if let Some(folder) = &args.data {
            check_folder(folder)?;
        }
        Ok(Self { log, folder: args.data.clone() })
    }

    /// What keeps the log, for people.
    pub fn log(&self) -> String {
        match &self.log {
            // The URL is not shown: a password may be in it, although none belongs there.
            Log::Given(_) => "their log is the one that --log names".to_owned(),
            Log::Own(program) => {
                format!("their log is on three servers of NATS {}, which sync", program.version)
            }
        }
    }
}

fn check_folder(folder: &Path) -> anyhow::Result<()> {
    let shown = folder.display();
    match fs::read_dir(folder).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => {
            let text = format!("--data: {shown} is not empty: name a new folder");
            Err(Failure::with(Code::Usage, text))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(Failure::with(Code::Usage, format!("--data: {shown}: {error}"))),
    }
}

/// The cluster, shared by all that may have to end it: clones are the same one.
#[derive(Clone, Default)]
pub struct Stage(Arc<Mutex<State>>);

#[derive(Default)]
enum State {
    #[default]
    Empty,
    Open(Cluster),
    /// Nothing is started any more.
    Closed,
}

/// Running servers. Dropping this kills them, the nodes first, and removes a temporary folder.
struct Cluster {
    servers: Vec<Server>,
    folder: Folder,
}

enum Folder {
    Temporary(TempDir),
    Kept(PathBuf),
}

impl Folder {
    fn of(plan: &Plan) -> anyhow::Result<Self> {
        let Some(folder) = &plan.folder else {
            return Ok(Self::Temporary(
                tempfile::Builder::new().prefix("spindle-demo-").tempdir()?,
            ));
        };
        fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
        // It was empty: what is there now is of an earlier try.
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() { fs::remove_dir_all(path)? } else { fs::remove_file(path)? }
        }
        // Servers get absolute paths.
        Ok(Self::Kept(folder.canonicalize()?))
    }

    fn path(&self) -> &Path {
        match self {
            Self::Temporary(folder) => folder.path(),
            Self::Kept(folder) => folder,
        }
    }
}

/// A node, for clients.
#[derive(Debug, Clone, Copy)]
pub struct Node {
    /// Its name.
    pub name: &'static str,
    /// Its doors.
    pub addresses: Addresses,
}

impl Node {
    /// The cluster as this node sees it.
    fn status(&self) -> Option<Status> {
        self.addresses.http().ask(ApiRequest::get("/api/v1/cluster")).ok()
    }
}

/// What a node says of its cluster.
#[derive(Deserialize)]
struct Status {
    leader: Option<String>,
    epoch: u64,
    nodes: Vec<Heard>,
}

#[derive(Deserialize)]
struct Heard {
    node: String,
    live: bool,
}

/// Who leads.
#[derive(Debug, Clone, Copy)]
pub struct Leader {
    /// The node's name.
    pub name: &'static str,
    /// The epoch that it leads in.
    pub epoch: u64,
}

impl Stage {
    fn locked(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something short with the cluster: [`Stage::close`] waits meanwhile.
    fn with<T>(&self, does: impl FnOnce(&mut Cluster) -> anyhow::Result<T>) -> anyhow::Result<T> {
        match &mut *self.locked() {
            State::Open(cluster) => does(cluster),
            State::Empty | State::Closed => bail!("the demo was ended"),
        }
    }

    /// Starts all servers, and waits until one node leads and the others follow.
    pub fn open(&self, plan: &Plan) -> anyhow::Result<Vec<Node>> {
        let mut tries = if matches!(plan.log, Log::Own(_)) { START_TRIES } else { 1 };
        loop {
            tries -= 1;
            match self.try_open(plan, if tries > 0 { LOOKS_OF_A_TRY } else { LOOKS_MAX }) {
                Err(_) if tries > 0 && !matches!(*self.locked(), State::Closed) => {
                    *self.locked() = State::Empty;
                }
                outcome => return outcome,
            }
        }
    }

    fn try_open(&self, plan: &Plan, looks: u32) -> anyhow::Result<Vec<Node>> {
        {
            let mut state = self.locked();
            if matches!(*state, State::Closed) {
                bail!("the demo was ended");
            }
            *state = State::Open(Cluster { servers: Vec::new(), folder: Folder::of(plan)? });
        }
        let log = match &plan.log {
            Log::Given(flags) => flags.clone(),
            Log::Own(program) => {
                let started = self.with(|cluster| {
                    let started = nats::start(program, cluster.folder.path())?;
                    cluster.servers.extend(started.servers);
                    Ok((started.monitoring, started.url))
                });
                let (monitoring, url) = started?;
                for at in monitoring {
                    let http = of_address(at)?;
                    self.await_of_all(looks, &format!("NATS at {at} is not ready"), || {
                        Ok(http.answer(ApiRequest::get("/healthz")).ok().map(drop))
                    })?;
                }
                vec!["--log".into(), url.into()]
            }
        };
        let mut nodes = Vec::new();
        for name in NODES {
            let node = self.with(|cluster| cluster.start_node(name, &log))?;
            nodes.push(node);
            // If the log cannot be used, the first node reports it.
            self.await_of_all(looks, "no node leads", || leader_of(&nodes, None))?;
        }
        Ok(nodes)
    }

    /// Waits for something, for so many looks, while all servers have to run.
    ///
    /// # Errors
    ///
    /// When one of the servers ends meanwhile, or `in_vain`.
    fn await_of_all<T>(
        &self,
        looks: u32,
        in_vain: &str,
        mut look: impl FnMut() -> anyhow::Result<Option<T>>,
    ) -> anyhow::Result<T> {
        for _ in 0..looks {
            if let Some(found) = look()? {
                return Ok(found);
            }
            self.with(|cluster| cluster.servers.iter_mut().try_for_each(Server::check))?;
            sleep(LOOK);
        }
        bail!("{in_vain} after {} s", looks * LOOK.as_millis() as u32 / 1_000)
    }

    /// Waits until a node leads, other than `after` if that is given, and the other nodes say so too.
    ///
    /// # Errors
    ///
    /// When another server than those of the demo is in the cluster, or nobody leads for too long.
    pub fn await_leader(&self, nodes: &[Node], after: Option<&str>) -> anyhow::Result<Leader> {
        for _ in 0..LOOKS_MAX {
            if let Some(leader) = leader_of(nodes, after)? {
                return Ok(leader);
            }
            self.with(|_| Ok(()))?;
            sleep(LOOK);
        }
        bail!("no node leads after a minute or longer")
    }

    /// Which process a server is.
    pub fn id(&self, name: &str) -> anyhow::Result<u32> {
        self.with(|cluster| Ok(cluster.server(name)?.id()))
    }

    /// Kills a server with SIGKILL, and waits until it is gone. Returns which process it was.
    pub fn kill(&self, name: &str) -> anyhow::Result<u32> {
        self.with(|cluster| {
            let server = cluster.server(name)?;
            server.kill()?;
            Ok(server.id())
        })
    }

    /// Starts servers again that have ended, whoever ended them. Returns their names and the new
    /// processes.
    pub fn revive(&self) -> anyhow::Result<Vec<(String, u32)>> {
        self.with(|cluster| {
            let mut revived = Vec::new();
            for server in &mut cluster.servers {
                if server.has_ended()? {
                    server.restart()?;
                    revived.push((server.name.clone(), server.id()));
                }
            }
            Ok(revived)
        })
    }

    /// Ends all servers and removes a temporary folder. Nothing can be started any more.
    pub fn close(&self) {
        *self.locked() = State::Closed;
    }
}

/// The leader, if a node other than `after` leads and all nodes that answer say so.
fn leader_of(nodes: &[Node], after: Option<&str>) -> anyhow::Result<Option<Leader>> {
    let statuses: Vec<Status> = nodes.iter().filter_map(Node::status).collect();
    let is_strange = |heard: &&Heard| heard.live && !NODES.contains(&heard.node.as_str());
    let mut heard = statuses.iter().flat_map(|status| &status.nodes);
    if let Some(strange) = heard.find(is_strange) {
        bail!(
            "other servers use that log: {} is one of them. Name a log of the demo's own: another stream or \
             database, or ?schema=NAME",
            strange.node
        );
    }
    let epoch = statuses.iter().map(|status| status.epoch).max().unwrap_or_default();
    let leads = |node: &&Node| {
        let says_so = |status: &Status| status.leader.as_deref() == Some(node.name);
        Some(node.name) != after && !statuses.is_empty() && statuses.iter().all(says_so)
    };
    let node = nodes.iter().find(leads);
    let node = node.filter(|node| node.addresses.http().answer(ApiRequest::get("/readyz")).is_ok());
    Ok(node.map(|node| Leader { name: node.name, epoch }))
}

fn of_address(address: SocketAddr) -> anyhow::Result<Http> {
    let base = BaseUrl::parse(&format!("http://{address}")).map_err(anyhow::Error::msg)?;
    Ok(Http::new(&base, &Line::default()))
}

impl Cluster {
    fn server(&mut self, name: &str) -> anyhow::Result<&mut Server> {
        let found = self.servers.iter_mut().find(|server| server.name == name);
        found.with_context(|| format!("there is no {name}"))
    }

    fn start_node(&mut self, name: &'static str, log: &[OsString]) -> anyhow::Result<Node> {
        let [http, workq, gearman, jobd_master, passage] = free_addresses()?;
        let addresses = Addresses { http, workq, gearman, jobd_master };
        let folder = self.folder.path();
        let mut arguments: Vec<OsString> = vec!["serve".into()];
        arguments.extend(log.iter().cloned().chain(addresses.flags()));
        arguments.extend(["--node".into(), name.into(), "--data".into(), folder.join(name).into()]);
        arguments.extend(["--cluster-listen".into(), passage.to_string().into()]);
        let server = Server::start(name.to_owned(), &this_program()?, arguments, folder)?;
        // The last server started is the first to end: nodes before the servers of their log.
        self.servers.insert(0, server);
        Ok(Node { name, addresses })
    }
}
