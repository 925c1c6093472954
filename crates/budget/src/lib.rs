//! A limit on the bytes that all clients together make the server hold.
//!
//! A limit for each connection does not protect a server: thirty clients that each stay below it
//! can hold more than the machine has. A [`Budget`] limits what all of them hold together. There
//! are two ([`Budgets`]): input that is not a whole request yet, and answers that clients do not
//! read. Sockets of lines and packets, HTTP and the jobd master share them.
//!
//! # How it works
//!
//! Everything that holds bytes for a client (a connection, a push) has an [`Account`] and says how
//! many it holds whenever that may have changed: the memory it has reserved, not only the part in
//! use. When the total exceeds the limit, the account with the most is closed, then the next, until
//! there is room. So a small request never pays for a large one.
//!
//! - Up to [`FREE_BYTES`] count as nothing. A holder of no more than that compares two numbers and
//!   touches no memory that others use.
//! - A holder of more swaps the number in its account and adds the difference to the total: two
//!   atomic operations. There is no lock, except when an account counts for the first time.
//! - The holder that makes the total exceed the limit searches all accounts under a lock, one load
//!   for each.
//! - A closed account no longer counts; its holder is asked to let go ([`Holder::let_go`]), which
//!   it does a moment later. Until then the server may exceed the limit, at most by the bytes of
//!   the closed accounts.
//!
//! When a flood has ended, the allocator still has its memory: [`Trimmer`] gives that back.

mod account;
mod registry;
mod trim;

pub use account::Account;
pub use registry::{Budget, Holder, Kind, Readings};
pub use trim::Trimmer;

/// What a holder may have without being counted, so that those who hold little cost nothing: about
/// what a connection takes anyway.
pub const FREE_BYTES: usize = 4 * 1024;

/// The budgets of a server.
#[derive(Clone, Debug)]
pub struct Budgets {
    /// Input that is not a whole request yet, or that waits for room to begin.
    pub input: Budget,
    /// Answers that have not left.
    pub output: Budget,
}

impl Budgets {
    /// Budgets of this many bytes each.
    pub fn new(input_bytes_max: usize, output_bytes_max: usize) -> Budgets {
        Budgets {
            input: Budget::new(Kind::Input, input_bytes_max),
            output: Budget::new(Kind::Output, output_bytes_max),
        }
    }

    /// Both.
    pub fn all(&self) -> [&Budget; 2] {
        [&self.input, &self.output]
    }
}

impl Default for Budgets {
    fn default() -> Budgets {
        Budgets::new(BYTES_MAX, BYTES_MAX)
    }
}

/// The limit of a budget on a machine with enough memory.
pub const BYTES_MAX: usize = 256 << 20;
