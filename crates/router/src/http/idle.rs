//! Connections to shards on which no request is.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use spindle_engine::Peer;

use super::line::Line;
use crate::Shard;

/// Idle connections of one client to one shard.
const OF_ONE_MAX: usize = 4;
/// Idle connections of all clients to all shards.
const OF_ALL_MAX: usize = 1024;
/// An idle connection is closed after this time, long before a door closes it.
const IDLE_TIME: Duration = Duration::from_secs(5);

/// The client and shard of a connection. A door identifies a client by its connection: by the address, the
/// certificate, and the token with which it looks at pages. So no other client's request goes over it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Whose {
    shard: Shard,
    address: IpAddr,
    encrypted: bool,
    certificate: Option<Arc<str>>,
    page_of: Option<Arc<str>>,
}

impl Whose {
    pub fn new(shard: Shard, peer: &Peer) -> Whose {
        let Peer { address, encrypted, certificate, page_of } = peer.clone();
        Whose { shard, address: address.ip(), encrypted, certificate, page_of }
    }
}

/// The idle connections.
#[derive(Clone, Default)]
pub(super) struct Idle(Arc<Mutex<Kept>>);

#[derive(Default)]
struct Kept {
    lines: HashMap<Whose, Vec<(Line, Instant)>>,
    count: usize,
    /// A task closes those that were idle for long.
    is_swept: bool,
}

impl Idle {
    /// Takes an idle connection of this client, for a request.
    pub fn take(&self, whose: &Whose) -> Option<Line> {
        let mut kept = self.0.lock();
        let lines = kept.lines.get_mut(whose)?;
        let before = lines.len();
        lines.retain(|(line, _)| !line.has_ended());
        let place = lines.iter().rposition(|(line, _)| line.is_idle());
        let found = place.map(|place| lines.remove(place).0);
        let gone = before - lines.len();
        if lines.is_empty() {
            kept.lines.remove(whose);
        }
        kept.count -= gone;
        found
    }

    /// Keeps a connection for the client's next request, unless there are enough.
    pub fn put(&self, whose: &Whose, line: Line) {
        if line.has_ended() {
            return;
        }
        let mut kept = self.0.lock();
        if kept.count >= OF_ALL_MAX {
            return;
        }
        let lines = kept.lines.entry(whose.clone()).or_default();
        if lines.len() >= OF_ONE_MAX {
            return;
        }
        lines.push((line, Instant::now()));
        kept.count += 1;
        if !std::mem::replace(&mut kept.is_swept, true) {
            tokio::spawn(sweep(Arc::downgrade(&self.0)));
        }
    }
}

/// Closes connections that were idle for long, until none is left.
async fn sweep(kept: Weak<Mutex<Kept>>) {
    let _marked = Swept(kept.clone());
    loop {
        tokio::time::sleep(IDLE_TIME / 2).await;
        let Some(kept) = kept.upgrade() else { return };
        let mut kept = kept.lock();
        kept.lines.retain(|_, lines| {
            lines.retain(|(line, since)| !line.has_ended() && since.elapsed() < IDLE_TIME);
            !lines.is_empty()
        });
        kept.count = kept.lines.values().map(Vec::len).sum();
        if kept.count == 0 {
            return;
        }
    }
}

/// Notes the end of the task, also if its thread ends: the next connection that is kept starts another.
struct Swept(Weak<Mutex<Kept>>);

impl Drop for Swept {
    fn drop(&mut self) {
        if let Some(kept) = self.0.upgrade() {
            kept.lock().is_swept = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_that_a_door_tells_apart_share_no_connection() {
        let peer = |address: &str, encrypted, certificate: Option<&str>| {
            let certificate = certificate.map(Arc::from);
            Peer { address: address.parse().unwrap(), encrypted, certificate, page_of: None }
        };
        let whose = Whose::new(Shard(1), &peer("10.0.0.1:7", true, Some("alice")));
        assert_eq!(whose, Whose::new(Shard(1), &peer("10.0.0.1:8", true, Some("alice"))));
        for (shard, other) in [
            (2, peer("10.0.0.1:7", true, Some("alice"))),
            (1, peer("10.0.0.2:7", true, Some("alice"))),
            (1, peer("10.0.0.1:7", false, Some("alice"))),
            (1, peer("10.0.0.1:7", true, Some("bob"))),
            (1, peer("10.0.0.1:7", true, None)),
            (1, Peer { page_of: Some("".into()), ..peer("10.0.0.1:7", true, Some("alice")) }),
        ] {
            assert_ne!(whose, Whose::new(Shard(shard), &other));
        }
    }
}
