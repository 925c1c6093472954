//! Clients that ask for little: each submits a job, leases it, finishes it, and waits for the time
//! of the next one.

use crate::figures::Figures;
use crate::http::{HttpClient, connect};
use crate::load::{Jobs, PAYLOAD_BYTES};
use crate::stats::Latencies;
use crate::suite::Door;
use crate::wire::{Answer, Wire};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Clients at each door.
const CLIENTS: u32 = 2;
/// From one job of a client to its next.
const PERIOD: Duration = Duration::from_millis(10);
/// How much longer each client's period is than that of the one before, so that they do not keep
/// step.
const STAGGER: Duration = Duration::from_micros(37);
/// How often it is checked whether to end.
const LOOK: Duration = Duration::from_millis(5);

/// Latencies of the requests of one door's clients.
struct Seen {
    submit: Latencies,
    lease: Latencies,
    finish: Latencies,
    all: Latencies,
    cycles: u64,
}

/// Plays clients of all these doors until `is_over`. Returns the figures of each door, in order.
pub(super) fn play(
    doors: &[(Door, SocketAddr)],
    is_over: impl Fn() -> Result<bool>,
) -> Result<Vec<Figures>> {
    let (began, over) = (Instant::now(), AtomicBool::new(false));
    let mut seen = vec![];
    thread::scope(|scope| {
        let mut clients = vec![];
        for (place, (door, address)) in doors.iter().enumerate() {
            for number in 0..CLIENTS {
                let period = PERIOD + STAGGER * (place as u32 * CLIENTS + number);
                let mut client = Client::connect(*door, *address)?;
                let over = &over;
                clients.push(scope.spawn(move || client.play(period, over)));
            }
        }
        let outcome = loop {
            match is_over() {
                Ok(false) => thread::sleep(LOOK),
                outcome => break outcome,
            }
        };
        over.store(true, Ordering::Relaxed);
        for client in clients {
            seen.push(client.join().expect("a client does not panic")?);
        }
        outcome
    })?;
    let elapsed = began.elapsed();
    let of_door = |clients: &[Seen]| {
        let mut all = Seen::nothing();
        clients.iter().for_each(|client| all.add(client));
        all.figures(elapsed)
    };
    Ok(seen.chunks(CLIENTS as usize).map(of_door).collect())
}

/// A client of a door, and its next job.
enum Client {
    Line(Box<LineClient>),
    Api(Box<ApiClient>),
}

impl Client {
    fn connect(door: Door, address: SocketAddr) -> Result<Self> {
        let wire = match door {
            Door::Workq => Wire::Workq,
            Door::Gearman => Wire::Gearman,
            Door::Api => return Ok(Self::Api(Box::new(ApiClient::connect(address)?))),
            Door::Jobq => bail!("Jobq has no leases"),
        };
        Ok(Self::Line(Box::new(LineClient::connect(wire, address)?)))
    }

    /// Open loop: a submit counts from when it was due, if the client was still busy then.
    fn play(&mut self, period: Duration, over: &AtomicBool) -> Result<Seen> {
        let mut seen = Seen::nothing();
        let mut due = Instant::now() + period;
        loop {
            let now = Instant::now();
            let mut asked = due;
            if now < due {
                thread::sleep(due - now);
                asked = Instant::now();
            }
            due += period;
            match self {
                Self::Line(client) => client.submit()?,
                Self::Api(client) => client.submit()?,
            }
            let submitted = Instant::now();
            match self {
                Self::Line(client) => client.lease()?,
                Self::Api(client) => client.lease()?,
            }
            let leased = Instant::now();
            match self {
                Self::Line(client) => client.finish()?,
                Self::Api(client) => client.finish()?,
            }
            let finished = Instant::now();
            seen.record(submitted - asked, leased - submitted, finished - leased);
            if over.load(Ordering::Relaxed) {
                return Ok(seen);
            }
        }
    }
}

/// Speaks Workq or Gearman.
struct LineClient {
    stream: TcpStream,
    jobs: Jobs,
    next: u64,
    /// What the server calls the job.
    id: Vec<u8>,
    input: Vec<u8>,
}

impl LineClient {
    fn connect(wire: Wire, address: SocketAddr) -> Result<Self> {
        let jobs = Jobs::fresh(wire);
        let stream = connect(address)?;
        let mut client = Self { stream, jobs, next: 0, id: vec![], input: vec![] };
        for greeting in wire.greetings(client.jobs.queue(), true) {
            client.ask(&greeting, |answer| matches!(answer, Answer::Ok).then(Vec::new))?;
        }
        Ok(client)
    }

    fn submit(&mut self) -> Result<()> {
        let mut request = vec![];
        self.jobs.encode_submit(self.next, &mut request);
        self.ask(&request, |answer| matches!(answer, Answer::Ok).then(Vec::new)).map(drop)
    }

