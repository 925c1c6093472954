//! The bytes to and from a Spindle server: plain or encrypted. Our half of a connection can be
//! ended while an answer may be on its way.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::client::NoAnswer;
use super::server::SpindleServer;
use crate::connect::{Names, explained};
use crate::table::settings::Tls;
use crate::table::tls::client_config;

/// What encrypted connections are made with. It is read from files, and again after a handshake
/// failed, because they may have been corrected.
#[derive(Debug, Default)]
pub(super) struct Encryption(Mutex<Option<Arc<ClientConfig>>>);

impl Encryption {
    /// Encrypts a connection to the server, if the server's certificate is accepted.
    pub async fn begin(
        &self,
        server: &SpindleServer,
        tls: &Tls,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, NoAnswer> {
        let config = self.config(tls)?;
        let name = ServerName::try_from(server.host.clone());
        let name = name.map_err(|error| NoAnswer::Wrong(format!("{}: {error}", server.host)))?;
        let shaken = TlsConnector::from(config).connect(name, stream).await;
        shaken.map_err(|error| {
            self.0.lock().take();
            failed(server, &error)
        })
    }

    fn config(&self, tls: &Tls) -> Result<Arc<ClientConfig>, NoAnswer> {
        let mut kept = self.0.lock();
        if let Some(config) = &*kept {
            return Ok(Arc::clone(config));
        }
        let mut config = client_config(tls).map_err(NoAnswer::Wrong)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::clone(kept.insert(Arc::new(config))))
    }
}

/// Why a handshake failed.
fn failed(server: &SpindleServer, error: &io::Error) -> NoAnswer {
    let names = Names { plain: "write http:// in spindle_url", authority: "spindle_sslrootcert" };
    match explained(error, &server.host, &names) {
        Some(text) => NoAnswer::Wrong(text),
        None if error.kind() == io::ErrorKind::UnexpectedEof => {
            NoAnswer::Away("the connection was closed before TLS had begun".to_owned())
        }
        None => NoAnswer::Away(error.to_string()),
    }
}

/// Why a conversation in HTTP failed.
pub(super) fn why(error: &hyper::Error) -> NoAnswer {
    if error.is_parse() {
        let text = "what answers there speaks no HTTP: look at spindle_url (https:// for TLS)";
        return NoAnswer::Wrong(text.to_owned());
    }
    if error.is_incomplete_message() {
        return NoAnswer::Away("the connection was closed without an answer".to_owned());
    }
    let mut reason = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        reason = format!("{reason}: {error}");
        cause = error.source();
    }
    NoAnswer::Away(reason)
}

/// A stream whose half towards the server can be ended by a message. Reading it carries that out.
/// (TLS ends with a message to the peer, so shutting down the socket is not enough.)
#[derive(Debug)]
pub(super) struct Closable<S> {
    stream: S,
    end: End,
}

#[derive(Debug)]
enum End {
    /// Not yet. Never, when the sender is dropped without a message.
    Waiting(oneshot::Receiver<()>),
    UnderWay,
    Done,
}

impl<S: AsyncWrite + Unpin> Closable<S> {
    /// The stream, and what ends our half of it.
    pub fn new(stream: S) -> (Self, oneshot::Sender<()>) {
        let (end, request) = oneshot::channel();
        (Self { stream, end: End::Waiting(request) }, end)
    }

    fn poll_end(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let End::Waiting(request) = &mut self.end {
            self.end = match ready!(Pin::new(request).poll(cx)) {
                Ok(()) => End::UnderWay,
                Err(_) => End::Done,
            };
        }
        if let End::UnderWay = self.end {
            // It may be closed already.
            let _ = ready!(Pin::new(&mut self.stream).poll_shutdown(cx));
            self.end = End::Done;
        }
        Poll::Ready(())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Closable<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        // Reading goes on meanwhile.
        let _ = self.poll_end(cx);
        Pin::new(&mut self.stream).poll_read(cx, buf)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Closable<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    #[tokio::test]
    async fn our_half_ends_when_it_is_told_to_and_the_other_half_goes_on() {
        let (near, mut far) = duplex(64);
        let (mut stream, end) = Closable::new(near);
        let reading = tokio::spawn(async move {
            let mut text = String::new();
            stream.read_to_string(&mut text).await.unwrap();
            text
        });
        far.write_all(b"before ").await.unwrap();
        end.send(()).unwrap();
        assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0);
        far.write_all(b"after").await.unwrap();
        drop(far);
        assert_eq!(reading.await.unwrap(), "before after");
    }

    #[tokio::test]
    async fn our_half_goes_on_when_nobody_can_tell_it_to_end() {
        let (near, mut far) = duplex(64);
        let (mut stream, end) = Closable::new(near);
        drop(end);
        far.write_all(b"a").await.unwrap();
        assert_eq!(stream.read_u8().await.unwrap(), b'a');
        stream.write_all(b"b").await.unwrap();
        assert_eq!(far.read_u8().await.unwrap(), b'b');
    }
}
