//! The queue of spans, and the thread that sends them.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::{Duration, Instant};

use futures_executor::block_on;
use opentelemetry::{Key, KeyValue, Value};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::resource::{EnvResourceDetector, ResourceDetector};
use opentelemetry_sdk::trace::{SpanData, SpanExporter as _};
use parking_lot::{Condvar, Mutex};
use spindle_engine::spans::{Span, SpanCounts, SpanSink};

use crate::client::{BlockingClient, Outcome};
use crate::data::data_of;

/// Spans that wait; more are dropped.
const QUEUE_MAX: usize = 8192;
/// Spans in one request.
const BATCH_MAX: usize = 512;
/// A batch that is not full waits this long for more.
const BATCH_TIME: Duration = Duration::from_millis(500);
/// An answer comes within this time, or the batch is lost.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// Lost spans are logged at most once in this time.
const SAY_AGAIN: Duration = Duration::from_mins(1);

/// Where spans go.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The collector: `http://HOST:PORT`, to which `/v1/traces` is added.
    pub endpoint: String,
    /// The name that tells this server from others.
    pub instance: String,
    /// How long the orderly end may take.
    pub flush_within: Duration,
}

/// Why spans cannot be sent.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The endpoint or the environment's settings will not do.
    #[error("spans cannot be exported: {0}")]
    Settings(#[from] ExporterBuildError),
    /// There is no thread for it.
    #[error("cannot start the thread that exports spans")]
    Thread(#[source] io::Error),
}

/// Sends spans until it is dropped, which sends those that wait.
#[derive(Debug)]
pub struct Exporter {
    queue: Arc<Queue>,
    ended: Receiver<()>,
    flush_within: Duration,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: Mutex<Waiting>,
    /// Wakes the thread for a full batch, and for the end.
    bell: Condvar,
    exported: AtomicU64,
    dropped: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    spans: VecDeque<Span>,
    /// When to have sent all, at the end.
    end_at: Option<Instant>,
}

impl SpanSink for Queue {
    fn record(&self, span: Span) {
        let mut waiting = self.waiting.lock();
        if waiting.spans.len() >= QUEUE_MAX || waiting.end_at.is_some() {
            drop(waiting);
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        waiting.spans.push_back(span);
        if waiting.spans.len() == BATCH_MAX {
            self.bell.notify_one();
        }
    }

    fn counts(&self) -> SpanCounts {
        let exported = self.exported.load(Ordering::Relaxed);
        SpanCounts { exported, dropped: self.dropped.load(Ordering::Relaxed) }
    }
}

impl Queue {
    /// The next spans to send, as soon as there are many, or some have waited for long. None: it is
    /// the end, and there are none left, or no time.
    fn next_batch(&self) -> Option<Vec<Span>> {
        let mut waiting = self.waiting.lock();
        loop {
            if let Some(end_at) = waiting.end_at {
                if waiting.spans.is_empty() || Instant::now() >= end_at {
                    let left = waiting.spans.len() as u64;
                    self.dropped.fetch_add(left, Ordering::Relaxed);
                    return None;
                }
                break;
            }
            let has_waited = self.bell.wait_for(&mut waiting, BATCH_TIME).timed_out();
            if waiting.spans.len() >= BATCH_MAX || has_waited && !waiting.spans.is_empty() {
                break;
            }
        }
        let count = waiting.spans.len().min(BATCH_MAX);
        Some(waiting.spans.drain(..count).collect())
    }
}

impl Exporter {
    /// Starts to send spans. `OTEL_EXPORTER_OTLP_HEADERS`, `OTEL_SERVICE_NAME` and
    /// `OTEL_RESOURCE_ATTRIBUTES` of the environment count.
    ///
    /// # Errors
    ///
    /// The settings will not do, or there is no thread for it. An unreachable collector is no error.
    pub fn start(settings: &Settings) -> Result<Exporter, StartError> {
        let (client, last) = BlockingClient::new(ANSWER_WITHIN);
        let mut exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client)
            .with_endpoint(address_of(&settings.endpoint))
            .with_timeout(ANSWER_WITHIN)
            .build()?;
        exporter.set_resource(&resource(settings));
        let queue = Arc::<Queue>::default();
        let (at_end, ended) = channel();
        let (lost, rejected) = (Lost::default(), Lost::default());
        let sender = Sender { queue: Arc::clone(&queue), exporter, last, lost, rejected };
        let run = move || {
            sender.run();
            drop(at_end);
        };
        let thread = thread::Builder::new().name("spindle-otlp".to_owned()).spawn(run);
        thread.map_err(StartError::Thread)?;
        Ok(Exporter { queue, ended, flush_within: settings.flush_within })
    }

    /// Where spans are recorded.
    pub fn sink(&self) -> Arc<dyn SpanSink> {
        Arc::clone(&self.queue) as Arc<dyn SpanSink>
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.queue.waiting.lock().end_at = Instant::now().checked_add(self.flush_within);
        self.queue.bell.notify_one();
        // The thread drops its end when done; a thread that still waits for an answer ends with the process.
        let _ = self.ended.recv_timeout(self.flush_within);
    }
}

/// The address for traces below that of the collector.
fn address_of(endpoint: &str) -> String {
    let base = endpoint.trim_end_matches('/');
    if base.ends_with("/v1/traces") { base.to_owned() } else { format!("{base}/v1/traces") }
}

/// The resource that all spans belong to: this server.
fn resource(settings: &Settings) -> Resource {
    let name = std::env::var("OTEL_SERVICE_NAME").ok().filter(|name| !name.is_empty());
    // What is in `OTEL_RESOURCE_ATTRIBUTES`.
    resource_of(name, &EnvResourceDetector::new().detect(), settings)
}

/// As the standard orders them: `OTEL_SERVICE_NAME`, then the attributes that people have set, then
/// our own.
fn resource_of(name: Option<String>, set: &Resource, settings: &Settings) -> Resource {
    let own: [(&str, Value); 3] = [
        ("service.name", "spindle".into()),
        ("service.instance.id", settings.instance.clone().into()),
        ("service.version", env!("CARGO_PKG_VERSION").into()),
    ];
    let left_out = |(key, _): &(&'static str, Value)| set.get(&Key::new(*key)).is_none();
    let own = own.into_iter().filter(left_out).map(|(key, value)| KeyValue::new(key, value));
    let set = set.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone()));
    let resource = Resource::builder().with_attributes(set).with_attributes(own);
    match name {
        Some(name) => resource.with_service_name(name).build(),
        None => resource.build(),
    }
}

