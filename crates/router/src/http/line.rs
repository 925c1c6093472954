//! A connection to a shard's HTTP door.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::Body;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use socket2::SockRef;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::net::tcp::OwnedWriteHalf;

use crate::{Link, LinkReader};

/// One connection: a request at a time.
pub(super) struct Line {
    pub sender: SendRequest<Body>,
    pub speech: Speech,
}

impl Line {
    /// Speaks HTTP over a stream. Dropping the line closes it.
    pub async fn open(link: Link) -> io::Result<Line> {
        let (read, write) = link.into_split();
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
        self.sender.is_ready() && !self.has_ended() && self.speech.is_quiet()
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
    /// Sends nothing more. To the shard's door this is a client that hangs up; what it had answered before
    /// is still received.
    pub fn end(&self) {
        drop(self.0.lock().take());
    }

    /// Whether the door has neither sent anything nor closed the line: hyper may notice that a moment later.
    fn is_quiet(&self) -> bool {
        let half = self.0.lock();
        let stream: Option<&TcpStream> = half.as_ref().map(AsRef::as_ref);
        stream.is_some_and(|stream| {
            let peeked = SockRef::from(stream).peek(&mut [MaybeUninit::uninit()]);
            peeked.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
        })
    }

    /// Writes as much as goes. A door may answer and close before it has read everything: then the rest is
    /// thrown away, so that the answer is read. The reading side tells whether there is an answer.
    fn poll_write(
        &self,
        len: usize,
        write: impl FnOnce(Pin<&mut OwnedWriteHalf>) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let mut half = self.0.lock();
        let written = match half.as_mut() {
            Some(half) => ready!(write(Pin::new(half))),
            None => return Poll::Ready(Ok(len)),
        };
        Poll::Ready(Ok(written.unwrap_or_else(|_| {
            *half = None;
            len
        })))
    }
}

/// A stream whose sending side can be closed while hyper has it.
struct Halves {
    read: LinkReader,
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
        self.speech.poll_write(bytes.len(), |half| half.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let len = slices.iter().map(|slice| slice.len()).sum();
        self.speech.poll_write(len, |half| half.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        // A socket holds nothing back.
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.speech.end();
        Poll::Ready(Ok(()))
    }
}
