//! Ways over sockets: a task for each.
//!
//! A session and the tasks of its ways share what has come and not been received ([`Inbox`]). A task
//! connects, then writes what it is sent and reads what comes, each at its own pace; it stops reading while
//! its client has much to receive. The session is woken once for all that comes until it has received it.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use spindle_engine::door::Peer;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::runtime::Handle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};

use crate::reach::{Link, LinkReader, Reach};
use crate::{Came, Network, Wake, Way, Ways};

/// Bytes that have come on all ways of a client and that its session has not received: above it, nothing
/// more is read.
const HELD_BYTES_MAX: usize = 256 * 1024;
/// What one read takes at most.
const READ_BYTES: usize = 16 * 1024;
/// When only so many bytes are left to be sent, a session that has stopped taking requests is woken.
const UNSENT_LOW_BYTES: usize = 64 * 1024;
/// How long [`Ways::wake_later`] waits.
const MOMENT: Duration = Duration::from_millis(5);
/// For how long the requests of a client that has gone are still sent, and the way's end is waited for.
const LAST_TIME: Duration = Duration::from_secs(5);

/// Opens ways through a [`Reach`].
pub struct Sockets {
    runtime: Handle,
    reach: Arc<dyn Reach>,
    /// The ways of all clients, and of some clients that have gone.
    clients: Mutex<Vec<Weak<Shared>>>,
}

/// The list of clients is not searched for gone ones before it has so many.
const CLIENTS_MIN: usize = 64;

impl Sockets {
    /// Ways whose tasks run on this runtime.
    #[must_use]
    pub fn new(runtime: Handle, reach: Arc<dyn Reach>) -> Sockets {
        Sockets { runtime, reach, clients: Mutex::default() }
    }

    /// Wakes all sessions, because queues have moved.
    pub fn wake_all(&self) {
        let clients = self.clients.lock().clone();
        clients.iter().filter_map(Weak::upgrade).for_each(|client| client.wake.wake());
    }

    fn remember(&self, client: &Arc<Shared>) {
        let mut clients = self.clients.lock();
        // At most half of the list was there at the last search, so its cost per new client is constant.
        if clients.len() == clients.capacity() {
            clients.retain(|client| client.strong_count() > 0);
            let room = clients.len().max(CLIENTS_MIN);
            clients.reserve_exact(room);
        }
        clients.push(Arc::downgrade(client));
    }
}

impl Network for Sockets {
    fn ways(&self, door: &'static str, client: &Peer, wake: Wake) -> Box<dyn Ways> {
        let shared = Arc::new(Shared {
            reach: Arc::clone(&self.reach),
            door,
            client: client.clone(),
            wake,
            inbox: Mutex::default(),
            has_room: Notify::new(),
            unsent: AtomicUsize::new(0),
        });
        self.remember(&shared);
        let (runtime, open) = (self.runtime.clone(), HashMap::new());
        Box::new(SocketWays { runtime, shared, open, opened: 0 })
    }
}

/// The ways of one client.
struct SocketWays {
    runtime: Handle,
    shared: Arc<Shared>,
    open: HashMap<Way, Open>,
    /// How many ways were ever opened.
    opened: u64,
}

/// A way that is open, or about to be.
struct Open {
    /// Tells it from earlier and later ways of the same name.
    number: u64,
    /// None once the way is finished.
    outgoing: Option<UnboundedSender<Bytes>>,
    /// Set when nobody receives any more what comes.
    closed: watch::Sender<bool>,
}

struct Shared {
    reach: Arc<dyn Reach>,
    door: &'static str,
    client: Peer,
    wake: Wake,
    inbox: Mutex<Inbox>,
    /// What has come was received.
    has_room: Notify,
    unsent: AtomicUsize,
}

/// What has come and was not received.
#[derive(Default)]
struct Inbox {
    came: VecDeque<(u64, Way, Came)>,
    bytes: usize,
    /// The session was woken, and has not received everything since.
    is_woken: bool,
}

impl Ways for SocketWays {
    fn send(&mut self, way: Way, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        let count = bytes.len();
        self.shared.unsent.fetch_add(count, Ordering::Relaxed);
        let open = self.open.entry(way).or_insert_with(|| {
            self.opened += 1;
            let (outgoing, to_send) = unbounded_channel();
            let (closed, is_closed) = watch::channel(false);
            let (number, shared) = (self.opened, Arc::clone(&self.shared));
            self.runtime.spawn(Task { way, number, shared, is_closed }.run(to_send));
            Open { number, outgoing: Some(outgoing), closed }
        });
        let is_taken = open.outgoing.as_ref().is_some_and(|to| to.send(bytes).is_ok());
        if !is_taken {
            // The way has ended, which the session learns when it receives.
            self.shared.unsent.fetch_sub(count, Ordering::Relaxed);
        }
    }

    fn unsent_bytes(&self) -> usize {
        self.shared.unsent.load(Ordering::Relaxed)
    }

    fn finish(&mut self, way: Way) {
        if let Some(open) = self.open.get_mut(&way) {
            open.outgoing = None;
        }
    }

    fn close(&mut self, way: Way) {
        let Some(Open { number, closed, .. }) = self.open.remove(&way) else { return };
        closed.send_replace(true);
        self.shared.forget(number);
    }

    fn receive(&mut self) -> Option<(Way, Came)> {
        loop {
            let (number, way, came) = self.shared.next()?;
            let is_open = self.open.get(&way).is_some_and(|open| open.number == number);
            if !is_open {
                // It was closed before this came.
                continue;
            }
            if came == Came::Ended {
                self.open.remove(&way);
            }
            return Some((way, came));
        }
    }

