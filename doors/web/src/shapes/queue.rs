//! Queues and their names.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

/// A queue's name, as text or in base64.
#[derive(Deserialize, Default, Clone, PartialEq, Debug)]
pub(crate) struct QueueName {
    #[serde(default, alias = "name")]
    pub queue: Option<String>,
    #[serde(default, alias = "name_base64")]
    pub queue_base64: Option<String>,
}

impl QueueName {
    pub fn text(text: &str) -> QueueName {
        QueueName { queue: Some(text.to_owned()), queue_base64: None }
    }

    /// Its bytes; `None` if the base64 is not valid.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        match (&self.queue, &self.queue_base64) {
            (Some(text), _) => Some(text.clone().into_bytes()),
            (None, Some(text)) => STANDARD.decode(text).ok(),
            (None, None) => Some(Vec::new()),
        }
    }

    /// For people.
    pub fn shown(&self) -> String {
        match &self.queue {
            Some(text) => text.clone(),
            None => String::from_utf8_lossy(&self.bytes().unwrap_or_default()).into_owned(),
        }
    }

    /// The field of a query or a form that carries the name, and its value. Forms change line ends
    /// and lose other control characters, so a name with any of these goes in base64.
    pub fn field(&self) -> (&'static str, String) {
        match (&self.queue, &self.queue_base64) {
            (None, Some(base64)) => ("queue_base64", base64.clone()),
            (Some(text), _) if text.contains(char::is_control) => {
                ("queue_base64", STANDARD.encode(text))
            }
            (text, _) => ("queue", text.clone().unwrap_or_default()),
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct QueuePage {
    pub queues: Vec<Queue>,
    pub next_cursor: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Queue {
    #[serde(flatten)]
    pub name: QueueName,
    pub paused: bool,
    pub jobs: Counts,
    #[serde(default)]
    pub deleted: u64,
    pub payload_bytes: u64,
    pub next_ready_age_ms: Option<u64>,
    pub oldest_ready_age_ms: Option<u64>,
    pub last_minute: Flow,
    pub waiting_leases: u64,
    pub last_asked_at: Option<String>,
    pub since_start: Option<Flow>,
    pub settings: Option<serde_json::Map<String, serde_json::Value>>,
    /// Its last hour, where a page has asked for it.
    #[serde(skip)]
    pub trend: Option<crate::pages::history::Trend>,
}

#[derive(Deserialize, Default, Clone, Copy)]
pub(crate) struct Counts {
    pub scheduled: u64,
    pub ready: u64,
    pub leased: u64,
    pub parked: u64,
    pub blocked: u64,
    pub done: u64,
    pub dead: u64,
}

impl Counts {
    /// All statuses, in the order of a job's life.
    pub const STATUSES: [&'static str; 7] =
        ["scheduled", "ready", "leased", "parked", "blocked", "done", "dead"];

    /// Each status with its count.
    pub fn all(&self) -> [(&'static str, u64); 7] {
        let Counts { scheduled, ready, leased, parked, blocked, done, dead } = *self;
        let counts = [scheduled, ready, leased, parked, blocked, done, dead];
        std::array::from_fn(|at| (Counts::STATUSES[at], counts[at]))
    }
}

#[derive(Deserialize, Default, Clone, Copy)]
pub(crate) struct Flow {
    pub submitted: u64,
    pub leased: u64,
    pub completed: u64,
    pub requeued: u64,
    pub died: u64,
}
