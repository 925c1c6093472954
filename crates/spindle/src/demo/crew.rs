//! The threads that submit and work, and go on after a server was killed.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle, sleep},
    time::{Duration, Instant},
};

use serde::Deserialize;
use spindle_jobd_master::worker_status::TargetStatus;

use super::{
    account::{Account, Sums},
    doors::{self, Addresses, Registration, Taken, Targets, Worker},
    route::{Door, ROUTES, Route},
    task::{Task, number_of},
};
use crate::client::{
    session::AskError,
    view::Queue,
    web::{ApiRequest, Http, encoded},
};

/// Between two submits of a route, so that the crash comes in the middle and a person sees it.
pub const SUBMIT_PAUSE: Duration = Duration::from_millis(5);
/// How often a submitter looks whether there is more to submit.
const MORE_PAUSE: Duration = Duration::from_millis(20);
/// How long the work on a job takes.
const WORK: Duration = Duration::from_millis(5);
/// The pause after an error.
const ERROR_PAUSE: Duration = Duration::from_millis(50);
/// How often a request is repeated before its failure is an error: for a minute or longer, in which a
/// cluster gets another leader.
const ASKED_IN_VAIN_MAX: u32 = 1_200;
/// How often a worker looks whether its target is still paused.
const PAUSED_PAUSE: Duration = Duration::from_millis(50);

/// What all threads share.
pub struct Shared {
    /// Where the server is, before and after the crash, or each node of a cluster.
    nodes: Vec<Addresses>,
    /// Between two submits of a route.
    pause: Duration,
    /// The accounts, in the order of [`ROUTES`].
    accounts: Vec<Mutex<Account>>,
    gate: (Mutex<Gate>, Condvar),
    answers: Mutex<Answers>,
    /// The last error that somebody saw.
    trouble: Mutex<Option<String>>,
}

/// Keeps threads from connecting while the server is down: a client that connects to a free port of its
/// own machine may get that port itself, and then the server cannot have it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    Closed,
    Ended,
}

/// When clients were answered.
struct Answers {
    last: Instant,
    /// The longest time between two answers.
    longest_pause: Duration,
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
    /// There is nothing to submit yet, and the gate is open. Each route submits a job every `pause`.
    pub fn new(nodes: Vec<Addresses>, pause: Duration) -> Self {
        let accounts = ROUTES.iter().map(|_| Mutex::new(Account::new(0, 0))).collect();
        let gate = (Mutex::new(Gate::Open), Condvar::new());
        let answers = Answers { last: Instant::now(), longest_pause: Duration::ZERO };
        let answers = Mutex::new(answers);
        Self { nodes, pause, accounts, gate, answers, trouble: Mutex::new(None) }
    }

    /// From now on each route has `jobs` jobs, numbered from `first` on; the former ones are done.
    pub fn begin(&self, first: usize, jobs: u32) {
        for account in &self.accounts {
            *locked(account) = Account::new(first, jobs as usize);
        }
    }

    /// A client that asks any node, and another one when that is gone.
    pub fn client(&self) -> AnyNode {
        AnyNode(self.nodes.iter().map(Addresses::http).collect())
    }

    /// A client was answered.
    pub fn answered(&self) {
        let mut answers = locked(&self.answers);
        let pause = answers.last.elapsed();
        (answers.last, answers.longest_pause) = (Instant::now(), answers.longest_pause.max(pause));
    }

    /// The longest time without an answer to any client since the last call.
    pub fn longest_pause(&self) -> Duration {
        std::mem::take(&mut locked(&self.answers).longest_pause)
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

    /// From now on all threads wait.
    pub fn close_gate(&self) {
        self.set_gate(Gate::Closed);
    }

    /// All threads go on.
    pub fn open_gate(&self) {
        self.set_gate(Gate::Open);
    }

    /// All threads end.
    pub fn stop(&self) {
        self.set_gate(Gate::Ended);
    }

    /// How far all routes are.
    pub fn numbers(&self) -> Numbers {
        let mut numbers = Numbers::default();
        for account in &self.accounts {
            let account = locked(account);
            let (accepted, worked) = account.progress();
            numbers.all += account.jobs();
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
        let registration = Registration { name: "demo", targets: targets.clone() };
        // This thread ends with the server: nothing waits for it.
        registration.keep(shared.nodes.clone(), move || gate.pass_gate())?;
        let mut threads = Vec::new();
        for (at, route) in ROUTES.iter().enumerate() {
            let (submits, works) = (Arc::clone(shared), Arc::clone(shared));
            let targets = (route.works == Door::Jobd).then(|| targets.clone());
            threads.push(spawn(move || submit_all(&submits, at, route))?);
            threads.push(spawn(move || work(&works, at, route, targets.as_ref()))?);
        }
        Ok(Self(threads))
    }

    /// Waits for their ends.
    pub fn join(self) {
        for thread in self.0 {
            // A thread that panicked has reported that, and its jobs are missing in the account.
            let _ = thread.join();
        }
    }
}

fn spawn(body: impl FnOnce() + Send + 'static) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name("demo".to_owned()).spawn(body)
}

/// Submits the jobs of a route, each until it is accepted.
fn submit_all(shared: &Shared, at: usize, route: &Route) {
    let mut nodes = shared.nodes.iter().cycle().skip(at);
    let Some(mut submitter) = nodes.next().map(|node| doors::submitter(route, node)) else {
        return;
    };
    while shared.pass_gate() {
        let Some(number) = change(shared, at, Account::next).flatten() else {
            sleep(MORE_PAUSE);
            continue;
        };
        let task = Task::of(route, number);
        while shared.pass_gate() {
            match submitter.submit(&task) {
                Ok(name) => {
                    shared.answered();
                    change(shared, at, |account| account.accepted(number, name));
                    break;
                }
                Err(error) => {
                    shared.note(route, &error);
                    let node = nodes.next().filter(|_| !error.is_answer());
                    node.into_iter().for_each(|node| submitter.move_to(node));
                }
            }
        }
        sleep(shared.pause);
    }
}

/// The worker of a route, and the nodes it goes to when it loses its connection.
struct Working<'a> {
    worker: Box<dyn Worker>,
    nodes: &'a mut dyn Iterator<Item = &'a Addresses>,
}

impl Working<'_> {
    /// Asks the worker. If that had no answer from its node, it goes to the next one.
    fn ask<T>(
        &mut self,
        asks: impl FnOnce(&mut dyn Worker) -> Result<T, AskError>,
    ) -> Result<T, AskError> {
        let answer = asks(&mut *self.worker);
        if answer.as_ref().err().is_some_and(|error| !error.is_answer())
            && let Some(node) = self.nodes.next()
        {
            self.worker.move_to(node);
        }
        answer
    }
}

