//! Planted faults: switches that only the simulator turns on, to prove that it finds them.

/// What is planted. Never set any of it.
#[doc(hidden)]
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Faults {
    /// Nobody is asked whether a request may be done.
    pub unasked: bool,
    /// The role is asked for, and not whether the queue fits a pattern.
    pub queue_unasked: bool,
    /// Nobody looks whether an identity's time is over.
    pub expiry_unseen: bool,
    /// A connection keeps the identity that it came with, however the tokens file has changed.
    pub tokens_kept: bool,
}
