//! The names the API gives jobs: unique keys and idempotency keys, in one namespace of the core.

use bytes::{Bytes, BytesMut};
use sha2::{Digest, Sha256};
use spindle_core::JobImage;
use spindle_core::job::{Key, Origin, Scope};

use spindle_http::{Answered, Problem};

/// Unique keys and idempotency keys have at most this many characters, a limit that a JSON schema
/// can express too.
pub(crate) const KEY_CHARS_MAX: usize = 255;

const UNIQUE: &[u8] = b"u\0";
const ONCE: &[u8] = b"i\0";
const REQUEST: &[u8] = b"r\0";
/// How the names of imported jobs begin.
const IMPORTED: &str = "import:";

/// Refuses a key that is empty or has more than [`KEY_CHARS_MAX`] characters.
pub(crate) fn check(name: &str, chars: usize) -> Answered<()> {
    if (1..=KEY_CHARS_MAX).contains(&chars) {
        return Ok(());
    }
    Err(Problem::out_of_range(format!("{name} has 1 to {KEY_CHARS_MAX} characters")))
}

/// A key that at most one unfinished job of a queue holds.
pub(crate) fn unique(queue: &[u8], key: &[u8]) -> Key {
    // The key is the last part, so the keys of two queues differ whatever the key contains.
    let queue_bytes = (queue.len() as u16).to_be_bytes();
    named(&[UNIQUE, &queue_bytes, queue, key], Scope::WhileUnfinished)
}

/// The unique key a job holds.
pub(crate) fn unique_of(image: &JobImage) -> Option<String> {
    let key = image.options().keys.iter().find_map(|key| {
        let rest = own(key)?.strip_prefix(UNIQUE)?;
        let (len, rest) = rest.split_first_chunk::<2>()?;
        rest.get(usize::from(u16::from_be_bytes(*len))..)
    })?;
    Some(String::from_utf8_lossy(key).into_owned())
}

/// The two keys that make a submit safe to repeat: the idempotency key that the client chose, and
/// one for the content of the request.
pub(crate) fn once(key: &[u8], request: &[u8]) -> [Key; 2] {
    let asked = Sha256::digest(request);
    [named(&[ONCE, key], Scope::WhileKept), named(&[REQUEST, &asked[..16], key], Scope::WhileKept)]
}

/// Whether a job was submitted with this idempotency key, and if so, by the same request.
pub(crate) fn is_same(image: &JobImage, [key, request]: &[Key; 2]) -> Option<bool> {
    let has = |wanted: &Key| image.options().keys.iter().any(|key| key.name == wanted.name);
    has(key).then(|| has(request))
}

/// The key of an imported job: a line of an export makes one job, however often it is imported, as
/// long as that job is kept. It is an idempotency key, and can be looked for as one.
pub(crate) fn reference(id: u64, created_at: &str, payload: &[u8]) -> [Key; 2] {
    let sum = Sha256::digest(payload);
    let sum: String = sum[..8].iter().map(|byte| format!("{byte:02x}")).collect();
    let name = reference_name(id, created_at);
    once(format!("{IMPORTED}{name}:{sum}").as_bytes(), IMPORTED.as_bytes())
}

/// The part of the key that names a job at the server it comes from.
pub(crate) fn reference_name(id: u64, created_at: &str) -> String {
    format!("{id}:{created_at}")
}

/// How the [`reference`] of a job of this name begins, whatever its payload.
pub(crate) fn reference_beginning(name: &str) -> Key {
    let [key, _] = once(format!("{IMPORTED}{name}:").as_bytes(), IMPORTED.as_bytes());
    key
}

/// Whether a key is a [`reference`].
pub(crate) fn is_reference(key: &Key) -> bool {
    let rest = own(key).map(|name| name.strip_prefix(ONCE).or(name.get(18..)).unwrap_or_default());
    rest.is_some_and(|rest| rest.starts_with(IMPORTED.as_bytes()))
}

fn named(parts: &[&[u8]], scope: Scope) -> Key {
    let mut name = BytesMut::new();
    parts.iter().for_each(|part| name.extend_from_slice(part));
    Key { namespace: Origin::Api as i32, name: name.freeze(), scope: scope as i32 }
}

fn own(key: &Key) -> Option<&Bytes> {
    (key.namespace == Origin::Api as i32).then_some(&key.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_of_two_queues_never_meet() {
        assert_ne!(unique(b"ab", b"c"), unique(b"a", b"bc"));
        assert_ne!(unique(b"a", b"x"), unique(b"b", b"x"));
        assert_ne!(unique(b"", b"x").name, once(b"x", b"")[0].name);
    }

    #[test]
    fn a_job_tells_its_unique_key_whatever_its_queue() {
        let mut image = JobImage::default();
        assert_eq!(unique_of(&image), None);
        image.options_mut().keys = once(b"k", b"body").to_vec();
        assert_eq!(unique_of(&image), None);
        image.options_mut().keys.push(unique(&[0xff; 300], b"order 7"));
        assert_eq!(unique_of(&image).as_deref(), Some("order 7"));
        assert_eq!(is_same(&image, &once(b"k", b"body")), Some(true));
        assert_eq!(is_same(&image, &once(b"k", b"other")), Some(false));
        assert_eq!(is_same(&image, &once(b"l", b"body")), None);
    }
}
