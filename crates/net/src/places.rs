//! How many connections may be open: over all listeners, at each, and from each address.
//!
//! All listeners of a server share one [`Places`], whichever crate serves them. A connection takes a
//! place when it is accepted; without one it is closed at once, because a client learns more from a
//! closed connection than from one that is never accepted.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use parking_lot::Mutex;

/// Limits on open connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PlaceLimits {
    /// Over all listeners. Each takes a file descriptor.
    pub total: usize,
    /// At one listener.
    pub door: usize,
    /// From one address at one listener. Addresses of this machine are not limited so: behind each
    /// are many clients. An IPv6 client has a whole /64.
    pub address: usize,
}

impl PlaceLimits {
    /// So many in all, as many at each listener, and a quarter of that from each address.
    pub fn of(total: usize) -> PlaceLimits {
        PlaceLimits { total, door: total, address: quarter(total) }
    }
}

impl Default for PlaceLimits {
    fn default() -> PlaceLimits {
        PlaceLimits::of(10_000)
    }
}

/// What one address may have of so many places.
pub fn quarter(places: usize) -> usize {
    places.div_ceil(4)
}

/// The places for connections of a server. Clones are the same.
#[derive(Clone, Debug)]
pub struct Places {
    limits: PlaceLimits,
    taken: Arc<Mutex<Counts>>,
}

#[derive(Debug, Default)]
struct Counts {
    total: usize,
    doors: Vec<usize>,
    addresses: HashMap<(usize, IpAddr), usize>,
}

/// The places at one listener. Clones are the same.
#[derive(Clone, Debug)]
pub struct DoorPlaces {
    places: Places,
    door: usize,
}

/// Why there is no place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Taken {
    /// Over all listeners.
    #[error("all {0} places of the server are taken")]
    Server(usize),
    /// At this listener.
    #[error("all {0} places of this door are taken")]
    Door(usize),
    /// For this address.
    #[error("all {0} places of this address at this door are taken")]
    Address(usize),
}

impl Default for Places {
    fn default() -> Places {
        Places::new(PlaceLimits::default())
    }
}

impl Places {
    /// Nobody has a place yet.
    pub fn new(limits: PlaceLimits) -> Places {
        Places { limits, taken: Arc::default() }
    }

    /// Places for another listener.
    pub fn door(&self) -> DoorPlaces {
        let mut taken = self.taken.lock();
        taken.doors.push(0);
        DoorPlaces { places: self.clone(), door: taken.doors.len() - 1 }
    }
}

impl DoorPlaces {
    /// Takes a place for a client at this address.
    ///
    /// # Errors
    /// Which limit is reached.
    pub fn take(&self, address: IpAddr) -> Result<Place, Taken> {
        let client = client_at(address);
        let PlaceLimits { total, door, address } = self.places.limits;
        let mut taken = self.places.taken.lock();
        let of_client = client.and_then(|client| taken.addresses.get(&(self.door, client)));
        if taken.total >= total {
            return Err(Taken::Server(total));
        }
        if taken.doors[self.door] >= door {
            return Err(Taken::Door(door));
        }
        if of_client.is_some_and(|count| *count >= address) {
            return Err(Taken::Address(address));
        }
        taken.total += 1;
        taken.doors[self.door] += 1;
        if let Some(client) = client {
            *taken.addresses.entry((self.door, client)).or_default() += 1;
        }
        Ok(Place { places: self.clone(), client })
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
        let mut taken = places.taken.lock();
        taken.total -= 1;
        taken.doors[*door] -= 1;
        let Some(client) = self.client else { return };
        if let Entry::Occupied(mut count) = taken.addresses.entry((*door, client)) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

/// Whom the connections of an address count for, if for anybody.
fn client_at(address: IpAddr) -> Option<IpAddr> {
    let address = match address.to_canonical() {
        IpAddr::V6(address) => {
            let network = u128::from(address) >> HOST_BITS << HOST_BITS;
            if address.is_loopback() { return None }
            IpAddr::V6(Ipv6Addr::from(network))
        }
        address => address,
    };
    (!address.is_loopback()).then_some(address)
}

/// Of an IPv6 address, so many bits are its owner's.
const HOST_BITS: u32 = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn each_limit_holds_at_its_number_and_is_given_back() {
        let places = Places::new(PlaceLimits { total: 5, door: 3, address: 2 });
        let (one, other) = (places.door(), places.door());
        let mut held = vec![one.take(ip("192.0.2.1")).unwrap(), one.take(ip("192.0.2.1")).unwrap()];
        assert_eq!(one.take(ip("192.0.2.1")).unwrap_err(), Taken::Address(2));
        held.push(one.take(ip("192.0.2.2")).unwrap());
        assert_eq!(one.take(ip("192.0.2.3")).unwrap_err(), Taken::Door(3));
        // An address has its share at each door.
        held.push(other.take(ip("192.0.2.1")).unwrap());
        held.push(other.take(ip("192.0.2.1")).unwrap());
        assert_eq!(other.take(ip("192.0.2.9")).unwrap_err(), Taken::Server(5));
        held.remove(0);
        held.push(one.take(ip("192.0.2.1")).unwrap());
        held.clear();
        let taken = places.taken.lock();
        assert_eq!((taken.total, &taken.doors[..], taken.addresses.len()), (0, &[0, 0][..], 0));
    }

    #[test]
    fn addresses_of_this_machine_are_many_clients_and_a_network_of_ipv6_is_one() {
        let door = Places::new(PlaceLimits { total: 100, door: 100, address: 1 }).door();
        let local = ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1", "127.0.0.1"];
        let _held: Vec<Place> =
            local.iter().map(|address| door.take(ip(address)).unwrap()).collect();
        let _first = door.take(ip("2001:db8::1")).unwrap();
        assert_eq!(door.take(ip("2001:db8::ffff:2")).unwrap_err(), Taken::Address(1));
        let _second = door.take(ip("2001:db8:0:1::1")).unwrap();
        let _mapped = door.take(ip("::ffff:192.0.2.1")).unwrap();
        assert_eq!(door.take(ip("192.0.2.1")).unwrap_err(), Taken::Address(1));
    }

    #[test]
    fn an_address_has_a_quarter_of_its_door() {
        let shares = [0, 1, 4, 5, 10_000].map(|total| PlaceLimits::of(total).address);
        assert_eq!(shares, [0, 1, 1, 2, 2500]);
    }
}
