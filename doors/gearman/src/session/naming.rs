//! How jobs of this door are named in the engine, so that submits of the same work find each
//! other: a key of the function and the unique, for as long as the job is unfinished.

use bytes::{BufMut, Bytes, BytesMut};
use rand::RngCore;
use sha2::{Digest, Sha256};
use spindle_core::job::{Key, Origin, Scope};

/// Stands for the payload.
const PAYLOAD_UNIQUE: &[u8] = b"-";

/// Tags that begin like this name the reducer of a job.
const REDUCER_TAG: &[u8] = b"gearman-reducer=";

/// The key of a job with this unique; none for an empty one, which joins nothing.
pub(super) fn key_of(function: &[u8], unique: &[u8], payload: &[u8]) -> Option<Key> {
    match unique {
        b"" => None,
        PAYLOAD_UNIQUE => Some(payload_key(function, payload)),
        _ => Some(unique_key(function, unique)),
    }
}

/// The key of a job with a unique of its own. The unique comes first, so that its job is found
/// without knowing the function.
fn unique_key(function: &[u8], unique: &[u8]) -> Key {
    let mut name = unique_prefix(unique);
    name.put_slice(function);
    key(name)
}

/// What the keys of a unique begin with, whatever the function.
pub(super) fn unique_prefix(unique: &[u8]) -> BytesMut {
    let mut name = BytesMut::with_capacity(unique.len() + 64);
    name.put_slice(unique);
    // Neither function names nor uniques have NULs in them.
    name.put_u8(0);
    name
}

/// The key of a job that is identified by its payload. Jobs without a payload are all different
/// (recorded), so their key is random.
fn payload_key(function: &[u8], payload: &[u8]) -> Key {
    // No unique begins with a NUL, so no unique of a client is this key.
    let mut name = BytesMut::zeroed(1);
    name.put_slice(function);
    name.put_u8(0);
    if payload.is_empty() {
        let mut drawn = [0; 16];
        rand::rng().fill_bytes(&mut drawn);
        name.put_slice(&drawn);
    } else {
        name.put_slice(&Sha256::digest(payload));
    }
    key(name)
}

fn key(name: BytesMut) -> Key {
    Key {
        namespace: Origin::Gearman as i32,
        name: name.freeze(),
        scope: Scope::WhileUnfinished as i32,
    }
}

/// The unique that a job was given; empty for none, and for jobs of other doors.
pub(super) fn shown_unique(keys: &[Key]) -> Bytes {
    let ours = |key: &&Key| key.namespace == Origin::Gearman as i32;
    let Some(key) = keys.iter().find(ours) else { return Bytes::new() };
    match memchr::memchr(0, &key.name) {
        Some(0) => Bytes::from_static(PAYLOAD_UNIQUE),
        Some(end) => key.name.slice(..end),
        None => Bytes::new(),
    }
}

/// The tags of a job with this reducer.
pub(super) fn reducer_tags(reducer: &[u8]) -> Vec<Bytes> {
    if reducer.is_empty() {
        return Vec::new();
    }
    vec![Bytes::from([REDUCER_TAG, reducer].concat())]
}

/// The reducer among a job's tags.
pub(super) fn reducer_of(tags: &[Bytes]) -> Option<Bytes> {
    tags.iter().find(|tag| tag.starts_with(REDUCER_TAG)).map(|tag| tag.slice(REDUCER_TAG.len()..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_work_has_one_key_and_other_work_another() {
        let key = |function: &str, unique: &str, payload: &str| {
            key_of(function.as_bytes(), unique.as_bytes(), payload.as_bytes())
        };
        assert_eq!(key("f", "u", "1"), key("f", "u", "2"));
        assert_ne!(key("f", "u", "1"), key("g", "u", "1"));
        assert_ne!(key("f", "u", "1"), key("f", "v", "1"));
        assert_eq!(key("f", "-", "1"), key("f", "-", "1"));
        assert_ne!(key("f", "-", "1"), key("f", "-", "2"));
        assert_ne!(key("f", "-", ""), key("f", "-", ""));
        assert_eq!(key("f", "", "1"), None);
    }

    #[test]
    fn a_job_shows_the_unique_it_was_given() {
        for unique in ["u", "-", "--", "a-b"] {
            let keys: Vec<Key> = key_of(b"f", unique.as_bytes(), b"work").into_iter().collect();
            assert_eq!(shown_unique(&keys), unique);
        }
        let foreign = Key { namespace: Origin::Api as i32, ..unique_key(b"f", b"u") };
        assert_eq!(shown_unique(&[foreign]), "");
        assert_eq!(shown_unique(&[]), "");
    }
}
