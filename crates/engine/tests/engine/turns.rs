//! Sleepers beside waiting leases: who is served when, what is left for a called sleeper, and for
//! how long.

#![expect(clippy::unwrap_used, reason = "only tests use this")]

use std::collections::BTreeMap;

use bytes::Bytes;
use spindle_core::command::Lease;
use spindle_core::queue::{LimitScope, Rate};
use spindle_core::{JobId, Type};
use spindle_engine::{
    Answer, ConnectionId, ConstraintSpec, Expected, LeaseReply, Matcher, NewJob, Payload,
    QueuePattern, SleepReply, Ticket,
};

use crate::harness::{Bench, TakeApart, plain, somebody, wish};

fn asleep(bench: &Bench, connection: u64, queues: &[&str]) -> Ticket {
    let queues = queues.iter().map(|name| Bytes::copy_from_slice(name.as_bytes())).collect();
    match bench.engine.waits().sleep(&bench.caller(connection), queues, u32::MAX).unwrap() {
        SleepReply::Asleep(ticket) => ticket,
        SleepReply::Called => panic!("expected to sleep and was called"),
    }
}

/// Asks for a job without waiting.
fn grab(bench: &Bench, connection: u64, queues: &[&str]) -> Option<JobId> {
    let queues = queues.iter().map(|name| Bytes::copy_from_slice(name.as_bytes())).collect();
    let wish = Lease { queues, ..wish("") };
    match bench.engine.leases().take(&bench.caller(connection), wish, 0).value().unwrap() {
        LeaseReply::Leased(job) => Some(job.id),
        LeaseReply::Nothing => None,
        LeaseReply::Waiting(_) => panic!("no wait was asked for"),
    }
}

/// What came since the last look: who was called, and who was handed which job.
fn heard(bench: &Bench) -> (Vec<Ticket>, Vec<(Ticket, JobId)>) {
    let (mut called, mut handed) = (Vec::new(), Vec::new());
    for (ticket, answer) in bench.answers() {
        match answer {
            Answer::Called => called.push(ticket),
            Answer::Leased(job) => handed.push((ticket, job.id)),
            other => panic!("expected a call or a job and got {other:?}"),
        }
    }
    (called, handed)
}

fn limit(bench: &Bench, matcher: Matcher, running_max: u64) {
    let spec = ConstraintSpec { matcher, rate: None, running_max: Some(running_max) };
    bench
        .engine
        .people(&mut somebody())
        .put_constraint("limit", &spec, LimitScope::Whole, Expected::Any)
        .value()
        .unwrap();
}

fn in_queue(name: &'static str) -> Matcher {
    let queue = QueuePattern::Exact(Bytes::from_static(name.as_bytes()));
    Matcher { queue, ..Matcher::default() }
}

