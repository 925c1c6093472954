//! What is sent: one JSON object.

use jiff::Timestamp;
use serde_json::{Value, json};
use spindle_core::{JobImage, Status, cut_text, event::Event};
use spindle_engine::{FeedEvent, FeedId};

/// The longest text of a worker that is sent, in bytes.
const TEXT_BYTES_MAX: usize = 1024;

/// Something to send.
#[derive(Clone, Debug, PartialEq)]
pub struct Alert {
    /// The same however often the alert is sent: by it a receiver recognizes what it has seen.
    pub id: String,
    /// What it is about: `job_dead`, `queue_older`, `queue_no_worker`, `gap`.
    pub event: &'static str,
    at_ms: u64,
    more: Value,
}

impl Alert {
    /// An alert; `more` is an object of its other fields.
    pub fn new(id: String, event: &'static str, at_ms: u64, more: Value) -> Alert {
        Alert { id, event, at_ms, more }
    }

    /// The alert that an event of the feed is worth, and the queue it is about.
    pub fn of_event(id: FeedId, event: &FeedEvent) -> Option<(Alert, &[u8])> {
        let Event::Finished(image) = &event.event else { return None };
        // The person who cancelled it knows.
        if image.status() != Status::Dead || image.is_cancelled() {
            return None;
        }
        let more = json!({ "job": job(image) });
        Some((Alert::new(id.to_string(), "job_dead", event.at_ms, more), &image.queue))
    }

    /// Events were trimmed before they were read: dead jobs may be missing.
    pub fn gap(at_ms: u64, first: FeedId) -> Alert {
        Alert::new(format!("gap:{first}"), "gap", at_ms, json!({}))
    }

    /// The body of its request.
    pub fn body(&self, server: &str) -> Vec<u8> {
        let mut body = self.more.clone();
        body["id"] = self.id.as_str().into();
        body["event"] = self.event.into();
        body["at"] = time(self.at_ms).into();
        body["server"] = server.into();
        body.to_string().into_bytes()
    }
}

fn job(image: &JobImage) -> Value {
    let mut job = json!({
        "id": image.id,
        "attempts": image.attempts,
        "fails": image.fails,
        "created_at": time(image.created_ms),
    });
    put_name(&mut job, &image.queue);
    let end = image.outcome.iter();
    let texts =
        end.flat_map(|end| [("code", &end.code), ("message", &end.message), ("error", &end.error)]);
    for (name, bytes) in texts.filter(|(_, bytes)| !bytes.is_empty()) {
        job[name] = String::from_utf8_lossy(cut_text(bytes, TEXT_BYTES_MAX)).into();
    }
    job
}

/// A queue's name: as text where it is UTF-8, as bytes in numbers where it is not.
pub fn put_name(object: &mut Value, name: &[u8]) {
    match str::from_utf8(name) {
        Ok(text) => object["queue"] = text.into(),
        Err(_) => object["queue_bytes"] = name.into(),
    }
}

fn time(ms: u64) -> String {
    let ms = i64::try_from(ms).unwrap_or(i64::MAX);
    let time = Timestamp::from_millisecond(ms).unwrap_or(Timestamp::MAX);
    format!("{time:.3}")
}
