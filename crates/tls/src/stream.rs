//! Connections that are plain or encrypted, for async listeners and clients.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio::task::yield_now;
use tokio::time::timeout;
use tokio_rustls::{LazyConfigAcceptor, client, rustls, server};

use crate::listener::{FirstByte, ListenerTls};
use crate::name::common_name;
use crate::server::{ServerTls, Speaks};
use crate::whole_records::WholeRecords;

/// A stream, encrypted or not.
#[derive(Debug)]
pub enum MaybeTls<S> {
    /// As it is.
    Plain(S),
    /// The server's side of an encrypted one.
    Server(Box<server::TlsStream<WholeRecords<S>>>),
    /// The client's side of an encrypted one.
    Client(Box<client::TlsStream<S>>),
}

impl<S> MaybeTls<S> {
    /// The stream underneath.
    pub fn io(&self) -> &S {
        match self {
            MaybeTls::Plain(stream) => stream,
            MaybeTls::Server(stream) => stream.get_ref().0.io(),
            MaybeTls::Client(stream) => stream.get_ref().0,
        }
    }

    /// Whether it is encrypted.
    pub fn is_encrypted(&self) -> bool {
        !matches!(self, MaybeTls::Plain(_))
    }

    /// The common name of the certificate that the client has shown and that was verified.
    pub fn certificate_name(&self) -> Option<Arc<str>> {
        let MaybeTls::Server(stream) = self else { return None };
        let certificate = stream.get_ref().1.peer_certificates()?.first()?;
        common_name(certificate).map(Arc::from)
    }
}

/// Waits for a connection's first byte, which stays to be read, and judges it. None if the client
/// has ended without one.
///
/// # Errors
/// The connection is broken.
pub async fn first_byte(stream: &TcpStream, tls: &ListenerTls) -> io::Result<Option<FirstByte>> {
    if tls.is_off() {
        return Ok(Some(FirstByte::Plain));
    }
    let mut first = [0];
    let count = stream.peek(&mut first).await?;
    Ok((count > 0).then(|| tls.judge(first[0])))
}

/// Lets the handshakes of one thread begin one after the other. The first step of a handshake takes
/// about as long as many requests, so everything else that is ready goes on between two such steps.
#[derive(Clone, Debug)]
pub struct HandshakeTurns(Arc<Semaphore>);

impl Default for HandshakeTurns {
    fn default() -> HandshakeTurns {
        HandshakeTurns(Arc::new(Semaphore::new(1)))
    }
}

/// The server's side of a handshake, which ends within this time and is counted. If a client is silent in the
/// middle of a record for a minute, during the handshake or later, reads of the stream fail.
///
/// # Errors
/// Why there is none. The client has been sent an alert then, if it could read one.
pub async fn shake_hands<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    tls: &ServerTls,
    speaks: Speaks,
    turns: &HandshakeTurns,
    within: Duration,
) -> io::Result<MaybeTls<S>> {
    let handshake = async {
        let stream = WholeRecords::new(stream);
        let hello = LazyConfigAcceptor::new(rustls::server::Acceptor::default(), stream).await?;
        let mut rest = pin!(hello.into_stream(tls.config(speaks)));
        {
            let _turn = turns.0.acquire().await;
            let first = std::future::poll_fn(|context| Poll::Ready(rest.as_mut().poll(context)));
            if let Poll::Ready(done) = first.await {
                return done;
            }
            yield_now().await;
        }
        rest.await
    };
    let took_too_long =
        |_| Err(io::Error::new(io::ErrorKind::TimedOut, "the handshake took too long"));
    let done = timeout(within, handshake).await.unwrap_or_else(took_too_long);
    let counts = tls.handshakes();
    let count = if done.is_ok() { &counts.done } else { &counts.failed };
    count.fetch_add(1, Ordering::Relaxed);
    Ok(MaybeTls::Server(Box::new(done?)))
}

macro_rules! inner {
    ($stream:expr, $inner:ident => $call:expr) => {
        match $stream.get_mut() {
            MaybeTls::Plain($inner) => {
                let $inner = Pin::new($inner);
                $call
            }
            MaybeTls::Server($inner) => {
                let $inner = Pin::new($inner);
                $call
            }
            MaybeTls::Client($inner) => {
                let $inner = Pin::new($inner);
                $call
            }
        }
    };
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for MaybeTls<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled = buffer.filled().len();
        let read = inner!(self, inner => inner.poll_read(context, buffer));
        match read {
            // An end without TLS's announcement counts as an end: the protocol within sees whether
            // something is incomplete.
            Poll::Ready(Err(error))
                if error.kind() == io::ErrorKind::UnexpectedEof
                    && buffer.filled().len() == filled =>
            {
                Poll::Ready(Ok(()))
            }
            read => read,
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for MaybeTls<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        inner!(self, inner => inner.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        inner!(self, inner => inner.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            MaybeTls::Plain(stream) => stream.is_write_vectored(),
            MaybeTls::Server(stream) => stream.is_write_vectored(),
            MaybeTls::Client(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, inner => inner.poll_flush(context))
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        inner!(self, inner => inner.poll_shutdown(context))
    }
}
