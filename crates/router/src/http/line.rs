//! A connection to a shard's HTTP door.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

/// One connection: a request at a time.
pub(super) struct Line {
    pub sender: SendRequest<Body>,
    pub speech: Speech,
}

impl Line {
    /// Speaks HTTP over a stream. Dropping the line closes it.
    pub async fn open(stream: TcpStream) -> io::Result<Line> {
        let (read, write) = stream.into_split();
        let speech = Speech(Arc::new(Mutex::new(Some(write))));
        let halves = Halves { read, speech: speech.clone() };
        let shaken = handshake(TokioIo::new(halves)).await;
        let (sender, connection) = shaken.map_err(io::Error::other)?;
        let ending = speech.clone();
        tokio::spawn(async move {
            if let Err(error) = connection.await {
                tracing::debug!("http: a connection to a shard broke off: {error}");
            }
            ending.end();
        });
        Ok(Line { sender, speech })
    }

    /// It is open, and no request is on it.
    pub fn is_idle(&self) -> bool {
        self.sender.is_ready() && !self.has_ended()
    }

    /// No request can be sent on it any more.
    pub fn has_ended(&self) -> bool {
        self.sender.is_closed() || self.speech.0.lock().is_none()
    }
}

/// The sending side of a line.
#[derive(Clone)]
pub(super) struct Speech(Arc<Mutex<Option<OwnedWriteHalf>>>);

impl Speech {
    /// Sends nothing more. The shard's door sees that as a client that hangs up; what it had answered
    /// before is still received.
    pub fn end(&self) {
        drop(self.0.lock().take());
    }

    fn poll<T>(
        &self,
        poll: impl FnOnce(Pin<&mut OwnedWriteHalf>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        match self.0.lock().as_mut() {
            Some(write) => poll(Pin::new(write)),
            None => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
        }
    }
}

/// A stream whose sending side can be closed while hyper has it.
struct Halves {
    read: OwnedReadHalf,
    speech: Speech,
}

impl AsyncRead for Halves {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.read).poll_read(context, buffer)
    }
}

impl AsyncWrite for Halves {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.speech.poll(|write| write.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.speech.poll(|write| write.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket holds nothing back.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let done = ready!(self.speech.poll(|write| write.poll_shutdown(context)));
        Poll::Ready(done.or_else(|error| match error.kind() {
            io::ErrorKind::BrokenPipe | io::ErrorKind::NotConnected => Ok(()),
            _ => Err(error),
        }))
    }
}
