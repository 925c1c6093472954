//! Many jobs in one request: what becomes of each.

use std::{thread::sleep, time::Duration};

use anyhow::anyhow;
use serde::{Deserialize, de::DeserializeOwned};

use super::{native::Native, web::ApiRequest};

/// A server that has no room now is asked again so often, once a second.
const BUSY_TRIES: usize = 60;

/// Why one of them was refused.
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

/// What became of one of them.
pub trait Refusable {
    /// Why it was refused, if it was.
    fn problem(&self) -> Option<&Problem>;
}

#[derive(Deserialize)]
struct Answers<T> {
    answers: Vec<T>,
}

/// Posts a body with so many jobs until none of them is refused because the server is busy. The
/// request must be safe to send twice.
pub fn send<T: DeserializeOwned + Refusable>(
    native: &Native,
    path: &str,
    body: &str,
    count: usize,
) -> anyhow::Result<Vec<T>> {
    for _ in 0..BUSY_TRIES {
        let asking = ApiRequest::post(path).with_json(body.to_owned());
        let Answers { answers } = native.ask::<Answers<T>>(asking, "jobs")?;
        if answers.len() != count {
            return Err(anyhow!("the server left answers out"));
        }
        if !answers.iter().filter_map(Refusable::problem).any(Problem::is_busy) {
            return Ok(answers);
        }
        sleep(Duration::from_secs(1));
    }
    Err(anyhow!("the server takes no jobs now, `spindle status` says why; run it again then"))
}
