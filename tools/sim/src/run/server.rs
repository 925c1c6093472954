//! One server: disk, log, engine and clock, and what is needed to begin again after a crash.

use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use spindle_core::seat::Seat;
use spindle_core::{JobId, State};
use spindle_engine::{
    Caller, Clock, ConnectionId, Delivery, Engine, Mailbox, Options, StartError, Survey, fold_state,
};
use spindle_log::verify::{Dropped, VerifyReport, verify_planted};
use spindle_log::{FileLog, FileLogOptions, Log, OpenError, Position, Stored, SyncPolicy};
use spindle_testkit::ManualClock;
use spindle_testkit::disk::SimDisk;

use super::Judged;
use super::network::{Network, OpenLog};
use crate::defaults::defaults;
use crate::faults::Planted;
use crate::model::Model;

/// Small, so that a seed fills many and trims some.
const SEGMENT_BYTES: u64 = 64 * 1024;
/// An event may need 16 KiB of this, so payloads of more than 4 KiB take several records.
pub const RECORD_BYTES_MAX: u32 = 20 * 1024;
/// Payloads and results are read back from the log soon.
const PAYLOAD_MEMORY_BYTES: usize = 16 * 1024;
const FIRST_MS: u64 = 1_700_000_000_000;

/// Keeps deferred answers until the run looks at them.
#[derive(Default)]
pub struct Letters(Mutex<Vec<Delivery>>);

impl Mailbox for Letters {
    fn deliver(&self, delivery: Delivery) {
        self.0.lock().push(delivery);
    }

    fn durable_moved(&self) {}
}

/// A running server and its disk.
pub struct Server {
    pub disk: SimDisk,
    /// The log is not on that disk, but there.
    network: Option<Network>,
    pub clock: Arc<ManualClock>,
    planted: Planted,
    options: Options,
    running: Option<Running>,
    /// The disk has no room for more than it holds.
    limited: bool,
}

/// Timed work that waits for room on a full disk.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Leases, schedules and TTLs that are due.
    pub due: bool,
    /// Finished jobs that are too many.
    pub surplus: bool,
}

impl Held {
    pub fn any(self) -> bool {
        self.due || self.surplus
    }
}

struct Running {
    log: OpenLog,
    engine: Engine,
    letters: Arc<Letters>,
}

impl Server {
    /// The first start, on an empty disk, or with several records on their way to an empty log.
    pub fn begin(seed: u64, planted: Planted, is_in_flight: bool, seat: Seat) -> Judged<Server> {
        let options = Options {
            payload_memory_bytes: PAYLOAD_MEMORY_BYTES,
            seed,
            faults: planted.engine,
            // Every second server's leases outlive a crash, all of them.
            durable_leases: seed.is_multiple_of(2),
            defaults: defaults(),
            seat,
            ..Options::default()
        };
        let disk = SimDisk::new(seed);
        if planted.folder_not_synced {
            disk.skip_folder_syncs();
        }
        let mut server = Server {
            disk,
            network: is_in_flight.then(|| Network::new(seed, planted)),
            clock: Arc::new(ManualClock::new(FIRST_MS)),
            planted,
            options,
            running: None,
            limited: false,
        };
        let log = server.open_log().map_err(|error| format!("no log on an empty disk: {error}"))?;
        server.start(log).map_err(|error| format!("the engine does not start: {error}"))?;
        Ok(server)
    }

    pub fn open_log(&mut self) -> Result<OpenLog, OpenError> {
        if let Some(network) = &mut self.network {
            return Ok(OpenLog::Flight(network.open()));
        }
        self.open_log_on(&self.disk).map(|log| OpenLog::File(Arc::new(log)))
    }

    /// Whether several records are on their way to the log.
    pub fn is_in_flight(&self) -> bool {
        self.network.is_some()
    }

    /// The power goes within so many changes of the disk, or records that reach the other end.
    pub fn cut_power_after(&self, count: u64) {
        match &self.network {
            Some(network) => network.store().cut_power_after(count),
            None => self.disk.cut_power_after(count),
        }
    }

    pub fn is_powered(&self) -> bool {
        self.network
            .as_ref()
            .map_or_else(|| self.disk.is_powered(), |network| network.store().is_powered())
    }

    /// How many records of a server that is gone were on their way, and how many of them arrived.
    pub fn crash_writer(&self) -> (usize, u64) {
        self.network.as_ref().map_or((0, 0), Network::crash)
    }

    /// Opens the log of another disk as this server would.
    pub fn open_log_on(&self, disk: &SimDisk) -> Result<FileLog, OpenError> {
        let options = FileLogOptions {
            sync: SyncPolicy::Always,
            segment_bytes: SEGMENT_BYTES,
            record_bytes_max: RECORD_BYTES_MAX,
            background: false,
            parts_of: spindle_engine::record::checked_parts,
            faults: self.planted.log,
        };
        FileLog::open(Arc::new(disk.clone()), options)
    }

