//! The thread of a hook: it follows the feed at its receiver's pace.

use std::{
    convert::Infallible,
    io,
    sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use spindle_engine::{Engine, FeedError, FeedId};
use ureq::Agent;

use crate::{
    alert::Alert,
    hook::Hook,
    options::Options,
    queues::Queues,
    send::{AlertSender, Sent},
    sign::Secret,
};

/// Events read from the feed at once.
const PAGE: usize = 128;
/// Without deliveries the place is remembered so often ...
const REMEMBER_EVERY: Duration = Duration::from_secs(60);
/// ... if events came by, or so many records, so that the log does not trim it away unseen. Remembering is a
/// record, too.
const REMEMBER_RECORDS: u64 = 1_000;

/// Why hooks cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// There is no thread to be had.
    #[error("cannot start a thread for a webhook")]
    Thread(#[source] io::Error),
}

/// Hooks at work. Dropping ends them.
#[derive(Debug, Default)]
pub struct Webhooks {
    /// One for each thread, which ends when it is dropped.
    stops: Vec<Sender<Infallible>>,
    agents: Vec<Agent>,
    threads: Vec<JoinHandle<()>>,
}

impl Webhooks {
    /// Starts a thread for each hook. A hook without a remembered place begins now.
    pub fn start(
        engine: &Engine,
        hooks: Vec<Hook>,
        secret: &Secret,
        options: &Options,
    ) -> Result<Webhooks, StartError> {
        let mut webhooks = Webhooks::default();
        for hook in hooks {
            let name = hook.consumer();
            let remembered = engine.feed().consumer(&name);
            let from = remembered.unwrap_or_else(|| end_of(engine));
            let sender = AlertSender::new(&hook, secret.clone(), options);
            webhooks.agents.push(sender.agent());
            let (stopping, stop) = channel();
            webhooks.stops.push(stopping);
            let mut follower = Follower {
                engine: engine.clone(),
                hook,
                sender,
                name,
                from,
                remembered,
                has_seen: false,
                queues: Queues::default(),
                stop,
                options: options.clone(),
            };
            let thread = thread::Builder::new().name("webhook".to_owned());
            let started = thread.spawn(move || follower.follow()).map_err(StartError::Thread)?;
            webhooks.threads.push(started);
        }
        Ok(webhooks)
    }
}

impl Drop for Webhooks {
    fn drop(&mut self) {
        self.stops.clear();
        for agent in self.agents.drain(..) {
            agent.shutdown();
        }
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a webhook's thread panicked");
            }
        }
    }
}

/// The place behind everything durable.
fn end_of(engine: &Engine) -> FeedId {
    FeedId { position: engine.durable().0, index: 0 }
}

struct Follower {
    engine: Engine,
    hook: Hook,
    sender: AlertSender,
    name: String,
    /// Everything up to here was looked at.
    from: FeedId,
    /// The place up to which the log remembers that.
    remembered: Option<FeedId>,
    queues: Queues,
    /// Events have come since.
    has_seen: bool,
    /// Disconnected when it is time to end.
    stop: Receiver<Infallible>,
    options: Options,
}

/// It is time to end.
struct Ended;

impl Follower {
    fn follow(&mut self) {
        let mut looked: Option<Instant> = None;
        let mut remembered = Instant::now();
        self.remember();
        while !self.pause(self.options.poll_every) {
            if self.hook.dead && self.tell_dead().is_err() {
                break;
            }
            if remembered.elapsed() >= REMEMBER_EVERY {
                if self.is_worth_remembering() {
                    self.remember();
                }
                remembered = Instant::now();
            }
            let is_due = looked.is_none_or(|looked| looked.elapsed() >= self.options.look_every);
            if self.hook.watches_queues() && is_due {
                looked = Some(Instant::now());
                let alerts = self.queues.look(&self.engine, &self.hook);
                if alerts.iter().try_for_each(|alert| self.deliver(alert)).is_err() {
                    break;
                }
            }
        }
        self.remember();
    }

    /// Reports all dead jobs up to the end of the feed.
    fn tell_dead(&mut self) -> Result<(), Ended> {
        loop {
            let page = match self.engine.feed().page(Some(self.from), PAGE) {
                Ok(page) => page,
                Err(FeedError::Gap { first }) => {
                    self.from = FeedId { position: first, index: 0 };
                    let gap = Alert::gap(self.engine.now_ms(), self.from);
                    self.deliver(&gap)?;
                    self.remember();
                    continue;
                }
                Err(FeedError::Ahead { .. }) => {
                    // Another log, or one that was cut: report what comes from now on.
                    self.from = end_of(&self.engine);
                    return Ok(());
                }
                Err(error) => {
                    tracing::error!("webhook {}: {error}", self.hook);
                    return Ok(());
                }
            };
            self.has_seen |= !page.events.is_empty();
            for (id, event) in &page.events {
                if let Some((alert, queue)) = Alert::of_event(*id, event)
                    && self.hook.is_about(queue)
                {
                    self.deliver(&alert)?;
                    self.from = *id;
                    self.remember();
                }
            }
            if page.next == self.from {
                return Ok(());
            }
            self.from = page.next;
            if self.pause(Duration::ZERO) {
                return Err(Ended);
            }
        }
    }

    /// Sends an alert until the receiver has it or refuses it for good.
    fn deliver(&self, alert: &Alert) -> Result<(), Ended> {
        let mut pause = self.options.pause_first;
        loop {
            match self.sender.send(alert) {
                Sent::Taken => return Ok(()),
                Sent::Refused(status) => {
                    let Alert { id, event, .. } = alert;
                    tracing::warn!(
                        "webhook {}: it answered {event} {id} with status {status}; not sent again",
                        self.hook
                    );
                    return Ok(());
                }
                Sent::Again(why) => {
                    if self.pause(Duration::ZERO) {
                        return Err(Ended);
                    }
                    tracing::warn!("webhook {}: {why}; trying again in {pause:?}", self.hook);
                    if self.pause(pause) {
                        return Err(Ended);
                    }
                    pause = (pause * 2).min(self.options.pause_max);
                }
            }
        }
    }

    /// Waits. True when it is time to end.
    fn pause(&self, time: Duration) -> bool {
        self.stop.recv_timeout(time) != Err(RecvTimeoutError::Timeout)
    }

    fn is_worth_remembering(&self) -> bool {
        let known = self.remembered.map_or(0, |known| known.position);
        self.has_seen || self.from.position.saturating_sub(known) >= REMEMBER_RECORDS
    }

    /// Notes that everything before this place was delivered. If a crash loses the note, it is delivered
    /// again.
    fn remember(&mut self) {
        if !self.hook.dead || self.remembered == Some(self.from) {
            return;
        }
        match self.engine.feed().move_consumer(&self.name, self.from) {
            Ok(()) => (self.remembered, self.has_seen) = (Some(self.from), false),
            Err(error) => {
                tracing::warn!("webhook {}: its place is not remembered: {error}", self.hook);
            }
        }
    }
}
