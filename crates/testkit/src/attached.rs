//! Servers that end with the test's process, however that ends, and leave nothing behind. They are
//! for servers that all tests of a program share, which are never dropped.

use std::fs::File;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::free_address;

/// Where a server runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// At free ports of the loopback address.
    #[default]
    Loopback,
    /// In a network namespace with an address of its own.
    Namespace {
        /// As `ip netns` knows it.
        name: String,
        /// The address, without a port.
        host: String,
    },
}

impl Place {
    /// An address for a server that is not started yet. An address of its own has this port.
    pub fn address(&self, port: u16) -> String {
        match self {
            Place::Loopback => free_address(),
            Place::Namespace { host, .. } => format!("{host}:{port}"),
        }
    }

    /// A program that the kernel kills when the thread that started it ends, run with these options
    /// of `setpriv`.
    pub fn attached(&self, options: &[&str], program: &Path) -> Command {
        let mut command = match self {
            Place::Loopback => Command::new("setpriv"),
            Place::Namespace { name, .. } => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", name, "setpriv"]);
                command
            }
        };
        command.args(["--pdeathsig", "SIGKILL"]).args(options).arg(program).current_dir("/");
        command
    }
}

/// A process whose parent is a thread that lives as long as this does, or the test's process.
#[derive(Debug)]
pub struct ServerProcess {
    pid: Pid,
    /// Dropped to have it killed.
    stop: mpsc::Sender<()>,
    parent: thread::JoinHandle<()>,
}

impl ServerProcess {
    /// Starts a command made by [`Place::attached`]. What it says goes to this file.
    pub fn start(mut command: Command, output: &File) -> ServerProcess {
        let (out, err) = (output.try_clone().unwrap(), output.try_clone().unwrap());
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let (stop, stopped) = mpsc::channel::<()>();
        let (started, pid) = mpsc::channel();
        let parent = thread::spawn(move || {
            let mut child: Child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
            started.send(child.id()).unwrap();
            let a_moment = Duration::from_millis(20);
            while stopped.recv_timeout(a_moment) == Err(RecvTimeoutError::Timeout) {
                if child.try_wait().unwrap().is_some() {
                    return;
                }
            }
            child.kill().unwrap();
            child.wait().unwrap();
        });
        let pid = pid.recv().expect("it was started");
        ServerProcess { pid: Pid::from_raw(pid.try_into().unwrap()), stop, parent }
    }

    /// Its id.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Sends it a signal.
    pub fn signal(&self, signal: Signal) {
        kill(self.pid, signal).unwrap();
    }

    /// Whether it has ended.
    pub fn has_ended(&self) -> bool {
        self.parent.is_finished()
    }

    /// Kills it without a word, and waits until it is gone.
    pub fn kill(self) {
        drop(self.stop);
        self.parent.join().unwrap();
    }
}

/// Removes a folder when the test's process, and every process in the folder, has ended.
pub(crate) fn remove_at_the_end(folder: &Path) -> Child {
    let script = "read line; while ! rm -rf \"$0\" 2> /dev/null; do sleep 0.1; done";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}
