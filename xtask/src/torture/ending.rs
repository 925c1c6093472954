//! The end of a server under load, as its clients see it.

use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Result, bail};

/// A client that one node turned away goes to the next one after this time.
const TURNED_AWAY_FOR: Duration = Duration::from_millis(10);

/// Whether the server is about to end, and what clients met with that they should not have.
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
            && (!self.has_begun() || e.kind() == ErrorKind::InvalidData)
        {
            self.surprise(&e);
        }
    }

    /// A client that may go unanswered, for which only odd answers are wrong.
    pub fn glimpse_done(&self, outcome: io::Result<()>) {
        if let Err(e) = outcome {
            if e.kind() == ErrorKind::InvalidData {
                self.surprise(&e);
            }
            thread::sleep(TURNED_AWAY_FOR);
        }
    }

    fn surprise(&self, e: &io::Error) {
        let mut surprises = self.surprises.lock().unwrap_or_else(PoisonError::into_inner);
        surprises.push(format!("a client's connection: {e}"));
    }

    /// A client of a cluster, which begins with one of its nodes and goes to the next one when the
    /// connection ends. A connection may end at any time, but no node may give an odd answer, or
    /// none for as long as the client waits.
    pub fn client_of_all<N: Copy>(
        &self,
        nodes: &[N],
        first: usize,
        mut serve: impl FnMut(N) -> io::Result<()>,
    ) {
        for turn in 0.. {
            let outcome = serve(nodes[first.wrapping_add(turn) % nodes.len()]);
            let Err(e) = &outcome else { return };
            if matches!(
                e.kind(),
                ErrorKind::InvalidData | ErrorKind::WouldBlock | ErrorKind::TimedOut
            ) {
                self.surprise(e);
            }
            if self.has_begun() {
                return;
            }
            thread::sleep(TURNED_AWAY_FOR);
        }
    }

    /// Fails with the things that should not have happened to clients.
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
    fn a_client_of_a_cluster_goes_to_the_next_node_and_is_surprised_by_odd_answers_and_by_none() {
        for (kind, is_surprise) in [
            (ErrorKind::ConnectionReset, false),
            (ErrorKind::InvalidData, true),
            (ErrorKind::WouldBlock, true),
        ] {
            let (ending, mut came_to) = (Ending::default(), Vec::new());
            ending.client_of_all(&["a", "b", "c"], 2, |node| {
                came_to.push(node);
                if came_to.len() < 4 { Err(kind.into()) } else { Ok(()) }
            });
            assert_eq!(came_to, ["c", "a", "b", "c"]);
            assert_eq!(ending.verdict().is_err(), is_surprise, "{kind:?}");
        }
    }

    #[test]
    fn a_broken_connection_is_a_surprise_before_the_end_and_an_odd_answer_always() {
        let broken = || Err(ErrorKind::ConnectionReset.into());
        let odd = || Err(ErrorKind::InvalidData.into());
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
