//! How many connections may be open: over all listeners, at each, and from each address.
//!
//! A connection takes a place when it is accepted; without one it is closed at once, because a client
//! learns more from a closed connection than from one that is never accepted.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::client::client_at;

/// Limits on open connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlaceLimits {
    /// Over all listeners. Each takes a file descriptor.
    pub total: usize,
    /// At one listener.
    pub door: usize,
    /// From one client at one listener, see [`client_at`]; at least 1.
    pub address: usize,
}

impl PlaceLimits {
    /// This many in all. A listener has nine tenths of them, so that the others have room while one is
    /// flooded; a client has a quarter of what a listener has.
    pub fn of(total: usize) -> PlaceLimits {
        PlaceLimits::with(total, None, None)
    }

    /// The same, with limits at a listener and for a client that are given. None exceeds the one
    /// before it.
    pub fn with(total: usize, door: Option<usize>, address: Option<usize>) -> PlaceLimits {
        let door = door.unwrap_or_else(|| total - total / 10).min(total);
        let address = address.unwrap_or_else(|| door.div_ceil(4)).min(door).max(1);
        PlaceLimits { total, door, address }
    }

    /// This many at the only listener, from any address.
    pub fn alone(total: usize) -> PlaceLimits {
        PlaceLimits { total, door: total, address: total }
    }
}

/// The places for connections of a server. Clones share one state.
#[derive(Clone)]
pub struct Places {
    limits: Arc<dyn Fn() -> PlaceLimits + Send + Sync>,
    counts: Arc<Mutex<Counts>>,
    many_left: Arc<ManyLeft>,
}

/// What to do when many connections have closed.
#[derive(Default)]
struct ManyLeft(OnceLock<Box<dyn Fn() + Send + Sync>>);

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Places { limits, counts, many_left: _ } = self;
        f.debug_struct("Places")
            .field("limits", &limits())
            .field("counts", counts)
            .finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct Counts {
    open: usize,
    /// The most that were open since many closed.
    most: usize,
    doors: Vec<DoorCounts>,
    /// By the listener's number and the client. Clients without a place are not in it.
    clients: HashMap<(usize, IpAddr), usize>,
}

#[derive(Debug)]
struct DoorCounts {
    name: &'static str,
    open: usize,
    refused: Refusals,
    said: Said,
}

/// Why there is no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reason {
    /// Over all listeners.
    Server,
    /// At this listener.
    Door,
    /// For this client.
    Address,
}

impl Reason {
    /// All there are.
    pub const ALL: [Reason; 3] = [Reason::Server, Reason::Door, Reason::Address];

    /// As it stands in the metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Reason::Server => "server",
            Reason::Door => "door",
            Reason::Address => "address",
        }
    }
}

/// There is no place: which limit is reached, and what it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{}", self.text())]
pub struct Taken {
    /// Which limit.
    pub reason: Reason,
    /// Its value.
    pub limit: usize,
}

impl Taken {
    fn text(self) -> String {
        let Taken { reason, limit } = self;
        let (of, setting) = match reason {
            Reason::Server => ("the server", "connections-max"),
            Reason::Door => ("this door", "door-connections-max"),
            Reason::Address => ("this address at this door", "address-connections-max"),
        };
        format!("all {limit} places of {of} are taken (--{setting})")
    }
}

/// How many were refused at one listener since the start, by reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Refusals([u64; Reason::ALL.len()]);

impl Refusals {
    /// For this reason.
    pub fn count(self, reason: Reason) -> u64 {
        self.0[reason as usize]
    }
}

impl Places {
    /// No place is taken yet.
    pub fn new(limits: PlaceLimits) -> Places {
        Places::with_limits_of(move || limits)
    }

    /// The same, with limits that may change: they are asked for whenever a place is taken. Connections that have a
    /// place keep it when there are fewer.
    pub fn with_limits_of(limits: impl Fn() -> PlaceLimits + Send + Sync + 'static) -> Places {
        Places { limits: Arc::new(limits), counts: Arc::default(), many_left: Arc::default() }
    }

    /// Calls this whenever only half of the connections are left that were open at a time, if those
    /// were at least a hundred: what they had in memory is free. The closing thread calls it.
    #[must_use]
    pub fn when_many_left(self, call: impl Fn() + Send + Sync + 'static) -> Places {
        // The first one stays.
        let _ = self.many_left.0.set(Box::new(call));
        self
    }

    /// Places for another listener, by its name in the log and the metrics.
    pub fn door(&self, name: &'static str) -> DoorPlaces {
        let mut counts = self.counts.lock();
        let (refused, said) = (Refusals::default(), Said::default());
        counts.doors.push(DoorCounts { name, open: 0, refused, said });
        DoorPlaces { places: self.clone(), door: counts.doors.len() - 1 }
    }

