//! One job of a route, and how it is recognized in whatever form a door gives its payload.

use base64::{Engine, prelude::BASE64_STANDARD};
use serde_json::Value;
use uuid::Uuid;

use super::{business, route::Route};

/// How long a worker has a job: short, so that what a crash took from its worker comes back soon.
pub const TTR_MS: u32 = 5_000;

/// A job of a route.
#[derive(Debug, Clone)]
pub struct Task {
    /// Its queue.
    pub queue: &'static str,
    /// Its place among those of its route, from 0.
    pub number: usize,
    /// What it carries: an object with the field `number`.
    pub payload: Value,
}

impl Task {
    /// The job of a route with this number: always the same.
    pub fn of(route: &Route, number: usize) -> Self {
        let mut payload = business::payload(route.queue, number as u64);
        payload.insert("number".to_owned(), number.into());
        Self { queue: route.queue, number, payload: Value::Object(payload) }
    }

    /// A name that no other task has: a submit that is repeated because its answer was lost makes no
    /// second job.
    pub fn key(&self) -> String {
        format!("{}-{}", self.queue, self.number)
    }

    /// The same as a UUID.
    pub fn uuid(&self) -> Uuid {
        let mut bytes = [0; 16];
        for (place, byte) in bytes.iter_mut().zip(self.queue.bytes()) {
            *place = byte;
        }
        if let Some(end) = bytes.get_mut(8..) {
            end.copy_from_slice(&(self.number as u64).to_be_bytes());
        }
        uuid::Builder::from_custom_bytes(bytes).into_uuid()
    }
}

/// The number in a payload that a worker got, if it is the one that was submitted: as JSON, as
/// MessagePack (a LightJQ pusher's), or as JSON in base64 (bytes for a LightJQ worker).
pub fn number_of(route: &Route, bytes: &[u8]) -> Option<usize> {
    let payload = match serde_json::from_slice(bytes) {
        Ok(Value::String(coded)) => {
            serde_json::from_slice(&BASE64_STANDARD.decode(coded).ok()?).ok()?
        }
        Ok(payload) => payload,
        Err(_) => spindle_msgpack::to_json(bytes).ok()?,
    };
    let number = usize::try_from(payload.get("number")?.as_u64()?).ok()?;
    (Task::of(route, number).payload == payload).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::route::ROUTES;

    #[test]
    fn a_payload_is_known_again_in_every_form_and_not_when_it_was_changed() {
        let route = &ROUTES[3];
        let task = Task::of(route, 41);
        let json = task.payload.to_string();
        let packed = spindle_msgpack::from_json(json.as_bytes()).unwrap();
        let coded = Value::from(BASE64_STANDARD.encode(&json)).to_string();
        for form in [json.as_bytes(), &packed, coded.as_bytes()] {
            assert_eq!(number_of(route, form), Some(41));
        }
        let other = Task::of(route, 42).payload.to_string().replace("42", "41");
        for form in [other.as_bytes(), b"", b"{}", b"41", b"\"x\""] {
            assert_eq!(number_of(route, form), None);
        }
    }

    #[test]
    fn no_two_tasks_have_a_uuid_or_a_key_in_common() {
        let tasks = ROUTES.iter().flat_map(|route| (0..50).map(|number| Task::of(route, number)));
        let (mut uuids, mut keys): (Vec<_>, Vec<_>) =
            tasks.map(|task| (task.uuid(), task.key())).unzip();
        uuids.sort();
        uuids.dedup();
        keys.sort();
        keys.dedup();
        assert_eq!((uuids.len(), keys.len()), (300, 300));
    }
}
