//! Attempts that failed. Numbers in the messages differ from job to job, as they do in life.

use rand::Rng;
use serde_json::{Value, json};

use super::Filling;
use crate::client::{session::AskError, web::ApiRequest};

/// Jobs that failed for one reason.
struct Failing {
    queue: &'static str,
    /// So many jobs.
    jobs: u32,
    /// They are dead after so many tries; none: they wait for their second one.
    dies_after: Option<u32>,
    /// How long they wait after a failure.
    wait_ms: u64,
    code: &'static str,
    /// What the worker says; `#` is a number, `%` an address in memory.
    message: &'static str,
    error: &'static str,
}

/// Waits so short that jobs are tried again before anybody looks; the longer one is long enough for
/// a job's way to show it.
const AT_ONCE_MS: u64 = 1;
const SOON_MS: u64 = 1_200;
/// Jobs that wait for their next try as long as anybody looks.
const NEXT_TRY_MS: u64 = 900_000;

const FAILING: [Failing; 8] = [
    Failing {
        queue: "mail",
        jobs: 9,
        dies_after: Some(3),
        wait_ms: SOON_MS,
        code: "smtp_550",
        message: "550 5.1.1 mailbox # does not exist",
        error: "SMTPRecipientsRefused: 550 5.1.1 user unknown\n  at send (mailer.py:88)\n  at main (mailer.py:14)",
    },
    Failing {
        queue: "mail",
        jobs: 4,
        dies_after: None,
        wait_ms: NEXT_TRY_MS,
        code: "smtp_451",
        message: "451 4.7.1 greylisted, try again in # seconds",
        error: "",
    },
    Failing {
        queue: "resize",
        jobs: 5,
        dies_after: Some(2),
        wait_ms: AT_ONCE_MS,
        code: "signal_SIGSEGV",
        message: "ended by SIGSEGV",
        error: "libjpeg: corrupt data at offset 0x%\nSegmentation fault (core dumped)",
    },
    Failing {
        queue: "import",
        jobs: 6,
        dies_after: Some(1),
        wait_ms: AT_ONCE_MS,
        code: "bad_row",
        message: "line #: expected 12 columns and got 11",
        error: "csv.Error: line # of orders.csv\n  at parse (import.rb:120)",
    },
    Failing {
        queue: "invoices",
        jobs: 5,
        dies_after: None,
        wait_ms: NEXT_TRY_MS,
        code: "timeout",
        message: "payment provider did not answer within # ms",
        error: "net/http: request canceled (Client.Timeout exceeded while awaiting headers)",
    },
    Failing {
        queue: "invoices",
        jobs: 2,
        dies_after: Some(1),
        wait_ms: AT_ONCE_MS,
        code: "declined",
        message: "card declined: insufficient_funds (charge ch_%)",
        error: "",
    },
    Failing {
        queue: "webhooks",
        jobs: 14,
        dies_after: Some(4),
        wait_ms: AT_ONCE_MS,
        code: "http_502",
        message: "POST answered 502 Bad Gateway after # ms",
        error: "HTTP 502 Bad Gateway\n<html><head><title>502 Bad Gateway</title></head><body>nginx/1.27</body></html>",
    },
    Failing {
        queue: "search-index",
        jobs: 3,
        dies_after: None,
        wait_ms: NEXT_TRY_MS,
        code: "connection_refused",
        message: "connect ECONNREFUSED 10.0.3.17:9200",
        error: "",
    },
];

/// Lets some jobs fail. The queues have no other ready jobs.
pub fn fail_some(filling: &mut Filling) -> Result<(), AskError> {
    for failing in &FAILING {
        let factor = if failing.dies_after.is_some() { 1 } else { 2 };
        let more = json!({
            "fails_max": failing.dies_after.unwrap_or(5),
            "backoff": {"base_ms": failing.wait_ms, "factor": factor, "jitter": 0},
        });
        let jobs = (0..failing.jobs).map(|_| filling.job(failing.queue, more.clone())).collect();
        filling.submit(jobs)?;
        for _ in 0..failing.jobs * failing.dies_after.unwrap_or(1) {
            fail_next(filling, failing)?;
        }
    }
    Ok(())
}

fn fail_next(filling: &mut Filling, failing: &Failing) -> Result<(), AskError> {
    let worker = format!("{}-1", failing.queue);
    let wish = json!({"queues": [failing.queue], "worker": worker, "wait_s": 5});
    let leased = filling.http.ask_for_any(ApiRequest::post("/api/v1/lease").with(&wish))?;
    let leased: Value = leased.ok_or(AskError::NotFound)?;
    let token = leased.get("lease_token").and_then(Value::as_str).unwrap_or_default();
    let number = filling.random.random_range(100..9_000).to_string();
    let address = format!("{:x}", filling.random.random_range(0x10_0000..0xff_ffff));
    let fill = |text: &str| text.replace('#', &number).replace('%', &address);
    let report = json!({
        "code": failing.code, "message": fill(failing.message), "error": fill(failing.error),
    });
    let path = format!("/api/v1/leases/{token}/fail");
    filling.http.answer(ApiRequest::post(&path).with(&report))?;
    Ok(())
}
