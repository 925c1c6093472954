//! Reading and writing MessagePack, and converting it to JSON. This is the only reader of it in the
//! server: LightJQ's bodies, payloads that constraints look into, and results shown as JSON go
//! through it.
//!
//! All readers are total: whatever the bytes, they return, in time and memory linear in them, and
//! never go deeper than [`DEPTH_MAX`].

mod convert;
mod error;
mod fields;
mod pack;
mod scan;

pub use convert::{AsJson, from_json, to_json, to_json_text};
pub use error::{DEPTH_MAX, WireError};
pub use fields::Fields;
pub use pack::Pack;
pub use scan::{Head, check, read_head, value_len};
