//! A bare axum handler: it reads each request whole and answers with as many bytes as the native API
//! does. It shows the most that a server over HTTP can do on this machine when it keeps nothing.

use crate::cli::HttpServer;
use anyhow::{Context, Result};
use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;
use axum::serve::ListenerExt;
use std::net::Ipv4Addr;
use tokio::runtime::Builder;

/// Serves until killed.
pub(crate) fn serve(args: &HttpServer) -> Result<()> {
    let mut builder = match args.threads {
        0 | 1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let runtime = builder.worker_threads(args.threads.max(1)).enable_all().build()?;
    let answer = Bytes::from(vec![b'x'; args.answer_bytes]);
    let handler = move |_request: Bytes| {
        let answer = answer.clone();
        async move { (StatusCode::CREATED, answer) }
    };
    let router = Router::new().fallback(handler);
    let port = args.port;
    let serving = runtime.spawn(async move {
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .with_context(|| format!("cannot listen on port {port}"))?;
        // Without it small answers wait for the peer's acknowledgement.
        let listener = listener.tap_io(|stream| {
            let _ = stream.set_nodelay(true);
        });
        Ok(axum::serve(listener, router).await?)
    });
    runtime.block_on(serving)?
}
