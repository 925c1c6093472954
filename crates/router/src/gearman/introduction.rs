//! What the client has said of itself, which the router repeats at the beginning of each way.

use std::collections::{BTreeMap, HashMap};

use bytes::{Bytes, BytesMut};
use spindle_gearman::client::Encode;
use spindle_gearman::wire::{CLIENT_ID_BYTES_MAX, Request};
use spindle_limits::WorkerNames;

use crate::{Placement, Shard};

/// What the client has said of itself. It holds a token: it is not for logs.
#[derive(Default)]
pub(super) struct Introduction {
    /// The line with its token.
    auth: Option<Bytes>,
    /// Its name for itself.
    id: Option<Bytes>,
    pub wants_exceptions: bool,
    /// What a worker can do, in the order it was said.
    abilities: BTreeMap<u64, Ability>,
    places: HashMap<Bytes, u64>,
    counted: WorkerNames,
    next_place: u64,
    /// For each shard, how many functions the worker can do there.
    shards: BTreeMap<Shard, usize>,
}

struct Ability {
    name: Bytes,
    timeout_ms: Option<u64>,
    /// Where its queue may have jobs.
    shards: Vec<Shard>,
}

/// What a way begins with.
pub(super) struct Opening {
    pub bytes: BytesMut,
    /// How many answers will come to it; the client has already got these.
    pub answers: usize,
    /// Whether it has requests that have no answer except an ERROR.
    pub is_unsettled: bool,
}

/// The worker has as many functions as it may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TooMany;

impl Introduction {
    /// The client has presented a token, in place of the one before.
    pub fn set_auth(&mut self, line: &Bytes) {
        self.auth = Some(Bytes::copy_from_slice(line));
    }

    /// The client has said its name for itself. Returns the packet, cut to what doors keep of the name.
    pub fn set_id(&mut self, id: &Bytes) -> Bytes {
        let kept = id.get(..CLIENT_ID_BYTES_MAX).unwrap_or(id);
        let kept = Bytes::copy_from_slice(kept);
        self.id = Some(kept.clone());
        encoded(&Request::SetClientId { id: kept })
    }

    /// The worker can do a function, whose queue is on these shards.
    ///
    /// # Errors
    ///
    /// The worker has as many functions as it may have.
    pub fn add(
        &mut self,
        shards: &[Shard],
        function: &Bytes,
        timeout_ms: Option<u64>,
    ) -> Result<(), TooMany> {
        let place = match self.places.get(function) {
            Some(known) => *known,
            None if self.counted.add(function.len()) => self.next_place,
            None => return Err(TooMany),
        };
        let name = Bytes::copy_from_slice(function);
        for shard in shards {
            *self.shards.entry(*shard).or_default() += 1;
        }
        let ability = Ability { name: name.clone(), timeout_ms, shards: shards.to_vec() };
        let before = self.abilities.insert(place, ability);
        before.iter().for_each(|before| self.count_out(&before.shards));
        if self.places.insert(name, place).is_none() {
            self.next_place += 1;
        }
        Ok(())
    }

    /// The worker cannot do a function any more. Returns the shards of the function's queue.
    pub fn remove(&mut self, function: &[u8]) -> Vec<Shard> {
        let place = self.places.remove(function);
        let Some(ability) = place.and_then(|place| self.abilities.remove(&place)) else {
            return Vec::new();
        };
        self.counted.remove(function.len());
        self.count_out(&ability.shards);
        ability.shards
    }

    fn count_out(&mut self, shards: &[Shard]) {
        for shard in shards {
            let count = self.shards.entry(*shard).or_default();
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.shards.remove(shard);
            }
        }
    }

    pub fn reset(&mut self) {
        self.abilities.clear();
        self.places.clear();
        self.counted = WorkerNames::default();
        self.shards.clear();
    }

    /// Functions whose queues are on other shards than they were, with their timeouts.
    pub fn moved(&self, placement: &Placement) -> Vec<(Bytes, Option<u64>)> {
        let is_moved = |it: &&Ability| placement.all_of(&it.name) != it.shards;
        let moved = self.abilities.values().filter(is_moved);
        moved.map(|it| (it.name.clone(), it.timeout_ms)).collect()
    }

    /// The shards that a function was last said to be on.
    pub fn shards_of(&self, function: &[u8]) -> Option<Vec<Shard>> {
        Some(self.abilities.get(self.places.get(function)?)?.shards.clone())
    }

    /// Shards with functions that the worker can do. If it can do none, the first shard, whose door then
    /// gives the usual answer.
    pub fn shards(&self) -> Vec<Shard> {
        let shards: Vec<Shard> = self.shards.keys().copied().collect();
        if shards.is_empty() { vec![Shard::FIRST] } else { shards }
    }

    /// Whether the worker can do functions of this shard.
    pub fn is_able_at(&self, shard: Shard) -> bool {
        self.shards.contains_key(&shard)
    }

    /// What a way to this shard begins with.
    pub fn opening(&self, shard: Shard) -> Opening {
        let mut opening = Opening { bytes: BytesMut::new(), answers: 0, is_unsettled: false };
        let bytes = &mut opening.bytes;
        if let Some(line) = &self.auth {
            bytes.extend_from_slice(line);
            opening.answers += 1;
        }
        if let Some(id) = &self.id {
            Request::SetClientId { id: id.clone() }.encode(bytes);
        }
        if self.wants_exceptions {
            exceptions_option().encode(bytes);
            opening.answers += 1;
        }
        for ability in self.abilities.values().filter(|it| it.shards.contains(&shard)) {
            let function = ability.name.clone();
            match ability.timeout_ms {
                None => Request::CanDo { function }.encode(bytes),
                Some(timeout_ms) => Request::CanDoTimeout { function, timeout_ms }.encode(bytes),
            }
            opening.is_unsettled = true;
        }
        opening
    }
}