    /// How many have a place now, by the listener's name.
    pub fn open(&self) -> Vec<(&'static str, usize)> {
        self.counts.lock().doors.iter().map(|door| (door.name, door.open)).collect()
    }

    /// How many were refused, by the listener's name.
    pub fn refusals(&self) -> Vec<(&'static str, Refusals)> {
        self.counts.lock().doors.iter().map(|door| (door.name, door.refused)).collect()
    }
}

impl Default for Places {
    /// Those of a server whose settings say nothing.
    fn default() -> Places {
        Places::new(PlaceLimits::of(10_000))
    }
}

/// The places at one listener. Clones share one state.
#[derive(Clone, Debug)]
pub struct DoorPlaces {
    places: Places,
    door: usize,
}

impl DoorPlaces {
    /// Takes a place for a client. A refusal is counted, and logged, but not too often.
    ///
    /// # Errors
    /// Which limit is reached: the connection is to be closed.
    pub fn take(&self, peer: SocketAddr) -> Result<Place, Taken> {
        let client = client_at(peer.ip());
        let limits = (self.places.limits)();
        let mut counts = self.places.counts.lock();
        if let Err(taken) = counts.fits(limits, self.door, client) {
            let door = &mut counts.doors[self.door];
            door.refused.0[taken.reason as usize] += 1;
            let (name, to_say) = (door.name, door.said.another(Instant::now()));
            drop(counts);
            if let Some(count) = to_say {
                tracing::warn!(%peer, count, "{name}: connections refused: {taken}");
            }
            return Err(taken);
        }
        counts.open += 1;
        counts.most = counts.most.max(counts.open);
        counts.doors[self.door].open += 1;
        if let Some(client) = client {
            *counts.clients.entry((self.door, client)).or_default() += 1;
        }
        Ok(Place { places: self.clone(), client })
    }
}

impl Counts {
    fn fits(&self, limits: PlaceLimits, door: usize, client: Option<IpAddr>) -> Result<(), Taken> {
        let of_client = client.and_then(|client| self.clients.get(&(door, client)));
        for (reason, open, limit) in [
            (Reason::Server, self.open, limits.total),
            (Reason::Door, self.doors[door].open, limits.door),
            // A local address counts for no client, and so has none.
            (Reason::Address, of_client.copied().unwrap_or_default(), limits.address),
        ] {
            if open >= limit {
                return Err(Taken { reason, limit });
            }
        }
        Ok(())
    }

    /// True once for each time that so many close.
    fn have_many_left(&mut self) -> bool {
        let have = self.most >= MANY && self.open <= self.most / 2;
        if have {
            self.most = self.open;
        }
        have
    }
}

/// The place of one open connection. Dropping it gives it back.
#[derive(Debug)]
pub struct Place {
    places: DoorPlaces,
    client: Option<IpAddr>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let DoorPlaces { places, door } = &self.places;
        let mut counts = places.counts.lock();
        counts.open -= 1;
        counts.doors[*door].open -= 1;
        if let Some(client) = self.client
            && let Entry::Occupied(mut count) = counts.clients.entry((*door, client))
        {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
        let many_left = counts.have_many_left();
        drop(counts);
        if many_left && let Some(call) = places.many_left.0.get() {
            call();
        }
    }
}

/// Fewer than these have little memory.
const MANY: usize = 100;

/// Keeps a flood of refusals from becoming a flood of log lines.
#[derive(Debug, Default)]
struct Said {
    last: Option<Instant>,
    /// Refusals since then.
    unsaid: u64,
}

impl Said {
    /// One more was refused: how many there were since the last line, if it is time for another.
    fn another(&mut self, now: Instant) -> Option<u64> {
        self.unsaid += 1;
        if self.last.is_some_and(|last| now.saturating_duration_since(last) < BETWEEN_LINES) {
            return None;
        }
        self.last = Some(now);
        Some(std::mem::take(&mut self.unsaid))
    }
}

