//! A thread that looks at the tokens file.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use crate::access::Access;

/// How long a change of the file takes to be seen, at most.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// Reads the tokens file again whenever it changes, until it is dropped. It compares the file's
/// times, number and size and needs no signal, so it works the same for mounted files.
#[derive(Debug)]
pub struct Watch {
    /// Dropped to end the thread.
    alive: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Watch {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// The system gives no thread.
    pub fn start(access: Access) -> io::Result<Watch> {
        let (alive, ended) = channel();
        let look = move || {
            while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
                access.look_again().log();
            }
        };
        let thread = Builder::new().name("spindle-tokens".to_owned()).spawn(look)?;
        Ok(Watch { alive: Some(alive), thread: Some(thread) })
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            // A panic of it was reported when it happened.
            let _ = thread.join();
        }
    }
}
