//! Exit codes that scripts can use.

use std::fmt;

/// What the process ends with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// What was asked for was done.
    Ok = 0,
    /// Something went wrong.
    Error = 1,
    /// The command line or the configuration will not do.
    Usage = 2,
    /// There is no such job or queue.
    NotFound = 3,
    /// It did not happen in time.
    Timeout = 4,
    /// The job failed.
    JobFailed = 5,
}

/// An error with an exit code of its own. Errors without one end with [`Code::Error`].
#[derive(Debug)]
pub struct Failure {
    code: Code,
    message: String,
}

impl Failure {
    /// An error that ends the process with `code`.
    pub fn with(code: Code, message: impl Into<String>) -> anyhow::Error {
        Self { code, message: message.into() }.into()
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Failure {}

/// The code an error ends the process with.
pub fn code_of(error: &anyhow::Error) -> Code {
    error.downcast_ref::<Failure>().map_or(Code::Error, |failure| failure.code)
}

/// Whether an error only says that nobody reads the output any more, as after `| head`. Errors of
/// writing output have no context around them; those of connections have.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let io = error.chain().next().and_then(|first| first.downcast_ref::<std::io::Error>());
    io.is_some_and(|io| io.kind() == std::io::ErrorKind::BrokenPipe)
}

/// An error with its causes. A cause is left out if the error before it already contains its text.
pub fn whole(error: &anyhow::Error) -> String {
    let mut message = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if message.is_empty() {
            message = cause;
        } else if !message.contains(&cause) {
            message = format!("{message}: {cause}");
        }
    }
    message
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn a_cause_is_told_once() {
        let error = anyhow!("no room").context("cannot write x: no room").context("stopped");
        assert_eq!(whole(&error), "stopped: cannot write x: no room");
    }

    #[test]
    fn only_output_that_nobody_reads_is_no_error() {
        let broken = || std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert!(is_broken_pipe(&broken().into()));
        let lost = anyhow::Error::from(broken()).context("lost the connection");
        assert!(!is_broken_pipe(&lost));
        assert!(!is_broken_pipe(&anyhow!("broken pipe")));
    }

    #[test]
    fn the_code_survives_what_is_told_around_it() {
        let error = Failure::with(Code::NotFound, "there is no job").context("stopped");
        assert_eq!(code_of(&error), Code::NotFound);
        assert_eq!(code_of(&anyhow!("anything")), Code::Error);
    }
}
