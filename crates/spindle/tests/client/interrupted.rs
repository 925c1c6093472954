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
    Backoff, Client, Failure, Job, JobContext, JobFilter, NewBatch, NewJob, NewSchedule, Since,
    Worker, WorkerEvent,
};
use spindle_testkit::{HttpRequest, PATIENCE, wait_until};
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
async fn parks_releases_pauses_and_resumes_come_out_as_alone() {
    let mut bench = Bench::new().await;
    let client = bench.client.clone();
    for moment in MOMENTS {
        let queue = format!("held-{moment:?}");
        let job = bench.add(&queue).await;
        let through = client.job(job.id().clone());
        let path = |verb| format!("POST /api/v1/jobs/{}/{verb}", job.id());
        let parked = bench.broken_off(&path("park"), moment, through.park()).await.unwrap();
        assert_eq!(parked.status, "parked", "{moment:?}");
        let released = bench.broken_off(&path("release"), moment, through.release()).await.unwrap();
        assert_eq!(released.status, "ready", "{moment:?}");
        for (verb, is_paused) in [("pause", true), ("resume", false)] {
            let path = format!("POST /api/v1/queues/held%2D{moment:?}/{verb}");
            let call = async {
                if is_paused { client.pause(&queue).await } else { client.resume(&queue).await }
            };
            bench.broken_off(&path, moment, call).await.unwrap();
            assert_eq!(bench.direct.queue(&queue).await.unwrap().paused, is_paused, "{moment:?}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_a_batch_goes_on_over_a_restart() {
    let mut served = Served::new();
    let client = served.client();
    let batch = client.open_batch(&NewBatch::new("photos")).await.unwrap();
    client.submit(&NewJob::new("resize", &1).unwrap().batch(&batch)).await.unwrap();
    batch.seal().await.unwrap();
    let waiting = batch.clone();
    let ended = tokio::spawn(async move { waiting.ended(PATIENCE).await });
    for is_last in [false, true] {
        // It waits again, at the server that was started again.
        tokio::task::block_in_place(|| {
            wait_until("somebody waits", || {
                let (_, metrics) = HttpRequest::send(&served.http, "GET /metrics", "").answer();
                metrics.lines().any(|line| line == "spindle_waits 1")
            });
        });
        if is_last {
            batch.cancel().await.unwrap();
        } else {
            served.crash();
        }
    }
    let info = ended.await.unwrap().unwrap();
    assert_eq!((&*info.status, info.jobs.dead), ("ended", 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_opened_filled_sealed_and_cancelled_once() {
    let mut bench = Bench::new().await;
    let client = bench.client.clone();
    for moment in MOMENTS {
        let new = NewBatch::new("photos");
        let opening = client.open_batch(&new);
        let batch = bench.broken_off("POST /api/v1/batches", moment, opening).await.unwrap();
        assert!(!batch.is_existing());
        let path = |verb| format!("POST /api/v1/batches/{}{verb}", batch.id());
        let job = NewJob::new("resize", &1).unwrap().batch(&batch);
        let adding = client.submit(&job);
        bench.broken_off("POST /api/v1/jobs ", moment, adding).await.unwrap();
        let sealed = bench.broken_off(&path("/seal"), moment, batch.seal()).await.unwrap();
        assert_eq!((&*sealed.status, sealed.jobs.total), ("sealed", 1), "{moment:?}");
        let show = format!("GET /api/v1/batches/{}", batch.id());
        let info = bench.broken_off(&show, moment, batch.info()).await.unwrap();
        assert_eq!(info.jobs.unfinished, 1, "{moment:?}");
        bench.broken_off(&path("/cancel"), moment, batch.cancel()).await.unwrap();
        let (wait, ending) = (format!("{show}/wait?"), batch.ended(PATIENCE));
        let ended = bench.broken_off(&wait, moment, ending).await.unwrap();
        assert_eq!((&*ended.status, ended.jobs.dead), ("ended", 1), "{moment:?}");
    }
    let listing = client.batches().try_collect::<Vec<_>>();
    let listed = bench.broken_off("GET /api/v1/batches?", Moment::After, listing).await.unwrap();
    assert_eq!(listed.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn schedules_come_out_as_alone_and_run_once() {
    let mut bench = Bench::new().await;
    let client = bench.client.clone();
    let new = NewSchedule::new("@yearly", NewJob::new("reports", &1).unwrap());
    for moment in MOMENTS {
        let there = "PUT /api/v1/schedules/report";
        let preview = client.preview_schedule("report", &new);
        bench.broken_off(there, moment, preview).await.unwrap();
        bench.broken_off(there, moment, client.put_schedule("report", &new)).await.unwrap();
        let read = client.schedule("report");
        bench.broken_off("GET /api/v1/schedules/report", moment, read).await.unwrap();
        let listed = bench.broken_off("GET /api/v1/schedules?", moment, client.schedules()).await;
        assert_eq!(listed.unwrap().len(), 1, "{moment:?}");
        let pause = client.pause_schedule("report");
        let path = "POST /api/v1/schedules/report/pause";
        assert!(bench.broken_off(path, moment, pause).await.unwrap().paused, "{moment:?}");
        let resume = client.resume_schedule("report");
        let path = "POST /api/v1/schedules/report/resume";
        assert!(!bench.broken_off(path, moment, resume).await.unwrap().paused, "{moment:?}");
        let path = "POST /api/v1/schedules/report/run";
        let run = bench.broken_off(path, moment, client.run_schedule("report")).await;
        // It is not repeated: the client cannot know that a request which it sent did not arrive.
        assert!(run.unwrap_err().maybe_received());
        let submitted = bench.direct.schedule("report").await.unwrap().more["submitted"].clone();
        assert_eq!(submitted, u8::from(moment == Moment::After), "{moment:?}");
        let path = "DELETE /api/v1/schedules/report";
        assert!(bench.broken_off(path, moment, client.delete_schedule("report")).await.unwrap());
        assert!(!bench.direct.delete_schedule("report").await.unwrap());
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
        // Another attempt may have been given out at the moment of the kill, and the answer lost.
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
        let job = NewJob::new(&*queue, &1).unwrap().ttr(Duration::from_secs(60)).attempts_max(1);
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

/// What a task says while it runs, which is broken off.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Say {
    Progress,
    Output,
    ResultOf,
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_task_says_and_reads_meanwhile_leaves_its_job_running() {
    let mut bench = Bench::new().await;
    let before = bench.add("before").await;
    let seven = Worker::new(&bench.direct).task("before", |_: u32, _: JobContext| async { Ok(7) });
    let (stop, stopped) = oneshot::channel::<()>();
    let running = tokio::spawn(seven.run_until(async { drop(stopped.await) }));
    before.result::<u32>(PATIENCE).await.unwrap();
    drop(stop);
    running.await.unwrap().unwrap();
    for moment in MOMENTS {
        for say in [Say::Progress, Say::Output, Say::ResultOf] {
            let queue = format!("{say:?}-{moment:?}");
            let job = NewJob::new(&*queue, &1).unwrap().after([&before]).attempts_max(1);
            let job = bench.direct.submit(&job).await.unwrap();
            let stop = Arc::new(Notify::new());
            let stopped = Arc::clone(&stop);
            let work = move |_: u32, job: JobContext| async move {
                let said = match say {
                    Say::Progress => job.report_progress(3, 8).await,
                    Say::Output => job.write_output("250 ok\n").await,
                    Say::ResultOf => {
                        assert_eq!(job.result_of::<u32>(job.after[0].id).await?, 7);
                        Ok(())
                    }
                };
                Ok(said.err().map(|error| error.maybe_received()))
            };
            let is_read = say == Say::ResultOf;
            let request = if is_read { "GET /api/v1/leases/" } else { REPORT };
            let reached = bench.proxy.break_off(request, moment);
            let worker = Worker::new(&bench.client).task(&*queue, work);
            let running = tokio::spawn(worker.run_until(async move { stopped.notified().await }));
            bench.killed_when(reached).await;
            let maybe_received: Option<bool> = job.result(PATIENCE).await.unwrap();
            // Progress is sent once, output again only if it was not sent, a read always.
            assert_eq!(maybe_received, (!is_read).then_some(true), "{say:?}, {moment:?}");
            stop.notify_one();
            running.await.unwrap().unwrap();
        }
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
