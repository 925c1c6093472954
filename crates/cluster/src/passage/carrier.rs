//! The thread that carries clients between nodes.

use std::io;
use std::net::TcpListener;
use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::net::TcpListener as AsyncListener;
use tokio::runtime::Handle;
use tokio::sync::Notify;

use crate::entrance::{Entrance, Threshold};

/// A thread on which clients are handed on, and let in. Dropped, it ends, with all connections that it
/// carries.
pub struct Carrier {
    runtime: Handle,
    stop: Arc<Notify>,
    thread: Option<JoinHandle<()>>,
}

impl Carrier {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub fn start() -> io::Result<Carrier> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (handle, stop) = (runtime.handle().clone(), Arc::new(Notify::new()));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("spindle-pass".to_owned());
        let thread = thread.spawn(move || runtime.block_on(stopped.notified()))?;
        Ok(Carrier { runtime: handle, stop, thread: Some(thread) })
    }

    /// Where tasks of this thread are spawned.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.runtime
    }

    /// Lets in the clients that other nodes hand on at the cluster's address. They go to the doors of these
    /// logs, by shard.
    ///
    /// # Errors
    ///
    /// When the listener cannot be used.
    pub fn let_in(&self, listener: TcpListener, thresholds: &[&Threshold]) -> io::Result<()> {
        let _inside = self.runtime.enter();
        let listener = AsyncListener::from_std(listener)?;
        let tls = thresholds.first().map(|it| it.node.tls().clone()).unwrap_or_default();
        let sides = thresholds.iter().map(|it| (it.node.clone(), it.doors())).collect();
        drop(self.runtime.spawn(Entrance { tls, sides }.serve(listener)));
        Ok(())
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // If the thread panicked, that was reported when it happened.
            let _ = thread.join();
        }
    }
}
