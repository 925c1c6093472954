//! A node: its name, what it does now, and what it tells the others.

use std::error::Error;
use std::fmt;
use std::io;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use spindle_core::places::Places;
use spindle_engine::{Clock, Engine, PlacesBoard};
use spindle_log::SharedLog;
use tokio::sync::watch;

use crate::announcement::{Announcement, FORMAT, Role, is_name};
use crate::channel::{Channel, NodeTls};
use crate::courtesy::Courtesy;
use crate::election::Election;
use crate::follow::FollowError;
use crate::peers::Peers;

/// How often a node announces itself.
const ANNOUNCED_EVERY: Duration = Duration::from_millis(200);
/// How often it is logged that another process has this node's name.
const SAID_EVERY: Duration = Duration::from_secs(60);
/// A process that finds its name taken within this time from when it first hears others gives way.
const NEW_FOR: Duration = Duration::from_secs(3);
/// So many announcements show that the other process with the name is alive: one or two may still come from a
/// process that has just been killed.
const NAMESAKE_HEARD_MIN: u32 = 3;

/// A node that has listened for so long has heard all others that run.
const LISTENED: Duration = Duration::from_secs(60);

/// A node that is at most so many records behind counts as up to date.
const LAG_MAX: u64 = 1000;

/// Opens the shared log: once for each time that this node follows it.
pub type OpenLog =
    Box<dyn Fn() -> Result<Arc<dyn SharedLog>, Box<dyn Error + Send + Sync>> + Send + Sync>;

/// Called when this node is to end its leadership.
type OnStepDown = Box<dyn Fn() + Send + Sync>;

/// How a node is set up.
pub struct NodeOptions {
    /// Its name, which no other node of the cluster has.
    pub name: String,
    /// Where other nodes reach it, `host:port`; without it, it never hears of clients that came
    /// to others.
    pub advertise: Option<String>,
    /// The program's version, for people.
    pub version: String,
    /// The engine's clock.
    pub clock: Arc<dyn Clock>,
    /// Opens the log.
    pub open: OpenLog,
    /// Which one of several logs this is; none where there is one log.
    pub shard: Option<ShardSeat>,
    /// How nodes speak to each other.
    pub tls: NodeTls,
}

/// A node's seat at one of several logs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ShardSeat {
    /// The log's number.
    pub shard: u8,
    /// Where this process reaches its own cluster address: while it leads, it hands clients to itself, too.
    pub own_address: String,
}

/// One node of a cluster. Clones are the same node.
#[derive(Clone)]
pub struct Node {
    pub(crate) shared: Arc<Shared>,
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").field("name", &self.shared.options.name).finish_non_exhaustive()
    }
}

pub(crate) struct Shared {
    pub options: NodeOptions,
    /// This process, among all that had the name.
    pub run: String,
    pub state: Mutex<State>,
    /// Something is to be announced, or the node stops.
    changed: Condvar,
    /// What the log says of moved queues, while this node follows it.
    board: PlacesBoard,
    /// The leader to which clients are handed on; none while nobody leads, or this node does.
    leader: watch::Sender<Option<Leader>>,
}

pub(crate) struct State {
    pub role: Role,
    pub epoch: u64,
    /// The position behind the last record that was folded.
    pub position: u64,
    pub peers: Peers,
    /// None until the log was read to its end.
    pub election: Option<Election>,
    /// The log was open once: if it cannot be opened later, it is only out of reach.
    pub was_open: bool,
    /// The log as it is open now.
    pub log: Option<Arc<dyn SharedLog>>,
    /// While this node leads.
    pub engine: Option<Engine>,
    /// The key that followers present to be let in.
    pub pass_key: Option<String>,
    /// This node has stepped down, and nobody has led since.
    pub is_reluctant: bool,
    /// The newest version of records that this node reads.
    pub reads: u8,
    /// A server has begun on the log.
    has_begun: bool,
    pub stops: bool,
    number: u64,
    announce_now: bool,
    on_step_down: Option<Arc<OnStepDown>>,
    courtesy: Courtesy,
    /// When this process began to hear others.
    hears_since: Option<Duration>,
    namesake: Namesake,
}

