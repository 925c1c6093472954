//! `spindle serve`: opens the log, starts the engine, opens the doors, and ends all in order.

use std::{
    io::{self, ErrorKind},
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Weak,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, anyhow};
use nix::unistd::gethostname;
use spindle_budget::{Budgets, Trimmer};
use spindle_cluster::{Arriving, Node};
use spindle_core::Defaults;
use spindle_core::job::Origin;
use spindle_engine::spans::SpanSink;
use spindle_engine::{Door, Each, Engine, Failure, Options, StartError, SystemClock, record};
use spindle_gearman::GearmanDoor;
use spindle_history::{History, Recorder};
use spindle_limits::Places;
use spindle_log::{FileLog, FileLogOptions, Log, LogError, MemoryLog};
use spindle_net::{BindError, Limits, NetConfig, Server, ServerHandle};
use spindle_notify::NotifyState;
use spindle_otlp::Exporter;
use spindle_workq::WorkqDoor;
use tracing_subscriber::filter::LevelFilter;

use crate::{
    access::Entrance,
    budgets::budgets,
    config::{Config, LogFormat, Resolved},
    descriptors,
    exit::{self, Code},
    http::{Http, OtherDoors, Pages},
    jobd_master::{self, JobdMaster},
    listeners::Listeners,
    logging, node,
    policies::policies,
    quantity::Written,
    signals::{self, Ending},
    starts, time_slice,
    tls::Tls,
    traces, webhooks,
};

/// What can end a server.
#[derive(Debug)]
enum Event {
    /// A signal asks the server to end.
    Signal(Ending),
    /// A signal asks for files to be read anew.
    Reload,
    /// The log takes nothing more: memory is ahead of it.
    LogFailed(String),
    /// All connections are closed.
    Closed,
}

/// The doors of sessions that are on, and where they listen.
type SessionDoors = Vec<(Arc<dyn Door>, SocketAddr)>;

/// The engine's settings.
pub fn engine_options(config: &Config, spans: Option<Arc<dyn SpanSink>>) -> Options {
    let defaults = Options::default();
    // On a full disk a step of compaction has only what is left of one segment.
    let compaction_bytes = usize::try_from(config.segment_bytes / 8).unwrap_or(usize::MAX);
    Options {
        defaults: Defaults {
            policies: policies(config.gearman_attempts_max),
            unfinished_max: config.unfinished_max,
            queue_unfinished_max: config.queue_unfinished_max,
            finished_max: config.finished_max,
            finished_bytes_max: config.finished_bytes_max,
            values_max: config.constraint_values_max,
            audit_entries_max: config.audit_entries_max,
            audit_ms: config.audit_days as u64 * 24 * 3_600_000,
            ..defaults.defaults
        },
        copied: Some(Origin::Jobq),
        spans,
        away_max_ms: u64::try_from(config.away_max.as_millis()).unwrap_or(u64::MAX),
        durable_leases: config.durable_leases,
        log_bytes_max: config.log_bytes_max,
        compaction_bytes: compaction_bytes.min(defaults.compaction_bytes),
        // Events decided when the disk runs full have to fit into the half of a segment that is left.
        undurable_bytes_max: (2 * compaction_bytes).min(defaults.undurable_bytes_max),
        payload_memory_bytes: usize::try_from(config.payload_memory_bytes).unwrap_or(usize::MAX),
        seed: uuid::Uuid::new_v4().as_u64_pair().0,
        ..defaults
    }
}

/// Starts the engine on its log, which it keeps.
fn start_engine(
    config: &Config,
    spans: Option<Arc<dyn SpanSink>>,
    events: Sender<Event>,
) -> anyhow::Result<(Engine, Weak<dyn Log>)> {
    let options = engine_options(config, spans);
    let clock = Arc::new(SystemClock::new());
    let mut opened: Weak<dyn Log> = Weak::<MemoryLog>::new();
    let engine = Engine::open_with(clock, options, |each| {
        let log = open_log(config, each)?;
        opened = Arc::downgrade(&log);
        Ok(log)
    });
    let engine = match engine {
        Err(StartError::Open(error)) => return Err(error.into()),
        other => other.context("cannot start on this data folder")?,
    };
    let spawned = engine.spawn(move |failure| {
        // Nobody listens when the server is ending anyway.
        let _ = events.send(Event::LogFailed(log_failure(&failure)));
    });
    spawned.context("cannot start threads")?;
    Ok((engine, opened))
}

