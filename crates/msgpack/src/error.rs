//! Why bytes are no message.

use thiserror::Error;

/// How many arrays and maps may lie within each other. JSON's reader stops there as well.
pub const DEPTH_MAX: usize = 128;

/// Why bytes are no message. The texts are for the people who sent them.
#[derive(Clone, PartialEq, Eq, Debug, Error)]
pub enum WireError {
    /// The bytes end before the value does.
    #[error("the MessagePack ends in the middle of a value")]
    Truncated,
    /// There is more than one value.
    #[error("{0} bytes follow the MessagePack value")]
    Trailing(usize),
    /// The one byte that means nothing.
    #[error("byte 0xc1 begins no MessagePack value")]
    Reserved,
    /// Too many values within each other.
    #[error("values nest deeper than {DEPTH_MAX}")]
    TooDeep,
    /// Not JSON, though it was said to be.
    #[error("the body is not JSON: {0}")]
    BadJson(String),
    /// Not a map.
    #[error("{0} must be a map")]
    NotAMap(&'static str),
    /// A key of the message that is no text.
    #[error("the keys of the message must be strings")]
    KeyNotText,
    /// Which of two would hold?
    #[error("`{0}` is there twice")]
    Duplicate(&'static str),
    /// Something without a default is not there.
    #[error("`{0}` is missing")]
    Missing(&'static str),
    /// Something of another type than it has to be.
    #[error("`{field}` must be {wanted}")]
    WrongType {
        /// Which field.
        field: &'static str,
        /// What it must be.
        wanted: &'static str,
    },
    /// Of the right type, but not a value it may have.
    #[error("`{field}` must be {wanted}")]
    OutOfRange {
        /// Which field.
        field: &'static str,
        /// What it may be.
        wanted: &'static str,
    },
}

impl WireError {
    /// A field of the right type with a value that it may not have.
    pub fn out_of_range(field: &'static str, wanted: &'static str) -> WireError {
        WireError::OutOfRange { field, wanted }
    }
}