/// The thread that sends.
struct Sender {
    queue: Arc<Queue>,
    exporter: SpanExporter,
    /// What the library leaves out.
    last: Arc<Mutex<Outcome>>,
    /// Spans of requests that failed.
    lost: Lost,
    /// Spans that the collector has not taken of requests that it took.
    rejected: Lost,
}

/// Spans lost since that was last logged.
#[derive(Default)]
struct Lost {
    count: u64,
    said_at: Option<Instant>,
}

impl Sender {
    fn run(mut self) {
        while let Some(spans) = self.queue.next_batch() {
            let count = spans.len() as u64;
            let batch: Vec<SpanData> = spans.into_iter().map(data_of).collect();
            let outcome = block_on(self.exporter.export(batch));
            let last = std::mem::take(&mut *self.last.lock());
            let dropped = match &outcome {
                Ok(()) => last.rejected.min(count),
                Err(_) => count,
            };
            self.queue.exported.fetch_add(count - dropped, Ordering::Relaxed);
            self.queue.dropped.fetch_add(dropped, Ordering::Relaxed);
            match outcome {
                Ok(()) if dropped > 0 => {
                    if let Some(spans) = self.rejected.add(dropped) {
                        let why = last.reason;
                        tracing::warn!(spans, why, "the collector rejects spans of a batch");
                    }
                }
                Ok(()) => {}
                Err(error) => {
                    if let Some(spans) = self.lost.add(dropped) {
                        let why = last.failure.unwrap_or_else(|| error.to_string());
                        tracing::warn!(spans, "the collector takes no spans: {why}");
                    }
                }
            }
        }
    }
}

impl Lost {
    /// So many more: how many there are to be logged, if it is time for that.
    fn add(&mut self, count: u64) -> Option<u64> {
        self.count += count;
        if self.said_at.is_some_and(|at| at.elapsed() < SAY_AGAIN) {
            return None;
        }
        self.said_at = Some(Instant::now());
        Some(std::mem::take(&mut self.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_have_an_address_below_the_collectors() {
        for endpoint in ["http://c:4318", "http://c:4318/", "http://c:4318/v1/traces"] {
            assert_eq!(address_of(endpoint), "http://c:4318/v1/traces");
        }
        assert_eq!(address_of("https://c/otlp"), "https://c/otlp/v1/traces");
    }

    #[test]
    fn the_services_name_comes_from_its_variable_then_the_attributes_then_us() {
        let settings = Settings {
            endpoint: String::new(),
            instance: "box".to_owned(),
            flush_within: Duration::ZERO,
        };
        let named = |name: Option<&str>, set: &[(&'static str, &'static str)]| {
            let set = set.iter().map(|(key, value)| KeyValue::new(*key, *value));
            let set = Resource::builder_empty().with_attributes(set).build();
            resource_of(name.map(str::to_owned), &set, &settings)
        };
        let read = |resource: &Resource, key: &'static str| {
            resource.get(&Key::new(key)).map(|value| value.to_string())
        };
        let set = [("service.name", "jobs"), ("service.instance.id", "a"), ("team", "mail")];
        for (name, set, expected) in [
            (None, &[][..], ["spindle", "box"]),
            (None, &set[..], ["jobs", "a"]),
            (Some("named"), &set[..], ["named", "a"]),
            (Some("named"), &[][..], ["named", "box"]),
        ] {
            let resource = named(name, set);
            let shown = ["service.name", "service.instance.id"].map(|key| read(&resource, key));
            assert_eq!(shown, expected.map(|text| Some(text.to_owned())));
            assert_eq!(read(&resource, "team").is_some(), !set.is_empty());
            assert_eq!(
                read(&resource, "service.version").as_deref(),
                Some(env!("CARGO_PKG_VERSION"))
            );
        }
    }

    #[test]
    fn spans_beyond_the_limit_are_dropped_and_counted() {
        use spindle_engine::spans::{SpanKind, new_trace};
        let queue = Queue::default();
        let span = Span::new("s".to_owned(), SpanKind::Server, new_trace(None), None);
        for _ in 0..QUEUE_MAX {
            queue.record(span.clone());
        }
        assert_eq!(queue.counts().dropped, 0);
        queue.record(span);
        assert_eq!(queue.counts(), SpanCounts { exported: 0, dropped: 1 });
        assert_eq!(queue.next_batch().map(|batch| batch.len()), Some(BATCH_MAX));
        queue.waiting.lock().end_at = Some(Instant::now());
        assert!(queue.next_batch().is_none());
        assert_eq!(queue.counts().dropped, 1 + (QUEUE_MAX - BATCH_MAX) as u64);
    }
}
