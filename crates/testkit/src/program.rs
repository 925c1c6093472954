//! Programs that tests start.

use std::io::Write;
use std::net::TcpListener;
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
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

/// Writes a script that can be started. Another process writes it: a program that some other test starts at
/// this moment would have this one's open file for a while, and the script would be busy.
pub fn write_script(path: &Path, text: &str) {
    let mut shell = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    shell.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success(), "{}", path.display());
}

impl From<Child> for Program {
    fn from(child: Child) -> Program {
        Program(child)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // Both fail if it has ended already, which is fine.
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

/// Runs a command that must succeed, and returns all it says.
#[track_caller]
pub fn succeeds(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{command:?}: {said}");
    said
}

/// An address of this machine that nobody listens on at the moment, for servers that have to be
/// found again after a restart, or before their start.
///
/// Its port is not one that the system assigns: any process that connects or listens could get such
/// a port before the server does. No other call of this process returns the same.
pub fn free_address() -> String {
    /// Behind the ports of well-known services, and before those that the system gives away.
    const PORTS: std::ops::Range<u32> = 10_240..32_768;
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Processes that run side by side begin at different ones.
    let first = std::process::id().wrapping_mul(397);
    for _ in PORTS {
        let at = first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed));
        let address = format!("127.0.0.1:{}", PORTS.start + at % (PORTS.end - PORTS.start));
        if TcpListener::bind(&address).is_ok() {
            return address;
        }
    }
    panic!("no port from {} to {} is free", PORTS.start, PORTS.end)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn free_addresses_are_different_and_none_that_the_system_gives_away() {
        let addresses: BTreeSet<_> = (0..100).map(|_| free_address()).collect();
        assert_eq!(addresses.len(), 100);
        for address in addresses {
            let port: u16 = address.strip_prefix("127.0.0.1:").unwrap().parse().unwrap();
            assert!((10_240..32_768).contains(&port), "{port}");
            TcpListener::bind(address).unwrap();
        }
    }

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
