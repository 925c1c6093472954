//! Several records on their way to a log that works by itself: order, lost answers, failures, stops.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use bytes::Bytes;
use spindle_core::JobId;
use spindle_engine::{
    Answer, Committed, Committer, Engine, Failure, Gate, Options, StartError, Submitted,
};
use spindle_log::{Log, Record};
use spindle_testkit::{FlightLog, FlightStore, ManualClock, Weather, wait_until};

use crate::harness::{Bench, RECORD_BYTES_MAX, START_MS, TakeApartResult, new_job, noise, plain};

const PLACES: usize = 4;

fn store() -> FlightStore {
    FlightStore::new(64, RECORD_BYTES_MAX)
}

fn engine_on(store: &FlightStore, weather: Weather, options: Options) -> (Bench, Arc<FlightLog>) {
    let log = Arc::new(store.open(7, PLACES, weather));
    (Bench::on(log.clone(), START_MS, options), log)
}

/// Records go together.
fn calm() -> (Bench, Arc<FlightLog>, FlightStore) {
    calm_with(Options { always_together: true, ..Options::default() })
}

/// Records go one at a time, as long as nothing else is found to be quicker.
fn calm_alone() -> (Bench, Arc<FlightLog>, FlightStore) {
    calm_with(Options::default())
}

fn calm_with(options: Options) -> (Bench, Arc<FlightLog>, FlightStore) {
    let store = store();
    let (bench, log) = engine_on(&store, Weather::CALM, options);
    (bench, log, store)
}

fn submit(bench: &Bench) -> Gate {
    bench.engine.jobs().submit(new_job(plain("q"), b"x")).acked().expect("taken")
}

/// Makes this many decisions, each of which departs at once.
fn depart(bench: &Bench, count: usize) -> Vec<Gate> {
    let depart_one = |_| {
        let gate = submit(bench);
        assert_eq!(bench.engine.submit_once(), Submitted::Some);
        gate
    };
    (0..count).map(depart_one).collect()
}

/// The durable position of a log that has come this far.
fn check_durable(bench: &Bench, gates: &[Gate], durable: usize) {
    for (n, gate) in gates.iter().enumerate() {
        assert_eq!(bench.is_durable(*gate), n < durable, "gate {n} after {durable} answers");
    }
}

fn somebody_elses() -> Record {
    Record { epoch: 99, bytes: Bytes::from_static(b"of another server") }
}

#[test]
fn what_is_decided_departs_while_there_are_places_and_the_batch_grows_when_there_are_none() {
    let (bench, log, store) = calm();
    let end = store.end();
    assert_eq!(bench.engine.submit_once(), Submitted::Nothing, "nothing is decided");
    assert_eq!(bench.engine.take_ack_once(), Committed::Nothing, "nothing is on its way");
    let gates = depart(&bench, PLACES);
    let late: Vec<Gate> = (0..50).map(|_| submit(&bench)).collect();
    assert_eq!(bench.engine.submit_once(), Submitted::Nothing, "all places are taken");
    assert_eq!(log.on_their_way(), PLACES);
    assert_eq!(bench.engine.take_ack_once(), Committed::Some);
    check_durable(&bench, &gates, 1);
    assert_eq!(bench.engine.submit_once(), Submitted::Some);
    assert_eq!(bench.engine.submit_once(), Submitted::Nothing, "that was all of it");
    assert!(late.iter().all(|gate| *gate == late[0]), "one record");
    while bench.engine.take_ack_once() == Committed::Some {}
    assert!(bench.is_durable(late[0]));
    assert_eq!(store.end().0, end.0 + PLACES as u64 + 1);
    bench.check_fold();
}

#[test]
fn gates_open_one_record_after_the_other_and_mailboxes_hear_of_each() {
    let (bench, _, _) = calm();
    let gates = depart(&bench, 3);
    check_durable(&bench, &gates, 0);
    for answers in 1..=3 {
        let moves = bench.letters.durable_moves.load(std::sync::atomic::Ordering::SeqCst);
        assert_eq!(bench.engine.take_ack_once(), Committed::Some);
        let moved = bench.letters.durable_moves.load(std::sync::atomic::Ordering::SeqCst);
        assert_eq!(moved, moves + 1);
        check_durable(&bench, &gates, answers);
    }
}

