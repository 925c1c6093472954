//! The gate of lists: the first page of jobs picked out of a million by what is indexed, against a
//! get of one job by its number, while jobs are submitted, leased and finished.
//!
//! Besides the jobs of one queue that make up the million there are a few of each other kind, half
//! of them in its middle and half at its end, fewer than a page holds: a list of those has to come
//! past all others before it is whole.

use super::plain::with_unit;
use super::session::Session;
use crate::ask::Asker;
use crate::gate::{Bound, Judgement};
use crate::jobs::Jobs;
use crate::load;
use crate::report::{Figures, Scenario, Series};
use crate::scenario::unchecked;
use crate::server::Running;
use crate::stats::Latencies;
use crate::target::Door;
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

const TIMES_A_GET: f64 = 5.0;
/// Jobs of each rare kind, put in at each of the two places.
const RARE: u64 = 20;
/// Jobs on a page, unless told otherwise.
const PAGE: usize = 50;
/// Jobs that are asked for by number, in turn.
const GETS: u64 = 64;
const CONNECTIONS: usize = 8;

/// A list, and how many jobs its first page has.
struct List {
    name: &'static str,
    query: String,
    jobs: Expected,
}

#[derive(Clone, Copy)]
enum Expected {
    Exactly(usize),
    /// They come and go.
    AtMost(usize),
}

/// All of the gate.
pub(super) fn lists(session: &mut Session<'_>) -> Result<()> {
    let server = session.spindle_beside(Door::Workq, "always", Some(Door::Api));
    let running = server.start(session.setting.bounds)?;
    let api = running.beside.context("the API was asked for")?;
    let jobs = Jobs::fresh(session.setting.payload_bytes);
    let waiting = session.sizes.waiting;
    let mut asker = Asker::connect(api)?;
    session.setting.fill(&running, &jobs, 0, waiting / 2)?;
    let middle = rare_jobs(&mut asker, jobs.queue(), 0)?;
    session.setting.fill(&running, &jobs, waiting / 2, waiting / 2)?;
    let end = rare_jobs(&mut asker, jobs.queue(), RARE)?;
    let lists = all_lists(jobs.queue(), &[middle, end]);

    let mut kinds: Vec<Vec<Latencies>> = vec![];
    for round in 0..=session.runs {
        let latencies = round_of(session, &running, &jobs, api, &lists, round)?;
        // The first round warms up.
        if round > 0 {
            kinds.push(latencies);
        }
    }
    judge(session, &lists, &kinds)
}

/// Puts in a few jobs of each rare kind. Returns when the first of them was created.
fn rare_jobs(asker: &mut Asker, queue: &str, first: u64) -> Result<String> {
    let mut created_at = None;
    for number in first..first + RARE {
        let lines = format!("Idempotency-Key: once-{number}\r\n");
        let rare = format!("{{\"queue\":\"rare\",\"unique\":{{\"key\":\"key-{number}\"}}}}");
        let later = format!("{{\"queue\":\"{queue}\",\"run_at\":\"2100-01-01T00:00:00Z\"}}");
        let lightjq = "{\"name\":\"lightjq\",\"argument\":{}}";
        let told = asker.post_with("/api/v1/jobs", &lines, &rare)?;
        ensure!(told.status == 201, "a job was not taken: {}", text(told.body));
        let id = json(told.body)?["id"].as_u64().context("a job without a number")?;
        for (path, body) in [("/api/v1/jobs", later.as_str()), ("/job", lightjq)] {
            let told = asker.post(path, body)?;
            ensure!(told.status == 201, "a job was not taken: {}", text(told.body));
        }
        if created_at.is_none() {
            let told = asker.get(&format!("/api/v1/jobs/{id}"))?;
            created_at = json(told.body)?["created_at"].as_str().map(str::to_owned);
        }
    }
    created_at.context("a job does not tell when it was created")
}

fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).into_owned()
}

fn json(body: &[u8]) -> Result<Value> {
    serde_json::from_slice(body).with_context(|| format!("not JSON: {}", text(body)))
}

fn all_lists(queue: &str, [middle, end]: &[String; 2]) -> Vec<List> {
    let few = Expected::Exactly(2 * RARE as usize);
    let page = Expected::Exactly(PAGE);
    let one = Expected::Exactly(1);
    let list = |name, query: String, jobs| List { name, query, jobs };
    vec![
        list("all", String::new(), page),
        list("by status, most", "status=ready".to_owned(), page),
        list("by status, few", "status=scheduled".to_owned(), few),
        list("by status, now and then", "status=leased".to_owned(), Expected::AtMost(PAGE)),
        list("by queue, most", format!("queue={queue}"), page),
        list("by queue, few", "queue=rare".to_owned(), few),
        list("by door, most", "door=workq".to_owned(), page),
        list("by door, few", "door=lightjq".to_owned(), few),
        list("by time, from", format!("created_from={middle}"), page),
        list("by time, between", format!("created_from={middle}&created_before={end}"), page),
        list("by unique key", format!("queue=rare&unique_key=key-{}", 2 * RARE - 1), one),
        list("by idempotency key", format!("idempotency_key=once-{}", 2 * RARE - 1), one),
        list("by queue, door and status", "queue=rare&door=api&status=ready".to_owned(), few),
    ]
}