/// Another process with this node's name.
#[derive(Default)]
pub(crate) struct Namesake {
    heard: u32,
    said_at: Option<Duration>,
    /// It was in the cluster first.
    pub is_first: bool,
}

/// The node that was heard to lead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Leader {
    pub node: String,
    pub run: String,
    pub epoch: u64,
    /// None while its doors are closed: before they are open, and while it steps down.
    pub gate: Option<Gate>,
}

/// Where a leader takes clients that came to others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Gate {
    pub address: String,
    pub channel: Channel,
    pub pass_key: String,
}

/// Why a node cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Not a name.
    #[error("{0:?} is no name of a node: letters, digits, '-', '_' and '.', at most 64 of them")]
    Name(String),
    /// No thread for its announcements.
    #[error("cannot start a thread: {0}")]
    Thread(#[from] io::Error),
}

impl Node {
    /// A node that does nothing yet but listen to others, once it follows.
    ///
    /// # Errors
    ///
    /// When the name is none, or no thread can be started.
    pub fn start(options: NodeOptions) -> Result<Node, NodeError> {
        if !is_name(&options.name) {
            return Err(NodeError::Name(options.name));
        }
        let state = State {
            role: Role::Follower,
            epoch: 0,
            position: 0,
            peers: Peers::default(),
            election: None,
            log: None,
            engine: None,
            pass_key: None,
            is_reluctant: false,
            reads: spindle_engine::record::VERSION,
            was_open: false,
            has_begun: false,
            stops: false,
            number: 0,
            announce_now: false,
            on_step_down: None,
            courtesy: Courtesy::default(),
            hears_since: None,
            namesake: Namesake::default(),
        };
        let shared = Arc::new(Shared {
            options,
            run: random_hex(),
            state: Mutex::new(state),
            changed: Condvar::new(),
            board: PlacesBoard::default(),
            leader: watch::Sender::new(None),
        });
        let weak = Arc::downgrade(&shared);
        let thread = thread::Builder::new().name("spindle-announce".to_owned());
        thread.spawn(move || announce(&weak))?;
        Ok(Node { shared })
    }

    /// The node's name.
    pub fn name(&self) -> &str {
        &self.shared.options.name
    }

    /// How it speaks to other nodes.
    pub(crate) fn tls(&self) -> &NodeTls {
        &self.shared.options.tls
    }

    /// Which of several logs it follows and leads; none where there is one.
    pub(crate) fn shard(&self) -> Option<u8> {
        self.shared.options.shard.as_ref().map(|seat| seat.shard)
    }

    /// Behind the last record that it has read, or that is durable where it leads.
    pub fn position(&self) -> u64 {
        let state = self.state();
        state.engine.as_ref().map_or(state.position, |engine| engine.durable().0)
    }

    /// What the log says of moved queues, for people: it may be a moment ahead of the log, or behind.
    pub fn places(&self) -> Places {
        match self.engine() {
            Some(engine) => engine.moves().places().without_waiting("it is for people"),
            None => self.shared.board.places(),
        }
    }

    /// The engine, while this node leads.
    pub(crate) fn engine(&self) -> Option<Engine> {
        self.state().engine.clone()
    }

    pub(crate) fn board(&self) -> &PlacesBoard {
        &self.shared.board
    }

    /// What it does now.
    pub fn role(&self) -> Role {
        self.state().role
    }

    /// Stops following and announcing. A leadership must have been ended before.
    pub fn stop(&self) {
        self.state().stops = true;
        self.shared.changed.notify_all();
    }

