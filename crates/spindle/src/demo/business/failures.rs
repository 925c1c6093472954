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
    code: &'static str,
    /// What the worker says; `#` is a number, `%` an address in memory.
    message: &'static str,
    error: &'static str,
}

const FAILING: [Failing; 8] = [
    Failing {
        queue: "mail",
        jobs: 9,
        dies_after: Some(3),
        code: "smtp_550",
        message: "550 5.1.1 mailbox # does not exist",
        error: "SMTPRecipientsRefused: 550 5.1.1 user unknown\n  at send (mailer.py:88)\n  at main (mailer.py:14)",
    },
    Failing {
        queue: "mail",
        jobs: 4,
        dies_after: None,
        code: "smtp_451",
        message: "451 4.7.1 greylisted, try again in # seconds",
        error: "",
    },
    Failing {
        queue: "resize",
        jobs: 5,
        dies_after: Some(2),
        code: "signal_SIGSEGV",
        message: "ended by SIGSEGV",
        error: "libjpeg: corrupt data at offset 0x%\nSegmentation fault (core dumped)",
    },
    Failing {
        queue: "import",
        jobs: 6,
        dies_after: Some(1),
        code: "bad_row",
        message: "line #: expected 12 columns and got 11",
        error: "csv.Error: line # of orders.csv\n  at parse (import.rb:120)",
    },
    Failing {
        queue: "invoices",
        jobs: 5,
        dies_after: None,
        code: "timeout",
        message: "payment provider did not answer within # ms",
        error: "net/http: request canceled (Client.Timeout exceeded while awaiting headers)",
    },
    Failing {
        queue: "invoices",
        jobs: 2,
        dies_after: Some(1),
        code: "declined",
        message: "card declined: insufficient_funds (charge ch_%)",
        error: "",
    },
    Failing {
        queue: "webhooks",
        jobs: 14,
        dies_after: Some(4),
        code: "http_502",
        message: "POST answered 502 Bad Gateway after # ms",
        error: "HTTP 502 Bad Gateway\n<html><head><title>502 Bad Gateway</title></head><body>nginx/1.27</body></html>",
    },
    Failing {
        queue: "search-index",
        jobs: 3,
        dies_after: None,
        code: "connection_refused",
        message: "connect ECONNREFUSED 10.0.3.17:9200",
        error: "",
    },
];

/// Lets some jobs fail. The queues have no other ready jobs.
pub fn fail_some(filling: &mut Filling) -> Result<(), AskError> {
    for failing in &FAILING {
        // Those that die wait for no time that a person would notice.
        let more = match failing.dies_after {
            Some(tries) => json!({"fails_max": tries, "backoff": {"base_ms": 1, "factor": 1}}),
            None => json!({"fails_max": 5, "backoff": {"base_ms": 900_000, "factor": 2}}),
        };
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
