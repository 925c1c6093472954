//! How many clients may be connected, how often they may send requests, and how many names a worker
//! may declare.
//!
//! Every listener of a server shares one [`Places`]: a connection takes a place when it is accepted.
//! [`RequestRates`] bounds the requests of each token and each address, [`WorkerNames`] what a server
//! keeps of what a worker can do. The first two are plain state behind
//! a lock, independent of sockets and protocols, and take the clock as an argument; so every crate
//! that listens can use them, whether it depends on the engine or not.
//!
//! Addresses of this machine have no limits of their own, because each has many clients behind it (a
//! proxy, the machine's workers). See [`client_at`].

mod client;
mod names;
mod places;
mod rates;

pub use client::client_at;
pub use names::{WORKER_NAMES_BYTES_MAX, WORKER_NAMES_MAX, WorkerNames};
pub use places::{DoorPlaces, Place, PlaceLimits, Places, Reason, Refusals, Taken};
pub use rates::{Excess, Of, RequestRates};