fn of_user(bench: &Bench, user: &str) -> JobId {
    let payload = Payload::new(format!(r#"{{"user":"{user}"}}"#), Type::Json);
    bench.engine.jobs().submit(NewJob { submit: plain("q"), payload }).value().unwrap()
}

#[test]
fn who_has_waited_longest_has_its_turn_first_whether_it_waits_or_sleeps() {
    let bench = Bench::new();
    let (first, second) = (bench.wait(1, "q", 60_000), asleep(&bench, 2, &["q"]));
    let (third, fourth) = (bench.wait(3, "q", 60_000), asleep(&bench, 4, &["q"]));
    let jobs: Vec<JobId> = (0..4).map(|_| bench.add("q", b"x")).collect();
    // The called one takes the oldest that is left when it comes.
    let handed = vec![(first, jobs[0]), (third, jobs[1])];
    assert_eq!(heard(&bench), (vec![second, fourth], handed));
    assert_eq!(grab(&bench, 2, &["q"]), Some(jobs[2]));
    assert_eq!(grab(&bench, 4, &["q"]), Some(jobs[3]));
}

#[test]
fn what_one_was_called_for_is_left_to_it_for_a_while_and_then_to_those_who_wait() {
    let bench = Bench::new();
    let sleeper = asleep(&bench, 1, &["q"]);
    let waiter = bench.wait(2, "q", 60_000);
    let job = bench.add("q", b"x");
    assert_eq!(heard(&bench), (vec![sleeper], vec![]));
    // One who comes later leaves it as well.
    let late = bench.wait(3, "q", 60_000);
    bench.pass(99);
    assert_eq!(heard(&bench), (vec![], vec![]));
    bench.pass(1);
    assert_eq!(heard(&bench), (vec![], vec![(waiter, job)]));
    let other = bench.add("q", b"x");
    assert_eq!(heard(&bench), (vec![], vec![(late, other)]));
}

#[test]
fn who_did_not_come_is_called_after_all_who_wait_until_it_comes_again() {
    let bench = Bench::new();
    for _ in 0..2 {
        asleep(&bench, 1, &["q"]);
        let waiter = bench.wait(2, "q", 60_000);
        let job = bench.add("q", b"x");
        bench.pass(100);
        assert_eq!(heard(&bench).1, [(waiter, job)]);
        // It sleeps again, and has had its chance: the waiter is handed the next one at once.
        let sleeper = asleep(&bench, 1, &["q"]);
        let waiter = bench.wait(2, "q", 60_000);
        let job = bench.add("q", b"x");
        assert_eq!(heard(&bench), (vec![], vec![(waiter, job)]));
        // It is called for a job that no lease waits for, and reserves nothing.
        let job = bench.add("q", b"x");
        assert_eq!(heard(&bench), (vec![sleeper], vec![]));
        let reply =
            bench.engine.leases().take(&bench.caller(2), wish("q"), 60_000).value().unwrap();
        assert!(matches!(reply, LeaseReply::Leased(leased) if leased.id == job));
        // It has come, even if in vain.
        assert_eq!(grab(&bench, 1, &["q"]), None);
    }
}

#[test]
fn one_who_sleeps_again_instead_of_coming_keeps_nothing_from_anybody() {
    let bench = Bench::new();
    asleep(&bench, 1, &["q"]);
    let waiter = bench.wait(2, "q", 60_000);
    let job = bench.add("q", b"x");
    asleep(&bench, 1, &["q"]);
    assert_eq!(heard(&bench).1, [(waiter, job)]);
}

#[test]
fn a_lease_that_does_not_wait_takes_what_is_reserved() {
    let bench = Bench::new();
    let sleeper = asleep(&bench, 1, &["q"]);
    let job = bench.add("q", b"x");
    assert_eq!(heard(&bench), (vec![sleeper], vec![]));
    assert_eq!(grab(&bench, 2, &["q"]), Some(job));
    assert_eq!(grab(&bench, 1, &["q"]), None);
}

#[test]
fn a_wait_that_ends_takes_what_is_reserved_rather_than_nothing() {
    let bench = Bench::new();
    asleep(&bench, 1, &["q"]);
    let waiter = bench.wait(2, "q", 40);
    let job = bench.add("q", b"x");
    bench.pass(39);
    assert_eq!(heard(&bench).1, []);
    bench.pass(1);
    assert_eq!(heard(&bench).1, [(waiter, job)]);
}

#[test]
fn those_who_wait_leave_no_more_than_sleepers_were_called_for() {
    let bench = Bench::new();
    let sleeper = asleep(&bench, 1, &["q"]);
    let jobs = [bench.add("q", b"1"), bench.add("q", b"2")];
    assert_eq!(heard(&bench), (vec![sleeper], vec![]));
    let reply = bench.engine.leases().take(&bench.caller(2), wish("q"), 1000).value().unwrap();
    assert!(matches!(reply, LeaseReply::Leased(job) if job.id == jobs[0]));
    let waiter = bench.wait(2, "q", 1000);
    let third = bench.add("q", b"3");
    assert_eq!(heard(&bench), (vec![], vec![(waiter, jobs[1])]));
    assert_eq!(grab(&bench, 1, &["q"]), Some(third));
}

#[test]
fn what_the_called_one_leaves_goes_to_those_who_wait_at_once() {
    for case in ["it takes another job", "it wants something else", "it is gone"] {
        let bench = Bench::new();
        let sleeper = asleep(&bench, 1, &["q"]);
        let waiter = bench.wait(2, "q", 60_000);
        let job = {
            let mut urgent = plain("other");
            urgent.priority = 9;
            bench.submit(urgent, b"x");
            bench.add("q", b"x")
        };
        assert_eq!(heard(&bench), (vec![sleeper], vec![]), "{case}");
        match case {
            "it is gone" => bench.engine.waits().connection_gone(ConnectionId(1), None),
            "it takes another job" => assert!(grab(&bench, 1, &["other", "q"]).is_some()),
            _ => assert_eq!(grab(&bench, 1, &["nothing"]), None),
        }
        assert_eq!(heard(&bench), (vec![], vec![(waiter, job)]), "{case}");
    }
}

#[test]
fn only_as_many_are_called_as_a_limit_admits() {
    let bench = Bench::new();
    limit(&bench, in_queue("q"), 2);
    let sleepers: Vec<Ticket> = (1..6).map(|number| asleep(&bench, number, &["q"])).collect();
    for _ in 0..9 {
        bench.add("q", b"x");
    }
    assert_eq!(heard(&bench).0, sleepers[..2]);
    let job = grab(&bench, 1, &["q"]).unwrap();
    grab(&bench, 2, &["q"]).unwrap();
    assert_eq!(heard(&bench).0, []);
    bench.finish(job, true, b"").unwrap();
    assert_eq!(heard(&bench).0, [sleepers[2]]);
}

#[test]
fn a_limits_other_places_are_there_for_those_who_wait() {
    let bench = Bench::new();
    limit(&bench, in_queue("q"), 2);
    let sleeper = asleep(&bench, 1, &["q"]);
    let waiters = [bench.wait(2, "q", 60_000), bench.wait(3, "q", 60_000)];
    let jobs: Vec<JobId> = (0..9).map(|_| bench.add("q", b"x")).collect();
    assert_eq!(heard(&bench), (vec![sleeper], vec![(waiters[0], jobs[0])]));
    assert_eq!(grab(&bench, 1, &["q"]), Some(jobs[1]));
    assert_eq!(heard(&bench), (vec![], vec![]));
    bench.finish(jobs[0], true, b"").unwrap();
    assert_eq!(heard(&bench), (vec![], vec![(waiters[1], jobs[2])]));
}

/// One may run for each user; the sleeper was called for the first one's next job.
#[test]
fn a_bucket_that_is_reserved_holds_back_no_other_bucket_of_its_queue() {
    let bench = Bench::new();
    limit(&bench, Matcher { per: Some("/user".to_owned()), ..in_queue("q") }, 1);
    let running = [of_user(&bench, "ann"), of_user(&bench, "bob")];
    for connection in [8, 9] {
        assert!(grab(&bench, connection, &["q"]).is_some());
    }
    let next = [of_user(&bench, "ann"), of_user(&bench, "bob")];
    let sleeper = asleep(&bench, 1, &["q"]);
    let waiter = bench.wait(2, "q", 60_000);
    bench.finish(running[0], true, b"").unwrap();
    assert_eq!(heard(&bench), (vec![sleeper], vec![]));
    bench.finish(running[1], true, b"").unwrap();
    assert_eq!(heard(&bench), (vec![], vec![(waiter, next[1])]));
    assert_eq!(grab(&bench, 1, &["q"]), Some(next[0]));
}

#[test]
fn a_limit_over_several_queues_is_left_in_all_of_them() {
    let bench = Bench::new();
    limit(&bench, Matcher::default(), 1);
    let running = bench.add("first", b"x");
    assert_eq!(grab(&bench, 9, &["first"]), Some(running));
    let jobs = [bench.add("q", b"x"), bench.add("r", b"x")];
    let sleeper = asleep(&bench, 1, &["q"]);
    let waiter = bench.wait(2, "r", 60_000);
    bench.finish(running, true, b"").unwrap();
    assert_eq!(heard(&bench), (vec![sleeper], vec![]));
    assert_eq!(grab(&bench, 1, &["q"]), Some(jobs[0]));
    bench.finish(jobs[0], true, b"").unwrap();
    assert_eq!(heard(&bench), (vec![], vec![(waiter, jobs[1])]));
    // And if it does not come, the other queue has it.
    bench.finish(jobs[1], true, b"").unwrap();
    let (sleeper, waiter) = (asleep(&bench, 1, &["q"]), bench.wait(2, "r", 60_000));
    bench.add("q", b"x");
    let left = bench.add("r", b"x");
    assert_eq!(heard(&bench), (vec![sleeper], vec![]));
    bench.engine.waits().connection_gone(ConnectionId(1), None);
    assert_eq!(heard(&bench), (vec![], vec![(waiter, left)]));
}

#[test]
fn a_sleeper_keeps_its_turn_while_it_learns_and_forgets_queues() {
    let bench = Bench::new();
    let (first, second) = (asleep(&bench, 1, &["p"]), asleep(&bench, 2, &["q"]));
    let name = |name: &'static str| Bytes::from_static(name.as_bytes());
    assert_eq!(bench.engine.waits().sleep_also(first, name("q")), Ok(SleepReply::Asleep(first)));
    bench.add("q", b"x");
    assert_eq!(heard(&bench).0, [first]);
    // Its call is on its way.
    assert_eq!(bench.engine.waits().sleep_also(first, name("r")), Ok(SleepReply::Asleep(first)));
    assert_eq!(grab(&bench, 1, &["q"]).map(|_| ()), Some(()));
    bench.engine.waits().sleep_without(second, &name("q"));
    bench.add("q", b"x");
    assert_eq!(heard(&bench).0, []);
    assert_eq!(bench.engine.waits().sleep_also(second, name("q")), Ok(SleepReply::Called));
    assert_eq!(grab(&bench, 2, &["q"]).map(|_| ()), Some(()));
    bench.engine.waits().connection_gone(ConnectionId(2), None);
    bench.add("q", b"x");
    assert_eq!(heard(&bench).0, []);
}

// ---- shares ----

/// Workers beside each other, one millisecond at a time. Those who sleep need one to come when they
/// are called, those who wait ask again at once.
struct Fleet {
    bench: Bench,
    queue: &'static str,
    work_ms: u64,
    sleepers: Vec<u64>,
    tickets: BTreeMap<Ticket, u64>,
    /// The called workers that are still to come.
    coming: Vec<u64>,
    /// When each worker is done with its job.
    busy: BTreeMap<u64, (u64, JobId)>,
    done: BTreeMap<u64, usize>,
}

impl Fleet {
    fn new(bench: Bench, sleepers: u64, waiters: u64, work_ms: u64) -> Fleet {
        let mut fleet = Fleet {
            bench,
            queue: "q",
            work_ms,
            sleepers: (1..=sleepers).collect(),
            tickets: BTreeMap::new(),
            coming: Vec::new(),
            busy: BTreeMap::new(),
            done: BTreeMap::new(),
        };
        for worker in 1..=sleepers + waiters {
            fleet.done.insert(worker, 0);
            fleet.ask(worker);
        }
        fleet
    }

    fn ask(&mut self, worker: u64) {
        let caller = self.bench.caller(worker);
        let wait_ms = if self.sleepers.contains(&worker) { 0 } else { 60_000 };
        match self.bench.engine.leases().take(&caller, wish(self.queue), wait_ms).value().unwrap() {
            LeaseReply::Leased(job) => self.begin(worker, job.id),
            LeaseReply::Waiting(ticket) => {
                self.tickets.insert(ticket, worker);
            }
            LeaseReply::Nothing => {
                let queues = vec![Bytes::from_static(self.queue.as_bytes())];
                match self.bench.engine.waits().sleep(&caller, queues, u32::MAX).unwrap() {
                    SleepReply::Called => self.coming.push(worker),
                    SleepReply::Asleep(ticket) => {
                        self.tickets.insert(ticket, worker);
                    }
                }
            }
        }
    }

    fn begin(&mut self, worker: u64, job: JobId) {
        let until_ms = self.bench.engine.now_ms() + self.work_ms;
        self.busy.insert(worker, (until_ms, job));
    }

    fn hear(&mut self) {
        for (ticket, answer) in self.bench.answers() {
            let worker = self.tickets.remove(&ticket).unwrap();
            match answer {
                Answer::Called => self.coming.push(worker),
                Answer::Leased(job) => self.begin(worker, job.id),
                Answer::TimedOut => self.ask(worker),
                other => panic!("{other:?}"),
            }
        }
    }

    fn pass_one_ms(&mut self) {
        let coming = std::mem::take(&mut self.coming);
        self.bench.pass(1);
        self.hear();
        let now_ms = self.bench.engine.now_ms();
        let done: Vec<(u64, JobId)> = self
            .busy
            .iter()
            .filter(|(_, (until_ms, _))| *until_ms <= now_ms)
            .map(|(worker, (_, job))| (*worker, *job))
            .collect();
        for (worker, job) in done {
            self.busy.remove(&worker);
            self.bench.finish(job, true, b"").unwrap();
            *self.done.entry(worker).or_default() += 1;
            self.ask(worker);
            self.hear();
        }
        for worker in coming {
            self.ask(worker);
        }
        self.hear();
    }

    /// Lets time pass, and a job come every so often.
    fn run(mut self, ms: u64, job_every_ms: Option<u64>) -> Vec<usize> {
        for at in 0..ms {
            if job_every_ms.is_some_and(|every| at % every == 0) {
                self.bench.add(self.queue, b"x");
                self.hear();
            }
            self.pass_one_ms();
        }
        self.done.into_values().collect()
    }
}

fn add_many(bench: &Bench, count: usize) {
    for _ in 0..count {
        bench.add("q", b"x");
    }
}

/// Everybody has at least two thirds of an equal share.
#[track_caller]
fn is_shared(done: &[usize], at_least: usize) {
    let all: usize = done.iter().sum();
    assert!(all >= at_least, "only {all} jobs were done: {done:?}");
    let fair = all / done.len();
    assert!(done.iter().all(|own| 3 * own >= 2 * fair), "shares are {done:?}");
}

#[test]
fn a_sleeper_has_its_share_of_a_queue_in_which_one_job_may_run() {
    for (sleepers, waiters) in [(1, 1), (1, 3), (3, 2)] {
        let bench = Bench::new();
        limit(&bench, in_queue("q"), 1);
        add_many(&bench, 2000);
        let done = Fleet::new(bench, sleepers, waiters, 5).run(3000, None);
        is_shared(&done, 450);
    }
}

#[test]
fn a_sleeper_has_its_share_of_a_queue_with_a_rate() {
    let bench = Bench::new();
    let rate = Some(Rate { count: 1, per_ms: 10, burst: 1 });
    let spec = ConstraintSpec { matcher: in_queue("q"), rate, running_max: None };
    bench
        .engine
        .people(&mut somebody())
        .put_constraint("rate", &spec, LimitScope::Whole, Expected::Any)
        .value()
        .unwrap();
    add_many(&bench, 1000);
    let done = Fleet::new(bench, 1, 1, 3).run(3000, None);
    is_shared(&done, 270);
}

#[test]
fn a_sleeper_has_its_share_of_jobs_that_come_one_by_one() {
    for (sleepers, waiters) in [(1, 1), (1, 3), (2, 2)] {
        let done = Fleet::new(Bench::new(), sleepers, waiters, 3).run(3000, Some(7));
        is_shared(&done, 420);
    }
}

#[test]
fn with_more_work_than_workers_nobody_waits_for_anybody() {
    let bench = Bench::new();
    add_many(&bench, 3000);
    let done = Fleet::new(bench, 2, 2, 5).run(3000, None);
    assert_eq!(done, [600; 4]);
}