/// The doors of sessions that are on.
fn session_doors(config: &Config, entrance: &Entrance, engine: &Engine) -> SessionDoors {
    let mut doors = SessionDoors::new();
    if let Some(addr) = config.workq {
        let door = WorkqDoor::new(engine.clone(), spindle_workq::wire::Limits::default());
        doors.push((Arc::new(door.with_access(entrance.door(config, addr))), addr));
    }
    if let Some(addr) = config.gearman {
        let options = spindle_gearman::Options {
            access: entrance.door(config, addr),
            host: host_name(),
            verbose: gearman_level(config.log_level.0),
            exceptions: config.gearman_exceptions,
            ..spindle_gearman::Options::default()
        };
        doors.push((Arc::new(GearmanDoor::new(engine.clone(), options)), addr));
    }
    doors
}

/// What a client of the doors of sessions may not exceed.
pub fn line_limits(config: &Config) -> Limits {
    let (idle_timeout, login_timeout) = (config.idle_timeout, config.login_timeout);
    Limits { idle_timeout, first_bytes_timeout: idle_timeout, login_timeout, ..Limits::default() }
}

/// What stands in the handles of Gearman jobs.
pub fn host_name() -> String {
    gethostname().ok().and_then(|name| name.into_string().ok()).unwrap_or("localhost".to_owned())
}

/// The log's level in Gearman's words.
fn gearman_level(level: LevelFilter) -> &'static str {
    match level {
        LevelFilter::OFF => "FATAL",
        LevelFilter::ERROR => "ERROR",
        LevelFilter::WARN => "WARNING",
        LevelFilter::INFO => "INFO",
        _ => "DEBUG",
    }
}

/// Serves until a signal or a failure ends it.
pub fn serve(resolved: &Resolved) -> anyhow::Result<Code> {
    logging::start(&resolved.config);
    match (run(resolved), resolved.config.log_format) {
        // A program that reads log lines as JSON should get this error as one too.
        (Err(error), LogFormat::Json) => {
            tracing::error!("{}", exit::whole(&error));
            Ok(exit::code_of(&error))
        }
        (ended, _) => ended,
    }
}

fn run(resolved: &Resolved) -> anyhow::Result<Code> {
    let config = &resolved.config;
    // Before other threads start, because they inherit this.
    time_slice::shorten();
    if config.log.is_some() {
        return node::run(resolved);
    }
    for name in &resolved.unknown_environment {
        tracing::warn!("{name} in the environment is no setting; `spindle config` lists all");
    }
    let (events, inbox) = channel();
    watch_signals(&events).context("cannot watch for signals")?;
    descriptors::raise_limit();
    let tls = Tls::load(config)?;
    let entrance = Entrance::open(config)?;
    let hooks = webhooks::prepare(config)?;
    let exporter = traces::start(config, host_name())?;
    let spans = exporter.as_ref().map(Exporter::sink);
    let (engine, log) = start_engine(config, spans, events.clone())?;
    let hooks = hooks.map(|prepared| webhooks::start(&engine, config, prepared, host_name()));
    let hooks = hooks.transpose()?;
    let folder = (!config.memory).then(|| config.data.clone());
    let recorder = Recorder::start(&engine, folder).context("cannot start threads")?;
    starts::tokens(config);
    starts::webhooks(config);
    let budgets = budgets(config);
    let trimmer = Trimmer::start(&budgets).context("cannot start threads")?;
    let places = descriptors::places(config, log).when_many_left(trimmer.bell());
    let street = Street {
        resolved,
        tls: &tls,
        entrance: &entrance,
        budgets: &budgets,
        places: &places,
        listeners: &Listeners::default(),
        node: None,
        seats: &[],
        pages: None,
    };
    let server = street.open(&engine, recorder.history())?;
    starts::doors(config, &server.local_addrs());
    tracing::info!("{}", greeting(resolved, &server.local_addrs()));
    notify(&[NotifyState::Ready]);
    let outcome = wait_for_end(&server, config, &engine, (&tls, &entrance), inbox, &events);
    drop(server);
    drop(hooks);
    drop(recorder);
    outcome?;
    engine.stop();
    drop(exporter);
    tracing::info!("stopped");
    Ok(Code::Ok)
}

fn watch_signals(events: &Sender<Event>) -> io::Result<()> {
    // Nobody listens when the server is ending anyway.
    let (ends, reloads) = (events.clone(), events.clone());
    let first = move |ending| drop(ends.send(Event::Signal(ending)));
    signals::on_hangup(move || drop(reloads.send(Event::Reload)))?;
    signals::watch(first, |ending| {
        tracing::warn!("second {}: ending at once; nothing acknowledged is lost", ending.name);
    })
}

