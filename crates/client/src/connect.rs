//! Connections: plain or encrypted, found open before they are used again, and ended on one side
//! while an answer may be on its way.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, join};
use tokio::net::{TcpStream, lookup_host};
use tokio_rustls::TlsConnector;

use crate::send_error::{NotHttp, SendError};
use crate::url::BaseUrl;

/// A connection that takes one request after the other.
#[derive(Debug)]
pub(crate) struct Connection {
    pub sender: SendRequest<Full<Bytes>>,
    /// The same socket once more, to end our half of it.
    pub socket: Arc<std::net::TcpStream>,
}

impl Connection {
    /// Connects, and encrypts the connection if the URL says so.
    pub async fn open(base: &BaseUrl) -> Result<Self, SendError> {
        let (stream, socket) = dial(base).await.map_err(SendError::Connect)?;
        let sender = match base.tls() {
            None => {
                let (read, write) = stream.into_split();
                begin(join(Sniffed { read, is_silent: true }, write)).await?
            }
            Some(config) => {
                let name = ServerName::try_from(base.host_and_port().0.to_owned())
                    .map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))
                    .map_err(SendError::Connect)?;
                let connector = TlsConnector::from(Arc::clone(config));
                begin(connector.connect(name, stream).await.map_err(SendError::of_handshake)?)
                    .await?
            }
        };
        Ok(Self { sender, socket: Arc::new(socket) })
    }

    /// Whether it can take another request. A server sends nothing unasked, so there must be nothing to read.
    pub async fn is_open(&mut self) -> bool {
        let peeked = self.socket.peek(&mut [0]);
        let is_quiet = peeked.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        is_quiet && self.sender.ready().await.is_ok()
    }
}

/// Connects to the first address of the host that answers.
async fn dial(base: &BaseUrl) -> io::Result<(TcpStream, std::net::TcpStream)> {
    let unknown = |error| io::Error::new(ErrorKind::HostUnreachable, error);
    let mut last = unknown(io::Error::other("the name has no address"));
    for address in lookup_host(base.host_and_port()).await.map_err(unknown)? {
        match TcpStream::connect(address).await {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                let socket = stream.into_std()?;
                return Ok((TcpStream::from_std(socket.try_clone()?)?, socket));
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Speaks HTTP over a stream.
async fn begin<S>(stream: S) -> Result<SendRequest<Full<Bytes>>, SendError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let (sender, connection) =
        http1::handshake(TokioIo::new(stream)).await.map_err(|error| SendError::of_http(&error))?;
    // A request under way fails with it.
    tokio::spawn(connection);
    Ok(sender)
}

/// The reading half of a plain stream. Its first bytes are checked: if they are not HTTP, the error says
/// so.
struct Sniffed<R> {
    read: R,
    /// Nothing was heard yet.
    is_silent: bool,
}

impl<R: AsyncRead + Unpin> AsyncRead for Sniffed<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.read).poll_read(cx, buf))?;
        if std::mem::take(&mut self.is_silent) {
            let heard = buf.filled().get(before..).unwrap_or_default();
            NotHttp::check(heard).map_err(io::Error::other)?;
        }
        Poll::Ready(Ok(()))
    }
}
