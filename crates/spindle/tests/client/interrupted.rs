//! The server is killed in the middle of each call: before it has seen the request, and after it
//! has answered, with the answer lost. The call must come out right, and nothing may happen twice.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use futures_util::{StreamExt, TryStreamExt};
use spindle_client::{
    Backoff, Client, Failure, Job, JobContext, JobFilter, NewJob, Since, Worker, WorkerEvent,
};
use spindle_testkit::PATIENCE;
use tokio::sync::{Notify, oneshot};

use crate::{
    proxy::{Broken, Moment, Proxy},
    server::{Served, client},
};

/// Extends or ends a lease: its token stands before the word that says which.
const REPORT: &str = "POST /api/v1/leases/";
const MOMENTS: [Moment; 2] = [Moment::Before, Moment::After];

struct Bench {
    served: Served,
    proxy: Proxy,
    /// Through the proxy.
    client: Client,
    /// Around it.
    direct: Client,
}

impl Bench {
    async fn new() -> Self {
        let served = Served::new();
        let proxy = Proxy::start(&served.http).await;
        Self { client: client(&proxy.url), direct: served.client(), served, proxy }
    }

    /// Makes a call that is broken off.
    async fn broken_off<T>(
        &mut self,
        request: &str,
        moment: Moment,
        call: impl Future<Output = T>,
    ) -> T {
        let reached = self.proxy.break_off(request, moment);
        tokio::join!(call, self.killed_when(reached)).0
    }

    async fn killed_when(&mut self, reached: oneshot::Receiver<Broken>) {
        let broken = tokio::time::timeout(PATIENCE, reached).await.expect("the request").unwrap();
        self.served.crash();
        drop(broken);
    }

