//! LightJQ's bytes, without sockets: MessagePack read and written, and what it says.
//!
//! Every body is one MessagePack map; a JSON body is turned into that first, so that there is one
//! reader. All readers are total: whatever the bytes, they return, in time and memory linear in
//! them, and never nest deeper than [`DEPTH_MAX`].

mod convert;
mod error;
mod fields;
mod message;
mod negotiate;
mod pack;
mod scan;

pub use convert::{from_json, to_json, to_json_text};
pub use error::WireError;
pub use fields::Fields;
pub use message::{
    Done, JobShown, NAME_BYTES_MAX, NewJob, Order, Outcome, Reason, Registration, TEXT_BYTES_MAX,
};
pub use negotiate::{Format, answer_format, body_format};
pub use pack::Pack;
pub use scan::{DEPTH_MAX, Head, check, read_head, value_len};
