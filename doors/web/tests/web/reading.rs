//! The live feed.

use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_util::StreamExt;
use serde_json::json;
use tokio::time::timeout;

use crate::harness::{Bench, request};

/// How long an event is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

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

/// What happens between a page and its feed would be missed otherwise, for as long as nothing else does.
#[tokio::test]
async fn a_page_hears_what_has_happened_since_it_was_made() {
    let bench = Bench::new();
    let page = bench.page("/queues").await;
    let (_, log_at) = page.source.split_once("data-log-at=\"").unwrap();
    let log_at = log_at.split('"').next().unwrap();
    let feed = async |log_at: &str| {
        let asked = request("GET", &format!("/live?log_at={log_at}")).body(Default::default());
        bench.begin(asked.unwrap()).await.into_body().into_data_stream()
    };
    let mut context = Context::from_waker(Waker::noop());
    for at in [log_at, "x", "-1", "18446744073709551615"] {
        let quiet = feed(at).await.poll_next_unpin(&mut context);
        assert!(matches!(quiet, Poll::Pending), "{at}: {quiet:?}");
    }
    bench.submit(json!({ "queue": "mail" })).await;
    let mut late = feed(log_at).await;
    let heard = late.next().await.unwrap().unwrap();
    assert_eq!(heard, "event: moved\ndata: -\n\n");
    let quiet = late.poll_next_unpin(&mut context);
    assert!(matches!(quiet, Poll::Pending), "once: {quiet:?}");
}

#[tokio::test]
async fn the_page_of_a_job_hears_of_what_its_worker_reports() {
    let bench = Bench::new();
    for _ in 0..2 {
        bench.submit(json!({ "queue": "mail" })).await;
        bench.lease("mail", "w").await;
    }
    let report = async |id: u64, what: &str, body| {
        bench.api("", "POST", &format!("/api/v1/jobs/{id}/{what}"), Some(body)).await.is(204);
    };
    let asked = request("GET", "/live?job=1").body(Default::default()).unwrap();
    let mut feed = bench.begin(asked).await.into_body().into_data_stream();
    let mut context = Context::from_waker(Waker::noop());
    for (what, body) in [
        ("output", json!({ "text": "secret" })),
        ("progress", json!({ "numerator": 1 })),
        ("progress", json!({ "numerator": 2 })),
    ] {
        report(2, what, body.clone()).await;
        let quiet = feed.poll_next_unpin(&mut context);
        assert!(matches!(quiet, Poll::Pending), "another job's {what}: {quiet:?}");
        report(1, what, body).await;
        let heard = timeout(PATIENCE, feed.next()).await.expect("nothing came");
        assert_eq!(heard.unwrap().unwrap(), "event: moved\ndata: -\n\n", "{what}");
    }
    for (path, status) in [("/live?job=9", 404), ("/live?job=%3C", 400)] {
        let asked = request("GET", path).body(Default::default()).unwrap();
        assert_eq!(bench.begin(asked).await.status(), status, "{path}");
    }
}