    /// Waits until one more request comes that begins like this.
    async fn asked_again(&self, begins: &str) {
        let before = self.proxy.count(begins);
        let again = async {
            while self.proxy.count(begins) == before {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(PATIENCE, again).await.expect("the request once more");
    }

    async fn count(&self, queue: &str) -> u64 {
        self.direct.queue(queue).await.unwrap().jobs.values().sum()
    }

    async fn add(&self, queue: &str) -> Job {
        self.direct.submit(&NewJob::new(queue, &1).unwrap()).await.unwrap()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn submits_are_one_job() {
    let mut bench = Bench::new().await;
    let client = bench.client.clone();
    for moment in MOMENTS {
        let queue = format!("submit-{moment:?}");
        let job = NewJob::new(&*queue, &7).unwrap();
        let submitted = bench.broken_off("POST /api/v1/jobs ", moment, client.submit(&job)).await;
        let submitted = submitted.unwrap();
        assert!(!submitted.is_existing());
        assert_eq!(submitted.info().await.unwrap().more["payload"], 7);
        assert_eq!(bench.count(&queue).await, 1, "{moment:?}");

        let queue = format!("many-{moment:?}");
        let jobs: Vec<_> = (0..50).map(|n| NewJob::new(&*queue, &n).unwrap()).collect();
        let call = client.submit_many(&jobs);
        let submitted = bench.broken_off("POST /api/v1/jobs/batch", moment, call).await;
        assert!(submitted.iter().all(Result::is_ok), "{submitted:?}");
        assert_eq!(bench.count(&queue).await, 50, "{moment:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn cancels_deletes_reads_and_lists_come_out_as_alone() {
    let mut bench = Bench::new().await;
    for moment in MOMENTS {
        let queue = format!("ends-{moment:?}");
        let id = |job: &Job| job.id().to_string();
        let [one, other, third] =
            [bench.add(&queue).await, bench.add(&queue).await, bench.add(&queue).await];
        let through = |job: &Job| bench.client.job(job.id().clone());
        let (one_there, other_there, third_there) =
            (through(&one), through(&other), through(&third));
        let path = format!("POST /api/v1/jobs/{}/cancel", id(&one));
        let cancelled = bench.broken_off(&path, moment, one_there.cancel()).await.unwrap();
        assert_eq!(cancelled.result.unwrap().code, "cancelled");
        let path = format!("DELETE /api/v1/jobs/{}", id(&other));
        assert!(bench.broken_off(&path, moment, other_there.delete()).await.unwrap());
        assert!(!other.delete().await.unwrap());
        let path = format!("GET /api/v1/jobs/{} ", id(&third));
        let info = bench.broken_off(&path, moment, third_there.info()).await.unwrap();
        assert_eq!(info.status, "ready");
        let filter = JobFilter { queue: Some(queue), ..JobFilter::default() };
        let listing = bench.client.jobs(&filter).try_collect::<Vec<_>>();
        let listed = bench.broken_off("GET /api/v1/jobs?", moment, listing).await.unwrap();
        assert_eq!(listed.len(), 2, "{moment:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_may_have_been_received_is_not_repeated() {
    let mut bench = Bench::new().await;
    let job = bench.add("retry").await;
    job.cancel().await.unwrap();
    let through = bench.client.job(job.id().clone());
    let path = format!("POST /api/v1/jobs/{}/retry", job.id());
    let error = bench.broken_off(&path, Moment::After, through.retry()).await.unwrap_err();
    assert!(error.maybe_received(), "{error}");
    assert_eq!(job.info().await.unwrap().status, "ready");
}

/// Works one job while a request is broken off: which attempts ran, and the events of the worker.
async fn worked_through(
    bench: &mut Bench,
    job: NewJob,
    queue: &str,
    request: &str,
    moment: Moment,
    fail_first: bool,
) -> (Vec<u32>, Vec<String>) {
    let job = bench.direct.submit(&job.backoff(Backoff::every(Duration::ZERO))).await.unwrap();
    let (seen, attempts) = std::sync::mpsc::channel();
    let (say, events) = std::sync::mpsc::channel();
    let stop = Arc::new(Notify::new());
    let work = move |_: u32, job: JobContext| {
        seen.send(job.attempt).unwrap();
        async move {
            if fail_first && job.attempt == 1 {
                return Err(Failure::new("not yet"));
            }
            Ok(job.attempt)
        }
    };
    let worker = Worker::new(&bench.client).task(queue, work).on_event(move |event| {
        if let WorkerEvent::Ended(_, ending) = event {
            say.send(format!("{ending:?}")).unwrap();
        }
    });
    let reached = bench.proxy.break_off(request, moment);
    let stopped = Arc::clone(&stop);
    let running = tokio::spawn(worker.run_until(async move { stopped.notified().await }));
    bench.killed_when(reached).await;
    let _: u32 = job.result(PATIENCE).await.unwrap();
    stop.notify_one();
    running.await.unwrap().unwrap();
    let mut ended: Vec<String> = events.try_iter().collect();
    ended.iter_mut().for_each(|text| text.truncate(9));
    (attempts.try_iter().collect(), ended)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_that_is_lost_ends_with_its_time() {
    let mut bench = Bench::new().await;
    for (moment, attempts) in [(Moment::Before, [1]), (Moment::After, [2])] {
        let queue = format!("lease-{moment:?}");
        let job = NewJob::new(&*queue, &1).unwrap().ttr(Duration::from_secs(2));
        let worked =
            worked_through(&mut bench, job, &queue, "POST /api/v1/lease ", moment, false).await;
        assert_eq!(worked, (attempts.to_vec(), vec!["Completed".to_owned()]), "{moment:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_complete_counts_once_and_its_job_runs_once() {
    let mut bench = Bench::new().await;
    for moment in MOMENTS {
        let queue = format!("complete-{moment:?}");
        let job = NewJob::new(&*queue, &1).unwrap();
        let worked = worked_through(&mut bench, job, &queue, REPORT, moment, false).await;
        assert_eq!(worked, (vec![1], vec!["Completed".to_owned()]), "{moment:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fail_counts_once() {
    let mut bench = Bench::new().await;
    for moment in MOMENTS {
        let queue = format!("fail-{moment:?}");
        let job = NewJob::new(&*queue, &1).unwrap();
        let (attempts, events) =
            worked_through(&mut bench, job, &queue, REPORT, moment, true).await;
        // Another attempt may have been given at the moment of the kill, and its answer lost.
        assert_eq!((attempts[0], attempts.len()), (1, 2), "{moment:?}: {attempts:?}");
        assert_eq!(events, ["Failed(Fa", "Completed"], "{moment:?}");
        let filter = JobFilter { queue: Some(queue), ..JobFilter::default() };
        let jobs: Vec<_> = bench.direct.jobs(&filter).try_collect().await.unwrap();
        assert_eq!(jobs[0].fails, 1, "{moment:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extend_is_repeated_and_the_job_goes_on() {
    let mut bench = Bench::new().await;
    for moment in MOMENTS {
        let queue = format!("extend-{moment:?}");
        let job = NewJob::new(&*queue, &1).unwrap().ttr(Duration::from_secs(10)).attempts_max(1);
        let job = bench.direct.submit(&job).await.unwrap();
        let (go_on, stop) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (waiting, stopped) = (Arc::clone(&go_on), Arc::clone(&stop));
        let work = move |_: u32, job: JobContext| {
            let waiting = Arc::clone(&waiting);
            async move {
                waiting.notified().await;
                Ok(job.attempt)
            }
        };
        let reached = bench.proxy.break_off(REPORT, moment);
        let worker = Worker::new(&bench.client).task(&*queue, work);
        let running = tokio::spawn(worker.run_until(async move { stopped.notified().await }));
        bench.killed_when(reached).await;
        bench.asked_again(REPORT).await;
        go_on.notify_one();
        assert_eq!(job.result::<u32>(PATIENCE).await.unwrap(), 1, "{moment:?}");
        stop.notify_one();
        running.await.unwrap().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn events_go_on_over_a_crash() {
    let mut bench = Bench::new().await;
    let mut events = bench.client.events(Since::Oldest);
    let ids = Arc::new(AtomicU32::new(0));
    for round in 0..2 {
        let job = bench.add("watched").await;
        let number = loop {
            let event = events.next().await.unwrap().unwrap();
            if event.kind == "submitted" {
                ids.fetch_add(1, Ordering::SeqCst);
                break event.job.unwrap();
            }
        };
        assert_eq!(number.to_string(), job.id().to_string(), "round {round}");
        bench.served.crash();
    }
    assert_eq!(ids.load(Ordering::SeqCst), 2);
}
