//! What a worker does with jobs.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use serde::{Deserialize, Serialize};
use serde_json::json;
use spindle_client::{
    Backoff, CallError, Client, Ending, Failure, JobContext, JobRef, NewJob, Request, ResultError,
    Worker, WorkerError, WorkerEvent,
};
use spindle_testkit::PATIENCE;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinHandle,
    time::timeout,
};

use crate::{
    proxy::Proxy,
    server::{Served, client},
};

#[derive(Debug, Serialize, Deserialize, PartialEq)]
struct Mail {
    to: String,
}

/// A worker that runs until it is told to stop.
struct Running {
    stop: Arc<Notify>,
    run: JoinHandle<Result<(), WorkerError>>,
}

impl Running {
    fn start(worker: Worker) -> Self {
        let stop = Arc::new(Notify::new());
        let stopped = Arc::clone(&stop);
        let run = tokio::spawn(worker.run_until(async move { stopped.notified().await }));
        Self { stop, run }
    }

    async fn end(self) -> Result<(), WorkerError> {
        self.stop.notify_one();
        timeout(PATIENCE, self.run).await.expect("the worker's end").unwrap()
    }
}

fn job(queue: &str, payload: &impl Serialize) -> NewJob {
    NewJob::new(queue, payload).unwrap().backoff(Backoff::every(Duration::ZERO))
}

/// The code and the message that a dead job has.
async fn death(client: &Client, job: NewJob) -> (String, String, u32) {
    let job = client.submit(&job).await.unwrap();
    let Err(ResultError::Dead(info)) = job.result::<()>(PATIENCE).await else { panic!() };
    let result = info.result.unwrap();
    (result.code, result.message, info.attempts)
}

