//! The API's messages, as far as a worker needs them. Fields it does not know are passed over.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::job_result::JobResult;
use crate::table::leases::{Input, Leased};
use crate::table::row::{Finish, RowId, Status};

/// The longest text that is put into fields of the API for people.
const TEXT_BYTES_MAX: usize = 4096;

/// A request for one job.
#[derive(Serialize)]
pub(super) struct LeaseRequest<'a> {
    pub queues: [&'a str; 1],
    pub wait_s: u64,
    pub worker: &'a str,
}

/// A job that was leased.
#[derive(Deserialize)]
pub(super) struct LeasedJob {
    id: i64,
    #[serde(default)]
    uuid: String,
    #[serde(default)]
    queue: String,
    #[serde(default)]
    attempt: u32,
    pub lease_token: String,
    pub lease_ms: Option<u64>,
    #[serde(default)]
    payload_type: String,
    payload: Option<Box<RawValue>>,
    payload_base64: Option<String>,
}

impl LeasedJob {
    pub fn id(&self) -> RowId {
        RowId(self.id)
    }

    /// The job for its process.
    pub fn leased(self) -> Leased {
        let coded = |text: String| STANDARD.decode(text).unwrap_or_default();
        let payload = match (self.payload, self.payload_base64) {
            (Some(json), _) => Bytes::from(json.get().to_owned()),
            (None, coded_text) => Bytes::from(coded_text.map(coded).unwrap_or_default()),
        };
        let environment = [
            ("SPINDLE_JOB_ID", self.id.to_string()),
            ("SPINDLE_JOB_UUID", self.uuid),
            ("SPINDLE_QUEUE", self.queue.clone()),
            ("SPINDLE_ATTEMPT", self.attempt.to_string()),
            ("SPINDLE_PAYLOAD_TYPE", self.payload_type),
        ];
        let environment = environment.map(|(name, value)| (name.to_owned(), value)).to_vec();
        let input = Input { payload, environment };
        Leased { id: RowId(self.id), target: self.queue, input }
    }
}

/// More time for a lease.
#[derive(Serialize)]
pub(super) struct Extend {
    pub ttr_ms: u64,
}

/// A job as it is read: only what its row would have.
#[derive(Deserialize)]
pub(super) struct Job {
    pub id: i64,
    #[serde(default)]
    pub queue: String,
    pub status: String,
    pub result: Option<Ended>,
}

/// How a job ended.
#[derive(Default, Deserialize)]
pub(super) struct Ended {
    success: bool,
    value: Option<Box<RawValue>>,
    base64: Option<String>,
    #[serde(default)]
    message: String,
    #[serde(default)]
    error: String,
    #[serde(default)]
    code: String,
}

impl Job {
    /// Its status in the words of a job table.
    pub fn row_status(&self) -> Status {
        match self.status.as_str() {
            "parked" => Status::Manual,
            "ready" | "scheduled" | "blocked" => Status::Waiting,
            "leased" => Status::Running,
            "done" | "dead" => Status::Done,
            other => Status::Other(other.to_owned()),
        }
    }

    /// How it ended, if it has. What a jobd worker wrote comes back as it was; what other workers
    /// wrote comes back as well as it fits.
    pub fn finish(self) -> Option<Finish> {
        if self.row_status() != Status::Done {
            return None;
        }
        let ended = self.result.unwrap_or(Ended { success: true, ..Ended::default() });
        let json = ended.value.as_ref().map(|value| value.get());
        let ours = json.and_then(|text| serde_json::from_str::<JobResult>(text).ok());
        let finish = Finish { id: RowId(self.id), success: ended.success, ..Finish::default() };
        Some(match ours {
            Some(JobResult { code, signal, stdout, stderr, .. }) => {
                let code = code.and_then(|code| u8::try_from(code).ok());
                Finish { code, signal, stdout, stderr, ..finish }
            }
            None => Finish { stdout: ended.text(), stderr: ended.trouble(), ..finish },
        })
    }
}

impl Ended {
    fn text(&self) -> String {
        let coded = self.base64.as_ref().and_then(|text| STANDARD.decode(text).ok());
        match (&self.value, coded) {
            (Some(json), _) => json.get().to_owned(),
            (None, Some(bytes)) => String::from_utf8_lossy(&bytes).into_owned(),
            (None, None) => String::new(),
        }
    }

    fn trouble(&self) -> String {
        let texts = [&self.code, &self.message, &self.error].map(String::as_str);
        let texts: Vec<&str> = texts.into_iter().filter(|text| !text.is_empty()).collect();
        texts.join(": ")
    }
}

