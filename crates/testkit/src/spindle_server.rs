//! `spindle serve` as a process.

use std::ops::{Deref, DerefMut};
use std::process::{Command, Stdio};

use crate::{Program, Said};

/// A running server that has greeted; dropping it kills it.
pub struct SpindleServer {
    program: Program,
    /// What it says on standard error after its greeting.
    pub said: Said,
    greeting: String,
}

impl SpindleServer {
    /// Starts the program at this path with `serve` and `arguments`, and waits until it has named
    /// the address of a door, such as `workq`.
    #[track_caller]
    pub fn start(program: &str, arguments: &[&str], door: &str) -> SpindleServer {
        SpindleServer::start_with(program, arguments, &[], door)
    }

    /// The same with more in its environment.
    #[track_caller]
    pub fn start_with(
        program: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
        door: &str,
    ) -> SpindleServer {
        let mut program = Program::start(
            Command::new(program)
                .arg("serve")
                .args(arguments)
                .envs(environment.iter().copied())
                .stderr(Stdio::piped()),
        );
        let said = Said::by(program.stderr.take().unwrap());
        let greeting = said.await_line(&format!("{door} on "));
        SpindleServer { program, said, greeting }
    }

    /// The line with which it said that it serves.
    pub fn greeting(&self) -> &str {
        &self.greeting
    }

    /// Where a door listens, as the greeting says.
    #[track_caller]
    pub fn address_of(&self, door: &str) -> String {
        let behind = self.greeting.split_once(&format!("{door} on "));
        let (_, behind) = behind.unwrap_or_else(|| panic!("no {door} in {:?}", self.greeting));
        behind.split(',').next().unwrap().to_owned()
    }
}

impl Deref for SpindleServer {
    type Target = Program;

    fn deref(&self) -> &Program {
        &self.program
    }
}

impl DerefMut for SpindleServer {
    fn deref_mut(&mut self) -> &mut Program {
        &mut self.program
    }
}
