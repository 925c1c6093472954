//! Where the bytes of payloads and results are. The core never reads them.

use bytes::Bytes;

/// The type of some bytes, as the door that wrote them says; never guessed from the bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, prost::Enumeration)]
#[repr(i32)]
pub enum Type {
    /// Opaque bytes.
    Bytes = 0,
    /// UTF-8 JSON.
    Json = 1,
    /// MessagePack.
    Msgpack = 2,
}

/// Typed bytes by reference: a place in the log, or in memory for what is never logged.
///
/// The four bytes before `offset` hold the CRC-32C of the referenced bytes. A payload longer than
/// one record lies in consecutive records of chunks, and `position` names the first.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct BytesRef {
    /// Position of the record that holds the bytes, or of the first of its chunks.
    #[prost(uint64, tag = "1")]
    pub position: u64,
    /// Where in the record the bytes begin.
    #[prost(uint32, tag = "2")]
    pub offset: u32,
    /// How many bytes.
    #[prost(uint32, tag = "3")]
    pub len: u32,
    /// What they are.
    #[prost(enumeration = "Type", tag = "4")]
    pub kind: i32,
    /// The bytes themselves, for foreground jobs only.
    #[prost(bytes = "bytes", optional, tag = "5")]
    pub inline: Option<Bytes>,
}

impl BytesRef {
    /// No bytes, of no special type.
    pub const NONE: BytesRef = BytesRef { position: 0, offset: 0, len: 0, kind: 0, inline: None };

    /// Bytes in a record of the log.
    pub fn logged(position: u64, offset: u32, len: u32, kind: Type) -> BytesRef {
        BytesRef { position, offset, len, kind: kind as i32, inline: None }
    }

    /// Bytes kept in memory.
    pub fn in_memory(bytes: Bytes, kind: Type) -> BytesRef {
        let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        BytesRef { position: 0, offset: 0, len, kind: kind as i32, inline: Some(bytes) }
    }

    /// No bytes at all: nothing has to be read.
    pub fn empty(kind: Type) -> BytesRef {
        BytesRef::logged(0, 0, 0, kind)
    }

    /// The oldest record these bytes need, if they need one.
    pub fn needs(&self) -> Option<u64> {
        (self.inline.is_none() && self.len > 0).then_some(self.position)
    }
}
