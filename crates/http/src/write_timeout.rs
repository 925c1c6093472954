//! A socket that fails when its peer reads nothing for too long.

use std::io;
use std::io::IoSlice;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep};

use crate::held::Held;

/// A stream whose writes fail once the peer has taken no byte for a time.
///
/// Otherwise a client that asks and never reads would keep its connection, its buffers and everything its
/// answers hold for as long as it likes: its socket is alive, so keepalive does not notice.
pub(crate) struct WriteTimeout<S> {
    stream: S,
    time: Duration,
    /// Counts the bytes that the peer has not taken.
    held: Held,
    /// Bytes that came since the last request was answered.
    head_bytes: usize,
    /// Runs out when the peer has taken nothing for `time`; not there before the first wait.
    timer: Option<Pin<Box<Sleep>>>,
    /// A write waits for the peer.
    waits: bool,
}

impl<S> WriteTimeout<S> {
    pub fn new(stream: S, time: Duration, held: Held) -> WriteTimeout<S> {
        WriteTimeout { stream, time, held, head_bytes: 0, timer: None, waits: false }
    }

    fn count(&self, wrote: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(count)) = wrote {
            self.held.sent(*count);
        }
    }

    /// The result of a write, or an error once the peer has read nothing for too long.
    fn or_timeout<T>(
        &mut self,
        context: &mut Context<'_>,
        wrote: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.waits = false;
            return wrote;
        }
        let time = self.time;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(time)));
        if !self.waits {
            self.waits = true;
            timer.as_mut().reset(Instant::now() + time);
        }
        ready!(timer.as_mut().poll(context));
        let message =
            format!("the client took no byte of its answers for {} s", time.as_secs_f64());
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, message)))
    }
}

impl WriteTimeout<TcpStream> {
    /// Waits until there may be something to read.
    pub async fn readable(&self) -> io::Result<()> {
        self.stream.readable().await
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeout<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if self.held.is_serving() {
            self.head_bytes = 0;
        } else {
            self.head_bytes += buffer.filled().len() - before;
            self.held.receives(self.head_bytes);
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeout<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.held.writes();
        let wrote = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.count(&wrote);
        self.or_timeout(context, wrote)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.held.writes();
        let wrote = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.count(&wrote);
        self.or_timeout(context, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        // hyper flushes when everything that was to be sent has been written.
        self.held.sent_all();
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.or_timeout(context, flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
