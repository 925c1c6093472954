//! How clients that came to a follower reach the leader.
//!
//! A node claims the addresses of its doors once, for as long as its process lives. While it follows,
//! this room accepts there, and hands each connection on: byte for byte, with TLS as it is. While it leads,
//! its doors accept at the same sockets. In between, clients wait in the sockets' backlogs, and those
//! that were accepted already wait here: nobody is refused because the leader has just changed.
//!
//! `relay.rs` is the way of one connection, `answer.rs` the few requests of HTTP that a follower answers
//! itself. One thread does all of it, with the leader's end ([`crate::entrance`]) beside it.

mod answer;
mod relay;

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::net::TcpListener as AsyncListener;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::sleep;

use crate::entrance::{Admit, Entrance};
use crate::node::Node;
use relay::Relay;

pub use answer::{LocalAnswer, Reply};

/// After an accept that failed.
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

/// Hands clients on while this node follows, and lets in those of other nodes while it leads.
pub struct Passage {
    node: Node,
    follows: watch::Sender<bool>,
    doors: watch::Sender<Option<Arc<dyn Admit>>>,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Passage {
    /// Begins to hand on what comes to these doors; at most `connections_max` at a time. `cluster` is where
    /// other nodes hand on theirs.
    ///
    /// # Errors
    ///
    /// When there is no thread for it, or a listener cannot be used.
    pub fn start(
        node: &Node,
        held: Vec<HeldDoor>,
        cluster: Option<TcpListener>,
        connections_max: usize,
    ) -> io::Result<Passage> {
        let (follows, following) = watch::channel(true);
        let (doors, open_doors) = watch::channel(None);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let stop = Arc::new(Notify::new());
        {
            let _inside = runtime.enter();
            let relay = Arc::new(Relay {
                leader: node.leader(),
                doors: open_doors.clone(),
                open: Arc::new(Semaphore::new(connections_max.min(Semaphore::MAX_PERMITS))),
                waiting: Arc::new(Semaphore::new(relay::WAITING_MAX)),
            });
            for HeldDoor { name, listener, answer } in held {
                let listener = AsyncListener::from_std(listener)?;
                let door = Arc::new(relay::Entry { name, answer });
                let accepts = accept(listener, following.clone(), Arc::clone(&relay), door);
                drop(runtime.spawn(accepts));
            }
            if let Some(listener) = cluster {
                let listener = AsyncListener::from_std(listener)?;
                let entrance = Entrance { node: node.clone(), doors: open_doors };
                drop(runtime.spawn(entrance.serve(listener)));
            }
        }
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("spindle-pass".to_owned());
        let thread = thread.spawn(move || runtime.block_on(stopped.notified()))?;
        Ok(Passage { node: node.clone(), follows, doors, stop, thread: Some(thread) })
    }

    /// This node leads, and its doors are about to accept by themselves.
    pub fn end_following(&self) {
        self.follows.send_replace(false);
    }

    /// The leader's doors are open: whoever waits here is let in, and other nodes may hand on theirs.
    pub fn open(&self, doors: Arc<dyn Admit>) {
        self.doors.send_replace(Some(doors));
        self.node.let_in();
    }

    /// The leader's doors are closed.
    pub fn close(&self) {
        self.node.let_nobody_in();
        self.doors.send_replace(None);
    }

    /// This node follows again: its clients are handed on.
    pub fn follow(&self) {
        self.close();
        self.follows.send_replace(true);
    }
}

impl Drop for Passage {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of it was reported when it happened.
            let _ = thread.join();
        }
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
