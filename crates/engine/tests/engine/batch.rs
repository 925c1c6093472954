//! Many submits in one call.

use std::collections::VecDeque;

use spindle_core::command::Submit;
use spindle_core::job::{Key, Origin, Scope};
use spindle_core::{JobId, Rejection, Status};
use spindle_engine::{Gate, NewJob, Options, Refused};

use crate::harness::{Bench, TakeApartResult, new_job, plain};

fn keyed(name: &'static str) -> Submit {
    let name = name.as_bytes().into();
    let key = Key { namespace: Origin::Workq as i32, name, scope: Scope::WhileUnfinished as i32 };
    Submit { keys: vec![key], ..plain("q") }
}

fn jobs(count: usize, payload: &[u8]) -> Vec<NewJob> {
    (0..count).map(|_| new_job(plain("q"), payload)).collect()
}

/// Submits as many as there is room for.
fn submit_all(bench: &Bench, wanted: Vec<NewJob>) -> Vec<Result<(JobId, Gate), Refused>> {
    let mut wanted = VecDeque::from(wanted);
    let answers = bench.engine.jobs().submit_batch(&mut wanted);
    answers.into_iter().map(TakeApartResult::split).collect()
}

#[test]
fn all_are_taken_in_their_order_and_are_durable_with_the_last_gate() {
    let bench = Bench::new();
    let taken = submit_all(&bench, jobs(100, b"work"));
    let ids: Vec<JobId> = taken.iter().map(|taken| taken.as_ref().unwrap().0).collect();
    assert_eq!(ids, (1..=100).map(JobId).collect::<Vec<_>>());
    let newest = taken.iter().map(|taken| taken.as_ref().unwrap().1).max().unwrap();
    assert!(!bench.is_durable(newest));
    bench.commit();
    assert!(bench.is_durable(newest));
    assert_eq!(bench.payload(JobId(77)), "work");
    assert_eq!(bench.lease("q").unwrap().id, JobId(1));
    bench.check_fold();
}

#[test]
fn one_that_is_refused_does_not_keep_the_others_out() {
    let bench = Bench::new();
    let wanted = ["a", "a", "b"].map(|name| new_job(keyed(name), b""));
    let taken = submit_all(&bench, wanted.to_vec());
    assert!(taken[0].is_ok() && taken[2].is_ok());
    let refusal = taken[1].as_ref().unwrap_err();
    assert!(matches!(refusal, Refused::Rejected(Rejection::KeyTaken(JobId(1)))), "{refusal}");
    assert_eq!(bench.status(JobId(2)), Some(Status::Ready), "its number was not used up");
}

#[test]
fn what_finds_no_room_in_the_log_is_left_for_the_next_call() {
    let options = Options { undurable_bytes_max: 4096, ..Options::default() };
    let bench = Bench::with(options);
    let wanted = jobs(100, &[7; 256]);
    let first = submit_all(&bench, wanted.clone());
    assert!((1..100).contains(&first.len()), "{} fitted", first.len());
    assert!(first.iter().all(Result::is_ok));
    assert!(!bench.engine.has_room());
    let left = &wanted[first.len()..];
    assert_eq!(submit_all(&bench, left.to_vec()).len(), 1, "who asks all the same gets an answer");
    bench.commit();
    let second = submit_all(&bench, left[1..].to_vec());
    assert_eq!(second.len(), first.len(), "as much room as before");
}
