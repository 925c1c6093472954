//! Clients that keep the server busy and report each request and answer to the accountant.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::accountant::Accountant;
use super::client::{Answer, Client};
use super::ending::Ending;
use super::job::{Dice, Job, Kind, SCHEDULE_AHEAD_MS, Terms};

/// The queues of the torture, as a lease names them.
pub const QUEUES: &str = "torture-a torture-b";
/// Longer than any run, so that no job of the torture expires.
const TTL_MS: u64 = 86_400_000;
const LEASE_WAIT_MS: u64 = 40;
const PRODUCERS: u64 = 3;
const WORKERS: u64 = 4;
/// How long a client that looks at jobs waits for an answer.
const LOOK_WITHIN: Duration = Duration::from_millis(250);
/// How long the deleting client pauses when it found nothing to delete.
const SWEEP_PAUSE: Duration = Duration::from_millis(1);
/// Deletes under way at once.
const SWEPT_AT_ONCE: usize = 16;

/// What all cycles of a mode share.
pub struct Books {
    accountant: Mutex<Accountant>,
    next_job: AtomicU64,
    start: Instant,
    of_cluster: bool,
}

impl Books {
    pub fn new() -> Self {
        Self {
            accountant: Mutex::new(Accountant::default()),
            next_job: AtomicU64::new(1),
            start: Instant::now(),
            of_cluster: false,
        }
    }

    /// Those of a cluster: doubts last, and no lease is given before it is durable.
    pub fn of_cluster() -> Self {
        let accountant = Mutex::new(Accountant::of_cluster());
        Self { accountant, of_cluster: true, ..Self::new() }
    }

    pub fn open(&self) -> MutexGuard<'_, Accountant> {
        self.accountant.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A job that there has not been yet.
    pub fn next_job(&self) -> (Job, Terms) {
        let job = Job(self.next_job.fetch_add(1, Ordering::SeqCst));
        (job, Terms { durable_leases: self.of_cluster, ..job.terms(self.now_ms()) })
    }

    pub fn now_ms(&self) -> u64 {
        self.start.elapsed().as_millis() as u64
    }
}

/// The load of one cycle.
pub struct Load<'a> {
    books: &'a Books,
    /// One server, or the nodes of a cluster.
    addresses: Vec<SocketAddr>,
    /// The pause between two actions of a client.
    pace: Duration,
    ending: Ending,
    adds_left: AtomicU64,
    /// The disk is small: adds may be refused for want of room.
    small_disk: bool,
    /// Clients go on until the server has ended, because their work is what ends it.
    to_the_end: bool,
}

impl<'a> Load<'a> {
    /// A load of at most `adds_max` new jobs.
    pub fn new(books: &'a Books, address: SocketAddr, adds_max: u64) -> Self {
        Self {
            books,
            addresses: vec![address],
            pace: Duration::ZERO,
            ending: Ending::default(),
            adds_left: AtomicU64::new(adds_max),
            small_disk: false,
            to_the_end: false,
        }
    }

    /// An endless load through the nodes of a cluster. A client whose connection ends goes to the next node.
    pub fn through(books: &'a Books, addresses: Vec<SocketAddr>, pace: Duration) -> Self {
        Self {
            books,
            addresses,
            pace,
            ending: Ending::default(),
            adds_left: AtomicU64::new(u64::MAX),
            small_disk: false,
            to_the_end: false,
        }
    }

    /// The same on a disk that may run full.
    pub fn on_small_disk(self) -> Self {
        Self { small_disk: true, ..self }
    }

    /// The same for a server that ends by itself under load.
    pub fn until_it_ends(self) -> Self {
        Self { to_the_end: true, ..self }
    }

    /// Runs the load for `time`, or until all jobs are added; then `end` ends the server under it.
    /// The second outcome fails with what should not have happened to the clients.
    pub fn run<T>(self, seed: u64, time: Duration, end: impl FnOnce() -> T) -> (T, Result<()>) {
        self.beside(seed, |load, all_added| {
            // Waits until the time is over or a client has nothing left to do.
            let _ = all_added.recv_timeout(time);
            load.ending.begin();
            end()
        })
    }

