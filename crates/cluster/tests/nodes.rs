//! Three nodes in one process, on a log in memory whose connections a test cuts.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use spindle_cluster::{FollowError, Leadership, Node, NodeOptions, NodeStatus, NodeTls, Role};
use spindle_core::JobId;
use spindle_core::job::Origin;
use spindle_engine::record::VERSION;
use spindle_engine::{Clock, Engine, Failure, JobRef, Options, SystemClock};
use spindle_log::SharedLog;
use spindle_testkit::shared_log::{SharedLogHandle, SharedMemoryLog};
use spindle_testkit::{PATIENCE, new_job, opened, submit_to, wait_until};

/// What happens to a node's life.
enum Event {
    StepDown,
    Failed(Failure),
    Stop,
}

/// The system's clock; a test says how much earlier the boot was.
#[derive(Default)]
struct Ahead {
    clock: SystemClock,
    ahead_s: AtomicU64,
}

impl Clock for Ahead {
    fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    fn start_from(&self, last_ms: u64) {
        self.clock.start_from(last_ms);
    }

    fn wall_ahead_ms(&self) -> i64 {
        self.clock.wall_ahead_ms()
    }

    fn accept_wall(&self) {
        self.clock.accept_wall();
    }

    fn let_catch_up(&self, may: bool) {
        self.clock.let_catch_up(may);
    }

    fn since_boot(&self) -> Duration {
        self.clock.since_boot() + Duration::from_secs(self.ahead_s.load(Ordering::SeqCst))
    }
}

/// A node that follows and leads in turn, as a server does.
struct Server {
    node: Node,
    events: Sender<Event>,
    /// The engine, while it leads.
    engine: Arc<Mutex<Option<Engine>>>,
    /// The log as it has it open.
    log: Arc<Mutex<Option<Arc<SharedLogHandle>>>>,
    clock: Arc<Ahead>,
    /// Whether its log cannot be opened, and how often that was tried.
    away: Arc<AtomicBool>,
    refused: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    fn start(shared: &SharedMemoryLog, name: &str) -> Server {
        Server::start_reading(shared, name, VERSION)
    }

    /// A node of a program that reads versions of records up to this one.
    fn start_reading(shared: &SharedMemoryLog, name: &str, format: u8) -> Server {
        let log = Arc::<Mutex<Option<Arc<SharedLogHandle>>>>::default();
        let (world, opened) = (shared.clone(), Arc::clone(&log));
        let clock = Arc::new(Ahead::default());
        let (away, refused) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (is_away, tries) = (Arc::clone(&away), Arc::clone(&refused));
        let node = Node::start(NodeOptions {
            tls: NodeTls::default(),
            shard: None,
            name: name.to_owned(),
            advertise: None,
            version: "test".to_owned(),
            clock: clock.clone(),
            open: Box::new(move || {
                if is_away.load(Ordering::SeqCst) {
                    tries.fetch_add(1, Ordering::SeqCst);
                    return Err("out of reach".into());
                }
                let handle = world.open();
                *opened.lock() = Some(Arc::clone(&handle));
                Ok(handle as Arc<dyn SharedLog>)
            }),
        })
        .unwrap();
        let (events, inbox) = channel();
        let engine = Arc::<Mutex<Option<Engine>>>::default();
        let (follows, fails, leads) = (node.clone(), events.clone(), Arc::clone(&engine));
        let options = Options { format, ..Options::default() };
        let thread = std::thread::spawn(move || live(&follows, &options, &leads, &fails, &inbox));
        let asked = events.clone();
        node.on_step_down(move || drop(asked.send(Event::StepDown)));
        Server { node, events, engine, log, clock, away, refused, thread: Some(thread) }
    }

    fn leads(&self) -> bool {
        self.engine.lock().is_some()
    }

    fn engine(&self) -> Engine {
        self.engine.lock().clone().unwrap()
    }

    fn log(&self) -> Arc<SharedLogHandle> {
        self.log.lock().clone().unwrap()
    }

    /// Submits a job whose acceptance its client has seen.
    fn add(&self) -> JobId {
        let engine = self.engine();
        let gated = {
            let _turn = engine.turn();
            engine.jobs().submit(new_job(submit_to("q", Origin::Api), b"x"))
        };
        let gate = gated.gate();
        wait_until("the job is acknowledged", || engine.released().is_some_and(|to| gate <= to));
        opened(gated).unwrap()
    }

