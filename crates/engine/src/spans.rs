//! Spans of distributed traces: what was done for a job, and when it began and ended.
//!
//! The engine makes those of a job (its submit, its leases, its attempts), the HTTP doors those of
//! requests. An exporter takes them through a [`SpanSink`].

use std::hash::{BuildHasher, RandomState};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

use spindle_core::job::TraceParent;

/// Takes spans, from under the engine's lock too: it MUST return at once.
pub trait SpanSink: Send + Sync + std::fmt::Debug {
    /// A span has ended.
    fn record(&self, span: Span);
    /// What became of spans so far.
    fn counts(&self) -> SpanCounts;
}

/// What became of spans, since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SpanCounts {
    /// The collector has them.
    pub exported: u64,
    /// They were dropped: too many waited, or the collector did not take them.
    pub dropped: u64,
}

/// What role a span has in its trace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpanKind {
    /// A request that was served.
    Server,
    /// A job came in.
    Producer,
    /// A job was given out, or worked on.
    Consumer,
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Value {
    /// Text.
    Text(String),
    /// A number.
    Number(i64),
}

impl From<&str> for Value {
    fn from(text: &str) -> Value {
        Value::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Value {
        Value::Text(text)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Value {
        Value::Number(number)
    }
}

/// A span that has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Span {
    /// What was done.
    pub name: String,
    /// Its role.
    pub kind: SpanKind,
    /// Its trace and its own id.
    pub own: TraceParent,
    /// The span it is part of.
    pub parent: Option<u64>,
    /// When it began.
    pub began: SystemTime,
    /// When it ended.
    pub ended: SystemTime,
    /// What is known of it.
    pub attributes: Vec<(&'static str, Value)>,
    /// Why it failed, if it did.
    pub failed: Option<String>,
}

impl Span {
    /// A span that has taken no time.
    pub fn new(name: String, kind: SpanKind, own: TraceParent, parent: Option<u64>) -> Span {
        let now = SystemTime::now();
        let (attributes, failed) = (Vec::new(), None);
        Span { name, kind, own, parent, began: now, ended: now, attributes, failed }
    }

    /// Adds an attribute.
    pub fn put(&mut self, name: &'static str, value: impl Into<Value>) {
        self.attributes.push((name, value.into()));
    }
}

/// A new span of a trace, or the first one of a new trace.
pub fn new_trace(parent: Option<TraceParent>) -> TraceParent {
    match parent {
        Some(parent) => parent.with_span(fresh_id()),
        None => TraceParent {
            trace_high: fresh_id(),
            trace_low: fresh_id(),
            span: fresh_id(),
            flags: TraceParent::SAMPLED,
        },
    }
}

/// The id of a job's span that can be found again: that of its submit (0), or of an attempt.
pub(crate) fn id_of_job_span(trace: TraceParent, id: u64, nth: u32) -> u64 {
    // splitmix64.
    let seed = trace.trace_low ^ id.rotate_left(32) ^ u64::from(nth);
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).max(1)
}

/// A random number that is not 0.
fn fresh_id() -> u64 {
    static KEYS: LazyLock<RandomState> = LazyLock::new(RandomState::new);
    static NEXT: AtomicU64 = AtomicU64::new(0);
    KEYS.hash_one(NEXT.fetch_add(1, Ordering::Relaxed)).max(1)
}

/// A time of the engine as one of the system.
pub(crate) fn time(ms: u64) -> SystemTime {
    let time = SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms));
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}
