//! Which one of a cluster's logs a log is.

use std::fmt;

use crate::glob;
use crate::queue::QueuePattern;
use crate::rendezvous::first;

/// The place of one log among all that make a cluster. It is logged when a server first begins on the log,
/// and never changes, because the places of queues and the meaning of ids depend on it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Seat {
    /// Its number, from 0.
    pub shard: u8,
    /// How many there are.
    pub shards: u8,
}

impl Seat {
    /// The shard that a queue is on: all queues of one [hash tag](hash_tag) are on the same. Found by
    /// rendezvous hashing, so that one more shard takes over its share of the queues, and no queue moves
    /// between the others.
    #[must_use]
    pub fn shard_of(self, queue: &[u8]) -> u8 {
        if queue == JOBQ_QUEUE {
            return 0;
        }
        let shard = first(hash_tag(queue).unwrap_or(queue), 0..u64::from(self.shards));
        shard.and_then(|shard| u8::try_from(shard).ok()).unwrap_or_default()
    }

    /// Whether all queues that a pattern takes are on one shard, whatever their names are.
    #[must_use]
    pub fn has_on_one_shard(self, pattern: &QueuePattern) -> bool {
        self.shards == 1
            || match pattern {
                QueuePattern::Any => false,
                QueuePattern::Exact(_) => true,
                QueuePattern::Glob(pattern) => {
                    let (begin, is_all) = glob::literal_prefix(pattern);
                    is_all || hash_tag(&begin).is_some()
                }
            }
    }
}

/// The part of a queue's name that says which shard it is on, if it is not the whole name: what is between
/// the first `{` and the next `}`, if that is anything. Redis Cluster places its keys by the same rule.
#[must_use]
pub fn hash_tag(queue: &[u8]) -> Option<&[u8]> {
    let tag = &queue[queue.iter().position(|byte| *byte == b'{')? + 1..];
    let tag = &tag[..tag.iter().position(|byte| *byte == b'}')?];
    (!tag.is_empty()).then_some(tag)
}

/// The queue of those Jobq jobs whose creator names none. It stays on one shard, so that a poll takes the
/// job that has not changed for longest.
pub const JOBQ_QUEUE: &[u8] = b"jobq";

impl Default for Seat {
    /// The only one.
    fn default() -> Seat {
        Seat { shard: 0, shards: 1 }
    }
}

impl fmt::Display for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.shards {
            1 => f.write_str("a log without shards"),
            shards => write!(f, "shard {} of {shards}, counted from 0", self.shard),
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn queues_of_one_hash_tag_are_on_one_shard() {
        for (queue, tag) in [
            ("{api}.fast", Some("api")),
            ("jobs.{api}", Some("api")),
            ("{api}", Some("api")),
            ("a{b}c{d}", Some("b")),
            ("{{api}}", Some("{api")),
            ("}{api}", Some("api")),
            ("{}{api}", None),
            ("{api", None),
            ("api}", None),
            ("", None),
        ] {
            assert_eq!(hash_tag(queue.as_bytes()), tag.map(str::as_bytes), "{queue}");
        }
        let seat = Seat { shard: 0, shards: 8 };
        for number in 0..100 {
            let queue = format!("{{api}}.{number}");
            assert_eq!(seat.shard_of(queue.as_bytes()), seat.shard_of(b"api"));
        }
        assert_ne!(seat.shard_of(b"{}a"), seat.shard_of(b"{}b"));
    }

    #[test]
    fn only_a_pattern_that_names_a_queue_or_a_whole_hash_tag_is_on_one_shard() {
        let (one, two) = (Seat::default(), Seat { shard: 1, shards: 2 });
        let glob =
            |pattern: &'static str| QueuePattern::Glob(Bytes::from_static(pattern.as_bytes()));
        for (pattern, is_on_one) in [
            (QueuePattern::Any, false),
            (QueuePattern::Exact(Bytes::from_static(b"mail")), true),
            (glob("mail"), true),
            (glob("mail.*"), false),
            (glob("{api}.*"), true),
            (glob("v?.{api}"), false),
            (glob("jobs.\\{api}*"), true),
            (glob("jobs.{api\\*}?"), true),
            (glob("{a?i}.x"), false),
            (glob("{api*}"), false),
            (glob("{}{api}*"), false),
            (glob("*"), false),
        ] {
            assert!(one.has_on_one_shard(&pattern), "{pattern:?}");
            assert_eq!(two.has_on_one_shard(&pattern), is_on_one, "{pattern:?}");
        }
    }
}