#[test]
fn in_any_weather_what_is_durable_has_arrived_and_all_of_it_does_once() {
    for seed in 0..40 {
        let store = store();
        let weather = Weather {
            overtaken: 300,
            lost_records: 60,
            lost_answers: 60,
            given_up: 60,
            ..Weather::CALM
        };
        let log = Arc::new(store.open(seed, PLACES, weather));
        let bench = Bench::on(log, START_MS, Options::default());
        let (mut gates, end) = (Vec::new(), store.end());
        for n in 0..60 {
            gates.push(submit(&bench));
            bench.engine.submit_once();
            if n % 3 == 0 {
                bench.engine.take_ack_once();
            }
            assert!(bench.engine.durable().0 <= store.end().0, "seed {seed}");
        }
        while matches!(bench.engine.commit_once(), Committed::Some | Committed::Unknown) {}
        assert!(gates.iter().all(|gate| bench.is_durable(*gate)), "seed {seed}");
        assert_eq!(store.end().0, gates[59].0, "seed {seed}: not once each, from {end}");
        bench.check_fold();
    }
}

fn check_taken_back(lose: fn(&FlightLog)) {
    let (bench, log, store) = calm();
    let end = store.end();
    lose(&log);
    let gates = depart(&bench, 3);
    assert_eq!(bench.engine.take_ack_once(), Committed::Unknown);
    submit(&bench);
    assert_eq!(bench.engine.submit_once(), Submitted::Nothing, "answers are to be taken first");
    for _ in 1..3 {
        assert_eq!(bench.engine.take_ack_once(), Committed::Unknown, "behind an Unknown");
    }
    assert_eq!(bench.engine.take_ack_once(), Committed::Nothing, "all are taken back");
    check_durable(&bench, &gates, 0);
    for _ in 0..4 {
        assert_eq!(bench.engine.submit_once(), Submitted::Some);
    }
    assert_eq!(bench.engine.submit_once(), Submitted::Nothing);
    for answers in 1..=3 {
        assert_eq!(bench.engine.take_ack_once(), Committed::Some);
        check_durable(&bench, &gates, answers);
    }
    assert_eq!(bench.engine.take_ack_once(), Committed::Some, "the new one, behind them");
    assert_eq!(store.end().0, end.0 + 4, "each of them once");
    bench.check_fold();
}

#[test]
fn after_a_lost_answer_the_same_records_are_submitted_again_in_order() {
    check_taken_back(|log| log.lose_answers(1));
}

#[test]
fn after_a_lost_record_those_behind_it_are_submitted_again_too() {
    check_taken_back(|log| log.lose_records(1));
}

/// The thread that submits may come between an Unknown and the thread that notes it.
#[test]
fn a_record_for_which_the_log_is_not_ready_waits_until_the_answer_is_taken() {
    let store = store();
    let weather = Weather { lost_answers: 200, lost_records: 200, ..Weather::CALM };
    let options = Options { always_together: true, ..Options::default() };
    let (bench, log) = engine_on(&store, weather, options);
    bench.engine.spawn(|failure| panic!("{failure}")).expect("threads");
    let gates: Vec<Gate> = (0..300).map(|_| decide(&bench)).collect();
    wait_until("all is durable", || gates.iter().all(|gate| bench.is_durable(*gate)));
    bench.engine.stop();
    assert_eq!((log.on_their_way(), store.end().0), (0, bench.engine.durable().0));
    bench.check_fold();
}

fn check_failed(bench: &Bench, gates: &[Gate]) {
    submit(bench);
    for _ in 0..3 {
        assert_eq!(bench.engine.take_ack_once(), Committed::Failed);
        assert_eq!(bench.engine.submit_once(), Submitted::Failed);
        assert_eq!(bench.engine.commit_once(), Committed::Failed);
    }
    check_durable(bench, gates, 1);
}

#[test]
fn a_record_of_another_server_fails_all_that_is_behind_it() {
    let (bench, log, store) = calm();
    let gates = depart(&bench, 1);
    assert_eq!(bench.engine.take_ack_once(), Committed::Some);
    let gates = [gates, depart(&bench, 3)].concat();
    store.append(&somebody_elses());
    assert_eq!(bench.engine.take_ack_once(), Committed::Failed);
    assert!(matches!(bench.engine.failure(), Some(Failure::Conflict)));
    check_failed(&bench, &gates);
    assert_eq!(log.on_their_way(), 2, "nobody asks for their answers");
}

