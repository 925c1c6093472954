//! A server with something of everything: jobs of several doors in all statuses, workers, a paused
//! queue, a constraint that is full, and names and payloads that are meant to break pages.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::SignedDuration;
use serde_json::{Value, json};
use spindle_testkit::{HttpRequest, JobdWorker, SpindleServer, wait_until};

use crate::pages::encoded;

/// Names that are markup, paths, escapes, or reverse the direction of the text behind them.
pub const HOSTILE: [&str; 6] = [
    "<script>alert(1)</script>",
    "../..",
    "%00",
    "\u{202e}gnp.exe",
    "طابور-البريد-الإلكتروني",
    "\"><img src=x onerror=alert(1)>",
];

/// A running server; dropping it kills it.
pub struct Served {
    pub http: String,
    pub jobd_workers: Vec<JobdWorker>,
    server: SpindleServer,
}

impl Served {
    /// One without jobs.
    pub fn empty(flags: &[&str]) -> Served {
        let doors = ["--memory", "--http", "127.0.0.1:0", "--workq", "127.0.0.1:0"];
        let others = ["--gearman", "127.0.0.1:0", "--jobd-master", "127.0.0.1:0"];
        let arguments = [&doors[..], &others, flags].concat();
        let server = SpindleServer::start(env!("CARGO_BIN_EXE_spindle"), &arguments, "http");
        Served { http: server.address_of("http"), jobd_workers: Vec::new(), server }
    }

    /// A realistic server: several queues, some of them with something wrong.
    pub fn sample() -> Served {
        let mut served = Served::empty(&[]);
        served.fill();
        served.fill_jobd();
        served
    }

    /// The same, and names and payloads that are meant to break pages.
    pub fn filled() -> Served {
        let mut served = Served::sample();
        served.fill_hostile();
        for name in HOSTILE {
            served.jobd_worker(name, &[(name, 3, 5)]);
        }
        served
    }

    /// Has a worker register at the jobd master; a target has a name, a concurrency, and jobs.
    pub fn jobd_worker(&mut self, name: &str, targets: &[(&str, u32, u32)]) {
        let master = self.server.address_of("jobd-master");
        self.jobd_workers.push(JobdWorker::register(&master, name, targets));
    }

    /// Asks the API.
    #[track_caller]
    pub fn ask(&self, head: &str, body: &Value) -> Value {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let (status, answer) = HttpRequest::send(&self.http, head, &body).answer();
        assert!((200..300).contains(&status), "{head}: {status} {answer}");
        serde_json::from_str(&answer).unwrap_or_default()
    }

    /// Submits a job, and gives its number.
    #[track_caller]
    pub fn submit(&self, job: &Value) -> u64 {
        self.ask("POST /api/v1/jobs", job)["id"].as_u64().unwrap()
    }

    /// Leases a job of a queue, and gives the lease's token.
    #[track_caller]
    pub fn lease(&self, queue: &str, worker: &str) -> String {
        let wanted = json!({ "queues": [queue], "worker": worker });
        let leased = self.ask("POST /api/v1/lease", &wanted);
        leased["lease_token"].as_str().unwrap_or_else(|| panic!("none in {queue}")).to_owned()
    }

    pub fn finish(&self, lease: &str, result: &Value) {
        self.ask(&format!("POST /api/v1/leases/{lease}/complete"), &json!({ "result": result }));
    }

    pub fn fail(&self, lease: &str, error: &str) {
        let failed = json!({ "error": error, "code": "exit 69" });
        self.ask(&format!("POST /api/v1/leases/{lease}/fail"), &failed);
    }

    /// A job that died of an error.
    pub fn dead(&self, queue: &str, error: &str) -> u64 {
        let id = self.submit(&json!({ "queue": queue, "fails_max": 1, "payload": { "n": 1 } }));
        self.fail(&self.lease(queue, "10.0.0.7/smtp-2"), error);
        id
    }

    /// Waits until a job has this status: what was pressed in a browser may take a moment.
    #[track_caller]
    pub fn await_status(&self, id: u64, status: &str) {
        wait_until(&format!("job {id} {status}"), || self.status_of(id) == status);
    }

    /// Waits until a queue is paused, or not.
    #[track_caller]
    pub fn await_paused(&self, queue: &str, paused: bool) {
        wait_until(&format!("{queue} paused: {paused}"), || self.is_paused(queue) == paused);
    }

    /// The status of a job; `gone` if there is none.
    pub fn status_of(&self, id: u64) -> String {
        let head = format!("GET /api/v1/jobs/{id}");
        let (_, answer) = HttpRequest::send(&self.http, &head, "").answer();
        let job: Value = serde_json::from_str(&answer).unwrap();
        job["status"].as_str().map_or("gone", |status| status).to_owned()
    }

    /// Whether a queue is paused.
    pub fn is_paused(&self, queue: &str) -> bool {
        self.ask(&format!("GET /api/v1/queues/{queue}"), &Value::Null)["paused"] == true
    }