fn open_log(config: &Config, each: Each<'_>) -> Result<Arc<dyn Log>, StartError> {
    if config.memory {
        return Ok(Arc::new(MemoryLog::new()));
    }
    let options = FileLogOptions {
        sync: config.sync,
        segment_bytes: config.segment_bytes,
        parts_of: record::checked_parts,
        ..FileLogOptions::default()
    };
    tracing::info!(folder = %config.data.display(), "opening the log");
    Ok(Arc::new(FileLog::open_dir_with(&config.data, options, each)?))
}

/// All doors at work: those of lines and packets, HTTP, and the jobd master.
pub struct Doors {
    lines: ServerHandle,
    http: Option<Http>,
    jobd_master: Option<JobdMaster>,
}

impl Doors {
    /// Serves a connection that was accepted elsewhere, as if that door had.
    pub fn adopt(&self, door: &str, stream: TcpStream, client: Arriving) {
        match door {
            "http" => {
                // The HTTP door itself counts connections that it has no place for.
                let _ = self.http.as_ref().is_some_and(|http| http.adopt(stream, client));
            }
            jobd_master::DOOR => {
                if let Some(master) = &self.jobd_master {
                    master.adopt(stream, client.address());
                }
            }
            _ => {
                let address = client.address();
                let adopted = match client {
                    Arriving::At(address) => self.lines.adopt(door, stream, address),
                    Arriving::Known(peer) => self.lines.adopt_known(door, stream, peer),
                };
                if let Err(error) = adopted {
                    tracing::debug!(door, client = %address, "a connection that came to another node was closed: {error}");
                }
            }
        }
    }

    pub fn local_addrs(&self) -> Vec<(&'static str, SocketAddr)> {
        let http = self.http.iter().map(|http| ("http", http.local_addr()));
        let master = self.jobd_master.iter().map(|m| (jobd_master::DOOR, m.local_addr()));
        self.lines.local_addrs().iter().copied().chain(http).chain(master).collect()
    }

    /// Ends all connections in order, within this time. True when nothing was left then.
    pub fn shutdown(&self, timeout: Duration) -> bool {
        let deadline = Instant::now().checked_add(timeout);
        if let Some(http) = &self.http {
            http.begin_shutdown();
        }
        if let Some(master) = &self.jobd_master {
            master.begin_shutdown();
        }
        let lines_in_time = self.lines.shutdown(timeout);
        let deadline = deadline.unwrap_or_else(|| Instant::now() + FAR_AHEAD);
        let http_in_time = self.http.as_ref().is_none_or(|http| http.finish(deadline));
        let master_in_time = self.jobd_master.as_ref().is_none_or(|it| it.finish(deadline));
        lines_in_time && http_in_time && master_in_time
    }

    pub fn abort(&self) {
        self.lines.abort();
        if let Some(http) = &self.http {
            http.abort();
        }
        if let Some(master) = &self.jobd_master {
            master.abort();
        }
    }
}

/// Stands for a shutdown timeout beyond what the clock can tell.
const FAR_AHEAD: Duration = Duration::from_secs(365 * 24 * 3600);

/// What all doors need, on a single server and on a node that leads.
pub struct Street<'a> {
    pub resolved: &'a Resolved,
    pub tls: &'a Tls,
    pub entrance: &'a Entrance,
    pub budgets: &'a Budgets,
    pub places: &'a Places,
    pub listeners: &'a Listeners,
    /// This node, if it is one of several.
    pub node: Option<&'a Node>,
    /// Its seats at all shards, if there are several.
    pub seats: &'a [Node],
    /// What its web pages query, if that is more than the engine.
    pub pages: Option<&'a Pages>,
}