#[test]
fn a_log_that_cannot_be_reached_any_more_fails_all_that_is_on_its_way() {
    let (bench, _, store) = calm();
    let gates = depart(&bench, 3);
    store.cut_power_after(1);
    assert_eq!(bench.engine.take_ack_once(), Committed::Some);
    assert_eq!(bench.engine.take_ack_once(), Committed::Failed);
    assert!(matches!(bench.engine.failure(), Some(Failure::Log(_))));
    check_failed(&bench, &gates);
}

fn decide(bench: &Bench) -> Gate {
    let _turn = bench.engine.turn();
    submit(bench)
}

/// With threads that submit: one record after the other departs.
fn take_all_places(bench: &Bench, log: &FlightLog) -> Vec<Gate> {
    let take_one = |place| {
        let gate = decide(bench);
        wait_until("it departs at once", || log.on_their_way() == place);
        gate
    };
    (1..=PLACES).map(take_one).collect()
}

#[test]
fn threads_keep_all_places_taken_and_no_more() {
    let (bench, log, store) = calm();
    let end = store.end();
    bench.engine.spawn(|failure| panic!("{failure}")).expect("threads");
    log.hold(true);
    let mut gates = take_all_places(&bench, &log);
    (0..100).for_each(|_| gates.push(decide(&bench)));
    assert_eq!(bench.engine.submit_once(), Submitted::Nothing);
    assert_eq!(log.on_their_way(), PLACES);
    check_durable(&bench, &gates, 0);
    log.let_go(1);
    wait_until("its place is taken by all that was decided since", || {
        log.next().0 == end.0 + PLACES as u64 + 1
    });
    check_durable(&bench, &gates, 1);
    assert_eq!(log.on_their_way(), PLACES);
    log.hold(false);
    wait_until("all is durable", || gates.iter().all(|gate| bench.is_durable(*gate)));
    assert_eq!(store.end().0, end.0 + PLACES as u64 + 1, "the batch grew meanwhile");
    bench.engine.stop();
    bench.check_fold();
}

#[test]
fn whoever_serves_clients_only_hands_over() {
    let (bench, log, _) = calm();
    log.hold(true);
    let gate = submit(&bench);
    assert!(bench.engine.end_turn());
    // Neither waits for the log, which holds its answers back.
    bench.engine.commit();
    bench.engine.commit_if_quick();
    assert_eq!((log.on_their_way(), bench.is_durable(gate)), (0, false));
    bench.engine.spawn(|failure| panic!("{failure}")).expect("threads");
    wait_until("the log thread was called", || log.on_their_way() == 1);
    assert!(!bench.engine.end_turn(), "it is on its way");
    log.hold(false);
    wait_until("it is durable", || bench.is_durable(gate));
    bench.engine.stop();
    assert!(bench.engine.sync_time() > Duration::ZERO);
}

#[test]
fn one_at_a_time_the_next_record_is_all_that_was_decided_meanwhile() {
    let (bench, log, store) = calm_alone();
    let end = store.end();
    bench.engine.spawn(|failure| panic!("{failure}")).expect("threads");
    log.hold(true);
    let first = decide(&bench);
    wait_until("it departs at once", || log.on_their_way() == 1);
    let late: Vec<Gate> = (0..100).map(|_| decide(&bench)).collect();
    log.let_go(1);
    wait_until("the rest has departed", || log.next().0 == end.0 + 2);
    assert!(bench.is_durable(first) && !bench.is_durable(late[0]));
    log.hold(false);
    wait_until("all is durable", || late.iter().all(|gate| bench.is_durable(*gate)));
    assert_eq!(store.end().0, end.0 + 2, "one record");
    bench.engine.stop();
    bench.check_fold();
}

#[test]
fn one_at_a_time_whoever_serves_clients_commits() {
    let (bench, log, _) = calm_alone();
    let gates: Vec<Gate> = (0..3).map(|_| submit(&bench)).collect();
    assert!(bench.engine.end_turn());
    bench.engine.commit();
    check_durable(&bench, &gates, 3);
    assert!(!bench.engine.end_turn() && log.on_their_way() == 0);
    assert!(bench.engine.sync_time() > Duration::ZERO);
    // Even a thread with nothing else to serve does not wait for a network, however quick it was.
    let gate = submit(&bench);
    bench.engine.commit_if_quick();
    assert!(!bench.is_durable(gate));
}

