//! Which protocol a connection speaks, by its first bytes.

use spindle_engine::door::is_stranger;

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

impl Protocol {
    /// Tells it from the first bytes of a connection; `None` when more are needed. A connection
    /// keeps its protocol.
    #[must_use]
    pub fn of(input: &[u8]) -> Option<Protocol> {
        if input.first() == Some(&draft::MAGIC[0]) {
            return Some(Protocol::Draft);
        }
        let of = |stranger| if stranger { Protocol::Stranger } else { Protocol::Published };
        is_stranger(input).map(of)
    }
}
