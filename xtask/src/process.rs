//! Programs that run beside this one.

use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;

/// Between two looks at a program that is to end.
const POLL: Duration = Duration::from_millis(5);

/// A running program; dropping it kills it.
pub struct Process(pub Child);

impl Process {
    /// How it ended; none when it did not within `limit`.
    pub fn ended_within(&mut self, limit: Duration) -> Result<Option<ExitStatus>> {
        let deadline = Instant::now() + limit;
        loop {
            let status = self.0.try_wait()?;
            if status.is_some() || Instant::now() > deadline {
                return Ok(status);
            }
            thread::sleep(POLL);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Both fail when it has ended already, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
