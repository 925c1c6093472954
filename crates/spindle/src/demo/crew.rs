//! The threads that submit and work, and go on after the server was killed.

use std::{
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle, sleep},
    time::Duration,
};

use serde::Deserialize;
use spindle_jobd_master::worker_status::TargetStatus;

use super::{
    account::{Account, Sums},
    doors::{self, Addresses, Registration, Submitter, Taken, Targets, Worker},
    route::{Door, ROUTES, Route},
    task::{Task, number_of},
};
use crate::client::{
    session::AskError,
    view::Queue,
    web::{ApiRequest, encoded},
};

/// Between two submits of a route, so that the crash comes in the middle and a person sees it.
const SUBMIT_PAUSE: Duration = Duration::from_millis(5);
/// How long the work on a job takes.
const WORK: Duration = Duration::from_millis(5);
/// The pause after an error.
const ERROR_PAUSE: Duration = Duration::from_millis(50);

/// How often a worker looks whether its target is still paused.
const PAUSED_PAUSE: Duration = Duration::from_millis(50);

/// What all threads share.
pub struct Shared {
    /// Where the server is, before and after the crash.
    pub addresses: Addresses,
    /// Jobs of each route.
    jobs: usize,
    /// The accounts, in the order of [`ROUTES`].
    accounts: Vec<Mutex<Account>>,
    gate: (Mutex<Gate>, Condvar),
    /// The last error that somebody saw.
    trouble: Mutex<Option<String>>,
}

/// Nobody talks to a server that is not there: a client that tries to connect to a port of its own
/// machine may get that port itself, and the server cannot have it again then.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    Closed,
    Ended,
}

/// How far all routes are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Numbers {
    /// Jobs that are to be submitted.
    pub all: usize,
    /// Jobs that the server has accepted.
    pub accepted: usize,
    /// Jobs whose end a worker has reported.
    pub worked: usize,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    /// Nothing is submitted yet; everybody may go.
    pub fn new(addresses: Addresses, jobs: u32) -> Self {
        let jobs = jobs as usize;
        let accounts = ROUTES.iter().map(|_| Mutex::new(Account::new(jobs))).collect();
        let gate = (Mutex::new(Gate::Open), Condvar::new());
        Self { addresses, jobs, accounts, gate, trouble: Mutex::new(None) }
    }

    /// Waits until the server is there. Whether the demo goes on.
    fn pass_gate(&self) -> bool {
        let (gate, changed) = &self.gate;
        let waits = changed.wait_while(locked(gate), |gate| *gate == Gate::Closed);
        *waits.unwrap_or_else(PoisonError::into_inner) == Gate::Open
    }

    fn set_gate(&self, to: Gate) {
        *locked(&self.gate.0) = to;
        self.gate.1.notify_all();
    }

    /// From now on everybody waits.
    pub fn close_gate(&self) {
        self.set_gate(Gate::Closed);
    }

    /// Everybody goes on.
    pub fn open_gate(&self) {
        self.set_gate(Gate::Open);
    }

    /// Everybody ends.
    pub fn stop(&self) {
        self.set_gate(Gate::Ended);
    }

    /// How far all routes are.
    pub fn numbers(&self) -> Numbers {
        let mut numbers = Numbers { all: ROUTES.len() * self.jobs, ..Numbers::default() };
        for (accepted, worked) in self.progress() {
            numbers.accepted += accepted;
            numbers.worked += worked;
        }
        numbers
    }

    /// Of each route, how many jobs are accepted and how many worked.
    pub fn progress(&self) -> impl Iterator<Item = (usize, usize)> {
        self.accounts.iter().map(|account| locked(account).progress())
    }

    /// The last error that somebody saw.
    pub fn trouble(&self) -> Option<String> {
        locked(&self.trouble).clone()
    }

    fn note(&self, route: &Route, error: &AskError) {
        *locked(&self.trouble) = Some(format!("queue {}: {error}", route.queue));
        sleep(ERROR_PAUSE);
    }
}

/// The threads.
pub struct Crew(Vec<JoinHandle<()>>);

