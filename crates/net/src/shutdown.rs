//! How a reactor ends.

use crate::reactor::{Reactor, list_for_flush};

impl Reactor {
    pub(crate) fn stop_accepting(&mut self) {
        if let Some(acceptor) = &mut self.acceptor {
            acceptor.stop();
        }
    }

    /// Lets every session answer what it can; those with nothing under way end at once, the others
    /// with their answer. With `last`, what is released is sent and everything ends now.
    pub(crate) fn shut_down(&mut self, last: bool) {
        self.stop_accepting();
        self.shutting_down = true;
        self.has_called = true;
        for connection in self.connections.iter_mut() {
            connection.shut_down(last);
            list_for_flush(&mut self.to_flush, connection);
        }
        if last {
            self.flush();
            self.reap();
            self.kill_all();
        }
    }

    /// Ends everything without another byte.
    pub(crate) fn abort(&mut self) {
        self.stop_accepting();
        self.shutting_down = true;
        self.kill_all();
    }

    /// The turn's flush ends and removes them.
    fn kill_all(&mut self) {
        for connection in self.connections.iter_mut() {
            connection.kill();
            list_for_flush(&mut self.to_flush, connection);
        }
    }
}