    /// Whether it leads, and has that job.
    fn knows(&self, id: JobId) -> bool {
        let engine = self.engine.lock().clone();
        engine.is_some_and(|engine| opened(engine.jobs().find(JobRef::Id(id))).is_some())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.node.stop();
        if let Some(log) = &*self.log.lock() {
            log.hold_acks(false);
        }
        let _ = self.events.send(Event::Stop);
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

/// Follows, leads, and follows again.
fn live(
    node: &Node,
    options: &Options,
    leads: &Mutex<Option<Engine>>,
    fails: &Sender<Event>,
    inbox: &Receiver<Event>,
) {
    loop {
        let leadership: Leadership = match node.follow(options) {
            Ok(leadership) => leadership,
            Err(FollowError::Stopped) => return,
            Err(error) => panic!("{}: {error}", node.name()),
        };
        let engine = leadership.engine().clone();
        let failed = fails.clone();
        engine.spawn(move |failure| drop(failed.send(Event::Failed(failure)))).unwrap();
        *leads.lock() = Some(engine.clone());
        let event = inbox.recv().unwrap();
        *leads.lock() = None;
        match event {
            Event::StepDown => {
                leadership.begin_step_down();
                engine.stop();
                leadership.stepped_down();
            }
            Event::Failed(failure) => {
                assert!(matches!(failure, Failure::Conflict), "{failure}");
                engine.stop();
            }
            Event::Stop => {
                engine.abandon();
                engine.stop();
                return;
            }
        }
    }
}

fn three(shared: &SharedMemoryLog) -> [Server; 3] {
    ["a", "b", "c"].map(|name| Server::start(shared, name))
}

/// The leader, once there is one and the leader before it, if any, knows of it. On a busy machine the lead may
/// soon change again.
fn leader(servers: &[Server]) -> usize {
    let mut leads = Vec::new();
    wait_until("one leads", || {
        leads = (0..servers.len()).filter(|at| servers[*at].leads()).collect();
        leads.len() == 1
    });
    leads[0]
}

fn others(of: usize) -> impl Iterator<Item = usize> {
    (0..3).filter(move |at| *at != of)
}

#[test]
fn one_leads_and_all_say_so() {
    let servers = three(&SharedMemoryLog::new());
    let leads = leader(&servers);
    let name = servers[leads].node.name().to_owned();
    servers[leads].add();
    for server in &servers {
        wait_until("all have heard it, and have folded all", || {
            let status = server.node.status();
            status.leader.as_ref() == Some(&name)
                && status.nodes.len() == 3
                && status.nodes.iter().all(|node| node.live && node.lag == Some(0))
        });
    }
    assert_eq!(servers[leads].node.role(), Role::Leader);
    assert_eq!(servers.iter().filter(|server| server.leads()).count(), 1);
}

#[test]
fn a_leader_that_is_cut_off_answers_nothing_and_another_one_knows_what_it_acknowledged() {
    let shared = SharedMemoryLog::new();
    let servers = three(&shared);
    let old = leader(&servers);
    let acknowledged = servers[old].add();
    let engine = servers[old].engine();
    let log = servers[old].log();
    log.cut_off(true);
    wait_until("its lease runs out", || engine.released().is_none());
    let epoch_before = shared.epochs().last().copied().unwrap();
    wait_until("another one leads", || others(old).any(|at| servers[at].leads()));
    let new = others(old).find(|at| servers[*at].leads()).unwrap();
    let new_engine = servers[new].engine();
    wait_until("it answers", || new_engine.released().is_some());
    assert!(engine.released().is_none(), "never two that answer");
    assert!(servers[new].knows(acknowledged));
    assert!(shared.epochs().last().copied().unwrap() > epoch_before);
    let newer = servers[new].add();

    log.cut_off(false);
    wait_until("it learns that it leads no more", || !servers[old].leads());
    assert!(engine.released().is_none());
    drop((engine, new_engine));
    wait_until("all follow one of them, which knows all", || {
        let at = leader(&servers);
        let name = servers[at].node.name().to_owned();
        let is_followed = |of: &Server| of.node.status().leader.as_ref() == Some(&name);
        servers.iter().all(is_followed) && servers[at].knows(newer)
    });
}

#[test]
fn whoever_steps_down_is_followed_by_another_one_that_knows_all() {
    let shared = SharedMemoryLog::new();
    let servers = three(&shared);
    let old = leader(&servers);
    let acknowledged = servers[old].add();
    for at in others(old) {
        assert!(!servers[at].node.ask_to_step_down(), "it does not lead");
    }
    wait_until("the others hear of each other", || servers[old].node.status().nodes.len() == 3);
    assert!(servers[old].node.ask_to_step_down());
    wait_until("another one leads", || others(old).any(|at| servers[at].leads()));
    let new = others(old).find(|at| servers[*at].leads()).unwrap();
    assert!(servers[new].knows(acknowledged));
    servers[new].add();
    wait_until("the old one follows", || servers[old].node.status().role == Role::Follower);
    assert!(!servers[old].leads());
}

#[test]
fn a_node_alone_leads_and_comes_back_to_it_after_it_has_stepped_down() {
    let shared = SharedMemoryLog::new();
    let server = Server::start(&shared, "alone");
    wait_until("it leads", || server.leads());
    let job = server.add();
    let before = shared.epochs().last().copied();
    assert!(server.node.ask_to_step_down());
    wait_until("it leads again", || server.leads() && shared.epochs().last().copied() > before);
    assert!(server.knows(job));
}

/// Nodes are upgraded one after the other; the newer program reads one version more.
#[test]
fn a_newer_format_comes_into_force_when_all_nodes_read_it_and_stays() {
    const NEWER: u8 = VERSION + 1;
    let shared = SharedMemoryLog::new();
    let newer = |name| Server::start_reading(&shared, name, NEWER);
    let servers = [newer("a"), newer("b")];
    let old = Server::start_reading(&shared, "old", VERSION);
    let all_are_heard = |server: &Server| server.node.status().nodes.len() == 3;
    wait_until("all have heard each other", || servers.iter().all(all_are_heard));
    // Whoever leads from here on has listened for long.
    for server in &servers {
        server.clock.ahead_s.fetch_add(60, Ordering::SeqCst);
    }
    let leading = || servers.iter().find(|server| server.leads());
    wait_until("one of the newer ones leads", || {
        old.node.ask_to_step_down();
        leading().is_some()
    });
    let before = shared.len();
    leading().unwrap().add();
    wait_until("the old one reads all that comes, and is heard to", || {
        let has_read = |it: &NodeStatus| it.node == "old" && it.position > before;
        servers.iter().all(|server| server.node.status().nodes.iter().any(has_read))
    });
    let format = |server: &Server| server.engine.lock().as_ref().map(Engine::format);
    assert!(servers.iter().all(|server| format(server).is_none_or(|format| format == VERSION)));
    drop(old);
    let _upgraded = newer("old");
    wait_until("the newer format is in force", || {
        servers.iter().any(|server| format(server) == Some(NEWER))
    });
    // What is acknowledged behind it says that it is in the log.
    leading().unwrap().add();

    // The next leader writes it at once, and a new node of the older release refuses the log.
    let epoch = shared.epochs().last().copied();
    leading().unwrap().node.ask_to_step_down();
    wait_until("another one leads", || shared.epochs().last().copied() > epoch);
    wait_until("one of these leads", || leading().is_some());
    assert_eq!(leading().and_then(format), Some(NEWER));
    let world = shared.clone();
    let late = Node::start(NodeOptions {
        tls: NodeTls::default(),
        shard: None,
        name: "late".to_owned(),
        advertise: None,
        version: "test".to_owned(),
        clock: Arc::new(SystemClock::new()),
        open: Box::new(move || Ok(world.open() as Arc<dyn SharedLog>)),
    });
    let Err(FollowError::Start(refusal)) = late.unwrap().follow(&Options::default()) else {
        panic!("it cannot read the log");
    };
    let said = format!("needs version {NEWER} of the record format, this program knows {VERSION}");
    assert!(refusal.to_string().contains(&said), "{refusal}");
}

#[test]
fn a_log_that_was_open_before_the_node_led_is_waited_for() {
    let shared = SharedMemoryLog::new();
    let one = Server::start(&shared, "one");
    wait_until("it leads", || one.leads());
    let id = one.add();
    one.away.store(true, Ordering::SeqCst);
    assert!(one.node.ask_to_step_down());
    wait_until("it tries again", || one.refused.load(Ordering::SeqCst) >= 2);
    assert!(!one.leads());
    one.away.store(false, Ordering::SeqCst);
    wait_until("it leads again", || one.knows(id));
}

#[test]
fn a_log_that_cannot_be_opened_at_first_is_said_at_once() {
    let node = Node::start(NodeOptions {
        tls: NodeTls::default(),
        shard: None,
        name: "a".to_owned(),
        advertise: None,
        version: "test".to_owned(),
        clock: Arc::new(SystemClock::new()),
        open: Box::new(|| Err("wrong password".into())),
    })
    .unwrap();
    match node.follow(&Options::default()) {
        Err(FollowError::Open(error)) => assert_eq!(error.to_string(), "wrong password"),
        _ => panic!("it cannot follow"),
    }
}

#[test]
fn a_name_is_checked() {
    for name in ["", "a b", "ä", &"n".repeat(65)] {
        let started = Node::start(NodeOptions {
            tls: NodeTls::default(),
            shard: None,
            name: name.to_owned(),
            advertise: None,
            version: "test".to_owned(),
            clock: Arc::new(SystemClock::new()),
            open: Box::new(|| Err("not asked".into())),
        });
        assert!(started.is_err(), "{name:?}");
    }
    assert!(PATIENCE.as_secs() > 5, "campaigns take seconds");
}
