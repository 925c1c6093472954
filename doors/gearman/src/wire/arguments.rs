//! The arguments of a binary packet: NUL between them, the last one to the end.

use bytes::{Buf, Bytes};
use memchr::memchr;

/// What is left of a packet's data.
pub(super) struct Arguments(Bytes);

impl Arguments {
    pub fn new(data: Bytes) -> Arguments {
        Arguments(data)
    }

    /// The next argument, which must have a NUL behind it.
    pub fn next(&mut self) -> Option<Bytes> {
        let end = memchr(0, &self.0)?;
        let argument = self.0.split_to(end);
        self.0.advance(1);
        Some(argument)
    }

    /// The last argument, which may have any bytes.
    pub fn rest(&mut self) -> Bytes {
        std::mem::take(&mut self.0)
    }
}