    /// Runs the load for as long as `meanwhile` takes; then the clients stop. The second outcome is that of
    /// [`Load::run`].
    pub fn during<T>(self, seed: u64, meanwhile: impl FnOnce() -> T) -> (T, Result<()>) {
        self.beside(seed, |load, _| {
            let outcome = meanwhile();
            load.ending.begin();
            outcome
        })
    }

    /// Runs the clients beside `act`, which gets their messages when they have nothing left to do.
    fn beside<T>(self, seed: u64, act: impl FnOnce(&Self, &Receiver<()>) -> T) -> (T, Result<()>) {
        let outcome = std::thread::scope(|scope| {
            let (done, all_added) = channel();
            for n in 0..PRODUCERS {
                let (load, done) = (&self, done.clone());
                scope.spawn(move || load.client(|c, d| load.produce(c, d), seed ^ n, done));
            }
            for n in 0..WORKERS {
                let (load, done) = (&self, done.clone());
                scope.spawn(move || load.client(|c, d| load.work(c, d), seed ^ (n << 32), done));
            }
            // A node that no longer leads must not answer from memory.
            for (n, node) in self.addresses.iter().enumerate().filter(|_| self.is_of_cluster()) {
                let load = &self;
                scope.spawn(move || load.look_at_one_node(*node, Dice::new(seed ^ n as u64)));
            }
            let (load, sweeps) = (&self, done.clone());
            scope.spawn(move || load.client(|c, _| load.sweep(c), seed, sweeps));
            drop(done);
            let outcome = act(&self, &all_added);
            // The server has ended, or is about to; a client with nothing to do would not notice.
            self.adds_left.store(0, Ordering::SeqCst);
            outcome
        });
        (outcome, self.ending.verdict())
    }

    fn goes_on(&self) -> bool {
        let ending = self.ending.has_begun() && !self.to_the_end;
        !ending && self.adds_left.load(Ordering::SeqCst) > 0
    }

    fn client(
        &self,
        act: impl Fn(&mut Client, &mut Dice) -> io::Result<()>,
        seed: u64,
        done: Sender<()>,
    ) {
        let mut dice = Dice::new(seed);
        let mut serve = |address: SocketAddr| {
            let mut client = Client::connect(address)?;
            while self.goes_on() {
                act(&mut client, &mut dice)?;
                std::thread::sleep(self.pace);
            }
            Ok(())
        };
        match self.addresses[..] {
            [address] => self.ending.client_done(serve(address)),
            _ => self.ending.client_of_all(&self.addresses, seed as usize, serve),
        }
        // The receiver is gone once the server is ending.
        let _ = done.send(());
    }

    fn produce(&self, client: &mut Client, dice: &mut Dice) -> io::Result<()> {
        let (job, terms) = self.books.next_job();
        add(self.books, client, job, &terms, |answer| {
            self.ending.has_begun() && answer.is_stopping()
                || self.small_disk && answer.has_no_room()
        })?;
        let left = |n: u64| n.checked_sub(1);
        // At zero it stays zero.
        let _ = self.adds_left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, left);