    /// `spindle verify --repair` on another disk. Gets the records that stay, and what it drops.
    pub fn repair_on(
        &self,
        disk: &SimDisk,
        each: &mut dyn FnMut(Stored),
        dropped: &mut dyn FnMut(Dropped),
    ) -> VerifyReport {
        let parts_of = spindle_engine::record::checked_parts;
        verify_planted(disk, true, parts_of, self.planted.log, each, dropped)
    }

    /// Whether a server starts on the log of another disk.
    pub fn starts_on(&self, log: FileLog) -> Judged {
        let clock = Arc::new(ManualClock::new(self.now_ms()));
        Engine::open(Arc::new(log), clock, self.options.clone())
            .map(drop)
            .map_err(|error| format!("no engine starts: {error}"))
    }

    /// The jobs that a record is about.
    pub fn jobs_of(&self, position: u64, bytes: &Bytes) -> Judged<Vec<JobId>> {
        let (position, bytes) = (Position(position), bytes.clone());
        let stored = Stored { position, epoch: 0, bytes, damaged: false };
        let summaries = Survey::new(&self.options).summaries(stored);
        let summaries = summaries.map_err(|error| format!("record {position}: {error}"))?;
        Ok(summaries.into_iter().flat_map(|event| event.jobs).collect())
    }

    /// Starts an engine on an opened log.
    pub fn start(&mut self, log: OpenLog) -> Result<(), StartError> {
        let engine = Engine::open(log.shared(), self.clock.clone(), self.options.clone())?;
        self.running = Some(Running { log, engine, letters: Arc::default() });
        Ok(())
    }

    /// The process is gone; the disk stays as the caller left it.
    pub fn stop(&mut self) {
        self.running = None;
    }

    fn running(&self) -> &Running {
        self.running.as_ref().expect("between crashes there is a server")
    }

    pub fn engine(&self) -> &Engine {
        &self.running().engine
    }

    pub fn now_ms(&self) -> u64 {
        self.clock.now_ms()
    }

    pub fn durable(&self) -> u64 {
        self.engine().durable().0
    }

    /// All that was decided so far stands below this.
    pub fn tail(&self) -> u64 {
        self.engine().tail().0
    }

    /// The log has failed, or there is no power.
    pub fn is_dead(&self) -> bool {
        let Some(running) = &self.running else { return false };
        running.engine.failure().is_some() || !self.is_powered()
    }

    /// Whether the log has not failed. An orderly stop writes the log's end last, so an engine that
    /// has stopped does not notice if the disk refused that write.
    pub fn is_log_sound(&self) -> bool {
        self.running().log.as_log().check().is_ok()
    }

    pub fn caller(&self, connection: u64) -> Caller {
        let mailbox = self.running().letters.clone();
        Caller { connection: ConnectionId(connection), mailbox }
    }

    pub fn take_letters(&self) -> Vec<Delivery> {
        std::mem::take(&mut *self.running().letters.0.lock())
    }

    /// There is no room on the disk for more than it holds now.
    pub fn limit_disk(&mut self) {
        self.disk.set_capacity(Some(self.disk.used()));
        self.limited = true;
    }

    /// There is room again.
    pub fn free_disk(&mut self) {
        self.disk.set_capacity(None);
        self.limited = false;
        if self.running.is_some() {
            self.maintain();
        }
    }

    /// Whether the disk has no room for more than it held at some time.
    pub fn is_limited(&self) -> bool {
        self.limited
    }

    /// Whether the log says that it has only its reserve left, for whatever reason.
    pub fn is_full(&self) -> bool {
        self.running().log.as_log().space().is_reserve()
    }

    /// Whether what is due waits for room: on a full disk, and while the log cannot grow.
    pub fn holds_timers(&self) -> bool {
        self.engine().observe().gauges().are_timers_held
    }

    /// The parts of a tick that wait for room: the first step may have found some, and the next one
    /// none.
    pub fn held(&self) -> Held {
        let holds = self.holds_timers();
        let now_ms = self.now_ms();
        self.engine().inspect(|state| Held {
            due: holds && state.due_hint_ms() <= now_ms,
            surplus: holds && state.has_surplus(),
        })
    }

    /// What the log has room for without another segment.
    pub fn room_bytes(&self) -> u64 {
        self.running().log.as_log().room_bytes()
    }

    pub fn maintain(&self) {
        if let Some(log) = self.running().log.as_file() {
            log.maintain();
        }
    }

    /// The fold of the log as it is.
    pub fn fold(&self) -> Judged<State> {
        self.fold_of(self.running().log.as_log())
    }

    pub fn fold_of(&self, log: &dyn Log) -> Judged<State> {
        fold_state(log, &self.options).map_err(|error| format!("the log does not fold: {error}"))
    }

    pub fn empty_model(&self) -> Model {
        Model::new(self.options.defaults.clone())
    }

    /// Whether a lease is answered only when its own record is durable.
    pub fn has_durable_leases(&self) -> bool {
        self.options.durable_leases
    }

    pub fn grace_ms(&self) -> u64 {
        self.options.grace_ms
    }
}
