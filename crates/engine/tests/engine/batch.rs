//! Many submits in one call.

use spindle_core::command::Submit;
use spindle_core::job::{Key, Origin, Scope};
use spindle_core::{JobId, Rejection, Status};
use spindle_engine::{NewJob, Options, Refused};

use crate::harness::{Bench, START_MS, new_job, plain};

fn keyed(name: &'static str) -> Submit {
    let name = name.as_bytes().into();
    let key = Key { namespace: Origin::Workq as i32, name, scope: Scope::WhileUnfinished as i32 };
    Submit { keys: vec![key], ..plain("q") }
}

fn jobs(count: usize, payload: &[u8]) -> Vec<NewJob> {
    (0..count).map(|_| new_job(plain("q"), payload)).collect()
}

#[test]
fn all_are_taken_in_their_order_and_are_durable_with_the_last_gate() {
    let bench = Bench::new();
    let taken = bench.engine.submit_many(&jobs(100, b"work")).unwrap();
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
    let taken = bench.engine.submit_many(&wanted).unwrap();
    assert!(taken[0].is_ok() && taken[2].is_ok());
    let refusal = taken[1].as_ref().unwrap_err();
    assert!(matches!(refusal, Refused::Rejected(Rejection::KeyTaken(JobId(1)), _)), "{refusal}");
    assert_eq!(bench.status(JobId(2)), Some(Status::Ready), "its number was not used up");
}

#[test]
fn what_finds_no_room_in_the_log_is_left_for_the_next_call() {
    let options = Options { undurable_bytes_max: 4096, ..Options::default() };
    let bench = Bench::on(std::sync::Arc::new(spindle_log::MemoryLog::new()), START_MS, options);
    let wanted = jobs(100, &[7; 256]);
    let first = bench.engine.submit_many(&wanted).unwrap();
    assert!((1..100).contains(&first.len()), "{} fitted", first.len());
    assert!(first.iter().all(Result::is_ok));
    let busy = bench.engine.submit_many(&wanted[first.len()..]);
    assert!(matches!(busy, Err(Refused::Busy)), "{busy:?}");
    bench.commit();
    let second = bench.engine.submit_many(&wanted[first.len()..]).unwrap();
    assert_eq!(second.len(), first.len(), "as much room as before");
}
