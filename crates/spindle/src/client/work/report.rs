//! What became of a job, and how its command ended.

use std::{os::unix::process::ExitStatusExt, process::ExitStatus};

use nix::sys::signal::Signal;

use crate::client::session::Lost;

/// What became of a job, as the server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is done.
    Completed,
    /// The attempt failed.
    Failed,
    /// This worker did not have the job any more: what the command did does not count.
    Lost(Lost),
    /// The server did not take the result, for this reason.
    Refused(String),
}

impl Outcome {
    /// For programs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Lost(lost) => lost.outcome(),
            Self::Refused(_) => "refused",
        }
    }

    /// For programs: why, where the word does not say it.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Self::Completed | Self::Failed => None,
            Self::Lost(lost) => lost.reason(),
            Self::Refused(why) => Some(why),
        }
    }

    /// Whether the server has the result.
    pub fn is_delivered(&self) -> bool {
        matches!(self, Self::Completed | Self::Failed)
    }
}

/// The code of a command that could not be started.
pub const NOT_STARTED: &str = "not_started";

/// How a failed command ended: a code for programs (`exit_9`, `signal_SIGKILL`), and the same for
/// people.
pub fn failure_of(status: ExitStatus) -> (String, String) {
    if let Some(code) = status.code() {
        return (format!("exit_{code}"), format!("exit code {code}"));
    }
    let number = status.signal().unwrap_or_default();
    match Signal::try_from(number) {
        Ok(signal) => (format!("signal_{signal}"), format!("killed by signal {number} ({signal})")),
        // Real-time signals have no names.
        Err(_) => (format!("signal_{number}"), format!("killed by signal {number}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_told_to_programs_and_to_people() {
        for (raw, code, message) in [
            (9 << 8, "exit_9", "exit code 9"),
            (255 << 8, "exit_255", "exit code 255"),
            (9, "signal_SIGKILL", "killed by signal 9 (SIGKILL)"),
            // With a core dump.
            (11 | 0x80, "signal_SIGSEGV", "killed by signal 11 (SIGSEGV)"),
            (34, "signal_34", "killed by signal 34"),
        ] {
            let found = failure_of(ExitStatus::from_raw(raw));
            assert_eq!(found, (code.to_owned(), message.to_owned()));
        }
    }
}
