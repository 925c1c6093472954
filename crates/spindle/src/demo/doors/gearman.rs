//! Gearman: background jobs, and a worker that sleeps until there is one.

use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
};

use bytes::Bytes;
use spindle_gearman::{
    client::Connection,
    wire::{GrabKind, Priority, Request, Response, Submit, SubmitKind},
};

use super::{Addresses, Submitter, TAKE_WAIT, Taken, Task, Worker};
use crate::{client::session::AskError, demo::task::TTR_MS};

/// Far more than any packet of the demo has.
const PACKET_BYTES_MAX: usize = 1 << 20;
/// A submit is answered once it is on disk; a slow disk has this many times the wait of a worker.
const ANSWER_WAITS: u32 = 30;

/// A connection that is opened when it is needed.
struct Reopened {
    address: SocketAddr,
    connection: Option<Connection>,
}

impl Reopened {
    fn move_to(&mut self, node: &Addresses) {
        *self = Self { address: node.gearman, connection: None };
    }

    /// Talks; after an error the connection is of no further use.
    fn talk<T>(
        &mut self,
        waits: u32,
        greets: impl FnOnce(&mut Connection) -> io::Result<()>,
        talks: impl FnOnce(&mut Connection) -> io::Result<T>,
    ) -> Result<T, AskError> {
        let connection = match &mut self.connection {
            Some(connection) => connection,
            none => {
                let opened = Connection::open(self.address, TAKE_WAIT * waits, PACKET_BYTES_MAX)?;
                let connection = none.insert(opened);
                greets(connection)?;
                connection
            }
        };
        let talked = talks(connection);
        if talked.is_err() {
            self.connection = None;
        }
        Ok(talked?)
    }
}

/// Submits background jobs.
pub struct GearmanSubmitter(Reopened);

impl GearmanSubmitter {
    /// At this door.
    pub fn new(address: SocketAddr) -> Self {
        Self(Reopened { address, connection: None })
    }
}

impl Submitter for GearmanSubmitter {
    fn submit(&mut self, task: &Task) -> Result<String, AskError> {
        let submit = Request::Submit(Submit {
            kind: SubmitKind::Background(Priority::Normal),
            function: Bytes::from_static(task.queue.as_bytes()),
            unique: Bytes::from(task.key()),
            payload: Bytes::from(task.payload.to_string()),
        });
        let greets = |_: &mut Connection| Ok(());
        self.0.talk(ANSWER_WAITS, greets, |connection| {
            connection.send(&submit)?;
            match connection.receive()? {
                Response::JobCreated { handle } => text(&handle),
                other => Err(unexpected(&other)),
            }
        })
    }

    fn move_to(&mut self, node: &Addresses) {
        self.0.move_to(node);
    }
}

/// Works one function.
pub struct GearmanWorker {
    connection: Reopened,
    function: Bytes,
}

impl GearmanWorker {
    /// At this door.
    pub fn new(address: SocketAddr, function: &'static str) -> Self {
        let connection = Reopened { address, connection: None };
        Self { connection, function: Bytes::from_static(function.as_bytes()) }
    }

    fn talk<T>(
        &mut self,
        talks: impl FnOnce(&mut Connection) -> io::Result<T>,
    ) -> Result<T, AskError> {
        let (function, timeout_ms) = (self.function.clone(), u64::from(TTR_MS));
        let greets = |connection: &mut Connection| {
            connection.send(&Request::CanDoTimeout { function, timeout_ms })
        };
        self.connection.talk(1, greets, talks)
    }
}

impl Worker for GearmanWorker {
    fn take(&mut self) -> Result<Option<Taken>, AskError> {
        self.talk(|connection| {
            connection.send(&Request::Grab(GrabKind::Plain))?;
            loop {
                match connection.receive() {
                    Ok(Response::JobAssign(job)) => {
                        let (claim, payload) = (text(&job.handle)?, job.payload.to_vec());
                        return Ok(Some(Taken { claim, payload }));
                    }
                    Ok(Response::NoJob) => connection.send(&Request::PreSleep)?,
                    // An answer to the end of a job that another connection had before the crash.
                    Ok(Response::Error { .. }) => {}
                    Ok(Response::Noop) => connection.send(&Request::Grab(GrabKind::Plain))?,
                    Ok(other) => return Err(unexpected(&other)),
                    Err(error) if is_silence(&error) => return Ok(None),
                    Err(error) => return Err(error),
                }
            }
        })
    }

    /// The protocol has no answer to this. The account learns from the server whether it arrived.
    fn finish(&mut self, taken: &Taken) -> Result<(), AskError> {
        let handle = Bytes::from(taken.claim.clone());
        let result = Bytes::from_static(b"done");
        self.talk(|connection| connection.send(&Request::WorkComplete { handle, result }))
    }

    fn move_to(&mut self, node: &Addresses) {
        self.connection.move_to(node);
    }
}

fn is_silence(error: &io::Error) -> bool {
    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut)
}

fn text(handle: &Bytes) -> io::Result<String> {
    String::from_utf8(handle.to_vec()).map_err(io::Error::other)
}

fn unexpected(response: &Response) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, format!("an answer to nothing: {response:?}"))
}