    /// Sets the function that is called when this node is asked to step down.
    pub fn on_step_down(&self, call: impl Fn() + Send + Sync + 'static) {
        self.state().on_step_down = Some(Arc::new(Box::new(call)));
    }

    /// Asks this node to end its leadership in order. False if it does not lead.
    pub fn ask_to_step_down(&self) -> bool {
        let state = self.state();
        let (leads, call) = (state.role == Role::Leader, state.on_step_down.clone());
        drop(state);
        let call = call.filter(|_| leads);
        call.iter().for_each(|call| call());
        call.is_some()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.shared.state.lock()
    }

    pub(crate) fn now(&self) -> Duration {
        self.shared.options.clock.since_boot()
    }

    /// Where clients are handed on to, from now on.
    pub(crate) fn leader(&self) -> watch::Receiver<Option<Leader>> {
        self.shared.leader.subscribe()
    }

    /// The log is open: what others announce is heard.
    pub(crate) fn attach(&self, log: &Arc<dyn SharedLog>) {
        let weak = Arc::downgrade(&self.shared);
        log.on_announcement(Box::new(move |bytes| {
            if let Some(shared) = weak.upgrade() {
                shared.hear(bytes);
            }
        }));
        {
            let now = self.now();
            let mut state = self.state();
            state.log = Some(Arc::clone(log));
            state.hears_since.get_or_insert(now);
        }
        self.announce_soon();
    }

    /// The log is let go of.
    pub(crate) fn detach(&self) {
        let log = self.state().log.take();
        drop(log);
    }

    /// Whether this node is to follow on.
    ///
    /// # Errors
    ///
    /// Why not.
    pub(crate) fn check(&self) -> Result<(), FollowError> {
        let state = self.state();
        if state.stops {
            return Err(FollowError::Stopped);
        }
        if state.namesake.is_first {
            return Err(FollowError::NameTaken(self.name().to_owned()));
        }
        Ok(())
    }

    /// Notes that a server has begun on the log, and that it is the one that this node is to follow.
    pub(crate) fn note_begun(&self) {
        if !std::mem::replace(&mut self.state().has_begun, true) {
            self.shared.changed.notify_all();
        }
    }

    /// Waits until a server has begun on the log, this node or another one, and it is known to be the log
    /// that this node is to follow. False when the node stops before.
    pub fn wait_until_begun(&self) -> bool {
        let mut state = self.state();
        while !state.has_begun && !state.stops {
            self.shared.changed.wait(&mut state);
        }
        state.has_begun
    }

    /// Waits, unless the node stops. Returns whether it goes on.
    pub(crate) fn pause(&self, time: Duration) -> bool {
        let until = std::time::Instant::now() + time;
        let mut state = self.state();
        while !state.stops {
            if self.shared.changed.wait_until(&mut state, until).timed_out() {
                break;
            }
        }
        !state.stops
    }

    pub(crate) fn turn_into(&self, role: Role) {
        self.state().role = role;
        self.announce_soon();
    }

    fn announce_soon(&self) {
        self.state().announce_now = true;
        self.shared.changed.notify_all();
        self.shared.find_leader();
    }

    /// The leader's doors are open: followers may hand clients on.
    pub(crate) fn let_in(&self) {
        self.state().pass_key = Some(random_hex());
        self.announce_soon();
    }

    pub(crate) fn let_nobody_in(&self) {
        self.state().pass_key = None;
        self.announce_soon();
    }

    /// This node leads.
    pub(crate) fn lead(&self, engine: Engine, epoch: u64) -> Leadership {
        {
            let mut state = self.state();
            state.epoch = epoch;
            state.engine = Some(engine.clone());
            state.is_reluctant = false;
        }
        self.note_begun();
        self.turn_into(Role::Leader);
        Leadership { node: self.clone(), engine, epoch }
    }
}

/// This node leads for as long as this lives, or until its engine has failed.
#[must_use = "dropped, it ends the leadership"]
pub struct Leadership {
    node: Node,
    engine: Engine,
    epoch: u64,
}

