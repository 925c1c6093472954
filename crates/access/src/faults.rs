//! Planted faults: switches that only the simulator turns on, to prove that it finds them.

/// What is planted. Never set any of it.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// No request is checked for permission.
    pub unasked: bool,
    /// The role is checked, but not whether the queue fits a pattern.
    pub queue_unasked: bool,
    /// It is not checked whether an identity has expired.
    pub expiry_unseen: bool,
    /// A connection keeps the identity that it came with, however the tokens file has changed.
    pub tokens_kept: bool,
}
