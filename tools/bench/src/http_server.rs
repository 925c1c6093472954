//! A bare axum handler: it reads each request whole and answers with as many bytes as a door does.
//! What a server over HTTP can do at most on this machine when it keeps nothing.

use crate::cli::HttpServer;
use anyhow::{Context, Result};
use axum::Router;
use axum::body::Bytes;
use axum::http::StatusCode;

/// Serves until killed, on one thread like Spindle's HTTP doors.
pub(crate) fn serve(args: &HttpServer) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let answer = Bytes::from(vec![b'x'; args.answer_bytes]);
    let handler = move |_request: Bytes| {
        let answer = answer.clone();
        async move { (StatusCode::CREATED, answer) }
    };
    let router = Router::new().fallback(handler);
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::bind(args.listen)
            .await
            .with_context(|| format!("cannot listen on {}", args.listen))?;
        println!("listening on {}", listener.local_addr()?);
        Ok(axum::serve(
            axum::serve::ListenerExt::tap_io(listener, |stream| {
                // Without it small answers wait for the peer's acknowledgement.
                let _ = stream.set_nodelay(true);
            }),
            router,
        )
        .await?)
    })
}
