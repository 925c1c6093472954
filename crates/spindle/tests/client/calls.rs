//! What can be asked of a server, and what it refuses.

use std::time::Duration;

use futures_util::TryStreamExt;
use jiff::Timestamp;
use serde_json::{Value, json};
use spindle_client::{
    Backoff, CallError, Client, IfTaken, JobFilter, JobRef, NewJob, NewSchedule, Options, Request,
    ResultError,
};
use spindle_testkit::PATIENCE;

use crate::server::Served;

fn job(queue: &str) -> NewJob {
    NewJob::new(queue, &json!({ "n": 1 })).unwrap()
}

#[tokio::test]
async fn a_job_is_submitted_with_all_that_is_said_of_it() {
    let served = Served::new();
    let client = served.client();
    let job = job("all")
        .priority(7)
        .retries(9)
        .backoff(Backoff { base: Duration::from_secs(2), factor: 3.0, cap: PATIENCE, jitter: 0.5 })
        .ttr(Duration::from_secs(90))
        .ttl(Duration::from_secs(7200))
        .keep(Duration::from_secs(60))
        .delay(Duration::from_secs(3600))
        .tag("news")
        .tag("weekly")
        .unique("monday", IfTaken::Existing)
        .traceparent("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let submitted = client.submit(&job).await.unwrap();
    let info = submitted.info().await.unwrap();
    assert_eq!((info.queue.as_deref(), &*info.status), (Some("all"), "scheduled"));
    let expected = json!({
        "priority": 7, "fails_max": 10, "attempts_max": 50, "ttr_ms": 90_000, "ttl_ms": 7_200_000,
        "keep_ms": 60_000, "tags": ["news", "weekly"], "unique_key": "monday",
        "payload": { "n": 1 },
        "backoff": { "base_ms": 2000, "factor": 3, "cap_ms": 120_000, "jitter": 0.5 },
    });
    for (name, value) in expected.as_object().unwrap() {
        assert!(same(&info.more[name], value), "{name}: {} is not {value}", info.more[name]);
    }
    assert!(
        info.more["traceparent"].as_str().unwrap().contains("0af7651916cd43dd8448eb211c80319c")
    );
    let again = client.submit(&job).await.unwrap();
    assert!(again.is_existing() && again.id() == submitted.id());
}

/// Whether two values are the same, numbers by what they are worth.
fn same(one: &Value, other: &Value) -> bool {
    match (one.as_object(), other.as_object()) {
        (Some(one), Some(other)) => {
            one.len() == other.len() && one.iter().all(|(name, value)| same(value, &other[name]))
        }
        _ => one == other || (one.is_number() && one.as_f64() == other.as_f64()),
    }
}

#[tokio::test]
async fn refusals_have_the_servers_code_and_words() {
    let served = Served::new();
    let client = served.client();
    let error = client.job(4711).info().await.unwrap_err();
    assert_eq!(error.code(), "job_not_found");
    assert!(error.refusal().unwrap().is_not_found() && !error.maybe_received());
    let held = job("q").unique("k", IfTaken::Reject);
    let first = client.submit(&held).await.unwrap();
    let error = client.submit(&held).await.unwrap_err();
    assert_eq!(error.code(), "key_taken");
    let more = &error.refusal().unwrap().problem.more;
    assert_eq!(JobRef::from(more["job"].as_u64().unwrap()), *first.id());
    let large = NewJob::with_bytes("q", vec![0; 13 << 20]);
    let error = client.submit(&large).await.unwrap_err();
    assert!(matches!(error, CallError::TooLarge(_)), "{error}");
    // Each of many jobs is accepted or refused for itself.
    let outcomes = client.submit_many(&[job("q"), job(""), job("q")]).await;
    let are_taken: Vec<bool> = outcomes.iter().map(Result::is_ok).collect();
    assert_eq!(are_taken, [true, false, true], "{outcomes:?}");
    // An unfinished job has no result.
    let error = first.result::<Value>(Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, ResultError::Unfinished(_)), "{error}");
}