impl Street<'_> {
    /// Opens all doors on an engine.
    pub fn open(&self, engine: &Engine, history: History) -> anyhow::Result<Doors> {
        let Street { resolved, tls, entrance, budgets, places, listeners, node, seats, pages } =
            *self;
        let config = &resolved.config;
        let doors = session_doors(config, entrance, engine);
        let names: Vec<&'static str> = doors.iter().map(|(door, _)| door.name()).collect();
        let bound = doors
            .into_iter()
            .map(|(door, addr)| {
                let tls = tls.of_door(config, door.name(), addr);
                let name = door.name();
                if let Some(at) = listeners.elsewhere(name) {
                    return Ok(spindle_net::inner(door, at));
                }
                let bound = listeners.claim(name, addr).and_then(|it| spindle_net::bound(door, it));
                let bound =
                    bound.map_err(|source| not_bound(BindError { door: name, addr, source }));
                bound.map(|it| it.with_tls(tls))
            })
            .collect::<anyhow::Result<Vec<_>>>()?;
        let open = bound.iter().map(spindle_net::BoundDoor::connections);
        let connections_by_door: Vec<_> = names.into_iter().zip(open).collect();
        let limits = line_limits(config);
        let jobd_master = config.jobd_master.map(|addr| {
            let asks = (entrance.master_password(), entrance.rates());
            let door = jobd_master::DOOR;
            let claimed = listeners.claim(door, addr);
            let claimed = claimed.map_err(|source| not_bound(BindError { door, addr, source }))?;
            JobdMaster::open((claimed, addr), tls, asks, config, budgets, places)
        });
        let jobd_master = jobd_master.transpose()?;
        let lines = connections_by_door.iter().zip(&bound);
        let lines = lines.map(|((door, _), bound)| (*door, bound.local_addr()));
        let master = jobd_master.iter().map(|master| (jobd_master::DOOR, master.local_addr()));
        let addresses = lines.chain(master).collect();
        let others = OtherDoors {
            connections: connections_by_door,
            handshakes: tls.handshakes(),
            certificate_expires: tls.expires(),
            addresses,
            budgets: budgets.clone(),
            places: places.clone(),
            history,
            jobd_master: jobd_master.as_ref().map(JobdMaster::handle),
            node: node.cloned(),
            seats: seats.to_vec(),
            pages: pages.cloned(),
        };
        let open = |addr| {
            let tls = tls.of_door(config, "http", addr);
            let access = entrance.door(config, addr);
            let bound = match listeners.elsewhere("http") {
                Some(at) => Ok(spindle_http::listen::inner(at)),
                None => listeners.claim("http", addr).and_then(spindle_http::listen::bound),
            };
            let bound =
                bound.map_err(|source| not_bound(BindError { door: "http", addr, source }))?;
            let bound = bound.with_tls(tls);
            Http::open(engine.clone(), bound, access, host_name(), resolved, others)
        };
        let http = config.http.map(open).transpose()?;
        let net = NetConfig {
            limits,
            budgets: budgets.clone(),
            places: places.clone(),
            ..NetConfig::default()
        };
        let lines = Server::start(Arc::new(engine.clone()), bound, net)?;
        Ok(Doors { lines, http, jobd_master })
    }
}

pub fn not_bound(error: BindError) -> anyhow::Error {
    let BindError { door, addr, source } = error;
    let advice = match source.kind() {
        ErrorKind::AddrInUse => {
            let port = addr.port();
            format!(
                "port {port} is taken, maybe by another server; stop that one, or choose another \
                 address with --{door} ADDR (port 0 takes any free port)"
            )
        }
        ErrorKind::PermissionDenied => {
            format!("this user may not; choose a port from 1024 with --{door} ADDR")
        }
        ErrorKind::AddrNotAvailable => {
            format!("this machine has no such address; choose another with --{door} ADDR")
        }
        _ => format!("choose another address with --{door} ADDR"),
    };
    anyhow!("{door}: cannot listen on {addr}: {source}: {advice}")
}

