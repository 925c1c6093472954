//! The numbers for Prometheus, gathered when they are asked for.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use spindle_core::Status;
use spindle_core::state::QueueListing;
use spindle_engine::Engine;
use tokio::task::yield_now;

use crate::view::status_word;

/// Queues with labels of their own; the others are told together, as `(others)`.
const QUEUES_MAX: usize = 100;
const OTHERS: &str = "(others)";
/// Queues looked at in one hold of the lock.
const STEP_QUEUES: usize = 512;

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct JobLabels {
    queue: String,
    status: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct QueueLabel {
    queue: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DoorLabel {
    door: &'static str,
}

/// All numbers as text.
pub(crate) async fn text(engine: &Engine, connections: usize) -> String {
    let mut registry = Registry::with_prefix("spindle");
    server(&mut registry, engine, connections);
    queues(&mut registry, engine).await;
    let mut text = String::new();
    encode(&mut text, &registry).expect("writing to a string does not fail");
    text
}

fn server(registry: &mut Registry, engine: &Engine, connections: usize) {
    let stats = engine.stats();
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
        ("finished_dropped", "Finished jobs dropped for a cap", stats.finished_dropped),
        ("payloads_damaged", "Payloads that failed their checksum", stats.payloads_damaged),
    ] {
        let counter: Counter = Counter::default();
        counter.inc_by(value);
        registry.register(name, format!("{help}, since the start"), counter);
    }
    let now = engine.gauges();
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
    ] {
        registry.register(name, help, gauge(value));
    }
    let bytes = |registry: &mut Registry, name: &str, help: &str, value: u64| {
        registry.register_with_unit(name, help, Unit::Bytes, gauge(value));
    };
    bytes(registry, "log", "What the kept records take", now.log_bytes);
    bytes(registry, "undurable", "Decided and not on disk yet", now.undurable_bytes as u64);
    let open: Family<DoorLabel, Gauge> = Family::default();
    open.get_or_create(&DoorLabel { door: "http" }).set(signed(connections as u64));
    registry.register("connections", "Open connections", open);
}

async fn queues(registry: &mut Registry, engine: &Engine) {
    let (listed, others) = largest(engine).await;
    let jobs: Family<JobLabels, Gauge> = Family::default();
    let ages: Family<QueueLabel, Gauge> = Family::default();
    let set = |queue: &str, counts: &[usize; Status::ALL.len()]| {
        for status in Status::ALL {
            let labels = JobLabels { queue: queue.to_owned(), status: status_word(status) };
            jobs.get_or_create(&labels).set(signed(counts[status as usize] as u64));
        }
    };
    let now_ms = engine.now_ms();
    for queue in &listed {
        let name = String::from_utf8_lossy(&queue.name).into_owned();
        set(&name, &queue.counts);
        let next_ms = engine
            .look(|state| state.ready_jobs(&queue.name, 0).next().map(|job| job.created_ms()));
        let age_ms = next_ms.map_or(0, |created_ms| now_ms.saturating_sub(created_ms));
        ages.get_or_create(&QueueLabel { queue: name }).set(signed(age_ms / 1000));
    }
    if let Some(counts) = others {
        set(OTHERS, &counts);
    }
    registry.register("queue_jobs", "Jobs by queue and status", jobs);
    registry.register_with_unit(
        "queue_next_ready_age",
        "How long ago the ready job whose turn is next was submitted; 0 if none is ready",
        Unit::Seconds,
        ages,
    );
}

type Counted = (Vec<QueueListing>, Option<[usize; Status::ALL.len()]>);

/// The queues with the most unfinished jobs, and the sum of the rest.
async fn largest(engine: &Engine) -> Counted {
    let mut largest: Vec<QueueListing> = Vec::new();
    let mut others = None;
    let mut after: Option<bytes::Bytes> = None;
    loop {
        let step: Vec<QueueListing> = engine.look(|state| {
            let from = after.as_deref().unwrap_or_default();
            state.queues_from(from, after.is_some()).take(STEP_QUEUES).collect()
        });
        after = step.last().map(|queue| queue.name.clone());
        let is_last = step.len() < STEP_QUEUES;
        largest.extend(step);
        largest.sort_by_cached_key(|queue| std::cmp::Reverse(unfinished(queue)));
        for queue in largest.drain(QUEUES_MAX.min(largest.len())..) {
            let sums = others.get_or_insert([0; Status::ALL.len()]);
            for (sum, count) in sums.iter_mut().zip(queue.counts) {
                *sum += count;
            }
        }
        if is_last {
            return (largest, others);
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