    fn fill(&self) {
        let mail = |n: u32| {
            json!({ "queue": "mail", "tags": ["invoice", "eu"], "priority": 5,
                    "unique": { "key": format!("invoice-{n}") },
                    "payload": { "to": "a@example.org", "order": n, "attachments": ["invoice.pdf"] } })
        };
        for n in 0..60 {
            self.submit(&mail(n));
        }
        for _ in 0..8 {
            self.finish(&self.lease("mail", "10.0.0.7/smtp-1"), &json!({ "sent": true }));
        }
        self.lease("mail", "10.0.0.7/smtp-2");
        for n in 0..6 {
            self.dead("import", &format!("connection refused to db-{n}\nat line 7"));
        }
        self.dead("resize", "cannot identify image file");
        for minutes in [5, 90] {
            let later = spindle_client::now() + SignedDuration::from_mins(minutes);
            self.submit(&json!({ "queue": "reports", "run_at": later.to_string() }));
        }
        let parked = self.submit(&json!({ "queue": "reports" }));
        self.ask(&format!("POST /api/v1/jobs/{parked}/park"), &Value::Null);
        self.submit(&json!({ "queue": "thumbnails" }));
        self.ask("POST /api/v1/queues/thumbnails/pause", &Value::Null);
        self.fill_constraint();
        self.fill_schedules();
        self.fill_flow();
    }

    /// A flow that begins with two jobs, forks, and is wider than a page.
    fn fill_flow(&self) {
        let job = |name: &str, queue: &str, after: &[&str]| json!({ "queue": queue, "ref": name, "after": after });
        let jobs = [
            job("one", "close-books", &[]),
            job("two", "close-books", &[]),
            job("invoices", "invoices", &["one", "two"]),
            job("mail", "letters", &["invoices"]),
            job("revenue", "revenue", &["invoices", "one"]),
            job("archive", "archive", &["mail", "revenue"]),
            job("backup", "backup", &["archive"]),
            job("report", "report", &["backup"]),
        ];
        self.submit_all(&jobs);
        self.finish(&self.lease("close-books", "books-1"), &json!({ "orders": 1204 }));
        self.lease("close-books", "books-1");
    }

    /// Submits jobs in one request, and gives their numbers.
    #[track_caller]
    pub fn submit_all(&self, jobs: &[Value]) -> Vec<u64> {
        let answer = self.ask("POST /api/v1/jobs/batch", &json!({ "jobs": jobs }));
        let answers = answer["answers"].as_array().unwrap().iter();
        answers.map(|it| it["id"].as_u64().unwrap_or_else(|| panic!("{it}"))).collect()
    }

    fn fill_jobd(&mut self) {
        self.jobd_worker("srv-1", &[("mail", 5, 3), ("import", 2, 2), ("1/low", 1, 0)]);
        self.jobd_worker("srv-2", &[("mail", 10, 14), ("import", 2, 0)]);
        self.jobd_worker("srv-3", &[("reports", 4, 1)]);
        let pause = json!({ "targets": ["import"], "workers": [2] });
        self.ask("POST /api/v1/jobd/pause", &pause);
        self.jobd_workers[2].says("tableTrouble", json!("connection refused to db-3:3306"));
    }

    fn fill_constraint(&self) {
        let limit = json!({ "queue": "webhooks", "running_max": 1 });
        self.ask("PUT /api/v1/constraints/one-webhook", &limit);
        for n in 0..3 {
            self.submit(&json!({ "queue": "webhooks", "payload": n }));
        }
        self.lease("webhooks", "10.0.0.9/hook-1");
    }

    fn fill_schedules(&self) {
        let nightly = json!({ "expression": "0 9 * * MON-FRI", "zone": "Europe/Berlin",
                              "missed": "all", "job": { "queue": "reports", "payload": [1] } });
        self.ask("PUT /api/v1/schedules/nightly", &nightly);
        self.ask("POST /api/v1/schedules/nightly/run", &Value::Null);
        let later =
            json!({ "expression": "@monthly", "job": { "queue": "reports" }, "paused": true });
        self.ask("PUT /api/v1/schedules/later", &later);
    }

    fn fill_hostile(&self) {
        for name in HOSTILE {
            let schedule = json!({ "expression": "@daily", "job": { "queue": name } });
            self.ask(&format!("PUT /api/v1/schedules/{}", encoded(name)), &schedule);
            self.dead(name, name);
            let tagged = json!({ "queue": name, "payload": name, "tags": [name] });
            self.submit(&tagged);
            self.lease(name, name);
        }
        // Each waits for the two before it.
        let chain = HOSTILE.iter().cycle().take(30).enumerate().map(|(number, name)| {
            let after: Vec<String> =
                (number.saturating_sub(2)..number).map(|it| format!("r{it}")).collect();
            json!({ "queue": name, "ref": format!("r{number}"), "after": after })
        });
        self.submit_all(&chain.collect::<Vec<_>>());
        let large = format!("[{}0]", "\"<script>alert(1)</script>\",".repeat(80_000));
        let bytes: [&[u8]; 3] = [large.as_bytes(), b"\xff\xfe<b>", b"\x1b[2J\x1b]0;x\x07"];
        for (payload, kind) in bytes.into_iter().zip(["json", "bytes", "bytes"]) {
            self.submit(&json!({ "queue": "odd", "payload_base64": STANDARD.encode(payload),
                                 "payload_type": kind }));
        }
        let name = STANDARD.encode(b"\xff\xfe<b>");
        self.submit(&json!({ "queue_base64": name, "payload": "x".repeat(2_000) }));
    }
}