/// `spindle 0.1.0: workq on 127.0.0.1:9922, data in ./spindle-data, sync always`
fn greeting(resolved: &Resolved, addrs: &[(&'static str, SocketAddr)]) -> String {
    let config = &resolved.config;
    let doors: Vec<String> = addrs.iter().map(|(door, addr)| format!("{door} on {addr}")).collect();
    let data = if config.memory {
        "data in memory only".to_owned()
    } else {
        format!("data in {}, sync {}", config.data.display(), resolved.written("sync"))
    };
    format!("spindle {}: {}, {data}", env!("CARGO_PKG_VERSION"), doors.join(", "))
}

fn wait_for_end(
    server: &Doors,
    config: &Config,
    engine: &Engine,
    (tls, entrance): (&Tls, &Entrance),
    inbox: Receiver<Event>,
    events: &Sender<Event>,
) -> anyhow::Result<()> {
    let mut event = inbox.recv();
    while let Ok(Event::Reload) = event {
        tls.reload();
        entrance.reload();
        event = inbox.recv();
    }
    match event {
        Ok(Event::Signal(ending)) => {
            let timeout = config.shutdown_timeout;
            let most = Written(u64::try_from(timeout.as_millis()).unwrap_or(u64::MAX));
            let name = ending.name;
            tracing::info!("{name}: stopping, at most {most} for answers under way");
            notify(&[NotifyState::Stopping]);
            engine.stop_leasing();
            close_connections(server, timeout, inbox, events)
        }
        Ok(Event::LogFailed(reason)) => {
            server.abort();
            Err(anyhow!(reason))
        }
        // Nothing can end the server any more, so it ends now rather than run on uncontrolled.
        Ok(Event::Closed | Event::Reload) | Err(_) => {
            Err(anyhow!("nothing watches over the server any more"))
        }
    }
}

/// Ends all connections in order, unless the log fails meanwhile.
fn close_connections(
    server: &Doors,
    timeout: Duration,
    inbox: Receiver<Event>,
    events: &Sender<Event>,
) -> anyhow::Result<()> {
    let (in_time, failed) = thread::scope(|scope| {
        let watcher = scope.spawn(move || {
            for event in inbox {
                match event {
                    Event::LogFailed(reason) => {
                        server.abort();
                        return Some(reason);
                    }
                    Event::Closed => return None,
                    Event::Signal(_) | Event::Reload => {}
                }
            }
            None
        });
        let in_time = server.shutdown(timeout);
        // If the log failed, the watcher has ended already.
        let _ = events.send(Event::Closed);
        (in_time, watcher.join())
    });
    match failed {
        Ok(Some(reason)) => return Err(anyhow!(reason)),
        Ok(None) => {}
        Err(_) => return Err(anyhow!("the thread that watches the log panicked")),
    }
    if !in_time {
        tracing::warn!("some answers were not ready in time; see --shutdown-timeout");
    }
    Ok(())
}

/// Why the log takes nothing more, and what to do.
pub fn log_failure(failure: &Failure) -> String {
    let advice = match failure {
        Failure::Log(LogError::FolderLost { .. }) => {
            "what was acknowledged is in the folder that was taken away; bring it back, or see which \
             server works on it now, before you start again"
        }
        _ => {
            "what was acknowledged is on disk; see to the disk and start again (`spindle verify` says \
             whether the folder is sound)"
        }
    };
    format!("the log failed: {failure}; {advice}")
}

/// Tells systemd, when it wants to know.
pub fn notify(states: &[NotifyState]) {
    if let Err(error) = spindle_notify::notify(states) {
        tracing::warn!(%error, "cannot notify systemd");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{SettingFlags, resolve};

    fn options(name: &str, value: &str) -> Options {
        let name = format!("SPINDLE_SERVE_{}", name.replace('-', "_").to_uppercase());
        let resolved = resolve(&SettingFlags::default(), [(name.into(), value.into())]);
        engine_options(&resolved.unwrap().config, None)
    }

    #[test]
    fn every_setting_of_the_engine_reaches_it() {
        let number = |options: &Options| {
            let Defaults {
                unfinished_max,
                queue_unfinished_max,
                finished_max,
                finished_bytes_max,
                values_max,
                audit_entries_max,
                audit_ms,
                ..
            } = options.defaults;
            [
                ("unfinished-jobs-max", unfinished_max),
                ("queue-unfinished-jobs-max", queue_unfinished_max),
                ("finished-max", finished_max as u64),
                ("finished-size-max", finished_bytes_max),
                ("constraint-values-max", values_max as u64),
                ("audit-entries-max", audit_entries_max as u64),
                ("audit-days", audit_ms / (24 * 3_600_000)),
                ("away-max", options.away_max_ms / 1000),
                ("durable-leases", u64::from(options.durable_leases)),
                ("log-bytes-max", options.log_bytes_max),
                ("payload-memory", options.payload_memory_bytes as u64),
            ]
        };
        let usual = number(&options("sync", "always"));
        for (name, _) in usual {
            let (value, expected) = match name {
                "durable-leases" => ("true", 1),
                "away-max" => ("7s", 7),
                "log-bytes-max" => ("1GiB", 1 << 30),
                _ => ("7", 7),
            };
            for ((of, number), (_, usual)) in number(&options(name, value)).into_iter().zip(usual) {
                assert_eq!(number, if of == name { expected } else { usual }, "{of} for {name}");
            }
        }
    }

    #[test]
    fn short_segments_leave_room_for_what_is_decided_when_the_disk_is_full() {
        let of = |size| {
            let Options { compaction_bytes, undurable_bytes_max, .. } =
                options("segment-size", size);
            (compaction_bytes, undurable_bytes_max)
        };
        assert_eq!(of("64KiB"), (8 << 10, 16 << 10));
        assert_eq!(of("1MiB"), (128 << 10, 256 << 10));
        assert_eq!(of("64MiB"), (256 << 10, 8 << 20));
    }
}
