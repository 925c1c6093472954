//! LightJQ's messages, without sockets.
//!
//! Every body is one MessagePack map; a JSON body is turned into that first, so that there is one
//! reader. How MessagePack is read and written is in `spindle_msgpack`.

pub(crate) mod message;
mod negotiate;

pub use message::{
    Done, JobShown, NAME_BYTES_MAX, NewJob, Order, Outcome, Reason, Registration, TEXT_BYTES_MAX,
};
pub use negotiate::{Format, answer_format, body_format};
pub use spindle_msgpack::{
    DEPTH_MAX, Fields, Head, Pack, WireError, check, from_json, read_head, to_json, to_json_text,
    value_len,
};
