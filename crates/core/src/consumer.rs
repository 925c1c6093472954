//! Consumers: programs that follow the feed of what happens, each known by a name, and the place up
//! to which each has dealt with everything. Webhooks are consumers.
//!
//! They are kept in the log, so a server that takes the log over, after a restart or as another
//! node of a cluster, continues where the one before it was.

use bytes::Bytes;

/// Longest name of a consumer.
pub const CONSUMER_NAME_BYTES_MAX: usize = 64;

/// At most this many consumers are remembered. One more replaces the one that has not moved for
/// longest, because nobody tells the server that a consumer no longer exists.
pub const CONSUMERS_MAX: usize = 64;

/// A consumer, and where it is.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Consumer {
    /// Its name, from 1 byte on.
    #[prost(bytes = "bytes", tag = "1")]
    pub name: Bytes,
    /// It has dealt with all records before this one ...
    #[prost(uint64, tag = "2")]
    pub position: u64,
    /// ... and with so many events of this one.
    #[prost(uint32, tag = "3")]
    pub index: u32,
}

/// All that are remembered.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Consumers {
    /// In the order in which they last moved, the latest at the end.
    #[prost(message, repeated, tag = "1")]
    pub moved: Vec<Consumer>,
}

impl Consumers {
    /// One of them; none if it was never there or is forgotten.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&Consumer> {
        self.moved.iter().find(|it| it.name == name)
    }

    pub(crate) fn note(&mut self, consumer: &Consumer) {
        self.moved.retain(|it| it.name != consumer.name);
        if self.moved.len() >= CONSUMERS_MAX {
            self.moved.remove(0);
        }
        self.moved.push(consumer.clone());
    }
}
