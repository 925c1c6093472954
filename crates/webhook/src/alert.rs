//! What is told: one JSON object.

use jiff::Timestamp;
use serde_json::{Map, Value, json};
use spindle_core::{JobImage, Status, cut_text, event::Event};
use spindle_engine::{FeedEvent, FeedId};

/// More of a text that a worker wrote is not told.
const TEXT_BYTES_MAX: usize = 1024;

/// Something to tell.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// The same however often it is sent: by it a receiver knows what it has seen.
    pub id: String,
    /// What it is about: `job_dead`, `queue_older`, `queue_no_worker`, `gap`.
    pub event: &'static str,
    at_ms: u64,
    more: Map<String, Value>,
}

impl Alert {
    /// An alert; `more` are its other fields.
    pub fn new(id: String, event: &'static str, at_ms: u64, more: Value) -> Alert {
        let more = match more {
            Value::Object(more) => more,
            _ => Map::new(),
        };
        Alert { id, event, at_ms, more }
    }

    /// The alert that an event of the feed is worth, and the queue it is about.
    pub fn of_event(id: FeedId, event: &FeedEvent) -> Option<(Alert, &[u8])> {
        let Event::Finished(image) = &event.event else { return None };
        // Whoever cancelled it knows.
        if image.status() != Status::Dead || image.is_cancelled() {
            return None;
        }
        let more = json!({ "job": job(image) });
        Some((Alert::new(id.to_string(), "job_dead", event.at_ms, more), &image.queue))
    }

    /// Events were trimmed before they were read: dead jobs may be missing.
    pub fn gap(at_ms: u64, first: FeedId) -> Alert {
        Alert::new(format!("gap:{first}"), "gap", at_ms, Value::Null)
    }

    /// The body of its request.
    pub fn body(&self, server: &str) -> Vec<u8> {
        let mut body = self.more.clone();
        body.insert("id".to_owned(), self.id.as_str().into());
        body.insert("event".to_owned(), self.event.into());
        body.insert("at".to_owned(), time(self.at_ms).into());
        body.insert("server".to_owned(), server.into());
        Value::Object(body).to_string().into_bytes()
    }
}

fn job(image: &JobImage) -> Value {
    let mut job = Map::new();
    job.insert("id".to_owned(), image.id.into());
    put_name(&mut job, &image.queue);
    job.insert("attempts".to_owned(), image.attempts.into());
    job.insert("fails".to_owned(), image.fails.into());
    job.insert("created_at".to_owned(), time(image.created_ms).into());
    let end = image.outcome.iter();
    let texts =
        end.flat_map(|end| [("code", &end.code), ("message", &end.message), ("error", &end.error)]);
    for (name, bytes) in texts.filter(|(_, bytes)| !bytes.is_empty()) {
        let shown = String::from_utf8_lossy(cut_text(bytes, TEXT_BYTES_MAX));
        job.insert(name.to_owned(), shown.into());
    }
    Value::Object(job)
}

/// A queue's name: as text where it is UTF-8, as bytes in numbers where it is not.
pub fn put_name(object: &mut Map<String, Value>, name: &[u8]) {
    match str::from_utf8(name) {
        Ok(text) => object.insert("queue".to_owned(), text.into()),
        Err(_) => object.insert("queue_bytes".to_owned(), name.into()),
    };
}

fn time(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    let time = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX);
    format!("{time:.3}")
}