/// What switches exceptions on.
pub(super) fn exceptions_option() -> Request {
    Request::Option { name: Bytes::from_static(b"exceptions") }
}

/// A request as clients send it.
pub(super) fn encoded(request: &Request) -> Bytes {
    let mut bytes = BytesMut::new();
    request.encode(&mut bytes);
    bytes.freeze()
}

/// The shard of the job with this handle. If there can be no such job, the first shard, whose door says so.
pub(super) fn shard_of_handle(placement: &Placement, handle: &[u8]) -> Shard {
    let id = spindle_core::address::from_gearman_handle(handle);
    let shard = id.map(Shard::of_job).filter(|shard| placement.has(*shard));
    shard.unwrap_or(Shard::FIRST)
}

#[cfg(test)]
mod tests {
    use spindle_core::job::JOB_ID_SEQUENCE_END;
    use spindle_limits::{WORKER_NAMES_BYTES_MAX, WORKER_NAMES_MAX};

    use super::*;

    fn name(text: &'static str) -> Bytes {
        Bytes::from_static(text.as_bytes())
    }

    #[test]
    fn a_way_begins_with_what_the_client_has_said_as_far_as_it_concerns_the_shard() {
        let mut said = Introduction::default();
        assert_eq!(said.shards(), [Shard::FIRST]);
        said.add(&[Shard(2)], &name("b"), None).unwrap();
        said.add(&[Shard(1)], &name("other"), None).unwrap();
        said.add(&[Shard(2)], &name("a"), Some(5000)).unwrap();
        said.add(&[Shard(2)], &name("b"), Some(0)).unwrap();
        said.add(&[Shard(2)], &name("gone"), None).unwrap();
        said.remove(b"gone");
        said.wants_exceptions = true;
        said.set_auth(&name("auth secret\n"));
        said.set_id(&Bytes::from(vec![b'x'; 200]));
        assert_eq!(said.shards(), [Shard(1), Shard(2)]);
        let opening = said.opening(Shard(2));
        assert_eq!((opening.answers, opening.is_unsettled), (2, true));
        let mut expected = BytesMut::from("auth secret\n");
        Request::SetClientId { id: vec![b'x'; 127].into() }.encode(&mut expected);
        exceptions_option().encode(&mut expected);
        Request::CanDoTimeout { function: name("b"), timeout_ms: 0 }.encode(&mut expected);
        Request::CanDoTimeout { function: name("a"), timeout_ms: 5000 }.encode(&mut expected);
        assert_eq!(opening.bytes, expected);
        said.remove(b"other");
        assert!(!said.is_able_at(Shard(1)));
        said.reset();
        assert_eq!(said.shards(), [Shard::FIRST]);
        assert!(!said.opening(Shard(2)).is_unsettled);
    }

    #[test]
    fn a_worker_can_do_as_much_as_at_one_server() {
        let mut said = Introduction::default();
        let name = |number: usize| Bytes::from(number.to_string());
        for number in 0..WORKER_NAMES_MAX {
            said.add(&[Shard((number % 3) as u8)], &name(number), None).unwrap();
        }
        assert_eq!(said.add(&[Shard(0)], &name(WORKER_NAMES_MAX), None), Err(TooMany));
        assert_eq!(said.add(&[Shard(1)], &name(1), Some(1)), Ok(()));
        said.remove(b"1");
        assert_eq!(said.add(&[Shard(0)], &name(WORKER_NAMES_MAX), None), Ok(()));
        said.reset();
        let most = Bytes::from(vec![b'n'; WORKER_NAMES_BYTES_MAX]);
        assert_eq!(said.add(&[Shard(0)], &most, None), Ok(()));
        assert_eq!(said.add(&[Shard(0)], &name(1), None), Err(TooMany));
    }

    #[test]
    fn a_handle_says_its_shard_and_one_of_nowhere_is_for_the_first() {
        let placement = Placement::over(3);
        let at = |number: u64| shard_of_handle(&placement, format!("H:host:{number}").as_bytes());
        assert_eq!(at(7), Shard(0));
        assert_eq!(at(2 * JOB_ID_SEQUENCE_END + 7), Shard(2));
        assert_eq!(at(3 * JOB_ID_SEQUENCE_END + 7), Shard(0));
        assert_eq!(shard_of_handle(&placement, b"nonsense"), Shard(0));
    }
}