        let other = Job(job.0.saturating_sub(dice.below(40)).max(1));
        if dice.percent(8) && self.books.open().delete_sent(other) {
            delete(self.books, client, other)?;
        } else if dice.percent(3) && job.kind() == Kind::Plain {
            // Workq lets anybody finish a job, leased or not.
            finish(self.books, client, job, (true, dice.bytes(20)))?;
        }
        Ok(())
    }

    fn is_of_cluster(&self) -> bool {
        self.addresses.len() > 1
    }

    /// Looks at jobs that ended lately, through this node only. It does not wait for an answer that
    /// is held back.
    fn look_at_one_node(&self, node: SocketAddr, mut dice: Dice) {
        let mut look = || {
            let mut client = Client::impatient(node, LOOK_WITHIN)?;
            while self.goes_on() {
                std::thread::sleep(self.pace);
                let Some((job, asked)) = self.books.open().look_asked(&mut dice) else { continue };
                client.ask(&format!("inspect job {job}"))?;
                let found = client.hear_inspection()?;
                self.books.open().glimpsed(job, asked, found.as_ref());
            }
            Ok(())
        };
        while self.goes_on() {
            self.ending.glimpse_done(look());
        }
    }

    /// Deletes what is finished, so that most of the log is dead and its oldest part can go.
    fn sweep(&self, client: &mut Client) -> io::Result<()> {
        let jobs: Vec<Job> = {
            let mut books = self.books.open();
            let jobs: Vec<Job> = (0..SWEPT_AT_ONCE).filter_map(|_| books.next_to_sweep()).collect();
            jobs.into_iter().filter(|job| books.delete_sent(*job)).collect()
        };
        if jobs.is_empty() {
            std::thread::sleep(SWEEP_PAUSE);
        }
        for job in &jobs {
            client.ask(&format!("delete {job}"))?;
        }
        for job in jobs {
            let answer = client.hear_answer()?;
            self.books.open().delete_answered(job, &answer);
        }
        Ok(())
    }

    fn work(&self, client: &mut Client, dice: &mut Dice) -> io::Result<()> {
        let Some(job) = lease(self.books, client, LEASE_WAIT_MS)? else { return Ok(()) };
        let (fails, abandons) = match job.kind() {
            Kind::Plain | Kind::Scheduled => (5, 2),
            Kind::Retried => (60, 2),
            Kind::Brief => (0, 50),
            Kind::Counted => (0, 40),
        };
        if dice.percent(abandons) {
            return Ok(());
        }
        let len = dice.below(300) as usize;
        finish(self.books, client, job, (!dice.percent(fails), dice.bytes(len)))
    }
}

/// Adds a job and has the accountant note it; `may_refuse` says which refusals are right.
pub fn add(
    books: &Books,
    client: &mut Client,
    job: Job,
    terms: &Terms,
    may_refuse: impl FnOnce(&Answer) -> bool,
) -> io::Result<Answer> {
    books.open().add_sent(job, *terms);
    let answer = send_add(client, job, terms)?;
    if may_refuse(&answer) {
        books.open().add_refused(job);
    } else {
        books.open().add_answered(job, &answer);
    }
    Ok(answer)
}

fn send_add(client: &mut Client, job: Job, terms: &Terms) -> io::Result<Answer> {
    let queue = if job.0.is_multiple_of(2) { "torture-a" } else { "torture-b" };
    let mut flags = String::new();
    if terms.attempts_max > 0 {
        flags += &format!(" -max-attempts={}", terms.attempts_max);
    }
    if terms.fails_max > 0 {
        flags += &format!(" -max-fails={}", terms.fails_max);
    }
    let ttr_ms = terms.ttr_ms;
    let head = match job.kind() {
        // Whole seconds on the wire, rounded up: never earlier than the terms say.
        Kind::Scheduled => {
            let ms = jiff::Timestamp::now().as_millisecond() + SCHEDULE_AHEAD_MS as i64;
            let time =
                jiff::Timestamp::from_second(ms.div_euclid(1_000) + 1).map_err(io::Error::other)?;
            format!("schedule {job} {queue} {ttr_ms} {TTL_MS} {time}")
        }
        _ => format!("add {job} {queue} {ttr_ms} {TTL_MS}"),
    };
    client.send(&head, &job.payload(), &flags)
}

/// Leases a job and has the accountant look at it.
pub fn lease(books: &Books, client: &mut Client, wait_ms: u64) -> io::Result<Option<Job>> {
    let asked = books.open().lease_asked(books.now_ms());
    let delivery = client.lease(QUEUES, wait_ms)?;
    let now_ms = books.now_ms();
    Ok(delivery.and_then(|delivery| books.open().delivered(asked, &delivery, now_ms)))
}

/// Completes or fails a job and has the accountant note it.
pub fn finish(
    books: &Books,
    client: &mut Client,
    job: Job,
    outcome: (bool, Vec<u8>),
) -> io::Result<()> {
    books.open().finish_sent(job, outcome.clone());
    let verb = if outcome.0 { "complete" } else { "fail" };
    let answer = client.send(&format!("{verb} {job}"), &outcome.1, "")?;
    books.open().finish_answered(job, &outcome, &answer);
    Ok(())
}

/// Deletes a job that the accountant knows to be deleted now, and has it note the answer.
pub fn delete(books: &Books, client: &mut Client, job: Job) -> io::Result<()> {
    let answer = client.delete(&job.to_string())?;
    books.open().delete_answered(job, &answer);
    Ok(())
}
