//! A log that is shared: when a leader may answer, and what it has to prove.

#![expect(clippy::unwrap_used, reason = "only tests use this")]

use std::sync::Arc;

use spindle_core::Status;
use spindle_engine::{
    Committed, Engine, Failure, Gate, JobRef, Mailbox, Options, StartError, Submitted, Takeover,
    fold_state,
};
use spindle_log::{Log, MemoryLog, Position, SharedLog};
use spindle_testkit::ManualClock;
use spindle_testkit::shared_log::{SharedLogHandle, SharedMemoryLog};

use crate::harness::{Letters, START_MS, TakeApart, TakeApartResult, new_job, plain};

struct Leader {
    engine: Engine,
    clock: Arc<ManualClock>,
    log: Arc<SharedLogHandle>,
    letters: Arc<Letters>,
}

fn options(nonce: u8) -> Options {
    Options { nonce: [nonce; 16], ..Options::default() }
}

/// Takes the log over, from its end.
fn lead(shared: &SharedMemoryLog, nonce: u8) -> Result<Leader, StartError> {
    let log = shared.open();
    log.refresh().unwrap();
    lead_on(log, nonce)
}

fn lead_on(log: Arc<SharedLogHandle>, nonce: u8) -> Result<Leader, StartError> {
    let clock = Arc::new(ManualClock::new(START_MS));
    clock.advance(1);
    let handle = Arc::clone(&log);
    let engine = Engine::follow(clock.clone(), options(nonce), |fold| {
        fold.begin(handle.first());
        let mut next = handle.first();
        for stored in handle.read(next)? {
            let stored = stored?;
            next = stored.position.next();
            fold.record(stored)?;
        }
        fold.caught_up()?;
        Ok(Takeover { log: handle, next })
    })?;
    let letters = Arc::<Letters>::default();
    engine.attach(&(Arc::clone(&letters) as Arc<dyn Mailbox>));
    Ok(Leader { engine, clock, log, letters })
}

impl Leader {
    /// Lets time pass, and the thread that keeps the lease look.
    fn pass(&self, ms: u64) {
        self.clock.advance(ms);
        self.engine.lead_step();
    }

    fn may_answer(&self) -> bool {
        self.engine.released().is_some()
    }

    /// The first answers.
    fn wait_out_silence(&self) {
        self.pass(510);
        assert!(!self.may_answer(), "its epoch record began too long ago");
        self.pass(0);
        assert_eq!(self.engine.commit_once(), Committed::Some);
        assert!(self.may_answer());
    }

    fn add(&self) -> Gate {
        self.engine.jobs().submit(new_job(plain("q"), b"x")).acked().unwrap()
    }
}

#[test]
fn a_log_of_ones_own_needs_no_lease() {
    let clock = Arc::new(ManualClock::new(START_MS));
    let engine = Engine::open(Arc::new(MemoryLog::new()), clock, options(1)).unwrap();
    assert_eq!(engine.released(), Some(engine.durable()));
    let before = engine.durable();
    engine.lead_step();
    engine.prove_lead();
    assert_eq!(engine.commit_once(), Committed::Nothing);
    assert_eq!(engine.durable(), before, "no beats");
}

#[test]
fn a_new_leader_is_silent_until_the_lease_of_the_one_before_has_run_out() {
    let leader = lead(&SharedMemoryLog::new(), 1).unwrap();
    assert!(!leader.may_answer());
    // However much it commits meanwhile.
    for _ in 0..5 {
        leader.pass(100);
        leader.add();
        leader.engine.commit_once();
        assert!(!leader.may_answer());
    }
    let moves = leader.letters.durable_moves.load(std::sync::atomic::Ordering::SeqCst);
    leader.pass(10);
    assert!(leader.may_answer());
    let called = leader.letters.durable_moves.load(std::sync::atomic::Ordering::SeqCst);
    assert!(called > moves, "those who wait are called when the silence is over");
    assert_eq!(leader.engine.released(), Some(leader.engine.durable()));
}

#[test]
fn an_append_lets_answers_go_for_half_a_second_from_its_beginning() {
    let leader = lead(&SharedMemoryLog::new(), 1).unwrap();
    leader.wait_out_silence();
    leader.clock.advance(499);
    assert!(leader.may_answer());
    leader.clock.advance(1);
    assert!(!leader.may_answer());
    // However long it was stopped before it looked.
    leader.clock.advance(3_600_000);
    assert!(!leader.may_answer());
    leader.add();
    leader.engine.commit_once();
    assert!(leader.may_answer());
}

