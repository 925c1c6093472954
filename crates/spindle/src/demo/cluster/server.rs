//! A server of the cluster, of the log or a node, with its arguments, to start it again after a kill.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use crate::{
    demo::process::Process,
    exit::{Code, Failure},
};

/// A server. Dropping it kills it.
pub struct Server {
    /// Its name.
    pub name: String,
    program: PathBuf,
    arguments: Vec<OsString>,
    log: PathBuf,
    process: Process,
}

impl Server {
    /// Starts it. Its output goes to a file in the folder.
    pub fn start(
        name: String,
        program: &Path,
        arguments: Vec<OsString>,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let process = Process::start(program, arguments.clone(), &log)?;
        Ok(Self { name, program: program.to_owned(), arguments, log, process })
    }

    /// Starts it again, with what it left.
    pub fn restart(&mut self) -> anyhow::Result<()> {
        self.process = Process::start(&self.program, self.arguments.clone(), &self.log)?;
        Ok(())
    }

    /// Which process it is.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Kills it with SIGKILL, and waits until it is gone.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        Ok(self.process.kill()?)
    }

    /// Whether it has ended.
    pub fn has_ended(&mut self) -> anyhow::Result<bool> {
        Ok(self.process.ended()?.is_some())
    }

    /// Checks that it runs.
    ///
    /// # Errors
    ///
    /// When it has ended, with what it said last.
    pub fn check(&mut self) -> anyhow::Result<()> {
        let Some(status) = self.process.ended()? else { return Ok(()) };
        let text = format!("{} ended: {}", self.name, self.process.last_words());
        // A node found that its settings will not do: they are those of the demo.
        let is_usage = status.code() == Some(Code::Usage as i32);
        Err(Failure::with(if is_usage { Code::Usage } else { Code::Error }, text))
    }
}
