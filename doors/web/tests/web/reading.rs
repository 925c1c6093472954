//! The live feed.

use std::task::{Context, Poll, Waker};

use futures_util::StreamExt;
use serde_json::json;

use crate::harness::{Bench, request};

#[tokio::test]
async fn an_open_page_hears_that_something_happened_and_nothing_else() {
    let bench = Bench::new();
    let asked = request("GET", "/live").body(Default::default()).unwrap();
    let reply = bench.begin(asked).await;
    assert_eq!(reply.headers()["content-type"], "text/event-stream");
    let mut feed = reply.into_body().into_data_stream();
    let mut context = Context::from_waker(Waker::noop());
    assert!(matches!(feed.poll_next_unpin(&mut context), Poll::Pending));
    bench.submit(json!({ "queue": "secret" })).await;
    let heard = feed.next().await.unwrap().unwrap();
    assert_eq!(heard, "event: moved\ndata: -\n\n");
}
