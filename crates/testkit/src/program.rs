//! Programs that tests start.

use std::net::TcpListener;
use std::ops::{Deref, DerefMut};
use std::process::{Child, Command, ExitStatus};
use std::thread::park_timeout;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::PATIENCE;

/// A running program; dropping it kills it.
#[derive(Debug)]
pub struct Program(Child);

impl Program {
    /// Starts it.
    #[track_caller]
    pub fn start(command: &mut Command) -> Program {
        Program(command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}")))
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(self.0.id().try_into().unwrap()), signal).unwrap();
    }

    /// Asks for the orderly end, with SIGTERM, and does not wait for it.
    pub fn ask_to_end(&self) {
        self.signal(Signal::SIGTERM);
    }

    /// Waits for the end, as [`await_exit`].
    #[track_caller]
    pub fn await_end(&mut self) -> ExitStatus {
        await_exit(&mut self.0)
    }

    /// Kills it, as a crash does, and waits until it is gone.
    pub fn crash(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl From<Child> for Program {
    fn from(child: Child) -> Program {
        Program(child)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail when it has ended already, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Deref for Program {
    type Target = Child;

    fn deref(&self) -> &Child {
        &self.0
    }
}

impl DerefMut for Program {
    fn deref_mut(&mut self) -> &mut Child {
        &mut self.0
    }
}

/// Waits for a program to end; one that does not is killed, and fails the test.
#[track_caller]
pub fn await_exit(child: &mut Child) -> ExitStatus {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status;
        }
        if Instant::now() > deadline {
            child.kill().unwrap();
            child.wait().unwrap();
            panic!("the program did not end");
        }
        park_timeout(Duration::from_millis(1));
    }
}

/// An address of this machine that nobody listens on at the moment, for servers that have to be
/// found again after a restart, or before their start.
pub fn free_address() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_ends_when_it_is_dropped() {
        let program = Program::start(Command::new("sleep").arg("600"));
        let pid = Pid::from_raw(program.id().try_into().unwrap());
        kill(pid, None).unwrap();
        drop(program);
        kill(pid, None).unwrap_err();
    }

    #[test]
    fn a_program_that_is_asked_to_end_is_waited_for() {
        let mut program = Program::start(Command::new("sleep").arg("600"));
        program.ask_to_end();
        assert!(!program.await_end().success());
    }
}
