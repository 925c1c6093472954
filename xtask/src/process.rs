//! Programs that run beside this one.

use std::fs;
use std::process::{Child, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The pause between two checks of a program that is to end.
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
        // Both fail if it has ended already, which is fine.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Kills a program and its children, but not their children.
pub fn kill_with_children(id: u32) {
    let ids = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = ids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let itself = i32::try_from(id).into_iter();
    let all: Vec<i32> = itself.chain(ids.filter(|other| parent(*other) == Some(id))).collect();
    for id in all {
        // It may have ended by itself.
        let _ = kill(Pid::from_raw(id), Signal::SIGKILL);
    }
}

fn parent(id: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
    line.trim().parse().ok()
}