#[tokio::test]
async fn jobs_are_parked_released_cancelled_retried_deleted_and_listed() {
    let served = Served::new();
    let client = served.client();
    let submitted = client.submit(&job("q").tag("t")).await.unwrap();
    client.submit(&job("other")).await.unwrap();
    assert_eq!(submitted.park().await.unwrap().status, "parked");
    assert_eq!(submitted.release().await.unwrap().status, "ready");
    assert_eq!(submitted.cancel().await.unwrap().status, "dead");
    assert_eq!(submitted.retry().await.unwrap().status, "ready");
    let filter = JobFilter {
        queue: Some("q".to_owned()),
        statuses: vec!["ready".to_owned(), "dead".to_owned()],
        tag: Some("t".to_owned()),
        newest_first: true,
        ..JobFilter::default()
    };
    let listed: Vec<_> = client.jobs(&filter).try_collect().await.unwrap();
    assert_eq!(listed.len(), 1);
    assert!(submitted.delete().await.unwrap());
    assert!(!submitted.delete().await.unwrap());
}

#[tokio::test]
async fn queues_and_schedules_are_looked_after() {
    let served = Served::new();
    let client = served.client();
    client.submit(&job("mail")).await.unwrap();
    client.pause("mail").await.unwrap();
    let queues = client.queues().await.unwrap();
    assert_eq!((queues.len(), queues[0].paused, queues[0].jobs["ready"]), (1, true, 1));
    client.resume("mail").await.unwrap();
    assert!(!client.queue("mail").await.unwrap().paused);

    let schedule = NewSchedule::new("0 9 * * MON-FRI", job("reports")).zone("Europe/Berlin");
    let schedule = schedule.overlap("replace").missed("all").missed_max(7);
    let schedule = schedule.jitter(Duration::from_secs(5)).end_at(Timestamp::MAX);
    let schedule = schedule.start_at("2100-01-01T00:00:00Z".parse().unwrap());
    let preview = client.preview_schedule("report", &schedule).await.unwrap();
    assert_eq!(preview.next_times[0], "2100-01-01T08:00:00.000Z");
    assert!(client.schedules().await.unwrap().is_empty());
    let put = client.put_schedule("report", &schedule.paused()).await.unwrap();
    assert_eq!((&*put.name, put.paused), ("report", true));
    assert_eq!((&put.more["zone"], &put.more["missed_max"]), (&json!("Europe/Berlin"), &json!(7)));
    assert!(!client.resume_schedule("report").await.unwrap().paused);
    assert!(client.pause_schedule("report").await.unwrap().paused);
    let run = client.run_schedule("report").await.unwrap();
    assert_eq!(run.info().await.unwrap().queue.as_deref(), Some("reports"));
    assert_eq!(client.schedules().await.unwrap().len(), 1);
    assert!(client.delete_schedule("report").await.unwrap());
    assert!(!client.delete_schedule("report").await.unwrap());
    assert!(client.schedule("report").await.unwrap_err().refusal().unwrap().is_not_found());
}

#[tokio::test]
async fn any_other_request_can_be_made() {
    let served = Served::new();
    let client = served.client();
    let server: Value = client.request(Request::get("/api/v1/server")).await.unwrap();
    assert!(server["version"].is_string(), "{server}");
}

#[tokio::test]
async fn a_server_that_is_not_there_is_an_error_after_the_time_to_retry() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let options = Options::new(format!("http://{address}")).retry_for(Duration::ZERO);
    let error = Client::new(&options).unwrap().submit(&job("q")).await.unwrap_err();
    assert!(matches!(error, CallError::NoAnswer { .. }) && !error.maybe_received(), "{error}");
    assert!(error.to_string().starts_with(&format!("http://{address}: cannot connect")), "{error}");
}
