//! The connection under a request, so that another task can end a wait on it.

use std::{
    net::{Shutdown, TcpStream},
    sync::Arc,
};

use parking_lot::Mutex;

/// The connection that a request goes through now, for code that may have to hang up. Clones are the same
/// line.
#[derive(Debug, Clone, Default)]
pub struct Line(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    stream: Option<Arc<TcpStream>>,
    is_hung_up: bool,
}

impl Line {
    /// Requests go through this connection from now on.
    pub fn carries(&self, stream: impl Into<Arc<TcpStream>>) {
        let stream = stream.into();
        let mut state = self.0.lock();
        if state.is_hung_up {
            half_close(&stream);
        }
        state.stream = Some(stream);
    }

    /// The connection is of no interest any more.
    pub fn forget(&self) {
        self.0.lock().stream = None;
    }

    /// Ends our sending side: a server ends the wait then, and an answer that is on its way still arrives.
    pub fn hang_up(&self) {
        let mut state = self.0.lock();
        state.is_hung_up = true;
        if let Some(stream) = &state.stream {
            half_close(stream);
        }
    }
}

fn half_close(stream: &TcpStream) {
    // It fails when the server has gone, which ends the wait as well.
    let _ = stream.shutdown(Shutdown::Write);
}

#[cfg(test)]
mod tests {
    use std::{io::Read, net::TcpListener};

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn hanging_up_ends_the_connection_there_is_and_the_one_that_comes_too_late() {
        let line = Line::default();
        let (near, mut far) = pair();
        line.carries(near);
        line.hang_up();
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
        let (near, mut far) = pair();
        line.carries(near);
        assert_eq!(far.read(&mut [0]).unwrap(), 0);
    }
}