/// The end of an attempt.
#[derive(Serialize)]
#[serde(untagged)]
pub(super) enum End {
    /// It succeeded.
    Complete {
        /// What the process left.
        result: JobResult,
    },
    /// It failed.
    Fail {
        /// What the process left.
        result: JobResult,
        /// How it ended.
        message: String,
        /// The end of what it printed on standard error.
        error: String,
        /// The same as `message`, for programs.
        code: String,
    },
}

impl End {
    pub fn of(finish: &Finish) -> Self {
        let result = JobResult::from(finish);
        if finish.success {
            return Self::Complete { result };
        }
        let (message, code) = match (finish.code, &finish.signal) {
            (Some(code), _) => (format!("exit code {code}"), format!("exit_{code}")),
            (None, Some(signal)) => (format!("ended by {signal}"), format!("signal_{signal}")),
            (None, None) => ("could not be started".to_owned(), "not_started".to_owned()),
        };
        Self::Fail { result, message, error: tail(&finish.stderr).to_owned(), code }
    }

    /// The verb of the lease that takes it.
    pub fn verb(&self) -> &'static str {
        match self {
            Self::Complete { .. } => "complete",
            Self::Fail { .. } => "fail",
        }
    }
}

/// The end of a text, because the most useful part of an error is there.
fn tail(text: &str) -> &str {
    let mut from = text.len().saturating_sub(TEXT_BYTES_MAX);
    while !text.is_char_boundary(from) {
        from += 1;
    }
    text.get(from..).unwrap_or_default()
}

/// The body of a refusal.
#[derive(Default, Deserialize)]
pub(super) struct Problem {
    #[serde(default)]
    pub code: String,
    #[serde(default)]
    pub detail: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(text: &str) -> Job {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn payloads_of_every_type_arrive_as_they_were_written() {
        let leased = |fields: &str| {
            let text = format!(
                r#"{{"id":7,"uuid":"u","queue":"q","attempt":2,"lease_token":"t","lease_ms":5,{fields}}}"#
            );
            serde_json::from_str::<LeasedJob>(&text).unwrap().leased()
        };
        let json = leased(r#""payload_type":"json","payload":{"a": 1.50}"#);
        assert_eq!(&json.input.payload[..], br#"{"a": 1.50}"#);
        let bytes = leased(r#""payload_type":"bytes","payload_base64":"AP8=""#);
        assert_eq!(&bytes.input.payload[..], b"\0\xff");
        assert!(leased(r#""payload_type":"bytes""#).input.payload.is_empty());
        let environment: Vec<String> =
            json.input.environment.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(
            environment,
            [
                "SPINDLE_JOB_ID=7",
                "SPINDLE_JOB_UUID=u",
                "SPINDLE_QUEUE=q",
                "SPINDLE_ATTEMPT=2",
                "SPINDLE_PAYLOAD_TYPE=json"
            ]
        );
    }

    #[test]
    fn how_other_workers_ended_a_job_is_told_as_well_as_it_fits() {
        assert_eq!(job(r#"{"id":1,"status":"ready"}"#).finish(), None);
        let done = r#"{"id":1,"status":"done","result":{"success":true,"base64":"aGk="}}"#;
        let done = job(done).finish().unwrap();
        assert_eq!((done.success, done.code, &*done.stdout), (true, None, "hi"));
        let dead = r#"{"id":1,"status":"dead","result":
            {"success":false,"code":"timeout","message":"too slow"}}"#;
        let dead = job(dead).finish().unwrap();
        assert_eq!((dead.success, &*dead.stderr), (false, "timeout: too slow"));
    }

    #[test]
    fn what_a_worker_writes_comes_back_the_same() {
        for (success, code, signal, word) in [
            (true, Some(0), None, None),
            (false, Some(3), None, Some("exit_3")),
            (false, None, Some("SIGKILL"), Some("signal_SIGKILL")),
        ] {
            let finish = Finish {
                id: RowId(1),
                finished_s: 0,
                success,
                code,
                signal: signal.map(str::to_owned),
                stdout: "out".to_owned(),
                stderr: "err".to_owned(),
            };
            let sent = serde_json::to_value(End::of(&finish)).unwrap();
            assert_eq!(sent["code"].as_str(), word);
            let text = serde_json::json!({"id": 1, "status": "dead", "result":
                {"success": success, "value": sent["result"]}});
            assert_eq!(job(&text.to_string()).finish().unwrap(), finish);
        }
    }

    #[test]
    fn only_the_end_of_a_long_text_is_told_and_no_character_is_cut() {
        assert_eq!(tail("short"), "short");
        let long = "é".repeat(3000);
        assert_eq!(tail(&long).len(), 4096);
        let odd = format!("{}x", "é".repeat(3000));
        assert_eq!(tail(&odd).len(), 4095);
    }
}
