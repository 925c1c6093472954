//! What Jobq's door costs, beside SQLite itself: `jobq_rate poll [JOBS]` compares a poll over so
//! many jobs with one scan of the same rows by SQLite in memory; `jobq_rate change COUNT FOLDER`
//! counts creates and state changes on a log in that folder, each synced, eight at a time;
//! `jobq_rate serve ADDR` serves an empty door until it is killed.
//!
//! Numbers to compare before and after a change, not tests.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::Body;
use axum::http::{Request, header};
use http_body_util::BodyExt;
use rusqlite::Connection;
use rustix::time::{ClockId, clock_gettime};
use spindle_engine::{Engine, SystemClock};
use spindle_http::{Names, listen, site};
use spindle_jobq::{Jobq, Options};
use spindle_log::{FileLog, FileLogOptions, Log, MemoryLog};
use tower::ServiceExt;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

fn main() -> Outcome {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    match args[..] {
        ["poll"] => runtime.block_on(poll(100_000)),
        ["poll", jobs] => runtime.block_on(poll(jobs.parse()?)),
        ["change", count, folder] => runtime.block_on(change(count.parse()?, folder)),
        ["serve", addr] => serve(addr.parse()?),
        _ => Err("usage: jobq_rate poll [JOBS] | change COUNT FOLDER | serve ADDR".into()),
    }
}

fn opened(log: Arc<dyn Log>) -> Outcome<(Engine, Router)> {
    let clock = Arc::new(SystemClock::new());
    let engine = Engine::open(log, clock, spindle_engine::Options::default())?;
    engine.spawn(|failure| panic!("the log failed: {failure}"))?;
    let door = Jobq::new(engine.clone(), Options::default())?;
    let router = site(door.router(), Names::new([127, 0, 0, 1].into()));
    Ok((engine, router))
}

async fn post(router: &Router, path: &str, body: &str) -> Outcome<(u16, String)> {
    let request = Request::post(path).header(header::HOST, "localhost");
    let response = router.clone().oneshot(request.body(Body::from(body.to_owned()))?).await?;
    let status = response.status().as_u16();
    let body = response.into_body().collect().await?.to_bytes();
    Ok((status, String::from_utf8(body.to_vec())?))
}

/// What all threads of the process have computed: on a busy machine the clock on the wall also
/// tells how long others did.
fn busy() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let seconds = u64::try_from(time.tv_sec).unwrap_or_default();
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or_default())
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

async fn poll(jobs: u64) -> Outcome {
    let (engine, router) = opened(Arc::new(MemoryLog::new()))?;
    let plain = Connection::open_in_memory()?;
    plain.execute_batch(
        "CREATE TABLE job (id INTEGER PRIMARY KEY, payload TEXT, events TEXT, state TEXT,
         modified INTEGER); BEGIN",
    )?;
    let began = Instant::now();
    for number in 0..jobs {
        let payload = format!("{{\"to\": \"user-{number}@example.org\", \"subject\": \"Hello\"}}");
        post(&router, "/api/v0/job/create", &payload).await?;
        let events = "[[\"job_created\", {\"timestamp\": \"1628909303\"}]]";
        plain.execute(
            "INSERT INTO job VALUES (?1, ?2, ?3, '[\"CREATED\"]', 1628909303)",
            (number.cast_signed() + 1, payload, events),
        )?;
    }
    plain.execute_batch("COMMIT")?;
    println!("{jobs} jobs created in {:?}", began.elapsed());
    post(&router, &format!("/api/v0/job/{jobs}/state"), "[\"LAST\"]").await?;
    plain.execute("UPDATE job SET state = '[\"LAST\"]' WHERE id = ?1", [jobs.cast_signed()])?;
    let began = Instant::now();
    post(&router, "/api/v0/job", "{\"limit\": 1}").await?;
    println!("the copy caught up in {:?}", began.elapsed());
    for (what, word) in [("match last", "LAST"), ("no match", "NEVER")] {
        let (mut polls, mut scans) = (Vec::new(), Vec::new());
        let body = format!(
            "{{\"query\": [[\"=\", \"json_extract(state, '$[0]')\", \"'{word}'\"]], \
             \"state\": [\"LAST\"]}}"
        );
        let scan = format!("SELECT id FROM job WHERE json_extract(state, '$[0]') = '{word}'");
        for _ in 0..21 {
            let began = busy();
            let (status, answer) = post(&router, "/api/v0/job/poll", &body).await?;
            polls.push(busy().saturating_sub(began));
            assert_eq!(status, if word == "LAST" { 200 } else { 404 }, "{answer}");
            let began = busy();
            let mut statement = plain.prepare(&scan)?;
            let found: Vec<i64> =
                statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
            scans.push(busy().saturating_sub(began));
            assert_eq!(found.len(), usize::from(word == "LAST"));
        }
        let (poll, scan) = (median(polls), median(scans));
        let ratio = poll.as_secs_f64() / scan.as_secs_f64();
        println!("{what}: a poll {poll:?}, a scan {scan:?}: {ratio:.2} x");
    }
    engine.stop();
    Ok(())
}

async fn change(count: u64, folder: &str) -> Outcome {
    let log = FileLog::open_dir(folder, FileLogOptions::default())?;
    let (engine, router) = opened(Arc::new(log))?;
    for what in ["create", "state"] {
        let began = Instant::now();
        let lanes = (0..8).map(|lane| {
            let router = router.clone();
            async move {
                for number in (lane..count).step_by(8) {
                    let (path, body) = match what {
                        "create" => ("/api/v0/job/create".to_owned(), "{\"msg\": \"Hello\"}"),
                        _ => (format!("/api/v0/job/{}/state", number + 1), "[\"ASSIGNED\"]"),
                    };
                    let (status, answer) =
                        post(&router, &path, body).await.map_err(|error| error.to_string())?;
                    if status != 200 {
                        return Err(answer);
                    }
                }
                Ok(())
            }
        });
        let mut tasks = tokio::task::JoinSet::new();
        lanes.for_each(|lane| drop(tasks.spawn(lane)));
        while let Some(done) = tasks.join_next().await {
            done??;
        }
        let rate = count as f64 / began.elapsed().as_secs_f64();
        println!("{what}: {rate:.0} a second");
    }
    engine.stop();
    Ok(())
}

fn serve(addr: SocketAddr) -> Outcome {
    let (_engine, router) = opened(Arc::new(MemoryLog::new()))?;
    let bound = listen::bind(addr)?;
    println!("serving at {}", bound.local_addr());
    let _handle = bound.start(router, listen::Limits::default(), Arc::default())?;
    loop {
        std::thread::park();
    }
}