impl Leadership {
    /// The running queue. Its threads are not started.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The epoch that this node has begun.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The doors are closed in order from now on. The other nodes still hear a leader.
    pub fn begin_step_down(&self) {
        self.node.turn_into(Role::SteppingDown);
    }

    /// The engine is stopped: it has committed all that it will. Any other node may lead at once; this one
    /// does not for a while.
    pub fn stepped_down(self) {
        {
            let mut state = self.node.state();
            state.is_reluctant = true;
            state.role = Role::SteppedDown;
        }
        // Announced here and now, because the process may end right after this.
        self.node.shared.announce();
    }
}

impl Drop for Leadership {
    fn drop(&mut self) {
        // Remaining clones of the engine answer nothing and write nothing.
        self.engine.abandon();
        let engine = {
            let mut state = self.node.state();
            (state.pass_key, state.role, state.election) = (None, Role::Follower, None);
            state.engine.take()
        };
        drop(engine);
        self.node.detach();
        self.node.shared.find_leader();
    }
}

impl Shared {
    /// Takes what another process has announced.
    fn hear(&self, bytes: &[u8]) {
        let Some(announcement) = Announcement::read(bytes) else { return };
        let now = self.options.clock.since_boot();
        let mut state = self.state.lock();
        if announcement.node == self.options.name && announcement.run == self.run {
            return;
        }
        let (role, epoch) = (announcement.role, announcement.epoch);
        if let Some(election) = &mut state.election {
            match role {
                Role::Leader | Role::SteppingDown => election.leader(now, epoch),
                Role::SteppedDown => election.stepped_down(now, epoch),
                Role::Follower | Role::Campaigning => {}
            }
        }
        if announcement.node == self.options.name {
            self.hear_namesake(&mut state, now, &announcement);
            return;
        }
        state.peers.hear(now, announcement);
        drop(state);
        self.find_leader();
    }

    /// Two processes have one name: the later one gives way, if it finds out soon; else both go on.
    fn hear_namesake(&self, state: &mut State, now: Duration, its: &Announcement) {
        let is_new = state.hears_since.is_some_and(|since| now.saturating_sub(since) < NEW_FOR);
        let namesake = &mut state.namesake;
        namesake.heard = namesake.heard.saturating_add(1);
        let is_older = (its.number, &its.run) > (state.number, &self.run);
        namesake.is_first |= is_new && is_older && namesake.heard >= NAMESAKE_HEARD_MIN;
        if namesake.said_at.is_none_or(|at| now.saturating_sub(at) > SAID_EVERY) {
            namesake.said_at = Some(now);
            tracing::error!(
                "another server of this cluster is named {:?}, too: give each its own name (--node)",
                its.node
            );
        }
    }

    /// Finds the leader, for clients that are to be handed on.
    fn find_leader(&self) {
        let now = self.options.clock.since_boot();
        let state = self.state.lock();
        let leader = match &state.engine {
            Some(_) => self.itself_as_leader(&state),
            None => state.peers.leader(state.epoch, now).map(|heard| {
                let Announcement { node, run, epoch, advertise, pass_key, encrypts, .. } =
                    &heard.announcement;
                let channel = if *encrypts { Channel::Encrypted } else { Channel::Plain };
                let gate = advertise.clone().zip(pass_key.clone());
                let gate = gate.map(|(address, pass_key)| Gate { address, channel, pass_key });
                Leader { node: node.clone(), run: run.clone(), epoch: *epoch, gate }
            }),
        };
        // Under the lock, so that this result does not replace that of a newer look.
        self.leader.send_if_modified(|known| {
            let is_new = *known != leader;
            *known = leader;
            is_new
        });
    }