/// The shortest time between two log lines about refusals at one listener.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    fn at(text: &str) -> SocketAddr {
        SocketAddr::new(text.parse().unwrap(), 1)
    }

    fn reason(places: &DoorPlaces, text: &str) -> Reason {
        places.take(at(text)).unwrap_err().reason
    }

    #[test]
    fn each_limit_holds_at_its_number_and_is_given_back() {
        let places = Places::new(PlaceLimits { total: 5, door: 3, address: 2 });
        let (one, other) = (places.door("one"), places.door("other"));
        let mut held = vec![one.take(at("192.0.2.1")).unwrap(), one.take(at("192.0.2.1")).unwrap()];
        assert_eq!(reason(&one, "192.0.2.1"), Reason::Address);
        held.push(one.take(at("192.0.2.2")).unwrap());
        assert_eq!(reason(&one, "192.0.2.3"), Reason::Door);
        // An address has its share at each door.
        held.push(other.take(at("192.0.2.1")).unwrap());
        held.push(other.take(at("192.0.2.1")).unwrap());
        assert_eq!(reason(&other, "192.0.2.9"), Reason::Server);
        assert_eq!(places.open(), [("one", 3), ("other", 2)]);
        let refused = places.refusals();
        assert_eq!(refused, [("one", Refusals([0, 1, 1])), ("other", Refusals([1, 0, 0]))]);
        held.remove(0);
        held.push(one.take(at("192.0.2.1")).unwrap());
        held.clear();
        assert_eq!(places.open(), [("one", 0), ("other", 0)]);
        let counts = places.counts.lock();
        assert_eq!((counts.open, counts.clients.len()), (0, 0));
    }

    #[test]
    fn a_place_is_kept_when_there_are_fewer_and_none_is_given_until_enough_are_back() {
        let total = Arc::new(AtomicUsize::new(3));
        let now = Arc::clone(&total);
        let limits = move || PlaceLimits::alone(now.load(Ordering::Relaxed));
        let door = Places::with_limits_of(limits).door("door");
        let mut held: Vec<Place> = (0..3).map(|_| door.take(at("127.0.0.1")).unwrap()).collect();
        let refused = |limit| Err(Taken { reason: Reason::Server, limit });
        assert_eq!(door.take(at("127.0.0.1")).map(drop), refused(3));
        total.store(2, Ordering::Relaxed);
        assert_eq!(door.take(at("127.0.0.1")).map(drop), refused(2));
        held.pop();
        assert_eq!(door.take(at("127.0.0.1")).map(drop), refused(2));
        held.pop();
        held.push(door.take(at("127.0.0.1")).unwrap());
        assert_eq!(held.len(), 2);
        total.store(4, Ordering::Relaxed);
        assert!(door.take(at("127.0.0.1")).is_ok());
    }

    #[test]
    fn addresses_of_this_machine_are_many_clients_and_a_network_of_ipv6_is_one() {
        let door = Places::new(PlaceLimits { total: 9, door: 9, address: 1 }).door("door");
        let local = ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1", "127.0.0.1"];
        let _held: Vec<Place> =
            local.iter().map(|address| door.take(at(address)).unwrap()).collect();
        let _first = door.take(at("2001:db8::1")).unwrap();
        assert_eq!(reason(&door, "2001:db8::ffff:2"), Reason::Address);
        let _second = door.take(at("2001:db8:0:1::1")).unwrap();
        let _mapped = door.take(at("::ffff:192.0.2.1")).unwrap();
        assert_eq!(reason(&door, "192.0.2.1"), Reason::Address);
    }

    #[test]
    fn a_door_has_nine_tenths_and_an_address_a_quarter_of_that() {
        let shares = [1, 2, 9, 10, 10_000].map(|total| {
            let PlaceLimits { door, address, .. } = PlaceLimits::of(total);
            (door, address)
        });
        assert_eq!(shares, [(1, 1), (2, 1), (9, 3), (9, 3), (9000, 2250)]);
        let given = PlaceLimits::with(100, Some(200), Some(300));
        assert_eq!(given, PlaceLimits::alone(100));
    }

    #[test]
    fn half_of_many_connections_leaving_is_noticed_once_each_time() {
        let calls = Arc::<AtomicUsize>::default();
        let count = Arc::clone(&calls);
        let places = Places::new(PlaceLimits::alone(1000)).when_many_left(move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        let door = places.door("door");
        let mut held = Vec::new();
        // How many are open, and how many calls there were then.
        for (open, expected) in [
            (99, 0),
            (0, 0),
            (100, 0),
            (51, 0),
            (50, 1),
            (0, 1),
            (300, 1),
            (150, 2),
            (75, 3),
            (0, 3),
        ] {
            held.truncate(open);
            held.resize_with(open, || door.take(at("127.0.0.1")).unwrap());
            assert_eq!(calls.load(Ordering::Relaxed), expected, "{open}");
        }
    }

    #[test]
    fn a_flood_of_refusals_is_a_line_now_and_then() {
        let mut said = Said::default();
        let begin = Instant::now();
        let lines = [0, 1, 9_999, 10_000, 10_001, 25_000]
            .map(|ms| said.another(begin + Duration::from_millis(ms)));
        assert_eq!(lines, [Some(1), None, None, Some(3), None, Some(2)]);
    }
}