#[test]
fn what_was_asked_of_an_idle_leader_has_it_append() {
    let shared = SharedMemoryLog::new();
    let leader = lead(&shared, 1).unwrap();
    leader.wait_out_silence();
    let before = shared.len();
    leader.pass(240);
    assert_eq!(leader.engine.commit_once(), Committed::Nothing, "half of the lease is left");
    assert!(leader.may_answer());
    leader.pass(20);
    assert_eq!(leader.engine.commit_once(), Committed::Some, "somebody asked lately");
    leader.pass(490);
    assert!(leader.may_answer(), "it was renewed");
    leader.pass(0);
    assert_eq!(leader.engine.commit_once(), Committed::Some);
    assert_eq!(shared.len(), before + 2);
    // No client asks any more.
    for _ in 0..20 {
        leader.pass(400);
        leader.engine.commit_once();
    }
    assert!(shared.len() <= before + 5, "{}", shared.len() - before);
    assert!(!leader.may_answer());
    leader.pass(0);
    assert_eq!(leader.engine.commit_once(), Committed::Some, "an answer was held back");
    assert!(leader.may_answer());
    let state = fold_state(&*shared.open(), &Options::default()).unwrap();
    assert_eq!(state.server().epoch, 1, "beats say nothing");
}

#[test]
fn beats_do_not_pile_up_behind_a_slow_log() {
    let shared = SharedMemoryLog::new();
    let leader = lead(&shared, 1).unwrap();
    leader.wait_out_silence();
    let before = shared.len();
    for _ in 0..10 {
        leader.pass(600);
        assert!(!leader.may_answer());
    }
    leader.engine.commit_once();
    assert_eq!(leader.engine.commit_once(), Committed::Nothing);
    assert_eq!(shared.len(), before + 1);
}

#[test]
fn whoever_was_deposed_answers_nothing_from_the_conflict_on() {
    let shared = SharedMemoryLog::new();
    let old = lead(&shared, 1).unwrap();
    old.wait_out_silence();
    let acknowledged = old.engine.jobs().submit(new_job(plain("q"), b"x")).split().unwrap().0;
    old.engine.commit_once();

    let new = lead(&shared, 2).unwrap();
    assert!(old.may_answer(), "its lease runs, and the other one is silent");
    let found = new.engine.jobs().find(JobRef::Id(acknowledged)).value();
    assert_eq!(found, Some((acknowledged, Status::Ready)), "what was acknowledged is there");
    old.clock.advance(500);
    assert!(!old.may_answer());
    old.engine.lead_step();
    assert_eq!(old.engine.commit_once(), Committed::Failed);
    assert!(matches!(old.engine.failure(), Some(Failure::Conflict)));
    old.clock.advance(1_000);
    assert!(!old.may_answer());
    old.engine.stop();
    assert_eq!(shared.epochs().last(), Some(&2), "it has appended nothing more");
}

/// The second try of an append finds the record in the log, where it has been since the first one;
/// and behind it another leader's.
#[test]
fn an_append_whose_answer_was_lost_proves_nothing_of_the_time_when_it_was_tried_again() {
    let shared = SharedMemoryLog::new();
    let old = lead(&shared, 1).unwrap();
    old.wait_out_silence();
    old.add();
    assert_eq!(old.engine.submit_once(), Submitted::Some);
    old.log.cut_off(true);
    assert_eq!(old.engine.take_ack_once(), Committed::Unknown);
    let new = lead(&shared, 2).unwrap();
    old.clock.advance(600);
    old.log.cut_off(false);
    assert_eq!(old.engine.commit_once(), Committed::Some);
    assert!(!old.may_answer(), "another one may lead");
    drop(new);
}

#[test]
fn each_of_several_records_on_their_way_proves_the_time_when_its_own_append_began() {
    let leader = lead(&SharedMemoryLog::new(), 1).unwrap();
    leader.wait_out_silence();
    leader.clock.advance(600);
    leader.add();
    assert_eq!(leader.engine.submit_once(), Submitted::Some);
    leader.clock.advance(300);
    leader.add();
    assert_eq!(leader.engine.submit_once(), Submitted::Some);
    leader.clock.advance(300);
    assert_eq!(leader.engine.take_ack_once(), Committed::Some);
    assert!(!leader.may_answer(), "its append began 600 ms ago");
    assert_eq!(leader.engine.take_ack_once(), Committed::Some);
    assert!(leader.may_answer());
    leader.clock.advance(200);
    assert!(!leader.may_answer());
}