    fn lease(&mut self) -> Result<()> {
        let mut request = vec![];
        self.jobs.wire().encode_lease(self.jobs.queue(), &mut request);
        let answer = self.ask(&request, |answer| match answer {
            // The payload behind the id.
            Answer::Leased { id, payload } => Some([id, payload].concat()),
            _ => None,
        })?;
        let (id, payload) = answer.split_at(answer.len().saturating_sub(PAYLOAD_BYTES));
        ensure!(self.jobs.recognise(payload) == Some(self.next), "another job was leased");
        self.id = id.to_vec();
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        let mut request = vec![];
        let wire = self.jobs.wire();
        wire.encode_finish(&self.id, &mut request);
        if wire == Wire::Gearman {
            // A finish has no answer; the request after it has, and it waits for the finish.
            wire.encode_lease(self.jobs.queue(), &mut request);
        }
        self.next += 1;
        let is_done = |answer: Answer<'_>| matches!(answer, Answer::Ok | Answer::TimedOut);
        self.ask(&request, |answer| is_done(answer).then(Vec::new)).map(drop)
    }

    fn ask(
        &mut self,
        request: &[u8],
        wanted: impl FnOnce(Answer<'_>) -> Option<Vec<u8>>,
    ) -> Result<Vec<u8>> {
        self.stream.write_all(request)?;
        loop {
            if let Some((answer, used)) = self.jobs.wire().decode(&self.input)? {
                let said = format!("{answer:?}");
                let found = wanted(answer).with_context(|| format!("the server said {said}"))?;
                self.input.drain(..used);
                return Ok(found);
            }
            let mut bytes = [0; 4096];
            let count = self.stream.read(&mut bytes)?;
            ensure!(count > 0, "the server closed a connection");
            self.input.extend_from_slice(&bytes[..count]);
        }
    }
}

/// Speaks the native API.
struct ApiClient {
    http: HttpClient,
    queue: String,
    payload: String,
    next: u64,
    token: String,
}

impl ApiClient {
    fn connect(address: SocketAddr) -> Result<Self> {
        let queue = Jobs::fresh(Wire::Api).queue().to_owned();
        let payload = "p".repeat(PAYLOAD_BYTES - 20);
        let http = HttpClient::connect(address)?;
        Ok(Self { http, queue, payload, next: 0, token: String::new() })
    }

    fn job(&self) -> String {
        format!("{:020}{}", self.next, self.payload)
    }

    fn submit(&mut self) -> Result<()> {
        let (queue, job) = (&self.queue, self.job());
        let body = format!("{{\"queue\":\"{queue}\",\"payload\":\"{job}\"}}");
        self.ask("/api/v1/jobs", &body, 201).map(drop)
    }

    fn lease(&mut self) -> Result<()> {
        let body = format!("{{\"queues\":[\"{}\"]}}", self.queue);
        let leased: Value = serde_json::from_slice(&self.ask("/api/v1/lease", &body, 200)?)?;
        ensure!(leased["payload"] == *self.job(), "another job was leased");
        self.token = leased["lease_token"].as_str().context("a lease has a token")?.to_owned();
        Ok(())
    }

    fn finish(&mut self) -> Result<()> {
        self.next += 1;
        let path = format!("/api/v1/leases/{}/complete", self.token);
        self.ask(&path, "{}", 204).map(drop)
    }

    fn ask(&mut self, path: &str, body: &str, wanted: u16) -> Result<Vec<u8>> {
        let (status, answer) = self.http.ask("POST", path, body)?;
        let said = String::from_utf8_lossy(&answer);
        ensure!(status == wanted, "{path} was answered {status}: {said}");
        Ok(answer)
    }
}

impl Seen {
    fn nothing() -> Self {
        let none = Latencies::new;
        Self { submit: none(), lease: none(), finish: none(), all: none(), cycles: 0 }
    }

    fn record(&mut self, submit: Duration, lease: Duration, finish: Duration) {
        self.submit.record(submit);
        self.lease.record(lease);
        self.finish.record(finish);
        [submit, lease, finish].into_iter().for_each(|latency| self.all.record(latency));
        self.cycles += 1;
    }

    fn add(&mut self, other: &Self) {
        self.submit.add(&other.submit);
        self.lease.add(&other.lease);
        self.finish.add(&other.finish);
        self.all.add(&other.all);
        self.cycles += other.cycles;
    }

    fn figures(&self, elapsed: Duration) -> Figures {
        Figures {
            rate_per_s: Some(self.cycles as f64 / elapsed.as_secs_f64()),
            submit: self.submit.percentiles(),
            lease: self.lease.percentiles(),
            finish: self.finish.percentiles(),
            request: self.all.percentiles(),
            ..Figures::default()
        }
    }
}
