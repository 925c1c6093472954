//! Jobs and queues as a server shows them. The names are those of the native API.

use anyhow::Context;
use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value, value::RawValue};

use crate::queue_name::QueueName;

/// A job. What a door does not show is left out.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Job {
    /// Its id: a number through the native API, a UUID through Workq.
    pub id: Value,
    /// Its queue, where the name is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Its queue in base64, where the name is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queue_base64: Option<String>,
    /// `scheduled`, `ready`, `leased`, `parked`, `blocked`, `done` or `dead`.
    pub status: String,
    /// Higher goes first.
    pub priority: i64,
    /// When it came.
    pub created_at: String,
    /// When it may run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run_at: Option<String>,
    /// How long a lease lasts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttr_ms: Option<u64>,
    /// How long it lives.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Leases given.
    pub attempts: u64,
    /// Most leases; 0 is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts_max: Option<u32>,
    /// Failures.
    pub fails: u64,
    /// Most failures; 0 is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fails_max: Option<u32>,
    /// What the payload is.
    pub payload_type: String,
    /// How long the payload is.
    pub payload_bytes: u64,
    /// The payload, if it is JSON.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub payload: Option<Box<RawValue>>,
    /// The payload in base64, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub payload_base64: Option<String>,
    /// The payload as text, for people, if it is bytes that are text.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub payload_text: Option<String>,
    /// The outcome of the last attempt that had one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<Outcome>,
    /// Everything else.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// The end of an attempt.
#[derive(Debug, Serialize, Deserialize)]
pub struct Outcome {
    /// Completed, or failed.
    pub success: bool,
    /// What the result is.
    #[serde(rename = "type")]
    pub kind: String,
    /// How long the result is.
    pub bytes: u64,
    /// The result, if it is JSON.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub value: Option<Box<RawValue>>,
    /// The result in base64, if it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    /// The result as text, for people, if it is bytes that are text.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// For people.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub message: String,
    /// The error, as the worker gave it.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub error: String,
    /// A code.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub code: String,
}

/// A queue's numbers.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Queue {
    /// Its name, where it is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its name in base64, where it is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name_base64: Option<String>,
    /// Nothing is leased from it; Workq does not say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<bool>,
    /// Its jobs by status.
    pub jobs: Counts,
    /// Everything else.
    #[serde(flatten)]
    pub more: Map<String, Value>,
}

/// Jobs by status. Workq shows the first two.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Counts {
    /// Any worker may have them.
    pub ready: u64,
    /// Their time has not come.
    pub scheduled: u64,
    /// Workers have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leased: Option<u64>,
    /// Kept aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<u64>,
    /// They wait for other jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<u64>,
    /// Completed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub done: Option<u64>,
    /// Failed for good.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead: Option<u64>,
}

impl Counts {
    /// By status, in the order of a job's life.
    pub fn by_status(&self) -> [(&'static str, u64); 7] {
        let known = |count: Option<u64>| count.unwrap_or(0);
        [
            ("scheduled", self.scheduled),
            ("ready", self.ready),
            ("leased", known(self.leased)),
            ("parked", known(self.parked)),
            ("blocked", known(self.blocked)),
            ("done", known(self.done)),
            ("dead", known(self.dead)),
        ]
    }

    /// Adds those of another queue.
    pub fn add(&mut self, other: &Self) {
        self.ready += other.ready;
        self.scheduled += other.scheduled;
        for (sum, count) in [
            (&mut self.leased, other.leased),
            (&mut self.parked, other.parked),
            (&mut self.blocked, other.blocked),
            (&mut self.done, other.done),
            (&mut self.dead, other.dead),
        ] {
            *sum = Some(sum.unwrap_or(0) + count.unwrap_or(0));
        }
    }
}

impl Job {
    /// Its id as text.
    pub fn id_text(&self) -> String {
        text_of(&self.id)
    }

    /// Its queue.
    pub fn queue_name(&self) -> QueueName {
        QueueName::from_api(self.queue.as_deref(), self.queue_base64.as_deref())
    }

    /// How its payload begins, if it came in a list.
    pub fn payload_beginning(&self) -> Option<Bytes> {
        let field = |name: &str| self.more.get(name).and_then(Value::as_str);
        match (field("payload_preview"), field("payload_preview_base64")) {
            (Some(text), _) => Some(Bytes::copy_from_slice(text.as_bytes())),
            (None, Some(text)) => BASE64_STANDARD.decode(text).ok().map(Bytes::from),
            (None, None) => None,
        }
    }

    /// With payload and result as text too, where they are bytes that are text.
    pub fn with_texts(mut self) -> Self {
        let text = |kind: &str, bytes: Option<Bytes>| {
            let bytes = bytes.filter(|_| kind == "bytes")?;
            String::from_utf8(bytes.to_vec()).ok()
        };
        self.payload_text = text(&self.payload_type, self.payload_bytes().ok().flatten());
        if let Some(result) = &mut self.result {
            let bytes = result.base64.is_some().then(|| result.result_bytes().ok()).flatten();
            result.text = text(&result.kind, bytes);
        }
        self
    }

    /// The payload, if the server sent it.
    pub fn payload_bytes(&self) -> anyhow::Result<Option<Bytes>> {
        bytes_of(self.payload.as_deref(), self.payload_base64.as_deref())
    }
}

impl Outcome {
    /// The result; none is no bytes.
    pub fn result_bytes(&self) -> anyhow::Result<Bytes> {
        Ok(bytes_of(self.value.as_deref(), self.base64.as_deref())?.unwrap_or_default())
    }
}

impl Queue {
    /// Its name.
    pub fn queue_name(&self) -> QueueName {
        QueueName::from_api(self.name.as_deref(), self.name_base64.as_deref())
    }
}

/// Bytes that came as JSON, exactly as written, or in base64.
pub fn bytes_of(json: Option<&RawValue>, base64: Option<&str>) -> anyhow::Result<Option<Bytes>> {
    match (json, base64) {
        (Some(json), _) => Ok(Some(Bytes::copy_from_slice(json.get().as_bytes()))),
        (None, Some(text)) => {
            let bytes = BASE64_STANDARD.decode(text).context("the server sent no base64")?;
            Ok(Some(Bytes::from(bytes)))
        }
        (None, None) => Ok(None),
    }
}

/// A JSON value as a cell of a table.
pub fn text_of(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// Reads a value that stands there, `null` included.
pub fn present<'de, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<Box<RawValue>>, D::Error> {
    Box::<RawValue>::deserialize(deserializer).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    const JOB: &str = r#"{"id":7,"queue":"q","status":"done","priority":0,"created_at":"x",
        "attempts":1,"fails":0,"payload_type":"json","payload_bytes":4,"payload": null,
        "tags":["a"],"result":{"success":true,"type":"json","bytes":8,"value":1.000e2}}"#;

    #[test]
    fn json_bytes_are_those_that_were_written() {
        let job: Job = serde_json::from_str(JOB).unwrap();
        assert_eq!(job.payload_bytes().unwrap().unwrap(), "null");
        assert_eq!(job.result.as_ref().unwrap().result_bytes().unwrap(), "1.000e2");
        let text = serde_json::to_string(&job).unwrap();
        assert!(text.contains(r#""payload":null"#) && text.contains("1.000e2"), "{text}");
        assert!(text.contains(r#""tags":["a"]"#), "{text}");
    }
}
