//! Identifies a process even after its end, although process numbers are reused.

use std::fs;

/// A process, distinguished from a later one with the same number by the time it began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessId {
    /// Its number.
    pub pid: u32,
    /// When it began, in the system's ticks since it was booted (`starttime` in `proc(5)`).
    pub started_ticks: u64,
}

impl ProcessId {
    /// The process that has this number now.
    pub fn of(pid: u32) -> Option<Self> {
        let (_, started_ticks) = state_and_start(pid)?;
        Some(Self { pid, started_ticks })
    }

    /// Whether it has not ended. Only valid on the system that it began on, until the next boot.
    pub fn is_running(self) -> bool {
        let now = state_and_start(self.pid);
        now.is_some_and(|(state, started_ticks)| {
            // A process that has ended and was not waited for is still in the list.
            started_ticks == self.started_ticks && !matches!(state, 'Z' | 'X')
        })
    }
}

fn state_and_start(pid: u32) -> Option<(char, u64)> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of a program may have anything in it, also brackets and spaces.
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut fields = after_name.split(' ');
    let state = fields.next()?.chars().next()?;
    Some((state, fields.nth(18)?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn a_process_is_known_until_it_ends_and_not_taken_for_another() {
        let mut child = Command::new("cat").stdin(Stdio::piped()).spawn().unwrap();
        let process = ProcessId::of(child.id()).unwrap();
        assert!(process.is_running());
        let another = ProcessId { started_ticks: process.started_ticks + 1, ..process };
        assert!(!another.is_running());
        drop(child.stdin.take());
        // It has ended and is still in the system's list.
        nix::sys::wait::waitid(
            nix::sys::wait::Id::Pid(nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap())),
            nix::sys::wait::WaitPidFlag::WEXITED | nix::sys::wait::WaitPidFlag::WNOWAIT,
        )
        .unwrap();
        assert_eq!(ProcessId::of(child.id()), Some(process));
        assert!(!process.is_running());
        child.wait().unwrap();
        assert!(!process.is_running());
        assert_eq!(ProcessId::of(0), None);
    }
}
