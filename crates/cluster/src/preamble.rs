//! What a node sends to the leader before a client's bytes, so that the leader knows whose they are.
//!
//! ```text
//! "SPNODE" | version u8 | length u16, big-endian | JSON: {"key", "door", "client", "shard", "known"}
//! ```
//!
//! Behind it come the client's own bytes, and nothing else from the node. With `known`, the node has ended the
//! client's TLS, and they are plain.

use std::io;
use std::net::SocketAddr;

use serde::{Deserialize, Serialize};
use spindle_engine::Peer;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::entrance::Arriving;

const MAGIC: &[u8; 6] = b"SPNODE";
const VERSION: u8 = 1;
const HEAD_BYTES: usize = MAGIC.len() + 3;
/// The most bytes of a preamble behind its head.
const BODY_BYTES_MAX: u16 = 4096;

/// Says for which client a node opens a connection to the leader.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Preamble {
    /// The key that the leader has announced; it shows that the follower is of this cluster.
    pub key: String,
    /// The door that the client came to.
    pub door: String,
    /// The client's address.
    pub client: SocketAddr,
    /// The shard whose leader is meant; 0 where there is one log only.
    #[serde(default)]
    pub shard: u8,
    /// How the client has come in, if its bytes are not handed on as they came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub known: Option<Known>,
}

/// What a node knows of a client whose TLS it has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Known {
    /// It came with TLS.
    pub encrypted: bool,
    /// The common name of the certificate that it has shown and that was verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// The node itself asks, for pages that the client looks at; the digest of the client's token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub page_of: Option<String>,
}

impl Preamble {
    /// For a client whose bytes are handed on to a door as they come.
    pub fn as_it_comes(key: String, door: &str, client: SocketAddr) -> Preamble {
        Preamble { key, door: door.to_owned(), client, shard: 0, known: None }
    }

    /// For a client of a door of a shard, whose bytes follow in plain.
    pub fn of_known(key: String, shard: u8, door: &str, client: &Peer) -> Preamble {
        let Peer { address, encrypted, certificate, page_of } = client.clone();
        let [certificate, page_of] = [certificate, page_of].map(|it| it.map(|it| it.to_string()));
        let known = Some(Known { encrypted, certificate, page_of });
        Preamble { key, door: door.to_owned(), client: address, shard, known }
    }

    /// The client that comes.
    pub fn arrival(&self) -> Arriving {
        match self.known.clone() {
            None => Arriving::At(self.client),
            Some(Known { encrypted, certificate, page_of }) => {
                let [certificate, page_of] = [certificate, page_of].map(|it| it.map(Into::into));
                Arriving::Known(Peer { address: self.client, encrypted, certificate, page_of })
            }
        }
    }
}

/// Why a connection is no follower's.
#[derive(Debug, thiserror::Error)]
pub enum PreambleError {
    /// It is something else.
    #[error("it does not begin as one")]
    NotOne,
    /// It is of a version that this release does not know.
    #[error("it is of version {0}, this program knows {VERSION}")]
    Version(u8),
    /// It has more bytes than one may have.
    #[error("it has {0} bytes, over the {BODY_BYTES_MAX} that one may have")]
    TooLong(u16),
    /// Behind its head is no preamble.
    #[error("it does not read: {0}")]
    Malformed(#[from] serde_json::Error),
    /// The connection broke off.
    #[error("it broke off: {0}")]
    Io(#[from] io::Error),
}

impl Preamble {
    /// The bytes of it.
    ///
    /// # Errors
    ///
    /// They are more than one may have.
    pub fn write(&self) -> Result<Vec<u8>, PreambleError> {
        let body = serde_json::to_vec(self)?;
        let length = u16::try_from(body.len()).unwrap_or(u16::MAX);
        if length > BODY_BYTES_MAX {
            return Err(PreambleError::TooLong(length));
        }
        let mut bytes = MAGIC.to_vec();
        bytes.push(VERSION);
        bytes.extend_from_slice(&length.to_be_bytes());
        bytes.extend_from_slice(&body);
        Ok(bytes)
    }

    /// Reads a preamble, and not a byte of what comes behind it.
    ///
    /// # Errors
    ///
    /// The connection is no follower's, and why.
    pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> Result<Preamble, PreambleError> {
        let mut head = [0; HEAD_BYTES];
        from.read_exact(&mut head).await?;
        let [magic @ .., version, high, low] = &head;
        if magic != MAGIC {
            return Err(PreambleError::NotOne);
        }
        if *version != VERSION {
            return Err(PreambleError::Version(*version));
        }
        let length = u16::from_be_bytes([*high, *low]);
        if length > BODY_BYTES_MAX {
            return Err(PreambleError::TooLong(length));
        }
        let mut body = vec![0; usize::from(length)];
        from.read_exact(&mut body).await?;
        Ok(serde_json::from_slice(&body)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preamble() -> Preamble {
        Preamble::as_it_comes("ab".repeat(32), "workq", "[2001:db8::1]:4711".parse().unwrap())
    }

    #[tokio::test]
    async fn it_says_who_comes_to_which_shard() {
        let address = "10.1.2.3:4711".parse().unwrap();
        let page_of = Some("ab".repeat(32).into());
        for (certificate, page_of) in [(None, page_of), (Some("worker-7".into()), None)] {
            let peer = Peer { address, encrypted: true, certificate, page_of };
            let said = Preamble::of_known("key".to_owned(), 3, "gearman", &peer);
            let read = Preamble::read(&mut &said.write().unwrap()[..]).await.unwrap();
            assert_eq!((read.shard, &*read.door), (3, "gearman"));
            assert_eq!(read.arrival(), Arriving::Known(peer));
        }
        assert_eq!(preamble().arrival(), Arriving::At(preamble().client));
        // As a node writes it that knows nothing of shards.
        let body = br#"{"key":"k","door":"workq","client":"10.1.2.3:1"}"#;
        let mut old = b"SPNODE\x01\0".to_vec();
        old.push(u8::try_from(body.len()).unwrap());
        old.extend_from_slice(body);
        let read = Preamble::read(&mut &old[..]).await.unwrap();
        assert_eq!((read.shard, read.known), (0, None));
    }

    #[tokio::test]
    async fn it_reads_back_and_leaves_the_clients_bytes() {
        let mut bytes = preamble().write().unwrap();
        bytes.extend_from_slice(b"add ...");
        let mut from = &bytes[..];
        assert_eq!(Preamble::read(&mut from).await.unwrap(), preamble());
        assert_eq!(from, b"add ...");
    }

    #[tokio::test]
    async fn anything_else_is_refused() {
        let whole = preamble().write().unwrap();
        for cut in 0..whole.len() {
            assert!(Preamble::read(&mut &whole[..cut]).await.is_err(), "cut at {cut}");
        }
        for (at, byte) in [(0, b'X'), (6, 9), (7, 0xff), (9, b'[')] {
            let mut bytes = whole.clone();
            bytes[at] = byte;
            assert!(Preamble::read(&mut &bytes[..]).await.is_err(), "{at}");
        }
        assert!(Preamble { door: "d".repeat(5000), ..preamble() }.write().is_err());
    }
}