    fn wake_later(&mut self) {
        let wake = self.shared.wake.clone();
        self.runtime.spawn(async move {
            sleep(MOMENT).await;
            wake.wake();
        });
    }
}

impl Drop for SocketWays {
    fn drop(&mut self) {
        // The client's requests are still sent on, just as a server still reads what a client sent before it
        // went; nothing that comes back is kept.
        let ways: Vec<Way> = self.open.keys().copied().collect();
        ways.into_iter().for_each(|way| self.close(way));
    }
}

impl Shared {
    /// Takes what has come next.
    fn next(&self) -> Option<(u64, Way, Came)> {
        let mut inbox = self.inbox.lock();
        let next = inbox.came.pop_front();
        match &next {
            Some((_, _, Came::Bytes(bytes))) => {
                inbox.bytes -= bytes.len();
                if inbox.bytes < HELD_BYTES_MAX {
                    self.has_room.notify_waiters();
                }
            }
            Some((_, _, Came::Ended)) => {}
            None => inbox.is_woken = false,
        }
        next
    }

    /// Drops what has come on a way.
    fn forget(&self, number: u64) {
        let mut inbox = self.inbox.lock();
        inbox.came.retain(|(of, _, _)| *of != number);
        inbox.bytes = inbox.came.iter().map(|(_, _, came)| came.bytes()).sum();
        self.has_room.notify_waiters();
    }

    fn put(&self, number: u64, way: Way, came: Came) {
        let wakes = {
            let mut inbox = self.inbox.lock();
            inbox.bytes += came.bytes();
            inbox.came.push_back((number, way, came));
            !std::mem::replace(&mut inbox.is_woken, true)
        };
        if wakes {
            self.wake.wake();
        }
    }

    fn has_left(&self, count: usize) {
        let before = self.unsent.fetch_sub(count, Ordering::Relaxed);
        let after = before.saturating_sub(count);
        if before > UNSENT_LOW_BYTES && after <= UNSENT_LOW_BYTES {
            self.wake.wake();
        }
    }
}

impl Came {
    fn bytes(&self) -> usize {
        match self {
            Came::Bytes(bytes) => bytes.len(),
            Came::Ended => 0,
        }
    }
}

/// One way, for as long as it is open.
struct Task {
    way: Way,
    number: u64,
    shared: Arc<Shared>,
    is_closed: watch::Receiver<bool>,
}

impl Task {
    async fn run(self, mut to_send: UnboundedReceiver<Bytes>) {
        if let Err(error) = self.serve(&mut to_send).await {
            let Shared { door, client: Peer { address, .. }, .. } = &*self.shared;
            let shard = self.way.shard;
            tracing::debug!(door, %shard, client = %address, "a way to a shard has ended: {error}");
        }
        // Bytes that were not sent are no longer counted.
        to_send.close();
        while let Ok(bytes) = to_send.try_recv() {
            self.shared.has_left(bytes.len());
        }
        self.put(Came::Ended);
    }

    /// Serves the way to its end, and no longer than a moment once it was closed.
    async fn serve(&self, to_send: &mut UnboundedReceiver<Bytes>) -> io::Result<()> {
        let mut is_closed = self.is_closed.clone();
        let served = self.connect_and_converse(to_send);
        tokio::pin!(served);
        tokio::select! {
            ended = &mut served => return ended,
            _ = is_closed.wait_for(|is_closed| *is_closed) => {}
        }
        timeout(LAST_TIME, served).await.unwrap_or(Ok(()))
    }

    async fn connect_and_converse(&self, to_send: &mut UnboundedReceiver<Bytes>) -> io::Result<()> {
        let Shared { reach, door, client, .. } = &*self.shared;
        let link = reach.reach(self.way.shard, door, client).await?;
        self.converse(link, to_send).await
    }

    /// Leaves what has come to the session, if that still receives.
    fn put(&self, came: Came) {
        if !*self.is_closed.borrow() {
            self.shared.put(self.number, self.way, came);
        }
    }

    /// Waits until there is room for more.
    async fn room(&self) {
        loop {
            let has_room = self.shared.has_room.notified();
            tokio::pin!(has_room);
            has_room.as_mut().enable();
            let is_full = self.shared.inbox.lock().bytes >= HELD_BYTES_MAX;
            if !is_full || *self.is_closed.borrow() {
                return;
            }
            has_room.await;
        }
    }

    /// Carries bytes both ways until the shard's side ends.
    async fn converse(&self, link: Link, to_send: &mut UnboundedReceiver<Bytes>) -> io::Result<()> {
        let (reader, writer) = link.into_split();
        let reads = self.read(reader);
        tokio::pin!(reads);
        tokio::select! {
            ended = &mut reads => return ended,
            sent = self.write(writer, to_send) => sent?,
        }
        reads.await
    }

    async fn write(
        &self,
        mut writer: OwnedWriteHalf,
        to_send: &mut UnboundedReceiver<Bytes>,
    ) -> io::Result<()> {
        while let Some(bytes) = to_send.recv().await {
            let written = writer.write_all(&bytes).await;
            self.shared.has_left(bytes.len());
            written?;
        }
        writer.shutdown().await
    }

    async fn read(&self, mut reader: LinkReader) -> io::Result<()> {
        let mut piece = BytesMut::new();
        loop {
            self.room().await;
            piece.reserve(READ_BYTES);
            if reader.read_buf(&mut piece).await? == 0 {
                return Ok(());
            }
            self.put(Came::Bytes(piece.split().freeze()));
        }
    }
}
