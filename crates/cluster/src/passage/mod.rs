//! How clients that came to a follower reach the leader.
//!
//! A node claims the addresses of its doors once, for as long as its process lives. While it follows,
//! the passage accepts there, and hands each connection on: byte for byte, with TLS as it is. While it
//! leads, its doors accept at the same sockets. In between, clients wait in the sockets' backlogs, and those
//! that were accepted already wait here: nobody is refused because the leader has just changed.
//!
//! `relay.rs` is the way of one connection, `answer.rs` the few requests of HTTP that a follower answers
//! itself. One thread, a [`Carrier`], does all of it and also runs the leader's end ([`crate::entrance`]).

mod answer;
mod carrier;
mod relay;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener as AsyncListener;
use tokio::sync::{Semaphore, watch};
use tokio::time::sleep;

use crate::entrance::Threshold;
use relay::Relay;

pub(crate) use relay::{LAST_ANSWERS_TIME, LEADER_TIME, RETRY_PAUSE, is_another, open_way};

pub use answer::{LocalAnswer, Reply};
pub use carrier::Carrier;

/// The pause after an accept that failed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A door's address, claimed for the life of the process.
pub struct HeldDoor {
    /// The door's name.
    pub name: &'static str,
    /// Where its clients come. The door itself listens at a clone of it.
    pub listener: TcpListener,
    /// A follower answers some requests here by itself.
    pub answer: Option<LocalAnswer>,
}

/// Hands the clients of some doors on while this node follows.
pub struct Passage {
    follows: watch::Sender<bool>,
}

impl Passage {
    /// Begins to hand on the clients of these doors; at most `connections_max` at a time. A client that comes
    /// while the node's own doors are open is let in there.
    ///
    /// # Errors
    ///
    /// When a listener cannot be used.
    pub fn start(
        carrier: &Carrier,
        threshold: &Threshold,
        held: Vec<HeldDoor>,
        connections_max: usize,
    ) -> io::Result<Passage> {
        let (follows, following) = watch::channel(true);
        let _inside = carrier.handle().enter();
        let relay = Arc::new(Relay {
            tls: threshold.node.tls().clone(),
            leader: threshold.node.leader(),
            doors: threshold.doors(),
            open: Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS))),
            waiting: Arc::new(Semaphore::new(relay::WAITING_MAX)),
        });
        for HeldDoor { name, listener, answer } in held {
            let listener = AsyncListener::from_std(listener)?;
            let door = Arc::new(relay::Entry { name, answer });
            let accepts = accept(listener, following.clone(), Arc::clone(&relay), door);
            drop(carrier.handle().spawn(accepts));
        }
        Ok(Passage { follows })
    }

    /// This node leads, and its doors are about to accept by themselves.
    pub fn end_following(&self) {
        self.follows.send_replace(false);
    }

    /// This node follows again: its clients are handed on.
    pub fn follow(&self) {
        self.follows.send_replace(true);
    }
}

/// Accepts the clients of one door for as long as this node follows.
async fn accept(
    listener: AsyncListener,
    mut following: watch::Receiver<bool>,
    relay: Arc<Relay>,
    door: Arc<relay::Entry>,
) {
    loop {
        if following.wait_for(|follows| *follows).await.is_err() {
            return;
        }
        let accepted = tokio::select! {
            biased;
            _ = following.wait_for(|follows| !*follows) => continue,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((client, from)) => relay.take(client, from, &door),
            Err(error) => {
                tracing::debug!(door = door.name, "cannot accept a connection: {error}");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