impl Crew {
    /// Begins to submit and to work.
    pub fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let gate = Arc::clone(shared);
        let is_target = |route: &&Route| [route.submits, route.works].contains(&Door::Jobd);
        let one_at_a_time = TargetStatus { paused: false, concurrency: 1, length: 0 };
        let targets = ROUTES.iter().filter(is_target).map(|route| (route.queue, one_at_a_time));
        let targets = Targets::new(targets);
        let (addresses, served) = (shared.addresses, targets.clone());
        // It ends with the server: nobody waits for it.
        Registration { addresses, name: "demo", targets: served }.keep(move || gate.pass_gate())?;
        let mut threads = Vec::new();
        for (at, route) in ROUTES.iter().enumerate() {
            let submitter = doors::submitter(route, &shared.addresses);
            let worker = doors::worker(route, &shared.addresses);
            let (submits, works) = (Arc::clone(shared), Arc::clone(shared));
            let targets = (route.works == Door::Jobd).then(|| targets.clone());
            threads.push(spawn(move || submit_all(&submits, at, route, submitter))?);
            threads.push(spawn(move || work(&works, at, route, worker, targets.as_ref()))?);
        }
        Ok(Self(threads))
    }

    /// Waits for their ends.
    pub fn join(self) {
        for thread in self.0 {
            // One that panicked has said so, and its jobs are missing in the account.
            let _ = thread.join();
        }
    }
}

fn spawn(body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("demo".to_owned()).spawn(body)
}

fn submit_all(shared: &Shared, at: usize, route: &Route, mut submitter: Box<dyn Submitter>) {
    for number in 0..shared.jobs {
        let task = Task::of(route, number);
        loop {
            if !shared.pass_gate() {
                return;
            }
            match submitter.submit(&task) {
                Ok(name) => {
                    change(shared, at, |account| account.accepted(number, name));
                    break;
                }
                Err(error) => shared.note(route, &error),
            }
        }
        sleep(SUBMIT_PAUSE);
    }
}

/// Works the jobs of a route. `targets` are those of the jobd worker, where it is that.
fn work(
    shared: &Shared,
    at: usize,
    route: &Route,
    mut worker: Box<dyn Worker>,
    targets: Option<&Targets>,
) {
    let run = |length| targets.into_iter().for_each(|targets| targets.run(route.queue, length));
    while shared.pass_gate() {
        if targets.is_some_and(|targets| targets.is_paused(route.queue)) {
            sleep(PAUSED_PAUSE);
            continue;
        }
        match worker.take() {
            Ok(None) => {}
            Ok(Some(taken)) => {
                run(1);
                run_one(shared, at, route, &mut *worker, &taken);
                run(0);
            }
            Err(error) => shared.note(route, &error),
        }
    }
}

/// Works one job, and reports its end. A server that was killed meanwhile may still know the lease.
fn run_one(shared: &Shared, at: usize, route: &Route, worker: &mut dyn Worker, taken: &Taken) {
    let Some(number) = number_of(route, &taken.payload) else {
        let error = AskError::Strange(format!("job {} is not what was submitted", taken.claim));
        return shared.note(route, &error);
    };
    change(shared, at, |account| account.handed_out(number));
    sleep(WORK);
    while shared.pass_gate() {
        match worker.finish(taken) {
            Ok(()) => return change(shared, at, |account| account.worked(number)),
            Err(error) => {
                shared.note(route, &error);
                if !error.may_pass() {
                    return;
                }
            }
        }
    }
}

fn change(shared: &Shared, at: usize, change: impl FnOnce(&mut Account)) {
    if let Some(account) = shared.accounts.get(at) {
        change(&mut locked(account));
    }
}

/// Whether no route has an unfinished job.
pub fn is_drained(shared: &Shared) -> bool {
    let mut unfinished = 0;
    let asked = shared.addresses.http().for_each("/api/v1/queues", "queues", |queue: Queue| {
        let is_ours = ROUTES.iter().any(|route| queue.queue_name().bytes() == route.queue);
        let count = |(status, count)| if ["done", "dead"].contains(&status) { 0 } else { count };
        if is_ours {
            unfinished += queue.jobs.by_status().map(count).iter().sum::<u64>();
        }
    });
    asked.is_ok() && unfinished == 0
}

#[derive(Deserialize)]
struct Shown {
    status: String,
}

/// Asks the server for each job that it has accepted, and adds up.
pub fn audit(shared: &Shared) -> Vec<(Route, Sums)> {
    let http = shared.addresses.http();
    let each = ROUTES.iter().zip(&shared.accounts).map(|(route, account)| {
        let mut account = locked(account);
        for (number, name) in account.names() {
            let path = format!("/api/v1/jobs/{}", encoded(&name));
            // One that it does not know is lost, whatever its answer is.
            let shown = http.ask::<Shown>(ApiRequest::get(&path));
            if shown.is_ok_and(|job| job.status == "done") {
                account.done(number);
            }
        }
        (*route, account.sums())
    });
    each.collect()
}
