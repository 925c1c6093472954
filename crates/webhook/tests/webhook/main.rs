//! Webhooks against a local receiver and a real engine.
//!
//! - `receiver`: an HTTP server that a test scripts
//! - `delivery`: what is sent, how it is signed, what is tried again
//! - `page`: the examples of docs/webhooks.md
//! - `places`: where a restart goes on

#[cfg(test)]
mod delivery;
#[cfg(test)]
mod page;
#[cfg(test)]
mod places;
#[cfg(test)]
mod receiver;