    /// This node as the leader, if it hands clients to itself.
    fn itself_as_leader(&self, state: &State) -> Option<Leader> {
        let seat = self.options.shard.as_ref()?;
        let gate = state.pass_key.clone();
        let (address, channel) = (seat.own_address.clone(), Channel::Inside);
        let gate = gate.map(|pass_key| Gate { address, channel, pass_key });
        let (node, run) = (self.options.name.clone(), self.run.clone());
        Some(Leader { node, run, epoch: state.epoch, gate })
    }

    /// Announces once what this node does.
    fn announce(&self) {
        let mut state = self.state.lock();
        state.announce_now = false;
        state.number += 1;
        let Some(log) = state.log.clone() else { return };
        let position = state.engine.as_ref().map_or(state.position, |engine| engine.durable().0);
        let announcement = Announcement {
            format: FORMAT,
            node: self.options.name.clone(),
            run: self.run.clone(),
            number: state.number,
            role: state.role,
            epoch: state.epoch,
            position,
            advertise: self.options.advertise.clone(),
            pass_key: state.pass_key.clone(),
            encrypts: self.options.tls.channel() == Channel::Encrypted,
            reads: state.reads,
            version: self.options.version.clone(),
        };
        drop(state);
        match announcement.write() {
            Some(bytes) => log.announce(&bytes),
            None => tracing::error!("this node's announcement is too long to be sent"),
        }
    }

    /// Brings a newer version of records into force, if this node leads and all others can read it.
    fn raise_format(&self) {
        let now = self.options.clock.since_boot();
        let state = self.state.lock();
        let Some(engine) = state.engine.clone().filter(|_| state.role == Role::Leader) else {
            return;
        };
        let has_listened =
            state.hears_since.is_some_and(|since| now.saturating_sub(since) >= LISTENED);
        let all_read = state.peers.all_read(now).map_or(state.reads, |read| read.min(state.reads));
        drop(state);
        if has_listened && all_read > engine.format() {
            engine.raise_format(all_read);
        }
    }

    /// Makes way for the node that stands first at this shard, once that node has proved to be well: the leaders
    /// of shards are to be spread over the nodes, whatever the order in which these were started.
    fn make_way(&self) {
        let Some(seat) = &self.options.shard else { return };
        let now = self.options.clock.since_boot();
        let mut state = self.state.lock();
        let leads = state.role == Role::Leader && state.pass_key.is_some();
        let Some(settled_by) = state.courtesy.settled_by(now, leads) else { return };
        let Some(position) = state.engine.as_ref().map(|it| it.durable().0) else { return };
        let read = position.saturating_sub(LAG_MAX);
        let name = &self.options.name;
        let better = state.peers.better_leader(name, seat.shard, now, (settled_by, read));
        let Some(better) = better else { return };
        tracing::info!(shard = seat.shard, "{better} is to lead this shard: stepping down");
        state.courtesy.makes_way(now);
        let call = state.on_step_down.clone();
        drop(state);
        call.iter().for_each(|call| call());
    }

    /// If another node announces a newer epoch than the one this node leads, an append shows who leads.
    fn doubt_lead(&self) {
        let now = self.options.clock.since_boot();
        let state = self.state.lock();
        let is_doubted = state.peers.leader(state.epoch + 1, now).is_some();
        let engine = state.engine.clone().filter(|_| is_doubted);
        drop(state);
        engine.iter().for_each(Engine::prove_lead);
    }
}

/// The body of the thread that announces, for as long as the node lives.
fn announce(node: &Weak<Shared>) {
    while let Some(shared) = node.upgrade() {
        shared.announce();
        shared.find_leader();
        shared.doubt_lead();
        shared.raise_format();
        shared.make_way();
        let mut state = shared.state.lock();
        if state.stops {
            return;
        }
        if !state.announce_now {
            shared.changed.wait_for(&mut state, ANNOUNCED_EVERY);
        }
    }
}

/// 256 random bits.
fn random_hex() -> String {
    rand::random::<[u8; 32]>().iter().map(|byte| format!("{byte:02x}")).collect()
}
