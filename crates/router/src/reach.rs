//! The contract with the code that knows which node leads each shard.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use spindle_engine::door::Peer;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::Shard;

/// A connection to a shard's door, or why there is none.
pub type Reached<'a> = Pin<Box<dyn Future<Output = io::Result<Link>> + Send + 'a>>;

/// Ends when the node that a connection leads to no longer leads the shard, and has had its time to answer.
pub type Deposed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Connects to shards at whichever node leads them.
pub trait Reach: Send + Sync {
    /// Connects to a door of a shard for this client: the door takes everything written on the connection for
    /// the client's own bytes. Waits some seconds for a leader.
    fn reach<'a>(&'a self, shard: Shard, door: &'static str, client: &'a Peer) -> Reached<'a>;
}

/// A connection to a shard's door. Reads fail once its node no longer leads the shard: otherwise a node that is
/// cut off would be waited for until its connection times out.
pub struct Link {
    stream: TcpStream,
    deposed: Option<Deposed>,
}

impl Link {
    /// A connection that lasts until `deposed` ends.
    #[must_use]
    pub fn new(stream: TcpStream, deposed: Deposed) -> Link {
        Link { stream, deposed: Some(deposed) }
    }

    /// A connection that lasts until one of its ends closes it.
    #[must_use]
    pub fn lasting(stream: TcpStream) -> Link {
        Link { stream, deposed: None }
    }

    /// Its two directions. Dropping the writing half ends what is sent.
    #[must_use]
    pub fn into_split(self) -> (LinkReader, OwnedWriteHalf) {
        let Link { stream, deposed } = self;
        let (stream, writer) = stream.into_split();
        (LinkReader { stream, deposed }, writer)
    }
}

/// What comes on a [`Link`].
pub struct LinkReader {
    stream: OwnedReadHalf,
    deposed: Option<Deposed>,
}

impl AsyncRead for LinkReader {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, into);
        if read.is_ready() {
            return read;
        }
        let is_deposed = self.deposed.as_mut().is_some_and(|it| it.as_mut().poll(cx).is_ready());
        if !is_deposed {
            return Poll::Pending;
        }
        self.deposed = None;
        let why = "the shard has another leader";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::ConnectionAborted, why)))
    }
}
