//! Checks that many schedules cost nothing while none is due, and fire in time beside a load.
//!
//! A server is idle without schedules and with all of them, none of which is due for a month. Then
//! each gets a cron expression that is due once while life cycles go through another queue: the
//! schedules in turn at every second of a minute, and then all of them at one second. The server's
//! answers tell when a schedule fired, and for which time.

use crate::figures::Figures;
use crate::http::HttpClient;
use crate::load::Plan;
use crate::run;
use crate::server::{Server, free_address};
use crate::stats::Latencies;
use anyhow::{Context, Result, ensure};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The most CPU time of an idle server with all schedules, relative to one without: nothing more,
/// apart from the scatter of such small figures.
pub(crate) const IDLE_CPU_RATIO_MAX: f64 = 1.2;
/// Of 100 schedules, 99 fire within this time.
pub(crate) const LATENESS_US_MAX: f64 = 50_000.0;
/// How long the server is watched while it is idle.
pub(crate) const IDLE_TIME: Duration = Duration::from_secs(20);
/// Life cycles that are counted before it is checked whether more are needed.
const CYCLES: u64 = 2_000;
const CONNECTIONS: usize = 8;
/// The pause after the start, or after the request for all schedules, before an idle server is
/// measured.
const SETTLE_TIME: Duration = Duration::from_secs(2);
/// Between the last change of a schedule and the first time, at least.
const LEAD_MIN: Duration = Duration::from_secs(2);
/// The number of schedules that the server shows in one answer.
const PAGE: usize = 512;
/// A schedule that is later than this has failed to fire.
const LATENESS_MAX: Duration = Duration::from_secs(60);
const DUE_PATH: &str = "/api/v1/schedules";

/// When schedules are due.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spread {
    /// Over how many consecutive seconds they are due.
    pub(crate) seconds: u32,
    /// Whether the gate applies to this spread.
    pub(crate) is_judged: bool,
}

/// Most expressions spread over a minute, and a single second is the worst case.
pub(crate) const SPREADS: [Spread; 2] =
    [Spread { seconds: 60, is_judged: true }, Spread { seconds: 1, is_judged: false }];

impl Spread {
    /// For people.
    pub(crate) fn title(self) -> String {
        match self.seconds {
            1 => "all due at one second".to_owned(),
            _ => "due at every second of a minute".to_owned(),
        }
    }
}

/// A server, and the schedules that it has.
pub(crate) struct Site {
    life: run::Site,
    http: SocketAddr,
    count: u32,
    /// The time of the slowest change of all schedules.
    change_time: Duration,
    /// How often each of them has been due.
    fired: u64,
}

impl Site {
    /// Starts a server that is to have so many schedules, and has none yet.
    pub(crate) fn open(program: &Path, dir: &Path, count: u32) -> Result<Self> {
        let (gearman, http) = (free_address()?, free_address()?);
        let server = Server::SpindleDoors { program: program.to_owned(), gearman, http };
        let life = run::Site::open(&server, dir)?;
        thread::sleep(SETTLE_TIME);
        Ok(Self { life, http, count, change_time: Duration::ZERO, fired: 0 })
    }

    /// What the server uses while nothing happens.
    pub(crate) fn idle(&self, time: Duration) -> Result<Figures> {
        let (began, before) = (Instant::now(), self.life.cpu_time()?);
        thread::sleep(time);
        let used = self.life.cpu_time()?.saturating_sub(before);
        let idle_cpu_us_per_s = used.as_secs_f64() * 1e6 / began.elapsed().as_secs_f64();
        Ok(Figures { idle_cpu_us_per_s: Some(idle_cpu_us_per_s), ..Figures::default() })
    }

    /// Gives the server all schedules. None is due for a month.
    pub(crate) fn put_far(&mut self) -> Result<()> {
        let start = Timestamp::now() + SignedDuration::from_hours(30 * 24);
        self.put(|_| json!({ "expression": "every 365d", "start_at": start.to_string() }))?;
        thread::sleep(SETTLE_TIME);
        Ok(())
    }

    /// Has every schedule fire once while life cycles go on. Returns how late they were, and the
    /// rate of the life cycles.
    pub(crate) fn fire(&mut self, seconds: u32) -> Result<Figures> {
        let lead = (self.change_time * 2).max(LEAD_MIN);
        let first = Timestamp::now() + SignedDuration::try_from(lead)?;
        let first_s = first.as_second() + 1;
        let due_s = |number: u32| first_s + i64::from(number % seconds);
        self.put(|number| json!({ "expression": at_second(due_s(number)) }))?;
        ensure!(
            Timestamp::now().as_second() < first_s,
            "the schedules were due before they were put"
        );
        self.fired += 1;
        let (is_over, http, count, fired) =
            (AtomicBool::new(false), self.http, self.count, self.fired);
        let life = &mut self.life;
        thread::scope(|scope| {
            let load = scope.spawn(|| -> Result<f64> {
                let (began, mut cycles) = (Instant::now(), 0);
                while !is_over.load(Ordering::Relaxed) {
                    life.play(Plan::life_cycles(CYCLES, CONNECTIONS))?;
                    cycles += CYCLES;
                }
                Ok(cycles as f64 / began.elapsed().as_secs_f64())
            });
            let last_s = first_s + i64::from(seconds);
            let late = wait_until(last_s).and_then(|()| lateness(http, count, fired, &due_s));
            is_over.store(true, Ordering::Relaxed);
            let rate = load.join().ok().context("the load panicked")??;
            let lateness = late?.percentiles();
            Ok(Figures { rate_per_s: Some(rate), lateness, ..Figures::default() })
        })
    }

