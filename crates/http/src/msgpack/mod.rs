//! MessagePack read and written, and how it reads as JSON.
//!
//! All readers are total: whatever the bytes, they return, in time and memory linear in them, and
//! never nest deeper than [`DEPTH_MAX`].

mod convert;
mod error;
mod fields;
mod pack;
mod scan;

pub use convert::{from_json, to_json, to_json_text};
pub use error::WireError;
pub use fields::Fields;
pub use pack::Pack;
pub use scan::{DEPTH_MAX, Head, check, read_head, value_len};
