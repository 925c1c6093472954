//! Many jobs in one request: what becomes of each.

use std::{thread::sleep, time::Duration};

use anyhow::anyhow;
use bytes::Bytes;
use serde::Deserialize;

use super::{native::Native, web::ApiRequest};

/// How often a server that has no room is asked again, once a second.
const BUSY_TRIES: usize = 60;

/// Why a job was refused.
#[derive(Deserialize)]
pub struct Problem {
    /// The API's word for it.
    pub code: String,
    /// For people.
    pub detail: String,
}

impl Problem {
    /// Another time it may be taken.
    fn is_busy(&self) -> bool {
        matches!(&*self.code, "busy" | "disk_full" | "log_cannot_grow")
    }
}

/// What became of a job.
#[derive(Deserialize)]
#[serde(untagged)]
pub enum Answer {
    /// The server has it; `existing`: it had it before.
    Here {
        existing: bool,
    },
    /// The server does not want it, for this reason: it is `expired`, for example.
    Skipped {
        skipped: String,
    },
    Refused {
        problem: Problem,
    },
}

impl Answer {
    fn is_busy(&self) -> bool {
        matches!(self, Self::Refused { problem } if problem.is_busy())
    }
}

#[derive(Deserialize)]
struct Answers {
    answers: Vec<Answer>,
}

/// Posts jobs, each as JSON, until none of them is refused because the server is busy. Returns what
/// became of each. Without jobs, nothing is sent. It must be safe to send them twice.
pub fn send(native: &Native, path: &str, jobs: &[String]) -> anyhow::Result<Vec<Answer>> {
    if jobs.is_empty() {
        return Ok(vec![]);
    }
    let body = Bytes::from(format!("{{\"jobs\":[{}]}}", jobs.join(",")));
    for _ in 0..BUSY_TRIES {
        let asking = ApiRequest::post(path).with_json(body.clone());
        let Answers { answers } = native.ask(asking, "jobs")?;
        if answers.len() != jobs.len() {
            return Err(anyhow!("the server left answers out"));
        }
        if !answers.iter().any(Answer::is_busy) {
            return Ok(answers);
        }
        sleep(Duration::from_secs(1));
    }
    Err(anyhow!("the server takes no jobs now, `spindle status` says why; run it again then"))
}