#[test]
fn one_at_a_time_what_went_together_before_arrives_first() {
    let (bench, log, store) = calm_alone();
    let mut gates = depart(&bench, PLACES);
    gates.push(submit(&bench));
    let end = store.end();
    bench.engine.commit();
    check_durable(&bench, &gates, PLACES + 1);
    assert_eq!((log.on_their_way(), store.end().0), (0, end.0 + PLACES as u64 + 1));
}

#[test]
fn one_at_a_time_what_was_decided_since_an_answer_was_lost_is_committed_with_it() {
    let (bench, log, store) = calm_alone();
    let end = store.end();
    log.lose_answers(1);
    let lost = submit(&bench);
    bench.engine.commit();
    assert!(!bench.is_durable(lost));
    let behind = submit(&bench);
    // Longer than the pause after the first lost answer.
    thread::sleep(Duration::from_millis(5));
    bench.engine.commit();
    check_durable(&bench, &[lost, behind], 2);
    assert_eq!(store.end().0, end.0 + 2, "once each");
}

#[test]
fn one_at_a_time_what_is_lost_or_finds_no_room_is_left_to_the_thread_that_submits() {
    let (bench, log, store) = calm_alone();
    let end = store.end();
    log.lose_answers(1);
    let lost = submit(&bench);
    bench.engine.commit();
    assert!(!bench.is_durable(lost) && store.end().0 == end.0 + 1);
    // It is offered again after a pause, and nothing overtakes it.
    let behind = submit(&bench);
    bench.engine.commit();
    assert!(!bench.is_durable(behind));
    bench.engine.spawn(|failure| panic!("{failure}")).expect("threads");
    wait_until("both are durable", || bench.is_durable(behind) && bench.is_durable(lost));
    assert_eq!(store.end().0, end.0 + 2, "once each");
    log.fill(true);
    let refused = submit(&bench);
    bench.engine.commit();
    assert!(!bench.is_durable(refused));
    log.fill(false);
    wait_until("there is room", || bench.is_durable(refused));
    bench.engine.stop();
    bench.check_fold();
}

/// Doors and the thread that submits, at once, over a network that loses much.
#[test]
fn one_at_a_time_in_any_weather_all_becomes_durable_once() {
    let store = store();
    let weather = Weather { lost_answers: 200, lost_records: 200, ..Weather::CALM };
    let (bench, log) = engine_on(&store, weather, Options::default());
    let end = store.end();
    bench.engine.spawn(|failure| panic!("{failure}")).expect("threads");
    let mut gates: Vec<Gate> = Vec::new();
    for n in 0..300 {
        if n % 3 == 0 {
            gates.push(decide(&bench));
        } else {
            gates.push(submit(&bench));
            bench.engine.commit();
        }
    }
    wait_until("all is durable", || gates.iter().all(|gate| bench.is_durable(*gate)));
    bench.engine.stop();
    assert_eq!((log.on_their_way(), store.end().0), (0, bench.engine.durable().0));
    assert!(store.end().0 <= end.0 + 300 + 1, "no record twice");
    bench.check_fold();
}

#[test]
fn one_at_a_time_a_lost_log_fails_whoever_commits() {
    let (bench, _, store) = calm_alone();
    let gates = vec![submit(&bench)];
    bench.engine.commit();
    let gates = [gates, vec![submit(&bench)]].concat();
    store.append(&somebody_elses());
    bench.engine.commit();
    assert!(matches!(bench.engine.failure(), Some(Failure::Conflict)));
    check_failed(&bench, &gates);
}

#[test]
fn a_stop_waits_for_what_is_on_its_way_and_commits_the_rest() {
    let (bench, log, store) = calm();
    bench.engine.spawn(|failure| panic!("{failure}")).expect("threads");
    log.hold(true);
    let mut gates = take_all_places(&bench, &log);
    gates.push(decide(&bench));
    thread::scope(|scope| {
        scope.spawn(|| bench.engine.stop());
        log.hold(false);
    });
    assert!(gates.iter().all(|gate| bench.is_durable(*gate)));
    assert_eq!((log.on_their_way(), store.end().0), (0, bench.engine.durable().0));
}

