//! How a reactor ends.

use crate::reactor::{Reactor, touch};

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
        self.leaving = true;
        for connection in self.connections.iter_mut() {
            connection.shut_down(last);
            touch(&mut self.touched, connection);
        }
        if last {
            self.flush();
            self.bury();
            self.kill_all();
        }
    }

    /// Ends everything without another byte.
    pub(crate) fn abort(&mut self) {
        self.stop_accepting();
        self.leaving = true;
        self.kill_all();
    }

    /// The turn's flush and burial do the rest.
    fn kill_all(&mut self) {
        for connection in self.connections.iter_mut() {
            connection.kill();
            touch(&mut self.touched, connection);
        }
    }
}
