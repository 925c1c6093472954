//! Jobs that wait for others, batches, and fair keys.

use std::time::Duration;

use futures_util::TryStreamExt;
use serde_json::{Value, json};
use spindle_client::{
    Client, Failure, JobContext, JobFilter, NewBatch, NewJob, OnDead, ResultError, Worker,
};
use spindle_testkit::PATIENCE;
use tokio::sync::oneshot;

use crate::server::Served;

fn job(queue: &str) -> NewJob {
    NewJob::new(queue, &json!(null)).unwrap()
}

#[tokio::test]
async fn a_job_waits_for_others_and_says_so() {
    let served = Served::new();
    let client = served.client();
    let one = client.submit(&job("resize")).await.unwrap();
    let batch = client.open_batch(&NewBatch::new("photos")).await.unwrap();
    let last = job("album").after([&one]).after([&batch]).on_dead(OnDead::Run).fair_key("acme");
    let last = client.submit(&last).await.unwrap();
    let info = last.info().await.unwrap();
    assert_eq!(info.status, "blocked");
    assert_eq!((&info.more["on_dead"], &info.more["fair_key"]), (&json!("run"), &json!("acme")));
    let after = json!([
        { "id": 1, "status": "ready" },
        { "id": batch.id(), "is_batch": true, "status": "open" },
    ]);
    assert_eq!(info.more["after"], after);
    one.cancel().await.unwrap();
    batch.seal().await.unwrap();
    assert_eq!(last.info().await.unwrap().status, "ready");
    let error = client.submit(&job("album").after([4711])).await.unwrap_err();
    assert_eq!(error.code(), "after_not_found");
}

#[tokio::test]
async fn jobs_of_one_request_wait_for_each_other_by_their_names() {
    let served = Served::new();
    let client = served.client();
    let mut jobs = vec![job("album").after(["one", "two"])];
    jobs.extend(["one", "two"].map(|name| job("resize").named(name)));
    let submitted = client.submit_many(&jobs).await;
    let [album, one, two] = &submitted[..] else { panic!("{submitted:?}") };
    let info = album.as_ref().unwrap().info().await.unwrap();
    let ids = [one, two].map(|job| job.as_ref().unwrap().id().to_string().parse::<u64>().unwrap());
    assert_eq!((&*info.status, &info.more["after"][0]["id"]), ("blocked", &json!(ids[0])));
    assert_eq!(info.more["after"][1]["id"], ids[1]);

    let circle = [job("q").named("a").after(["b"]), job("q").named("b").after(["a"])];
    for outcome in client.submit_many(&circle).await {
        assert_eq!(outcome.unwrap_err().code(), "bad_field");
    }
    // They go in one request, and not in two of which the second knows no name of the first.
    let mut many: Vec<NewJob> = (0..1000).map(|_| job("many")).collect();
    many.push(job("many").named("last"));
    for outcome in client.submit_many(&many).await {
        assert_eq!(outcome.unwrap_err().code(), "out_of_range");
    }
    assert!(client.queue("many").await.unwrap_err().refusal().unwrap().is_not_found());
}

#[tokio::test]
async fn a_batch_is_opened_filled_sealed_and_ends() {
    let served = Served::new();
    let client = served.client();
    let new = NewBatch::new("photos").name("holidays").key("2026").keep(Duration::from_secs(60));
    let batch = client.open_batch(&new).await.unwrap();
    assert!(!batch.is_existing());
    let again = client.open_batch(&new).await.unwrap();
    assert_eq!((again.id(), again.is_existing()), (batch.id(), true));
    let other = client.open_batch(&NewBatch::new("photos").parent(&batch)).await.unwrap();
    assert!(!other.is_existing() && other.id() != batch.id());
    let jobs = [job("resize").batch(&batch), job("resize").batch(&batch)];
    let jobs = client.submit_many(&jobs).await;
    let filter = JobFilter { batch: Some(batch.id()), ..JobFilter::default() };
    let listed: Vec<_> = client.jobs(&filter).try_collect().await.unwrap();
    assert_eq!(listed.len(), 2);
    let info = batch.info().await.unwrap();
    assert_eq!((&*info.status, &*info.name, info.jobs.unfinished), ("open", "holidays", 3));

    assert_eq!(batch.seal().await.unwrap().status, "sealed");
    assert_eq!(batch.seal().await.unwrap_err().code(), "batch_sealed");
    let error = client.submit(&job("resize").batch(&batch)).await.unwrap_err();
    assert_eq!(error.code(), "batch_sealed");
    assert!(!batch.ended(Duration::ZERO).await.unwrap().has_ended());
    other.seal().await.unwrap();
    let waits = tokio::spawn({
        let batch = batch.clone();
        async move { batch.ended(PATIENCE).await }
    });
    batch.cancel().await.unwrap();
    let info = waits.await.unwrap().unwrap();
    assert_eq!((&*info.status, info.jobs.dead, info.jobs.done), ("ended", 2, 1));
    assert_eq!(jobs[0].as_ref().unwrap().info().await.unwrap().status, "dead");
    let listed: Vec<_> = client.batches().try_collect().await.unwrap();
    assert_eq!(listed.iter().map(|batch| batch.id).collect::<Vec<_>>(), [other.id(), batch.id()]);
}

/// Works all jobs of a queue that reads the results before its own.
async fn results_before(client: &Client, album: NewJob) -> Value {
    let (stop, stopped) = oneshot::channel::<()>();
    let resize = |n: u32, _: JobContext| async move {
        if n == 0 { Err(Failure::new("no picture").for_good()) } else { Ok(json!({ "size": n })) }
    };
    let album = client.submit(&album).await.unwrap();
    let gather = |_: Value, job: JobContext| async move {
        let strange = job.result_of::<Value>(4711).await.unwrap_err();
        assert!(matches!(&strange, ResultError::Call(error) if error.code() == "out_of_range"));
        let first = job.result_of::<Value>(job.after[0].id).await?;
        match job.results_before::<Value>().await {
            Ok(all) => Ok(json!({ "first": first, "all": all })),
            Err(error) => Ok(json!({ "first": first, "error": error.to_string() })),
        }
    };
    let worker = Worker::new(client).task("resize", resize).task("album", gather);
    let running = tokio::spawn(worker.run_until(async move { drop(stopped.await) }));
    let result = album.result(PATIENCE).await.unwrap();
    drop(stop);
    running.await.unwrap().unwrap();
    result
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_reads_the_results_of_the_jobs_before() {
    let served = Served::new();
    let client = served.client();
    let resize = |n: u32| NewJob::new("resize", &n).unwrap();
    let jobs = client.submit_many(&[resize(3), resize(5), resize(0)]).await;
    let batch = client.open_batch(&NewBatch::new("photos")).await.unwrap();
    batch.seal().await.unwrap();
    let [three, five, none] = &jobs[..] else { panic!("{jobs:?}") };
    let [three, five, none] = [three, five, none].map(|job| job.as_ref().unwrap());
    let result = results_before(&client, job("album").after([five, three]).after([&batch])).await;
    let (first, second) = (json!({ "size": 3 }), json!({ "size": 5 }));
    assert_eq!(result, json!({ "first": first, "all": [first, second] }));
    let album = job("album").after([three, none]).on_dead(OnDead::Run);
    let result = results_before(&client, album).await;
    let error = format!("job {} is dead: no picture", none.id());
    assert_eq!(result, json!({ "first": first, "error": error }));
}
