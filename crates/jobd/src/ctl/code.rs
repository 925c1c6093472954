//! The exit codes of `jobctl`.

/// How `jobctl` ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Code {
    /// Done.
    Ok = 0,
    /// No connection or no answer in time, or the daemon said no.
    Error = 1,
    /// Wrong words or configuration.
    Usage = 2,
    /// A job of `run-manual` failed or was not run.
    JobFailed = 5,
}
