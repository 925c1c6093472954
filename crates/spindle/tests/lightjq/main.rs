//! The real program with pushers and workers in another language, by nothing but the protocol.

#[cfg(test)]
mod python;
#[cfg(test)]
mod server;
