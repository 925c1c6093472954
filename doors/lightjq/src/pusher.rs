//! The HTTP client that jobs are pushed with. Its connections take slots, as those of clients do.

use std::error::Error;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::http::Uri;
use bytes::Bytes;
use http_body_util::Full;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use spindle_limits::{DoorPlaces, Place};
use tokio::net::TcpStream;
use tower::Service;

/// One client for all workers; it follows no redirects.
pub(crate) type Pusher = Client<Connector, Full<Bytes>>;

/// A connection that was idle for this long is closed.
const IDLE_TIME: Duration = Duration::from_secs(30);

pub(crate) fn pusher(places: DoorPlaces) -> Pusher {
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIME)
        .build(Connector { http: HttpConnector::new(), places })
}

/// Connects if there is a slot for one more connection. Otherwise its error is
/// [`spindle_limits::Taken`].
#[derive(Clone)]
pub(crate) struct Connector {
    http: HttpConnector,
    places: DoorPlaces,
}

type AnyError = Box<dyn Error + Send + Sync>;

impl Service<Uri> for Connector {
    type Response = Placed;
    type Error = AnyError;
    type Future = Pin<Box<dyn Future<Output = Result<Placed, AnyError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), AnyError>> {
        self.http.poll_ready(context).map_err(AnyError::from)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let place =
            self.places.take(SocketAddr::from((address_of(&to), to.port_u16().unwrap_or(80))));
        let connecting = self.http.call(to);
        Box::pin(async move {
            let place = place?;
            Ok(Placed { stream: connecting.await?, _place: place })
        })
    }
}

/// The address that a connection counts for. A host name (see `lightjq-allow-urls`) counts for
/// none, like an address of this machine, because it is resolved too late.
fn address_of(to: &Uri) -> IpAddr {
    let host = to.host().unwrap_or_default();
    let bare = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(host);
    bare.parse().unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// A connection and its slot.
pub(crate) struct Placed {
    stream: TokioIo<TcpStream>,
    _place: Place,
}

impl Connection for Placed {
    fn connected(&self) -> Connected {
        self.stream.connected()
    }
}

impl Read for Placed {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl Write for Placed {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