#[test]
fn nothing_is_submitted_once_the_lead_is_given_up() {
    let shared = SharedMemoryLog::new();
    let leader = lead(&shared, 1).unwrap();
    leader.add();
    let before = shared.len();
    leader.engine.abandon();
    assert_eq!(leader.engine.submit_once(), Submitted::Failed);
    assert_eq!(leader.engine.commit_once(), Committed::Failed);
    leader.engine.stop();
    assert_eq!(shared.len(), before);
}

#[test]
fn of_two_that_take_over_at_once_one_leads() {
    let shared = SharedMemoryLog::new();
    let [one, other] = [shared.open(), shared.open()];
    let leads = lead_on(one, 1).is_ok();
    assert!(leads);
    // The other one has read to the same end.
    assert!(matches!(lead_on(other, 2), Err(StartError::Conflict)));
    assert!(lead(&shared, 3).is_ok());
}

#[test]
fn equal_processes_do_not_write_equal_epoch_records() {
    let bytes = |nonce| {
        let shared = SharedMemoryLog::new();
        let leader = lead(&shared, nonce).unwrap();
        let first = leader.log.read(Position(0)).unwrap().next().unwrap().unwrap();
        first.bytes
    };
    assert_eq!(bytes(1), bytes(1));
    assert_ne!(bytes(1), bytes(2));
}

#[test]
fn the_late_append_of_a_deposed_leader_does_not_count() {
    let shared = SharedMemoryLog::new();
    let old = lead(&shared, 1).unwrap();
    let kept = old.engine.jobs().submit(new_job(plain("q"), b"kept")).split().unwrap().0;
    old.engine.commit_once();
    // Two records of it are on their way: only the second one finds its place free.
    let template = old.log.read(Position(0)).unwrap().next().unwrap().unwrap();
    let late = spindle_log::Record { epoch: template.epoch, bytes: template.bytes };
    let at = old.log.next();
    old.log.delay_appends(true);
    old.log.submit(at, &late).unwrap();
    old.log.submit(at.next(), &late).unwrap();
    let new = lead(&shared, 2).unwrap();
    assert_eq!(old.log.deliver(), 1);
    assert_eq!(shared.epochs()[at.0 as usize..], [2, 1]);

    // The leader meets it, and every node leaves it out.
    new.add();
    assert_eq!(new.engine.commit_once(), Committed::Failed);
    let third = lead(&shared, 3).unwrap();
    assert_eq!(third.engine.observe().stats().records_fenced, 1);
    assert_eq!(third.engine.inspect(|state| state.server().epoch), 3);
    assert_eq!(third.engine.inspect(|state| state.jobs_count()), 1);
    let found = third.engine.jobs().find(JobRef::Id(kept)).value();
    assert_eq!(found, Some((kept, Status::Ready)));
    let feed = third.engine.feed().page(None, 100).unwrap();
    let fenced = feed.events.iter().filter(|(id, _)| id.position == at.0 + 1);
    assert_eq!(fenced.count(), 0, "nobody hears of it");
    assert_eq!(feed.next.position, third.engine.durable().0);
}

#[test]
fn leases_of_jobs_wait_for_their_record() {
    let leader = lead(&SharedMemoryLog::new(), 1).unwrap();
    leader.add();
    leader.engine.commit_once();
    let lease = spindle_testkit::lease_from("q", spindle_core::job::Origin::Workq);
    let leased = leader.engine.leases().take(&spindle_testkit::caller(1), lease, 0);
    assert!(leased.gate() > leader.engine.durable());
}

#[test]
fn a_leader_that_gives_up_does_not_wait_for_a_log_out_of_reach() {
    let shared = SharedMemoryLog::new();
    let leader = lead(&shared, 1).unwrap();
    leader.wait_out_silence();
    leader.log.cut_off(true);
    leader.add();
    let engine = leader.engine.clone();
    // As the threads do: until it is known what became of the record.
    let commits = std::thread::spawn(move || {
        loop {
            let committed = engine.commit_once();
            if committed != Committed::Unknown {
                return committed;
            }
        }
    });
    leader.engine.abandon();
    assert_eq!(commits.join().unwrap(), Committed::Failed);
    assert!(!leader.may_answer());
    leader.engine.stop();
}
