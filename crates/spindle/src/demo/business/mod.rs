//! Queues as a company has them, made from a seed: the same jobs each time, except for their times.
//!
//! - `payloads`: what jobs of each queue carry
//! - `failures`: attempts that failed, for as many reasons as there are in a company
//! - `month_end`: jobs that wait for others
//! - `catalogue`: a batch
//!
//! [`furnish`] adds to what the routes left (some hundred jobs that are done) whatever a page can
//! show: jobs that failed for good or wait for their next try, jobs that workers have, ready,
//! scheduled and parked ones, a paused queue, limits that hold jobs back, tags and unique keys,
//! schedules, a batch, and workers of jobd. It speaks the native API and registers at the master, and asks for
//! nothing but the queues' names of [`super::route`].

mod catalogue;
mod failures;
mod month_end;
mod payloads;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use serde_json::{Map, Value, json};
use spindle_client::http::Method;
use spindle_jobd_master::worker_status::TargetStatus;

use self::failures::fail_some;
pub use self::payloads::{payload, random};
use super::doors::{Addresses, Registration, Targets};
use crate::client::{
    session::AskError,
    web::{ApiRequest, Http},
    when::{now_ms, rfc3339},
};

/// Jobs that a worker has stay with it for as long as anybody looks at a demo.
const HELD_MS: u64 = 24 * 3_600_000;
const HOUR_MS: u64 = 3_600_000;

/// Queues whose jobs somebody has now: the worker's name, and how many.
const HELD: [(&str, &str, u64); 5] = [
    ("mail", "mailer-1", 2),
    ("resize", "media-1", 3),
    ("resize", "media-2", 1),
    ("import", "importer-1", 2),
    ("search-index", "search-1", 1),
];

