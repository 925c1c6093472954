//! Which protocol a connection speaks, by its first bytes.

use super::draft;

/// What a connection turned out to be.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Protocol {
    /// The published protocol: binary packets and text lines, for [`super::Decoder`].
    Published,
    /// The draft, for [`draft::Decoder`].
    Draft,
    /// A browser or a TLS client: close at once, so that no web page can talk to this port.
    Stranger,
}

/// First bytes of things that are not Gearman clients.
const STRANGERS: [&[u8]; 11] = [
    b"GET ",
    b"POST ",
    b"PUT ",
    b"HEAD ",
    b"OPTIONS ",
    b"DELETE ",
    b"CONNECT ",
    b"PATCH ",
    b"TRACE ",
    b"PRI ",
    b"\x16\x03",
];

impl Protocol {
    /// Tells it from the first bytes of a connection; `None` when more are needed. A connection
    /// keeps its protocol.
    #[must_use]
    pub fn of(input: &[u8]) -> Option<Protocol> {
        let first = *input.first()?;
        if first == draft::MAGIC[0] {
            return Some(Protocol::Draft);
        }
        if STRANGERS.iter().any(|start| input.starts_with(start)) {
            return Some(Protocol::Stranger);
        }
        let may_become_a_stranger = STRANGERS.iter().any(|start| start.starts_with(input));
        (!may_become_a_stranger).then_some(Protocol::Published)
    }
}
