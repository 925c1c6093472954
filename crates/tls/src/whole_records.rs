//! A peer that begins a record of TLS has to complete it.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

use crate::records::Records;

/// How long a peer may be silent in the middle of a record.
const STALL: Duration = Duration::from_secs(60);

/// The encrypted bytes of a peer. The layer above sees plain bytes only, and half a record gives none: it
/// would wait for ever.
#[derive(Debug)]
pub struct WholeRecords<S> {
    stream: S,
    records: Records,
    /// Fires when the peer has been silent in the middle of a record for too long.
    too_late: Option<Pin<Box<Sleep>>>,
}

impl<S> WholeRecords<S> {
    /// From the first byte of the handshake on.
    pub(crate) fn new(stream: S) -> WholeRecords<S> {
        WholeRecords { stream, records: Records::default(), too_late: None }
    }

    /// The stream underneath.
    pub(crate) fn io(&self) -> &S {
        &self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WholeRecords<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Self { stream, records, too_late } = self.get_mut();
        let filled = buffer.filled().len();
        if let Poll::Ready(read) = Pin::new(stream).poll_read(context, buffer) {
            records.pass(&buffer.filled()[filled..]);
            *too_late = None;
            return Poll::Ready(read);
        }
        if records.is_mid_record() {
            let too_late = too_late.get_or_insert_with(|| Box::pin(sleep(STALL)));
            ready!(too_late.as_mut().poll(context));
            let text = "silence in the middle of a record of TLS";
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)));
        }
        Poll::Pending
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WholeRecords<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::{Instant, timeout};

    use super::*;

    const RECORD: [u8; 7] = [0x17, 3, 3, 0, 2, 0xee, 0xee];

    /// In tokio's paused time, which passes when nothing else is left to do.
    #[tokio::test(start_paused = true)]
    async fn a_peer_may_be_silent_between_two_records_and_not_within_one() {
        for cut in 1..RECORD.len() {
            let (near, mut far) = tokio::io::duplex(64);
            let mut near = WholeRecords::new(near);
            far.write_all(&RECORD).await.unwrap();
            let mut bytes = [0; 64];
            assert_eq!(near.read(&mut bytes).await.unwrap(), RECORD.len());
            assert!(timeout(10 * STALL, near.read(&mut bytes)).await.is_err());
            // Every byte starts the time again.
            for byte in &RECORD[..cut] {
                far.write_all(&[*byte]).await.unwrap();
                assert_eq!(near.read(&mut bytes).await.unwrap(), 1);
                let less = STALL - Duration::from_secs(1);
                assert!(timeout(less, near.read(&mut bytes)).await.is_err());
            }
            let begun = Instant::now();
            let error = near.read(&mut bytes).await.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
            assert_eq!(begun.elapsed(), Duration::from_secs(1), "cut at {cut}");
        }
    }
}
