//! The wire: messages that end in EOT, and what is in them. No I/O.
//!
//! [`Frames`] cuts a connection's bytes into messages, [`decode`] reads one, the `encode_*`
//! functions write one. [`Arguments`] checks a request's `data` with the words of the original.

mod arguments;
mod frame;
mod javascript;
mod message;

pub use arguments::{Arguments, Concurrency};
pub use frame::{EOT, FrameError, Frames};
pub use message::{
    Malformed, Message, Request, Response, decode, encode_ping, encode_pong, encode_request,
    encode_response, raw,
};
