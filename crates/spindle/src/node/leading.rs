//! What a node does while it leads: it opens the doors on its engine and runs what only a leader has.

use std::net::TcpStream;
use std::sync::mpsc::Receiver;
use std::sync::{Arc, Weak};
use std::thread;

use anyhow::{Context, anyhow};
use spindle_cluster::{Admit, Arriving, Leadership, Passage};
use spindle_engine::{Engine, Failure};
use spindle_history::Recorder;
use spindle_limits::Places;
use spindle_notify::NotifyState;

use super::life::{Event, Parts};
use crate::{
    serve::{Doors, Street, host_name, log_failure, notify},
    starts, webhooks,
};

/// How a leadership has ended.
pub(super) enum Ended {
    /// The process is to end.
    Server,
    /// Another node leads, or may.
    Leadership,
}

/// Why a leader ends.
enum Why {
    Signal,
    StepDown,
    /// Another node has written to the log.
    Deposed,
    Failed(String),
}

/// Leads until something ends it. Nothing of this leadership answers or writes afterwards.
pub(super) fn lead(
    parts: &Parts<'_>,
    leadership: Leadership,
    inbox: &Receiver<Event>,
) -> anyhow::Result<Ended> {
    let (epoch, engine) = (leadership.epoch(), leadership.engine().clone());
    tracing::info!(shard = parts.shard, epoch, "this node leads");
    let events = parts.events.clone();
    let spawned = engine.spawn(move |failure| drop(events.send(Event::Failed(epoch, failure))));
    spawned.context("cannot start threads")?;
    parts.passage.iter().for_each(Passage::end_following);
    let running = Running::start(parts, &engine)?;
    let why = wait(parts, epoch, inbox);
    parts.threshold.close();
    match why {
        Why::Signal | Why::StepDown => step_down(parts, leadership, running, &engine, inbox, &why),
        Why::Deposed => {
            tracing::warn!(
                shard = parts.shard,
                epoch,
                "another node leads: closing all connections, and following it"
            );
            running.doors.abort();
            drop(running);
            engine.stop();
            Ok(Ended::Leadership)
        }
        Why::Failed(reason) => {
            running.doors.abort();
            Err(anyhow!(reason))
        }
    }
}

/// What only a leader has.
struct Running {
    doors: Arc<Doors>,
    _hooks: Option<spindle_webhook::Webhooks>,
    _recorder: Recorder,
}

impl Running {
    fn start(parts: &Parts<'_>, engine: &Engine) -> anyhow::Result<Running> {
        let config = &parts.resolved.config;
        let hooks = webhooks::prepare(config)?;
        let hooks = hooks.map(|prepared| webhooks::start(engine, config, prepared, host_name()));
        let hooks = hooks.transpose()?;
        let recorder = Recorder::start(engine, Some(config.data.clone()));
        let recorder = recorder.context("cannot start threads")?;
        starts::webhooks(config);
        // Connections of an earlier leadership are not counted any more.
        let places = Places::new(config.place_limits(parts.connections_max))
            .when_many_left(parts.trimmer.bell());
        let street = Street {
            resolved: parts.resolved,
            tls: parts.tls,
            entrance: parts.entrance,
            budgets: parts.budgets,
            places: &places,
            listeners: &parts.listeners,
            node: Some(&parts.node),
            seats: &parts.seats,
            pages: parts.pages.as_ref(),
        };
        let doors = Arc::new(street.open(engine, recorder.history())?);
        parts.threshold.open(Arc::new(OpenDoors(Arc::downgrade(&doors))));
        starts::doors(config, &doors.local_addrs());
        Ok(Running { doors, _hooks: hooks, _recorder: recorder })
    }
}

/// The doors, for connections that came to other nodes, and for those that waited at this one.
struct OpenDoors(Weak<Doors>);

impl Admit for OpenDoors {
    fn admit(&self, door: &str, stream: TcpStream, client: Arriving) {
        if let Some(doors) = self.0.upgrade() {
            doors.adopt(door, stream, client);
        }
    }
}

fn wait(parts: &Parts<'_>, epoch: u64, inbox: &Receiver<Event>) -> Why {
    loop {
        match inbox.recv() {
            Ok(Event::Signal(ending)) => {
                tracing::info!(shard = parts.shard, "{}: stopping", ending.name);
                notify(&[NotifyState::Stopping]);
                return Why::Signal;
            }
            Ok(Event::StepDown) => return Why::StepDown,
            Ok(Event::Failed(of, failure)) if of == epoch => return why_failed(&failure),
            Ok(Event::Reload) => parts.reload(),
            // Left over from an earlier leadership.
            Ok(Event::Failed(..) | Event::Closed | Event::Followed(_) | Event::ShardEnded) => {}
            Err(_) => return Why::Failed("nothing watches over the server any more".to_owned()),
        }
    }
}

fn why_failed(failure: &Failure) -> Why {
    match failure {
        Failure::Conflict | Failure::Abandoned => Why::Deposed,
        other => Why::Failed(log_failure(other)),
    }
}

/// Ends the doors in order, commits what is left, and leaves the lead to others.
fn step_down(
    parts: &Parts<'_>,
    leadership: Leadership,
    running: Running,
    engine: &Engine,
    inbox: &Receiver<Event>,
    why: &Why,
) -> anyhow::Result<Ended> {
    let epoch = leadership.epoch();
    let timeout = parts.resolved.config.shutdown_timeout;
    leadership.begin_step_down();
    tracing::info!(
        shard = parts.shard,
        epoch,
        "stepping down: at most {timeout:?} for answers under way"
    );
    engine.stop_leasing();
    let (failed, mut ends) = close(parts, &running.doors, epoch, inbox);
    drop(running);
    ends |= matches!(why, Why::Signal);
    match failed {
        Some(Why::Failed(reason)) => return Err(anyhow!(reason)),
        Some(_) => engine.stop(),
        None => {
            engine.stop();
            leadership.stepped_down();
        }
    }
    Ok(if ends { Ended::Server } else { Ended::Leadership })
}

/// Ends all connections in order, unless the log fails or is lost meanwhile. Returns why, if it does, and
/// whether the process is to end.
fn close(
    parts: &Parts<'_>,
    doors: &Doors,
    epoch: u64,
    inbox: &Receiver<Event>,
) -> (Option<Why>, bool) {
    let timeout = parts.resolved.config.shutdown_timeout;
    thread::scope(|scope| {
        scope.spawn(|| {
            if !doors.shutdown(timeout) {
                tracing::warn!("some answers were not ready in time; see --shutdown-timeout");
            }
            // The loop below waits for this event.
            drop(parts.events.send(Event::Closed));
        });
        let mut ends = false;
        let mut failed = None;
        loop {
            match inbox.recv() {
                Ok(Event::Failed(of, failure)) if of == epoch => {
                    doors.abort();
                    failed = Some(why_failed(&failure));
                }
                Ok(Event::Signal(_)) => ends = true,
                Ok(Event::Closed) | Err(_) => return (failed, ends),
                Ok(_) => {}
            }
        }
    })
}