    /// Puts all schedules at once, each with these times.
    fn put(&mut self, times: impl Fn(u32) -> Value) -> Result<()> {
        let began = Instant::now();
        let schedule = |number: u32| {
            let mut schedule = times(number);
            schedule["job"] = json!({ "queue": "bench-schedules" });
            schedule["overlap"] = json!("allow");
            (name(number), schedule)
        };
        let schedules: Map<String, Value> = (0..self.count).map(schedule).collect();
        let mut client = HttpClient::connect(self.http)?;
        client.ask_json("PUT", DUE_PATH, &json!({ "schedules": schedules }))?;
        self.change_time = self.change_time.max(began.elapsed());
        Ok(())
    }
}

fn name(number: u32) -> String {
    format!("bench-{number:05}")
}

/// The expression of six fields that is due at this second of each hour.
fn at_second(unix_s: i64) -> String {
    format!("{} {} * * * *", unix_s.rem_euclid(60), unix_s.div_euclid(60).rem_euclid(60))
}

fn wait_until(unix_s: i64) -> Result<()> {
    let left = Timestamp::from_second(unix_s)?.duration_since(Timestamp::now());
    thread::sleep(Duration::try_from(left).unwrap_or_default());
    Ok(())
}

/// How late all schedules were, once all of them have fired for the `fired`th time. None may have
/// fired more often, or for another second.
fn lateness(
    http: SocketAddr,
    count: u32,
    fired: u64,
    due_s: &impl Fn(u32) -> i64,
) -> Result<Latencies> {
    let began = Instant::now();
    loop {
        let all = list(http)?;
        ensure!(all.len() == count as usize, "the server has {} schedules", all.len());
        let missing = all.iter().filter(|one| one["submitted"].as_u64() < Some(fired)).count();
        if missing == 0 {
            let mut latencies = Latencies::new();
            for (number, one) in all.iter().enumerate() {
                let due_s = due_s(u32::try_from(number)?);
                let late = late(one, fired, due_s).with_context(|| format!("{one} is wrong"))?;
                latencies.record(late);
            }
            return Ok(latencies);
        }
        ensure!(began.elapsed() < LATENESS_MAX, "{missing} schedules have not fired");
        thread::sleep(Duration::from_millis(200));
    }
}

/// How late a schedule has fired, if it fired as it should.
fn late(schedule: &Value, fired: u64, due_s: i64) -> Result<Duration> {
    let (submitted, last) = (schedule["submitted"].as_u64(), &schedule["last"]);
    ensure!(submitted == Some(fired) && last["outcome"] == "submitted", "it fired otherwise");
    let due: Timestamp = last["due_at"].as_str().context("it was not due")?.parse()?;
    let at: Timestamp = last["at"].as_str().context("it did not fire")?.parse()?;
    ensure!(due == Timestamp::from_second(due_s)?, "it was due at another time");
    Duration::try_from(at.duration_since(due)).context("it fired too early")
}

/// All schedules, by name.
fn list(http: SocketAddr) -> Result<Vec<Value>> {
    let mut client = HttpClient::connect(http)?;
    let (mut all, mut cursor) = (vec![], None);
    loop {
        let more = cursor.map(|cursor: String| format!("&cursor={cursor}")).unwrap_or_default();
        let path = format!("{DUE_PATH}?limit={PAGE}{more}");
        let mut page = client.ask_json("GET", &path, &Value::Null)?;
        let schedules = page["schedules"].as_array_mut().context("a page has schedules")?;
        all.append(schedules);
        cursor = page["next_cursor"].as_str().map(str::to_owned);
        if cursor.is_none() {
            return Ok(all);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_names_the_second_of_the_hour() {
        let at: Timestamp = "2026-11-24T05:06:07Z".parse().unwrap();
        assert_eq!(at_second(at.as_second()), "7 6 * * * *");
        assert_eq!(at_second(at.as_second() + 54 * 60), "7 0 * * * *");
    }

    #[test]
    fn a_schedule_that_fired_otherwise_is_no_figure() {
        let last = |outcome: &str, at: &str| json!({"due_at": "2026-11-24T05:06:07.000Z", "at": at, "outcome": outcome});
        let schedule = |submitted: u64, last: Value| json!({"submitted": submitted, "last": last});
        let due_s = "2026-11-24T05:06:07Z".parse::<Timestamp>().unwrap().as_second();
        let fine = last("submitted", "2026-11-24T05:06:07.012Z");
        let late_ms = |schedule: &Value| late(schedule, 2, due_s).ok().map(|late| late.as_millis());
        assert_eq!(late_ms(&schedule(2, fine.clone())), Some(12));
        assert_eq!(late_ms(&schedule(3, fine.clone())), None);
        assert_eq!(late_ms(&schedule(2, last("missed", "2026-11-24T05:06:07.012Z"))), None);
        assert_eq!(late_ms(&schedule(2, last("submitted", "2026-11-24T05:06:06.999Z"))), None);
        assert!(late(&schedule(2, fine), 2, due_s + 1).is_err());
    }
}