#[test]
fn a_stop_commits_more_than_there_are_places_for() {
    let (bench, _, store) = calm();
    let gates = depart(&bench, PLACES);
    let late = submit(&bench);
    bench.engine.stop();
    check_durable(&bench, &gates, PLACES);
    assert!(bench.is_durable(late));
    assert_eq!(store.end().0, bench.engine.tail().0);
}

#[test]
fn a_stop_ends_though_every_answer_is_lost() {
    let (bench, log, store) = calm();
    bench.engine.spawn(|failure| panic!("{failure}")).expect("threads");
    log.lose_answers(u64::MAX);
    let (durable, end) = (bench.engine.durable(), store.end());
    let gate = decide(&bench);
    wait_until("it arrived", || store.end() > end);
    let began = Instant::now();
    bench.engine.stop();
    assert!(began.elapsed() < Duration::from_secs(60));
    assert_eq!(bench.engine.durable(), durable, "nobody knows");
    assert!(bench.engine.failure().is_none() && !bench.is_durable(gate));
}

#[test]
fn what_is_on_its_way_counts_for_admission() {
    let options = Options { undurable_bytes_max: 10_000, ..Options::default() };
    let (bench, log) = engine_on(&store(), Weather::CALM, options);
    let mut taken = 0;
    while bench.engine.has_room() {
        bench.add("q", &noise(taken, 4000));
        bench.engine.submit_once();
        taken += 1;
    }
    assert_eq!(taken, 3);
    assert_eq!(log.on_their_way(), 3, "all of it has departed");
    let ticket = bench.engine.wait_for_room(&bench.caller(7), 0).unwrap().expect("there is none");
    assert_eq!(bench.engine.take_ack_once(), Committed::Some);
    assert!(bench.answers().is_empty(), "half of it is not free");
    assert_eq!(bench.engine.take_ack_once(), Committed::Some);
    let answers = bench.answers();
    assert!(matches!(&answers[..], [(t, Answer::Room)] if *t == ticket), "{answers:?}");
}

#[test]
fn a_payload_on_its_way_is_read_from_memory_and_not_forgotten() {
    let options = Options { payload_memory_bytes: 0, ..Options::default() };
    let (bench, _) = engine_on(&store(), Weather::CALM, options);
    let jobs: Vec<JobId> = (0..3)
        .map(|n| {
            let id = bench.add("q", &noise(n, 1000));
            assert_eq!(bench.engine.submit_once(), Submitted::Some);
            id
        })
        .collect();
    for _ in 0..=3 {
        for (n, id) in (0..).zip(&jobs) {
            assert_eq!(bench.payload(*id), noise(n, 1000));
        }
        bench.engine.take_ack_once();
    }
}

#[test]
fn a_record_without_room_waits_and_goes_first_when_there_is_some() {
    let (bench, log, store) = calm();
    let gates = depart(&bench, 1);
    log.fill(true);
    let first = submit(&bench);
    assert_eq!(bench.engine.submit_once(), Submitted::Full);
    let second = submit(&bench);
    assert!(second > first, "it is sealed");
    assert_eq!(bench.engine.submit_once(), Submitted::Full);
    assert_eq!(bench.engine.take_ack_once(), Committed::Some);
    check_durable(&bench, &gates, 1);
    assert_eq!(bench.engine.commit_once(), Committed::Full);
    log.fill(false);
    assert_eq!(bench.engine.commit_once(), Committed::Some);
    assert!(bench.is_durable(second));
    assert_eq!(store.end().0, second.0);
    bench.check_fold();
}

fn open(log: FlightLog) -> Result<Engine, StartError> {
    Engine::open(Arc::new(log), Arc::new(ManualClock::new(START_MS)), Options::default())
}

#[test]
fn an_engine_is_open_when_its_first_record_is_in_the_log() {
    let store = store();
    let log = store.open(1, PLACES, Weather::CALM);
    store.append(&somebody_elses());
    assert!(matches!(open(log).err(), Some(StartError::Conflict)));

    let store = self::store();
    let log = store.open(1, PLACES, Weather::CALM);
    log.lose_records(3);
    log.lose_answers(3);
    let engine = open(log).expect("some answers are lost");
    assert_eq!(engine.durable().0, store.end().0);

    let store = self::store();
    let log = store.open(1, PLACES, Weather::CALM);
    log.lose_answers(u64::MAX);
    assert!(matches!(open(log).err(), Some(StartError::Unanswered)));
}