/// A target: how many jobs may run at once, how many run, and whether it is paused.
type Target = (&'static str, u32, usize, bool);

/// Workers of jobd, with their targets. The jobs that run are those of [`HELD`].
const JOBD: [(&str, [Target; 2]); 2] = [
    ("media-1", [("resize", 4, 3, false), ("thumbnails", 2, 0, false)]),
    ("media-2", [("resize", 4, 1, false), ("thumbnails", 2, 0, true)]),
];

/// Fills the queues.
pub fn furnish(addresses: &Addresses) -> Result<(), AskError> {
    let filling = Filling { http: addresses.http(), random: random("furnish", 0) };
    filling.all()?;
    register(addresses)
}

/// Has workers of jobd register; they stay until the server ends.
fn register(addresses: &Addresses) -> Result<(), AskError> {
    for (name, targets) in JOBD {
        let targets = targets.map(|(target, concurrency, length, paused)| {
            (target, TargetStatus { paused, concurrency, length })
        });
        let targets = Targets::new(targets);
        Registration { name, targets }.begin(*addresses)?;
    }
    Ok(())
}

/// The server, and what comes next of the seed.
struct Filling {
    http: Http,
    random: ChaCha8Rng,
}

impl Filling {
    fn all(mut self) -> Result<(), AskError> {
        // Failures first: their jobs are the only ready ones then, so the right ones are leased.
        fail_some(&mut self)?;
        month_end::begin(&mut self)?;
        catalogue::begin(&mut self)?;
        self.limit()?;
        self.hold()?;
        self.wait()?;
        self.schedule()?;
        self.http.answer(ApiRequest::post("/api/v1/queues/reports/pause"))?;
        Ok(())
    }

    /// Two constraints, and queues with settings as people make them.
    fn limit(&self) -> Result<(), AskError> {
        for (name, rule) in [
            (
                "one-import-per-customer",
                json!({"queue": "import", "per": "/customer", "running_max": 1}),
            ),
            ("smtp-quota", json!({"queue": "mail", "rate": {"count": 120, "per_ms": 60_000}})),
            ("four-media-jobs", json!({"queue_glob": "resize*", "running_max": 4})),
        ] {
            self.put(&format!("/api/v1/constraints/{name}"), &rule)?;
        }
        for (queue, settings) in [
            ("mail", json!({"fails_max": 8, "backoff": {"base_ms": 30_000, "factor": 2}})),
            ("import", json!({"ttr_default_ms": HOUR_MS, "jobs_max": 50_000})),
            ("invoices", json!({"keep_ms": 30 * 24 * HOUR_MS})),
            ("reports", json!({"attempts_max": 3})),
            ("resize", json!({"jobs_max": 20})),
            ("thumbnails", json!({"keep_ms": HOUR_MS})),
        ] {
            self.put(&format!("/api/v1/queues/{queue}/settings"), &settings)?;
        }
        Ok(())
    }

    /// Schedules: of three zones, one paused, and one whose job nobody works, so that its next times
    /// are passed over.
    fn schedule(&mut self) -> Result<(), AskError> {
        for (name, expression, zone, queue, more) in [
            ("nightly-report", "30 2 * * *", "Europe/Berlin", "reports", json!({"missed": "once"})),
            ("weekday-digest", "0 9 * * MON-FRI", "America/New_York", "mail", json!({})),
            (
                "month-end-invoices",
                "0 6 L * *",
                "Europe/London",
                "invoices",
                json!({"paused": true}),
            ),
            ("search-refresh", "every 1m", "UTC", "search-index", json!({"overlap": "skip"})),
        ] {
            let mut schedule = more;
            schedule["expression"] = json!(expression);
            schedule["zone"] = json!(zone);
            schedule["job"] = self.job(queue, json!({"tags": ["recurring"]}));
            self.put(&format!("/api/v1/schedules/{name}"), &schedule)?;
        }
        Ok(())
    }

    fn put(&self, path: &str, body: &Value) -> Result<(), AskError> {
        self.http.answer(ApiRequest::of(Method::PUT, path).with(body))?;
        Ok(())
    }

    /// Jobs that workers have.
    fn hold(&mut self) -> Result<(), AskError> {
        for (queue, worker, count) in HELD {
            let jobs = (0..count).map(|at| {
                // Each import is for another customer, because a customer has only one at a time.
                let mut job = self.job(queue, json!({"ttr_ms": HELD_MS}));
                if queue == "import" {
                    job["payload"]["customer"] = json!(format!("C-{}", 1040 + at));
                }
                job
            });
            let jobs = jobs.collect();
            self.submit(jobs)?;
            for _ in 0..count {
                let wish = json!({"queues": [queue], "worker": worker});
                let leased: Value = self.http.ask(ApiRequest::post("/api/v1/lease").with(&wish))?;
                if queue == "import" {
                    self.report(&leased["lease_token"])?;
                }
            }
        }
        Ok(())
    }

    /// A worker says how far it is, and writes what it does.
    fn report(&self, token: &Value) -> Result<(), AskError> {
        let token = token.as_str().unwrap_or_default();
        let progress = json!({"numerator": 1_850, "denominator": 5_000, "remaining_s": 420});
        let lines = [
            "reading orders.csv: 5,000 rows, 12 columns",
            "rows 1 to 1,000: 1,000 new",
            "rows 1,001 to 1,850: 847 new, 3 known already",
        ];
        let output = json!({"text": lines.join("\n") + "\n"});
        for (what, said) in [("progress", &progress), ("output", &output)] {
            let path = format!("/api/v1/leases/{token}/{what}");
            self.http.answer(ApiRequest::post(&path).with(said))?;
        }
        Ok(())
    }

    /// Jobs that wait, each for another reason.
    fn wait(&mut self) -> Result<(), AskError> {
        let now = now_ms();
        let mut jobs = Vec::new();
        for (queue, count) in
            [("mail", 34), ("resize", 9), ("search-index", 58), ("reports", 6), ("webhooks", 3)]
        {
            for _ in 0..count {
                let urgent = self.random.random_ratio(1, 8);
                let tag = ["campaign-42", "eu", "us", "trial"][self.random.random_range(0..4)];
                let more = json!({"priority": if urgent { 5 } else { 0 }, "tags": [tag]});
                jobs.push(self.job(queue, more));
            }
        }
        for at in 0..7 {
            // For customers that have an import already, so that the constraint holds these back.
            let mut job = self.job("import", json!({"tags": ["nightly"]}));
            job["payload"]["customer"] = json!(format!("C-{}", 1040 + at % 2));
            jobs.push(job);
        }
        for at in 1..=12_u64 {
            let key = format!("2026-11-{}", 1040 + at);
            let more = json!({
                "run_at": rfc3339(now + at * 7 * HOUR_MS), "tags": ["monthly"],
                "unique": {"key": key},
            });
            jobs.push(self.job("invoices", more));
        }
        for _ in 0..4 {
            jobs.push(self.job("invoices", json!({"parked": true, "tags": ["needs-review"]})));
        }
        self.submit(jobs)
    }

    /// A job of a queue, as the next of the seed.
    fn job(&mut self, queue: &str, more: Value) -> Value {
        let mut job = match more {
            Value::Object(fields) => fields,
            _ => Map::new(),
        };
        job.insert("queue".to_owned(), json!(queue));
        job.insert("payload".to_owned(), Value::Object(payload(queue, self.random.random())));
        Value::Object(job)
    }

    /// Submits jobs in one request; one that is refused is an error.
    fn submit(&self, jobs: Vec<Value>) -> Result<(), AskError> {
        let asking = ApiRequest::post("/api/v1/jobs/batch").with(&json!({ "jobs": jobs }));
        let answer: Value = self.http.ask(asking)?;
        if answer.get("refused").and_then(Value::as_u64) == Some(0) {
            return Ok(());
        }
        Err(AskError::Strange(answer.to_string()))
    }
}
