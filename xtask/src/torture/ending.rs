//! The end of a server under load, as its clients see it.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail};

/// Whether the server is about to end, and what happened to clients that should not have.
#[derive(Default)]
pub struct Ending {
    has_begun: AtomicBool,
    surprises: Mutex<Vec<String>>,
}

impl Ending {
    /// From now on a connection that breaks is no surprise.
    pub fn begin(&self) {
        self.has_begun.store(true, Ordering::SeqCst);
    }

    pub fn has_begun(&self) -> bool {
        self.has_begun.load(Ordering::SeqCst)
    }

    /// A client is done. A server that is ending may cut its connection, but never says anything
    /// odd.
    pub fn client_done(&self, outcome: io::Result<()>) {
        if let Err(e) = outcome
            && (!self.has_begun() || e.kind() == io::ErrorKind::InvalidData)
        {
            let mut surprises = self.surprises.lock().unwrap_or_else(PoisonError::into_inner);
            surprises.push(format!("a client's connection: {e}"));
        }
    }

    /// Fails with what should not have happened to clients.
    pub fn verdict(self) -> Result<()> {
        let surprises = self.surprises.into_inner().unwrap_or_else(PoisonError::into_inner);
        if !surprises.is_empty() {
            bail!("{}", surprises.join("\n"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_broken_connection_is_a_surprise_before_the_end_and_an_odd_answer_always() {
        let broken = || Err(io::ErrorKind::ConnectionReset.into());
        let odd = || Err(io::ErrorKind::InvalidData.into());
        let ending = Ending::default();
        ending.client_done(Ok(()));
        ending.begin();
        ending.client_done(broken());
        ending.verdict().unwrap();
        let ending = Ending::default();
        ending.client_done(broken());
        ending.begin();
        ending.client_done(odd());
        assert_eq!(ending.verdict().unwrap_err().to_string().lines().count(), 2);
    }
}
