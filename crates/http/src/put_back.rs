//! A stream for hyper that takes back bytes that were read from it.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};

use crate::held::Held;

/// Reads first what was put back, then the stream.
pub(crate) struct PutBack<S> {
    before: Bytes,
    stream: TokioIo<S>,
    held: Held,
}

impl<S> PutBack<S> {
    pub fn new(stream: S, held: Held) -> PutBack<S> {
        PutBack { before: Bytes::new(), stream: TokioIo::new(stream), held }
    }

    /// The same stream, from which these bytes, read last, are to be read again. Everything put back before
    /// must have been read.
    pub fn with(self, before: Bytes) -> PutBack<S> {
        debug_assert!(self.before.is_empty(), "what was put back was not read");
        PutBack { before, ..self }
    }

    /// Whether something is to be read without the stream.
    pub fn has_bytes(&self) -> bool {
        !self.before.is_empty()
    }

    /// The stream, with nothing put back.
    pub fn stream(&mut self) -> &mut S {
        self.stream.inner_mut()
    }
}

impl<S: AsyncRead + Unpin> Read for PutBack<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.held.reads();
        if self.before.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let count = self.before.len().min(buffer.remaining());
        buffer.put_slice(&self.before.split_to(count));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> Write for PutBack<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
