//! The HTTP client that jobs are pushed with.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};

/// One client for all workers; it follows no redirects.
pub(crate) type Pusher = Client<HttpConnector, Full<Bytes>>;

/// A connection nothing was pushed over for so long is closed.
const IDLE_TIME: Duration = Duration::from_secs(30);
pub(crate) fn pusher() -> Pusher {
    Client::builder(TokioExecutor::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE_TIME)
        .build(HttpConnector::new())
}
