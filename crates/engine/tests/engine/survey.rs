//! A summary of a log, made without a server.

use spindle_core::Status;
use spindle_engine::{Counts, Survey};
use spindle_log::{Log, Position, Stored};

use crate::harness::{Bench, START_MS, plain};

fn surveyed(log: &dyn Log, bench: &Bench) -> Survey {
    let mut survey = Survey::new(&bench.options);
    for stored in log.read(log.first()).expect("readable") {
        let stored = stored.expect("sound");
        survey.record(stored).expect("folds");
    }
    survey
}

#[test]
fn a_survey_counts_what_the_running_server_has() {
    let bench = Bench::new();
    let mut late = plain("late");
    late.run_at_ms = Some(START_MS + 60_000);
    bench.submit(late, b"");
    let done = bench.add("q", b"x");
    bench.add("q", b"x");
    bench.add("q", b"x");
    bench.finish(done, true, b"result").expect("unfinished");
    bench.lease("q").expect("one is ready");
    bench.commit();
    bench.pass(5_000);
    bench.add("q", b"x");
    bench.commit();
    let counts = surveyed(bench.log.as_ref(), &bench).counts();
    let mut jobs = [0; Status::ALL.len()];
    jobs[Status::Scheduled as usize] = 1;
    jobs[Status::Ready as usize] = 2;
    jobs[Status::Leased as usize] = 1;
    jobs[Status::Done as usize] = 1;
    let (oldest_ms, newest_ms) = (Some(START_MS), Some(START_MS + 5_000));
    assert_eq!(counts, Counts { queues: 2, jobs, finished: 1, oldest_ms, newest_ms, epoch: 1 });
    let (all, finished) =
        bench.engine.inspect(|state| (state.jobs_count(), state.finished_count()));
    assert_eq!((counts.jobs.iter().sum::<usize>(), counts.finished), (all, finished));
}

#[test]
fn a_record_that_cannot_be_folded_is_refused_and_an_empty_survey_is_empty() {
    let bench = Bench::new();
    let mut survey = Survey::new(&bench.options);
    assert_eq!(survey.counts(), Counts::default());
    let bytes = b"no record at all".as_slice().into();
    let stored = Stored { position: Position(0), epoch: 1, bytes, damaged: false };
    assert!(survey.record(stored).is_err());
}