#[tokio::test(flavor = "multi_thread")]
async fn typed_payloads_come_in_and_typed_results_go_out() {
    let served = Served::new();
    let client = served.client();
    let send = |mail: Mail, job: JobContext| async move {
        Ok(json!({ "to": mail.to, "attempt": job.attempt, "queue": job.queue }))
    };
    let nothing = |(): (), _: JobContext| async { Ok(()) };
    let worker = Running::start(Worker::new(&client).task("mail", send).task("nothing", nothing));
    let mail = Mail { to: "a@example.org".to_owned() };
    let sent = client.submit(&job("mail", &mail)).await.unwrap();
    let result: serde_json::Value = sent.result(PATIENCE).await.unwrap();
    assert_eq!(result, json!({ "to": "a@example.org", "attempt": 1, "queue": "mail" }));
    // A payload as clients of other doors submit it, and none at all.
    let text = NewJob::with_bytes("mail", r#"{"to": "b"}"#);
    let sent = client.submit(&text).await.unwrap();
    assert_eq!(sent.result::<serde_json::Value>(PATIENCE).await.unwrap()["to"], "b");
    let sent = client.submit(&NewJob::with_bytes("nothing", "")).await.unwrap();
    sent.result::<()>(PATIENCE).await.unwrap();
    worker.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_are_retried_unless_they_say_otherwise() {
    let served = Served::new();
    let client = served.client();
    let flaky = |n: u32, job: JobContext| async move {
        if job.attempt < n { Err(Failure::new("not yet").code("soon")) } else { Ok(job.attempt) }
    };
    let parse = |text: String, _: JobContext| async move { Ok(text.parse::<u8>()?) };
    let hopeless = |(): (), _: JobContext| async {
        Err::<(), _>(Failure::new("no such user").code("no_user").for_good())
    };
    let panics = |(): (), _: JobContext| async {
        let text = String::from("upside down");
        if !text.is_empty() {
            panic!("{text}");
        }
        Ok(())
    };
    let worker = Worker::new(&client).task("flaky", flaky).task("parse", parse);
    let worker = Running::start(worker.task("hopeless", hopeless).task("panics", panics));
    let third = client.submit(&job("flaky", &3)).await.unwrap();
    assert_eq!(third.result::<u32>(PATIENCE).await.unwrap(), 3);
    assert_eq!(third.info().await.unwrap().fails, 2);
    let (code, message, attempts) = death(&client, job("parse", &"x").retries(1)).await;
    assert_eq!((&*code, &*message, attempts), ("failed", "invalid digit found in string", 2));
    let (code, message, attempts) = death(&client, job("hopeless", &())).await;
    assert_eq!((&*code, &*message, attempts), ("no_user", "no such user", 1));
    let (code, message, attempts) = death(&client, job("panics", &()).retries(0)).await;
    assert_eq!((&*code, &*message, attempts), ("panic", "upside down", 1));
    let (code, _, attempts) = death(&client, job("flaky", &"three")).await;
    assert_eq!((&*code, attempts), ("unreadable_payload", 1));
    worker.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_that_is_too_large_fails_its_job_for_good() {
    let served = Served::new();
    let client = served.client();
    let give = |bytes: usize, _: JobContext| async move { Ok("x".repeat(bytes)) };
    let worker = Running::start(Worker::new(&client).task("give", give));
    let large = client.submit(&job("give", &1_000_000)).await.unwrap();
    assert_eq!(large.result::<String>(PATIENCE).await.unwrap().len(), 1_000_000);
    let (code, _, attempts) = death(&client, job("give", &(17 << 20))).await;
    assert_eq!((&*code, attempts), ("unwritable_result", 1));
    worker.end().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn heartbeats_keep_a_long_job_and_a_cancel_drops_it() {
    struct Dropped(Arc<Notify>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.notify_one();
        }
    }
    let served = Served::new();
    let client = served.client();
    let (begun, dropped) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (beginning, dropping) = (Arc::clone(&begun), Arc::clone(&dropped));
    let endless = move |(): (), _: JobContext| {
        let (beginning, dropping) = (Arc::clone(&beginning), Dropped(Arc::clone(&dropping)));
        async move {
            beginning.notify_one();
            std::future::pending::<()>().await;
            drop(dropping);
            Ok(())
        }
    };
    let endings = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&endings);
    let worker = Worker::new(&client).task("endless", endless).on_event(move |event| {
        seen.lock().unwrap().push(format!("{event:?}"));
    });
    let worker = Running::start(worker);
    let job = job("endless", &()).ttr(Duration::from_millis(600)).attempts_max(1);
    let job = client.submit(&job).await.unwrap();
    begun.notified().await;
    let mut deadlines = std::collections::BTreeSet::new();
    while deadlines.len() < 4 {
        deadlines.insert(job.info().await.unwrap().more["lease"]["deadline_at"].to_string());
    }
    job.cancel().await.unwrap();
    timeout(PATIENCE, dropped.notified()).await.unwrap();
    worker.end().await.unwrap();
    let endings = endings.lock().unwrap();
    assert!(endings.len() == 1 && endings[0].contains("Lost(\"cancelled\")"), "{endings:?}");
}

/// The pieces of a job's output, which come in pages.
async fn output_of(client: &Client, job: &JobRef) -> Vec<String> {
    #[derive(Deserialize)]
    struct Page {
        pieces: Vec<Piece>,
        next: u64,
    }
    #[derive(Deserialize)]
    struct Piece {
        text: String,
    }
    let (mut pieces, mut from) = (vec![], 0);
    loop {
        let path = format!("/api/v1/jobs/{job}/output?from={from}");
        let page: Page = client.request(Request::get(&path)).await.unwrap();
        if page.next == from {
            return pieces;
        }
        pieces.extend(page.pieces.into_iter().map(|piece| piece.text));
        from = page.next;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn progress_and_output_are_seen_while_a_task_runs_and_its_end_is_heard_there() {
    let served = Served::new();
    let client = served.client();
    let (told, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let refused = Arc::<Mutex<Vec<String>>>::default();
    let (telling, going, seen) = (Arc::clone(&told), Arc::clone(&go_on), Arc::clone(&refused));
    let long = move |(): (), job: JobContext| {
        let (telling, going, seen) = (Arc::clone(&telling), Arc::clone(&going), Arc::clone(&seen));
        async move {
            job.report_progress(3, 8).await?;
            job.write_output("250 ok\n").await?;
            job.write_output(&"ä".repeat(40_000)).await?;
            telling.notify_one();
            going.notified().await;
            job.client.job(job.id).cancel().await?;
            let error = job.report_progress(8, 8).await.unwrap_err();
            seen.lock().unwrap().push(error.code().to_owned());
            Ok(())
        }
    };
    let endings = Arc::<Mutex<Vec<String>>>::default();
    let ended = Arc::clone(&endings);
    let worker = Running::start(Worker::new(&client).task("long", long).on_event(move |event| {
        ended.lock().unwrap().push(format!("{event:?}"));
    }));
    let job = client.submit(&job("long", &())).await.unwrap();
    timeout(PATIENCE, told.notified()).await.unwrap();
    let progress = &job.info().await.unwrap().more["progress"];
    assert_eq!((&progress["numerator"], &progress["denominator"]), (&json!("3"), &json!("8")));
    let pieces = output_of(&client, job.id()).await;
    let lengths: Vec<usize> = pieces.iter().map(String::len).collect();
    assert_eq!((&*pieces[0], &*lengths), ("250 ok\n", &[7, 65_536, 14_464][..]));
    go_on.notify_one();
    worker.end().await.unwrap();
    assert_eq!(*refused.lock().unwrap(), ["lease_not_live"]);
    let endings = endings.lock().unwrap();
    assert!(endings.len() == 1 && endings[0].contains("Lost(\"cancelled\")"), "{endings:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn several_jobs_come_with_one_request_and_end_with_few() {
    let served = Served::new();
    let proxy = Proxy::start(&served.http).await;
    let client = client(&proxy.url);
    let jobs: Vec<NewJob> = (0..40).map(|n| job("many", &n)).collect();
    let jobs = served.client().submit_many(&jobs).await;
    let together = Arc::new(tokio::sync::Barrier::new(40));
    let meeting = Arc::clone(&together);
    let meet = move |n: u32, _: JobContext| {
        let meeting = Arc::clone(&meeting);
        async move {
            meeting.wait().await;
            Ok(n)
        }
    };
    let ended = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&ended);
    let worker = Worker::new(&client).task("many", meet).concurrency(40).on_event(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    let worker = Running::start(worker);
    for (n, job) in jobs.into_iter().enumerate() {
        assert_eq!(job.unwrap().result::<usize>(PATIENCE).await.unwrap(), n);
    }
    worker.end().await.unwrap();
    // The end of each was reported before the run ended.
    assert_eq!(ended.load(Ordering::SeqCst), 40);
    // One request for the forty, and those that wait for more jobs.
    assert!(proxy.count("POST /api/v1/lease ") <= 3, "{:?}", proxy.asked);
    assert!(proxy.count("POST /api/v1/leases/") < 20, "{:?}", proxy.asked);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_lets_jobs_end_and_gives_back_those_that_do_not() {
    let served = Served::new();
    let client = served.client();
    let (begun, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (beginning, going) = (Arc::clone(&begun), Arc::clone(&go_on));
    let wait = move |(): (), _: JobContext| {
        let (beginning, going) = (Arc::clone(&beginning), Arc::clone(&going));
        async move {
            beginning.notify_one();
            going.notified().await;
            Ok(())
        }
    };
    let running = client.submit(&job("wait", &())).await.unwrap();
    let worker = Running::start(Worker::new(&client).task("wait", wait.clone()));
    begun.notified().await;
    let waiting = client.submit(&job("wait", &())).await.unwrap();
    worker.stop.notify_one();
    go_on.notify_one();
    worker.end().await.unwrap();
    assert_eq!(running.info().await.unwrap().status, "done");
    assert_eq!(waiting.info().await.unwrap().attempts, 0);

    let worker = Worker::new(&client).task("wait", wait).stop_timeout(Duration::ZERO);
    let worker = Running::start(worker);
    begun.notified().await;
    worker.end().await.unwrap();
    let info = waiting.info().await.unwrap();
    assert_eq!((&*info.status, info.fails), ("ready", 0));
    assert_eq!(info.more["history"][0]["outcome"], "released");
}

/// A job, as the server gives it to a worker.
const GIVEN: &str = r#"{"jobs":[{"id":1,"queue":"q","attempt":1,"lease_token":"T","payload":7}]}"#;

/// Reads one request; its first line.
async fn request(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&bytes).to_ascii_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() >= length.map_or(0, |length| length.parse().unwrap()) {
                return head.lines().next().unwrap().to_owned();
            }
        }
        assert_ne!(stream.read_buf(&mut bytes).await.unwrap(), 0, "a whole request");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_is_given_at_the_moment_of_a_stop_is_done() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client(&format!("http://{}", listener.local_addr().unwrap()));
    let worker = Worker::new(&client).task("q", |n: u32, _: JobContext| async move { Ok(n) });
    let worker = Running::start(worker);
    let (mut asking, _) = listener.accept().await.unwrap();
    assert_eq!(request(&mut asking).await, "post /api/v1/lease http/1.1");
    worker.stop.notify_one();
    // The worker says that it sends nothing more, and still reads.
    assert_eq!(asking.read(&mut [0]).await.unwrap(), 0);
    let length = GIVEN.len();
    let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{GIVEN}");
    asking.write_all(answer.as_bytes()).await.unwrap();
    let (mut reporting, _) = timeout(PATIENCE, listener.accept()).await.unwrap().unwrap();
    assert_eq!(request(&mut reporting).await, "post /api/v1/leases/t/complete http/1.1");
    reporting.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
    worker.end().await.unwrap();
}

/// Answers each request on a connection of its own, with a status and a body for its first line.
async fn answer_all(listener: TcpListener, answers: impl Fn(&str) -> (&'static str, &'static str)) {
    loop {
        let (mut stream, _) = listener.accept().await.unwrap();
        let asked = request(&mut stream).await;
        let (status, body) = answers(&asked);
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close");
        stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_result_finds_no_room_on_the_disk_is_not_made_dead() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let client = client(&format!("http://{}", listener.local_addr().unwrap()));
    let reports = Arc::<Mutex<Vec<String>>>::default();
    let seen = Arc::clone(&reports);
    let is_given = AtomicUsize::new(0);
    let serving = tokio::spawn(answer_all(listener, move |asked| {
        if asked != "post /api/v1/lease http/1.1" {
            seen.lock().unwrap().push(asked.to_owned());
            let full = r#"{"code":"disk_full","title":"The disk is full","status":507}"#;
            return ("507 Insufficient Storage", full);
        }
        match is_given.fetch_add(1, Ordering::SeqCst) {
            0 => ("200 OK", GIVEN),
            _ => ("503 Service Unavailable", r#"{"code":"busy"}"#),
        }
    }));
    let (ended, lost) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (ending, losing) = (Arc::clone(&ended), Arc::clone(&lost));
    let worker = Worker::new(&client).task("q", |n: u32, _: JobContext| async move { Ok(n) });
    let worker = Running::start(worker.on_event(move |event| {
        if let WorkerEvent::Ended(_, ending_of_job) = event {
            losing
                .fetch_add(usize::from(matches!(ending_of_job, Ending::Lost(_))), Ordering::SeqCst);
            ending.notify_one();
        }
    }));
    timeout(PATIENCE, ended.notified()).await.expect("the end of the attempt");
    worker.end().await.unwrap();
    serving.abort();
    // No failure is reported: the job comes back when its lease ends.
    assert_eq!(*reports.lock().unwrap(), ["post /api/v1/leases/t/complete http/1.1"]);
    assert_eq!(lost.load(Ordering::SeqCst), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_worker_stops_and_one_without_tasks_does_not_begin() {
    let served = Served::new();
    let client = served.client();
    let worker = Worker::new(&client).task("idle", |(): (), _: JobContext| async { Ok(()) });
    let worker = Running::start(worker);
    loop {
        match client.queue("idle").await {
            Ok(queue) if queue.waiting_leases == 1 => break,
            Ok(_) => {}
            Err(CallError::Refused(refusal)) => assert!(refusal.is_not_found()),
            Err(error) => panic!("{error}"),
        }
    }
    worker.end().await.unwrap();
    let error = Worker::new(&client).run_until(std::future::pending()).await.unwrap_err();
    assert!(matches!(error, WorkerError::NoTask), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_waits_for_a_server_that_is_away_and_says_so_once() {
    let mut served = Served::new();
    let client = served.client();
    let (away, said) = (Arc::new(Notify::new()), Arc::new(AtomicUsize::new(0)));
    let (telling, saying) = (Arc::clone(&away), Arc::clone(&said));
    let worker = Worker::new(&client).task("q", |n: u32, _: JobContext| async move { Ok(n) });
    let worker = worker.on_event(move |event| {
        if let WorkerEvent::Away(_) = event {
            saying.fetch_add(1, Ordering::SeqCst);
            telling.notify_one();
        }
    });
    let worker = Running::start(worker);
    let first = client.submit(&job("q", &1)).await.unwrap();
    assert_eq!(first.result::<u32>(PATIENCE).await.unwrap(), 1);
    served.crash();
    timeout(PATIENCE, away.notified()).await.expect("the word of it");
    let second = client.submit(&job("q", &2)).await.unwrap();
    assert_eq!(second.result::<u32>(PATIENCE).await.unwrap(), 2);
    worker.end().await.unwrap();
    assert_eq!(said.load(Ordering::SeqCst), 1);
}