/// Works the jobs of a route. `targets` are those of the jobd worker, if the worker is one.
fn work(shared: &Shared, at: usize, route: &Route, targets: Option<&Targets>) {
    let mut nodes = shared.nodes.iter().cycle().skip(at + 1);
    let Some(worker) = nodes.next().map(|node| doors::worker(route, node)) else { return };
    let mut working = Working { worker, nodes: &mut nodes };
    let run = |length| targets.into_iter().for_each(|targets| targets.run(route.queue, length));
    while shared.pass_gate() {
        if targets.is_some_and(|targets| targets.is_paused(route.queue)) {
            sleep(PAUSED_PAUSE);
            continue;
        }
        match working.ask(|worker| worker.take()) {
            Ok(None) => {}
            Ok(Some(taken)) => {
                shared.answered();
                run(1);
                run_one(shared, at, route, &mut working, &taken);
                run(0);
            }
            Err(error) => shared.note(route, &error),
        }
    }
}

/// Works one job, and reports its end. A server that was killed meanwhile may still know the lease.
fn run_one(shared: &Shared, at: usize, route: &Route, working: &mut Working<'_>, taken: &Taken) {
    let Some(number) = number_of(route, &taken.payload) else {
        let error = AskError::Strange(format!("job {} is not what was submitted", taken.claim));
        return shared.note(route, &error);
    };
    change(shared, at, |account| account.handed_out(number));
    sleep(WORK);
    while shared.pass_gate() {
        match working.ask(|worker| worker.finish(taken)) {
            Ok(()) => {
                change(shared, at, |account| account.worked(number));
                return;
            }
            Err(error) => {
                shared.note(route, &error);
                if !error.may_pass() {
                    return;
                }
            }
        }
    }
}

/// Changes the account of a route, if there is one.
fn change<T>(shared: &Shared, at: usize, change: impl FnOnce(&mut Account) -> T) -> Option<T> {
    shared.accounts.get(at).map(|account| change(&mut locked(account)))
}

/// A client that asks any node, and stays with one that answers.
pub struct AnyNode(VecDeque<Http>);

impl AnyNode {
    /// Asks one node after the other until one answers, or the tries are used up.
    pub fn ask<T>(
        &mut self,
        mut asks: impl FnMut(&Http) -> Result<T, AskError>,
    ) -> Result<T, AskError> {
        let mut in_vain = 0;
        loop {
            let Some(node) = self.0.front() else { return Err(AskError::NotFound) };
            match asks(node) {
                Err(error) if error.may_pass() && in_vain < ASKED_IN_VAIN_MAX => {
                    self.0.rotate_left(1);
                    in_vain += 1;
                    sleep(ERROR_PAUSE);
                }
                answer => return answer,
            }
        }
    }

    /// How many jobs of the routes have not ended.
    pub fn unfinished(&mut self) -> Result<u64, AskError> {
        self.ask(|node| {
            let mut unfinished = 0;
            node.for_each("/api/v1/queues", "queues", |queue: Queue| {
                let is_ours = ROUTES.iter().any(|route| queue.queue_name().bytes() == route.queue);
                let ended = ["done", "dead"];
                let count = |(status, count)| if ended.contains(&status) { 0 } else { count };
                if is_ours {
                    unfinished += queue.jobs.by_status().map(count).iter().sum::<u64>();
                }
            })?;
            Ok(unfinished)
        })
    }
}

#[derive(Deserialize)]
struct Shown {
    status: String,
}

/// Asks the server for each job that it has accepted, and adds up.
pub fn audit(shared: &Shared) -> Result<Vec<(Route, Sums)>, AskError> {
    let mut client = shared.client();
    let each = ROUTES.iter().zip(&shared.accounts).map(|(route, account)| {
        let mut account = locked(account);
        for (number, name) in account.names() {
            let path = format!("/api/v1/jobs/{}", encoded(&name));
            match client.ask(|node| node.ask::<Shown>(ApiRequest::get(&path))) {
                Ok(job) if job.status == "done" => account.done(number),
                Err(error) if error.may_pass() => return Err(error),
                // A job that the server does not know is lost, whatever its answer is.
                Ok(_) | Err(_) => {}
            }
        }
        Ok((*route, account.sums()))
    });
    each.collect()
}