/// Asks for a job and for each list in turn as long as the load runs: the latencies of the gets,
/// then those of each list.
fn round_of(
    session: &Session<'_>,
    running: &Running,
    jobs: &Jobs,
    api: SocketAddr,
    lists: &[List],
    round: u32,
) -> Result<Vec<Latencies>> {
    let count = session.sizes.lifecycle;
    let mut plan = session.setting.plan(running, jobs);
    plan = plan.submitting(count, CONNECTIONS, 1).working(count, CONNECTIONS);
    plan.first = session.sizes.waiting + u64::from(round) * count;
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let asking = scope.spawn(|| ask(session, api, lists, &over));
        let played = load::run(&plan, &mut unchecked());
        over.store(true, Ordering::Relaxed);
        let latencies = asking.join().map_err(|_| anyhow::anyhow!("the asking thread panicked"))?;
        let elapsed = played.context("the load beside the lists")?.elapsed;
        let rate = count as f64 / elapsed.as_secs_f64();
        eprintln!("lists: {round}/{}: beside {rate:.0} life cycles/s", session.runs);
        latencies
    })
}

fn ask(
    session: &Session<'_>,
    api: SocketAddr,
    lists: &[List],
    over: &AtomicBool,
) -> Result<Vec<Latencies>> {
    let mut asker = Asker::connect(api)?;
    let mut latencies: Vec<Latencies> = (0..=lists.len()).map(|_| Latencies::new()).collect();
    // Of the younger half, which nobody leases: each get tells a payload.
    let half = session.sizes.waiting / 2;
    let mut turn = 0;
    while !over.load(Ordering::Relaxed) {
        for (place, list) in lists.iter().enumerate() {
            let id = half + turn % GETS * (half / GETS) + 1;
            turn += 1;
            let told = asker.get(&format!("/api/v1/jobs/{id}"))?;
            ensure!(told.status == 200, "job {id} was not told: {}", text(told.body));
            latencies[0].record(told.latency);
            let took = first_page(&mut asker, list)?;
            latencies[place + 1].record(took);
        }
    }
    Ok(latencies)
}

fn first_page(asker: &mut Asker, list: &List) -> Result<Duration> {
    let told = asker.get(&format!("/api/v1/jobs?{}", list.query))?;
    ensure!(told.status == 200, "the list {} was refused: {}", list.name, text(told.body));
    let page = json(told.body)?;
    let jobs = page["jobs"].as_array().context("a page without jobs")?.len();
    let as_expected = match list.jobs {
        Expected::Exactly(count) => jobs == count,
        Expected::AtMost(count) => jobs <= count,
    };
    ensure!(as_expected && page["partial"].is_null(), "the list {} has {jobs} jobs", list.name);
    Ok(told.latency)
}

fn judge(session: &mut Session<'_>, lists: &[List], rounds: &[Vec<Latencies>]) -> Result<()> {
    let names = std::iter::once("one by number").chain(lists.iter().map(|list| list.name));
    let series: Vec<Series> = names
        .enumerate()
        .map(|(place, name)| Series {
            server: format!("spindle: {name}"),
            sync: "--sync always".to_owned(),
            runs: rounds.iter().map(|round| Figures::of_latencies(&round[place])).collect(),
        })
        .collect();
    let p50 = |series: &Series| series.each(|run| run.add.map(|add| add.p50_us));
    let [get, of_lists @ ..] = series.as_slice() else { anyhow::bail!("a series is missing") };
    let waiting = session.sizes.waiting;
    for (list, series) in lists.iter().zip(of_lists) {
        let gate = format!("list out of {waiting} jobs {}, first page / get by number", list.name);
        let judgement =
            Judgement::ratio(&gate, &p50(series), &p50(get), Bound::AtMost(TIMES_A_GET))
                .context("nothing was measured")?;
        let (ours, gets) = (with_unit(&p50(series), 0, "us"), with_unit(&p50(get), 0, "us"));
        session.judgements.push(judgement.between(&series.sync, ours, gets));
    }
    let title = format!(
        "first pages of lists out of {waiting} jobs beside life cycles, {CONNECTIONS} connections \
         a side; add is the time of one"
    );
    session.scenarios.push(Scenario { title, series });
    Ok(())
}
