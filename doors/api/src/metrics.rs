//! The numbers for Prometheus, gathered when they are asked for.

use std::fmt;

use prometheus_client::encoding::text::encode;
use prometheus_client::encoding::{EncodeMetric, MetricEncoder, NoLabelSet};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use spindle_budget::Budgets;
use spindle_core::Status;
use spindle_core::state::QueueListing;
use spindle_engine::spans::SpanCounts;
use spindle_engine::{DiskRoom, Engine, MeterReadings, Readings, Tally};
use spindle_limits::{Of, Reason, Refusals};
use tokio::task::yield_now;

use crate::api::Options;
use crate::routes::queues::oldest_ready_ms;
use crate::view::status_word;

/// Queues with labels of their own; the others are shown together, as `(others)`.
const QUEUES_MAX: usize = 100;
const OTHERS: &str = "(others)";
/// Queues looked at in one hold of the lock.
const STEP_QUEUES: usize = 512;

/// One label and its value.
type Label<V = &'static str> = [(&'static str, V); 1];
type ByQueue<M> = Family<Label<String>, M>;

fn of_queue(queue: &str) -> Label<String> {
    [("queue", queue.to_owned())]
}

/// What the doors count, by the name of each door.
pub(crate) struct AtDoors {
    /// Connections open now.
    pub open: Vec<(&'static str, usize)>,
    /// Connections that were refused for lack of a slot.
    pub refused: Vec<(&'static str, Refusals)>,
    /// Requests that came too early, by the kind of limit they ran into.
    pub too_fast: [(Of, u64); Of::ALL.len()],
    /// Handshakes of TLS since the start, by how they ended; none without TLS.
    pub handshakes: Vec<(&'static str, u64)>,
    /// Until when the server's certificate is valid, in seconds since 1970; none without TLS.
    pub certificate_expires: Option<u64>,
}

/// How much room the disk of the log has.
fn on_disk(registry: &mut Registry, room: DiskRoom) {
    for (name, help, value) in [
        ("disk_free", "What is free on the disk of the log", room.free_bytes),
        ("disk", "All of the disk of the log", room.bytes),
    ] {
        registry.register_with_unit(name, help, Unit::Bytes, gauge(value));
    }
}

/// All numbers in OpenMetrics.
pub(crate) async fn open_metrics(engine: &Engine, doors: &AtDoors, options: &Options) -> String {
    let mut registry = Registry::with_prefix("spindle");
    server(&mut registry, engine);
    if let Some(room) = options.disk_room() {
        on_disk(&mut registry, room);
    }
    at_doors(&mut registry, doors);
    held(&mut registry, &options.budgets);
    times(&mut registry, engine);
    queues(&mut registry, engine).await;
    let mut text = String::new();
    encode(&mut text, &registry).expect("writing to a string does not fail");
    text
}

fn server(registry: &mut Registry, engine: &Engine) {
    let stats = engine.observe().stats();
    for (name, help, value) in [
        ("jobs_submitted", "Jobs submitted", stats.submitted),
        ("leases", "Leases given", stats.leased),
        ("jobs_completed", "Jobs done", stats.completed),
        ("jobs_died", "Jobs that failed for good", stats.died),
        (
            "attempts_requeued",
            "Attempts that ended and left their job to be tried again",
            stats.requeued,
        ),
        ("jobs_expired", "Unfinished jobs whose TTL passed", stats.expired_unfinished),
        ("payloads_damaged", "Payloads that failed their checksum", stats.payloads_damaged),
        (
            "records_fenced",
            "Records of the shared log that do not count: their writer led no more",
            stats.records_fenced,
        ),
    ] {
        let counter: Counter = Counter::default();
        counter.inc_by(value);
        registry.register(name, format!("{help}, since the start"), counter);
    }
    let SpanCounts { exported, dropped } = engine.observe().spans();
    let spans: Family<Label, Counter> = Family::default();
    for (fate, count) in [("exported", exported), ("dropped", dropped)] {
        spans.get_or_create(&[("fate", fate)]).inc_by(count);
    }
    registry.register("spans", "Spans of traces, since the start, by what became of them", spans);
    let dropped: Family<Label, Counter> = Family::default();
    for (cap, count) in [
        ("queue", stats.finished_over_queue),
        ("count", stats.finished_over_count),
        ("bytes", stats.finished_over_bytes),
    ] {
        dropped.get_or_create(&[("cap", cap)]).inc_by(count);
    }
    let help = "Finished jobs dropped for a cap, since the start, by the cap";
    registry.register("finished_dropped", help, dropped);
    let now = engine.observe().gauges();
    for (name, help, value) in [
        ("log_first_position", "The oldest record kept", now.log_first),
        ("log_durable_position", "All records below this are durable", now.durable.0),
        ("jobs_kept", "Jobs, finished ones included", now.jobs as u64),
        ("jobs_finished_kept", "Done and dead jobs that are kept", now.finished as u64),
        ("queues", "Queues with jobs or settings", now.queues as u64),
        ("waits", "Clients that wait for something", now.waits as u64),
        (
            "clock_held",
            "1 while TTLs delete nothing because clock and log disagree",
            u64::from(now.is_clock_held),
        ),
        ("disk_full", "1 while new jobs are refused for want of room", u64::from(now.is_disk_full)),
        (
            "log_cannot_grow",
            "1 while new jobs are refused because the log cannot be made longer, for another reason than room",
            u64::from(now.log_cannot_grow),
        ),
        (
            "log_full",
            "1 while new jobs are refused because the log is as large as it may be",
            u64::from(now.is_log_full),
        ),
        (
            "server_full",
            "1 while new jobs are refused because there are as many unfinished ones as may be",
            u64::from(now.is_server_full),
        ),
    ] {
        registry.register(name, help, gauge(value));
    }
    let bytes = |registry: &mut Registry, name: &str, help: &str, value: u64| {
        registry.register_with_unit(name, help, Unit::Bytes, gauge(value));
    };
    bytes(registry, "log", "What the kept records take", now.log_bytes);
    let help = "What done and dead jobs take, within an eighth";
    bytes(registry, "finished", help, now.finished_bytes);
    bytes(registry, "undurable", "Decided and not on disk yet", now.undurable_bytes as u64);
}

fn at_doors(registry: &mut Registry, doors: &AtDoors) {
    let open: Family<Label, Gauge> = Family::default();
    for (door, count) in &doors.open {
        open.get_or_create(&[("door", *door)]).set(signed(*count as u64));
    }
    registry.register("connections", "Open connections", open);
    let refused: Family<[(&str, &str); 2], Counter> = Family::default();
    for (door, refusals) in &doors.refused {
        for reason in Reason::ALL {
            let labels = [("door", *door), ("limit", reason.as_str())];
            refused.get_or_create(&labels).inc_by(refusals.count(reason));
        }
    }
    let help = "Connections closed at once for want of a place, since the start, by the limit";
    registry.register("connections_refused", help, refused);
    let too_fast: Family<Label, Counter> = Family::default();
    for (of, count) in doors.too_fast {
        too_fast.get_or_create(&[("limit", of.as_str())]).inc_by(count);
    }
    let help = "Requests that were refused or held because they came too fast, by the limit";
    registry.register("requests_too_fast", help, too_fast);
    if let Some(expires) = doors.certificate_expires {
        let help = "When the server's certificate expires, in seconds since 1970";
        let name = "tls_certificate_expires_timestamp";
        registry.register_with_unit(name, help, Unit::Seconds, gauge(expires));
    }
    if doors.handshakes.is_empty() {
        return;
    }
    let shaken: Family<Label, Counter> = Family::default();
    for (outcome, count) in &doors.handshakes {
        shaken.get_or_create(&[("outcome", *outcome)]).inc_by(*count);
    }
    let help = "Handshakes of TLS over all doors, since the start, by how they ended";
    registry.register("tls_handshakes", help, shaken);
}

/// How many bytes clients make the server hold.
fn held(registry: &mut Registry, budgets: &Budgets) {
    let (bytes, most) = (Family::<Label, Gauge>::default(), Family::<Label, Gauge>::default());
    let closed: Family<Label, Counter> = Family::default();
    for budget in budgets.all() {
        let (label, readings) = ([("budget", budget.kind().name())], budget.readings());
        bytes.get_or_create(&label).set(signed(readings.held_bytes));
        most.get_or_create(&label).set(signed(readings.bytes_max));
        closed.get_or_create(&label).inc_by(readings.closed);
    }
    let help = "Unfinished requests and unread answers of all clients";
    registry.register_with_unit("held", help, Unit::Bytes, bytes);
    registry.register_with_unit("held_max", "The most of them", Unit::Bytes, most);
    let help = "Clients closed because they held the most when it was too much, since the start";
    registry.register("held_closed", help, closed);
}

/// How long things take.
fn times(registry: &mut Registry, engine: &Engine) {
    let MeterReadings { commit_us, commit_bytes, lag_ms } = engine.observe().meters();
    let help = "From taking a batch of events to its being durable";
    registry.register_with_unit("commit", help, Unit::Seconds, Bars::new(&commit_us, 1e6));
    let help = "How much is made durable at once";
    registry.register_with_unit("commit_batch", help, Unit::Bytes, Bars::new(&commit_bytes, 1.0));
    let help = "How late jobs with a time to run became ready";
    registry.register_with_unit("schedule_lag", help, Unit::Seconds, Bars::new(&lag_ms, 1e3));
}

/// A histogram that the engine has counted.
#[derive(Debug)]
struct Bars {
    buckets: Vec<(f64, u64)>,
    sum: f64,
    count: u64,
}

impl Bars {
    /// `per_unit` is how many of the engine's units make one of the unit shown.
    fn new(readings: &Readings, per_unit: f64) -> Bars {
        let bar = |(limit, count): &(Option<u64>, u64)| {
            (limit.map_or(f64::INFINITY, |limit| limit as f64 / per_unit), *count)
        };
        Bars {
            buckets: readings.counts.iter().map(bar).collect(),
            sum: readings.sum as f64 / per_unit,
            count: readings.counts.iter().map(|(_, count)| count).sum(),
        }
    }
}

impl EncodeMetric for Bars {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_histogram::<NoLabelSet>(self.sum, self.count, &self.buckets, None)
    }

    fn metric_type(&self) -> MetricType {
        MetricType::Histogram
    }
}

async fn queues(registry: &mut Registry, engine: &Engine) {
    let (listed, others) = busiest(engine).await;
    let jobs: Family<[(&str, String); 2], Gauge> = Family::default();
    let next_ages: ByQueue<Gauge> = Family::default();
    let oldest_ages: ByQueue<Gauge> = Family::default();
    let payloads: ByQueue<Gauge> = Family::default();
    let flows = Flows::default();
    let set = |queue: &str, counts: &[usize; Status::ALL.len()]| {
        for status in Status::ALL {
            let labels = [("queue", queue.to_owned()), ("status", status_word(status).to_owned())];
            // Added up, because names that differ only in bytes that are not UTF-8 are shown as
            // one.
            jobs.get_or_create(&labels).inc_by(signed(counts[status as usize] as u64));
        }
    };
    let now_ms = engine.now_ms();
    let age = |ms: Option<u64>| signed(ms.map_or(0, |ms| now_ms.saturating_sub(ms)) / 1000);
    for Busy { queue, tally } in &listed {
        let name = String::from_utf8_lossy(&queue.name).into_owned();
        set(&name, &queue.counts);
        flows.set(&name, *tally);
        let next_ms = engine.queues().next_ready_ms(&queue.name);
        let label = of_queue(&name);
        let bytes = engine.queues().payload_bytes(&queue.name);
        payloads.get_or_create(&label).inc_by(signed(bytes));
        raise(&next_ages, &label, age(next_ms));
        let oldest_ms = next_ms.and_then(|_| oldest_ready_ms(engine, &queue.name)).or(next_ms);
        raise(&oldest_ages, &label, age(oldest_ms));
        yield_now().await;
    }
    if let Some((counts, mut tally)) = others {
        set(OTHERS, &counts);
        tally.add(engine.observe().traffic_of_others().total);
        flows.set(OTHERS, tally);
    }
    registry.register("queue_jobs", "Jobs by queue and status", jobs);
    let help = "Payloads of unfinished jobs by queue";
    registry.register_with_unit("queue_payload", help, Unit::Bytes, payloads);
    let mut ages = |name: &str, help: &str, family| {
        registry.register_with_unit(name, help, Unit::Seconds, family);
    };
    ages(
        "queue_next_ready_age",
        "How long ago the ready job whose turn is next was submitted; 0 if none is ready",
        next_ages,
    );
    ages(
        "queue_oldest_ready_age",
        "How long ago the oldest ready job was submitted; 0 if none is ready",
        oldest_ages,
    );
    flows.register(registry);
}

/// Of queues that are shown as one, the oldest job counts.
fn raise(ages: &ByQueue<Gauge>, label: &Label<String>, age: i64) {
    let gauge = ages.get_or_create(label);
    let kept = gauge.get();
    gauge.set(age.max(kept));
}

/// Counters by queue.
#[derive(Default)]
struct Flows([ByQueue<Counter>; 5]);

impl Flows {
    fn set(&self, queue: &str, tally: Tally) {
        let Tally { submitted, leased, completed, requeued, died, failed: _ } = tally;
        let label = of_queue(queue);
        for (family, count) in self.0.iter().zip([submitted, leased, completed, requeued, died]) {
            family.get_or_create(&label).inc_by(count);
        }
    }

    fn register(self, registry: &mut Registry) {
        let names = [
            ("queue_submitted", "Jobs submitted by queue"),
            ("queue_leased", "Leases given by queue"),
            ("queue_completed", "Jobs done by queue"),
            ("queue_requeued", "Attempts by queue that left their job to be tried again"),
            ("queue_died", "Jobs that failed for good by queue"),
        ];
        for ((name, help), family) in names.into_iter().zip(self.0) {
            registry.register(name, format!("{help}, since the start"), family);
        }
    }
}

/// A queue with its numbers.
struct Busy {
    queue: QueueListing,
    tally: Tally,
}

impl Busy {
    /// Ranks a queue by what has gone through it, so that it keeps its label while its jobs come
    /// and go.
    fn rank(&self) -> u64 {
        self.tally.submitted.max(unfinished(&self.queue) as u64)
    }
}

type Counted = (Vec<Busy>, Option<([usize; Status::ALL.len()], Tally)>);

/// The busiest queues, and the sum of the rest.
async fn busiest(engine: &Engine) -> Counted {
    let mut busiest: Vec<Busy> = Vec::new();
    let mut others = None;
    let mut after: Option<bytes::Bytes> = None;
    loop {
        let step: Vec<QueueListing> = engine.queues().page(after.as_deref(), STEP_QUEUES);
        after = step.last().map(|queue| queue.name.clone());
        let is_last = step.len() < STEP_QUEUES;
        busiest.extend(step.into_iter().map(|queue| {
            let tally = engine.observe().traffic(&queue.name).total;
            Busy { queue, tally }
        }));
        busiest.sort_by_cached_key(|busy| std::cmp::Reverse(busy.rank()));
        for Busy { queue, tally } in busiest.drain(QUEUES_MAX.min(busiest.len())..) {
            let (sums, tallies) = others.get_or_insert_with(Default::default);
            let counts: &mut [usize; Status::ALL.len()] = sums;
            for (sum, count) in counts.iter_mut().zip(queue.counts) {
                *sum += count;
            }
            let tallies: &mut Tally = tallies;
            tallies.add(tally);
        }
        if is_last {
            return (busiest, others);
        }
        yield_now().await;
    }
}

fn unfinished(queue: &QueueListing) -> usize {
    let open = Status::ALL.into_iter().filter(|status| !status.is_finished());
    open.map(|status| queue.counts[status as usize]).sum()
}

fn gauge(value: u64) -> Gauge {
    let gauge: Gauge = Gauge::default();
    gauge.set(signed(value));
    gauge
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}
