//! The client library for Rust with the real program: its calls and its workers, with a server that
//! is killed in the middle of each.

#[cfg(test)]
mod calls;
#[cfg(test)]
mod examples;
#[cfg(test)]
mod flows;
#[cfg(test)]
mod interrupted;
#[cfg(test)]
mod proxy;
#[cfg(test)]
mod readme;
#[cfg(test)]
mod security;
#[cfg(test)]
mod server;
#[cfg(test)]
mod worker;
