//! The life of a node on one log: it follows, leads, and follows again, until it is to end.

use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::Duration;

use anyhow::{Context, anyhow};
use spindle_budget::{Budgets, Trimmer};
use spindle_cluster::{FollowError, Leadership, Node, Passage, Threshold};
use spindle_engine::{Failure, Options};
use spindle_notify::NotifyState;

use super::leading::{Ended, lead};
use crate::{
    access::Entrance, config::Resolved, http::Pages, listeners::Listeners, serve::notify,
    signals::Ending, tls::Tls,
};

/// What happens to a node.
pub(super) enum Event {
    /// A signal asks the server to end.
    Signal(Ending),
    /// A signal asks for files to be read anew.
    Reload,
    /// Following has ended: this node leads, or cannot follow.
    Followed(Box<Result<Leadership, FollowError>>),
    /// The engine of an epoch has failed.
    Failed(u64, Failure),
    /// A request asks for another node to lead.
    StepDown,
    /// All connections of a leader are closed.
    Closed,
    /// Of several logs, the life on one has ended.
    ShardEnded,
}

/// What a life on one log needs. It lives as long as that life.
pub(super) struct Parts<'a> {
    pub resolved: &'a Resolved,
    pub tls: &'a Tls,
    pub entrance: &'a Entrance,
    pub budgets: &'a Budgets,
    pub trimmer: &'a Trimmer,
    pub connections_max: usize,
    pub listeners: Listeners,
    /// Which of several logs it is; `None` if there is only one.
    pub shard: Option<u8>,
    pub node: Node,
    /// This process's nodes at all shards; none where there is one log.
    pub seats: Vec<Node>,
    /// What its web pages query, if that is more than this log.
    pub pages: Option<Pages>,
    pub threshold: Threshold,
    /// Hands clients on to the leader, for doors that belong to this log alone.
    pub passage: Option<Passage>,
    pub events: Sender<Event>,
}

/// Follows and leads in turn, until the process is to end.
pub(super) fn live(
    parts: &Parts<'_>,
    options: &Options,
    inbox: &Receiver<Event>,
) -> anyhow::Result<()> {
    loop {
        let Some(leadership) = follow(parts, options, inbox)? else { return Ok(()) };
        match lead(parts, leadership, inbox)? {
            Ended::Server => return Ok(()),
            Ended::Leadership => parts.passage.iter().for_each(Passage::follow),
        }
    }
}

/// How long a node that follows may take to notice that it is to stop.
const STOP_TIME: Duration = Duration::from_secs(5);

/// Follows until this node leads; none when the process is to end.
fn follow(
    parts: &Parts<'_>,
    options: &Options,
    inbox: &Receiver<Event>,
) -> anyhow::Result<Option<Leadership>> {
    tracing::info!(shard = parts.shard, "following the log");
    let (node, options, events) = (parts.node.clone(), options.clone(), parts.events.clone());
    let body = move || {
        let followed = Box::new(node.follow(&options));
        // Nobody listens when the server is ending anyway.
        drop(events.send(Event::Followed(followed)));
    };
    thread::Builder::new()
        .name("spindle-follow".to_owned())
        .spawn(body)
        .context("cannot start threads")?;
    loop {
        match inbox.recv() {
            Ok(Event::Followed(followed)) => match *followed {
                Ok(leadership) => return Ok(Some(leadership)),
                Err(error) => {
                    return Err(anyhow!(error)).context("this node cannot follow the log");
                }
            },
            Ok(Event::Signal(ending)) => {
                tracing::info!(shard = parts.shard, "{}: stopping", ending.name);
                notify(&[NotifyState::Stopping]);
                parts.node.stop();
                // A campaign on a log that is out of reach may not return. The process ends all the same:
                // no client has been answered.
                while let Ok(event) = inbox.recv_timeout(STOP_TIME) {
                    if let Event::Followed(followed) = event {
                        drop(followed);
                        break;
                    }
                }
                return Ok(None);
            }
            Ok(Event::Reload) => parts.reload(),
            // Left over from an earlier leadership.
            Ok(Event::Failed(..) | Event::StepDown | Event::Closed | Event::ShardEnded) => {}
            Err(_) => return Err(anyhow!("nothing watches over the server any more")),
        }
    }
}

impl Parts<'_> {
    pub(super) fn reload(&self) {
        self.tls.reload();
        self.entrance.reload();
    }
}
