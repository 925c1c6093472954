//! Which shard a request is for, by what its path and its body say.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use percent_encoding::percent_decode_str;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use spindle_core::{JobId, address};
use uuid::Uuid;

use crate::{Placement, Shard};

/// Where something is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// On this shard, or nowhere.
    On(Shard),
    /// Its name does not say where.
    Somewhere,
}

impl Placement {
    /// Where the job or batch with this number is. A number that belongs to no shard is that of no job:
    /// any shard can say so.
    pub(super) fn of_id(&self, id: u64) -> Shard {
        let shard = Shard::of_job(JobId(id));
        if self.has(shard) { shard } else { Shard::FIRST }
    }

    /// Where the job is that a segment of a path names, as the API reads it.
    pub(super) fn of_job_named(&self, segment: &str) -> Place {
        let name = percent_decode_str(segment).decode_utf8_lossy();
        let id = address::from_decimal(name.as_bytes())
            .or_else(|| address::from_gearman_handle(name.as_bytes()));
        let uuid = Uuid::try_parse(&name).ok().map(Uuid::into_bytes);
        match (id.or_else(|| address::foreign_job(&uuid?)), uuid) {
            (Some(id), _) => Place::On(self.of_id(id.0)),
            (None, Some(_)) => Place::Somewhere,
            // It is no valid name: any shard says so.
            (None, None) => Place::On(Shard::FIRST),
        }
    }

    /// Where the batch is that a segment of a path names.
    pub(super) fn of_batch_named(&self, segment: &str) -> Shard {
        let name = percent_decode_str(segment).decode_utf8_lossy();
        name.parse().map_or(Shard::FIRST, |id| self.of_id(id))
    }

    /// Where the queue is that a segment of a path names: any bytes, percent-encoded.
    pub(super) fn of_queue_named(&self, segment: &str) -> Vec<Shard> {
        self.all_of(&percent_decode_str(segment).collect::<Vec<u8>>())
    }

    /// Where the lease is that has this token: its first bytes are the job's number.
    pub(super) fn of_token(&self, token: &str) -> Shard {
        let bytes = URL_SAFE_NO_PAD.decode(token).unwrap_or_default();
        bytes.first_chunk().map_or(Shard::FIRST, |id| self.of_id(u64::from_be_bytes(*id)))
    }
}

/// The queue that a body names. The rest of the body is not looked at.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct QueueNamed {
    queue: Option<String>,
    queue_base64: Option<String>,
}

impl QueueNamed {
    /// Where it is; none if no queue is named, or in a way that no shard takes.
    pub fn shard(&self, placement: &Placement) -> Option<Shard> {
        let name = queue_of(self.queue.as_deref(), self.queue_base64.as_deref())?;
        Some(placement.of(&name))
    }
}

/// The name of a queue, given as text or in base64.
pub(super) fn queue_of(text: Option<&str>, base64: Option<&str>) -> Option<Vec<u8>> {
    match (text, base64) {
        (Some(text), None) => Some(text.as_bytes().to_vec()),
        (None, Some(base64)) => STANDARD.decode(base64).ok(),
        (Some(text), Some(base64)) => {
            STANDARD.decode(base64).ok().filter(|name| name == text.as_bytes())
        }
        (None, None) => None,
    }
}

/// Reads the fields of `T` from a JSON object. None if that fails: then the request goes to a shard as it
/// is, which reads more of it and says what is wrong.
pub(super) fn said<T: DeserializeOwned>(raw: &[u8]) -> Option<T> {
    // A list would be taken for the fields in their order.
    let is_object = raw.trim_ascii_start().starts_with(b"{");
    is_object.then(|| serde_json::from_slice(raw).ok())?
}

#[cfg(test)]
mod tests {
    use spindle_core::job::JOB_ID_SEQUENCE_END;

    use super::*;

    const ON_TWO: u64 = 2 * JOB_ID_SEQUENCE_END + 7;

    #[test]
    fn a_jobs_names_say_its_shard() {
        let placement = Placement::over(3);
        let foreign = Uuid::from_bytes(address::foreign_uuid(JobId(ON_TWO))).to_string();
        for name in [
            ON_TWO.to_string(),
            format!("H:box:{ON_TWO}"),
            format!("H%3abox%3A{ON_TWO}"),
            foreign.clone(),
            foreign.to_uppercase(),
        ] {
            assert_eq!(placement.of_job_named(&name), Place::On(Shard(2)), "{name}");
        }
        let own = "6ba7b810-9dad-11d1-80b4-00c04fd430c4";
        assert_eq!(placement.of_job_named(own), Place::Somewhere);
        let of_no_shard = (7 * JOB_ID_SEQUENCE_END).to_string();
        for name in ["7", "", "x", "%ff", "-1", "18446744073709551615", &of_no_shard] {
            assert_eq!(placement.of_job_named(name), Place::On(Shard(0)), "{name}");
        }
    }

    #[test]
    fn tokens_and_batches_say_their_shard_and_anything_else_is_of_the_first() {
        let placement = Placement::over(3);
        let mut token = ON_TWO.to_be_bytes().to_vec();
        token.extend([0; 12]);
        assert_eq!(placement.of_token(&URL_SAFE_NO_PAD.encode(token)), Shard(2));
        assert_eq!(placement.of_batch_named(&ON_TWO.to_string()), Shard(2));
        for text in ["", "AAAA", "%", "=====", "\u{fffd}"] {
            assert_eq!(placement.of_token(text), Shard(0), "{text}");
            assert_eq!(placement.of_batch_named(text), Shard(0), "{text}");
        }
    }

    #[test]
    fn queues_are_named_by_bytes() {
        let placement = Placement::over(8);
        let name = b"\xff/a b";
        assert_eq!(placement.of_queue_named("%FF%2fa%20b"), [placement.of(name)]);
        assert_eq!(queue_of(None, Some("/y9hIGI=")).as_deref(), Some(&name[..]));
        assert_eq!(queue_of(Some("a"), Some("YQ==")).as_deref(), Some(&b"a"[..]));
        assert_eq!(queue_of(Some("a"), Some("Yg==")), None);
        assert_eq!(queue_of(None, Some("!")), None);
    }
}
