//! What foreground jobs may have in memory: their payloads, and what their failures left.

#![expect(clippy::unwrap_used, reason = "only tests use this")]

use bytes::Bytes;
use spindle_core::command::Claim;
use spindle_core::job::{Key, Origin, Scope};
use spindle_core::{JobId, JobImage, Status};
use spindle_engine::{JobRef, Options, Refused, WorkResult};

use crate::harness::{Bench, TakeApart, bytes, new_job, plain};

const ROOM: usize = 1_000;

fn bench() -> Bench {
    Bench::with(Options { foreground_bytes_max: ROOM, ..Options::default() })
}

fn submit(bench: &Bench, payload: usize) -> Result<JobId, Refused> {
    let mut submit = plain("q");
    submit.foreground = true;
    submit.fails_max = Some(1_000);
    bench.engine.jobs().submit(new_job(submit, &vec![b'p'; payload])).value()
}

/// Leases the job and fails it, so that it is tried again.
fn fail(bench: &Bench, id: JobId, result: usize) -> JobImage {
    let leased = bench.lease("q").expect("it is ready");
    assert_eq!(leased.id, id);
    bench
        .finish(id, false, &vec![b'r'; result])
        .expect("a report is never refused for want of room");
    assert_eq!(bench.status(id), Some(Status::Ready));
    bench.image(id)
}

fn result_len(image: &JobImage) -> Option<u32> {
    Some(image.outcome.as_ref()?.bytes.as_ref()?.len)
}

fn message(image: &JobImage) -> &str {
    let outcome = image.outcome.as_ref().expect("it failed");
    std::str::from_utf8(&outcome.message).unwrap()
}

#[test]
fn foreground_payloads_are_taken_up_to_the_limit_and_one_byte_more_is_refused() {
    let bench = bench();
    let first = submit(&bench, 400).unwrap();
    assert!(matches!(submit(&bench, ROOM - 400 + 1), Err(Refused::TooMany(_))));
    submit(&bench, ROOM - 400).unwrap();
    assert!(matches!(submit(&bench, 1), Err(Refused::TooMany(_))));
    submit(&bench, 0).unwrap();
    bench.add("logged", &[b'l'; ROOM + 1]);
    bench.delete(first);
    assert!(matches!(submit(&bench, 401), Err(Refused::TooMany(_))));
    submit(&bench, 400).unwrap();
}

#[test]
fn the_result_of_a_foreground_try_that_failed_counts_for_as_long_as_the_job_has_it() {
    let bench = bench();
    let id = submit(&bench, 100).unwrap();
    assert_eq!(result_len(&fail(&bench, id, 600)), Some(600));
    assert!(matches!(submit(&bench, 301), Err(Refused::TooMany(_))));
    submit(&bench, 300).unwrap();
    bench.delete(id);
    submit(&bench, 700).unwrap();
    assert!(matches!(submit(&bench, 1), Err(Refused::TooMany(_))));
}

#[test]
fn the_next_failure_takes_the_place_of_the_one_before() {
    let bench = bench();
    let id = submit(&bench, 100).unwrap();
    for _ in 0..5 {
        assert_eq!(result_len(&fail(&bench, id, 900)), Some(900));
    }
    assert_eq!(result_len(&fail(&bench, id, 10)), Some(10));
    submit(&bench, 890).unwrap();
}

#[test]
fn a_result_beyond_the_limit_is_left_out_and_the_message_says_so() {
    let bench = bench();
    let id = submit(&bench, 100).unwrap();
    let at_limit = fail(&bench, id, 900);
    assert_eq!((result_len(&at_limit), message(&at_limit)), (Some(900), ""));
    let beyond = fail(&bench, id, 901);
    assert_eq!(result_len(&beyond), None);
    let said = "its result of 901 bytes was not kept: foreground payloads and results in memory are \
                at their limit";
    assert_eq!(message(&beyond), said);
    assert_eq!(result_len(&fail(&bench, id, 900)), Some(900), "the next one fits again");
}

#[test]
fn texts_of_a_worker_count_and_are_cut_beyond_the_limit() {
    let bench = bench();
    let id = submit(&bench, 100).unwrap();
    bench.lease("q").expect("it is ready");
    let text = |letter: &str, len: usize| Bytes::from(letter.repeat(len));
    let report = WorkResult {
        retry: true,
        result: bytes(b"r"),
        message: text("m", 300),
        error: text("e", 600),
        ..WorkResult::default()
    };
    bench.engine.leases().finish(Claim::Unfinished { id }, report).value().unwrap();
    let image = bench.image(id);
    let outcome = image.outcome.as_ref().unwrap();
    assert_eq!((result_len(&image), outcome.error.len()), (None, 256));
    assert!(message(&image).starts_with(&format!("{}; its result of 1 bytes", "m".repeat(256))));
}

#[test]
fn the_last_result_of_a_foreground_job_reaches_who_waits_whatever_is_in_memory() {
    let bench = bench();
    submit(&bench, ROOM).unwrap();
    let watcher = bench.caller(1);
    let mut job = plain("w");
    job.foreground = true;
    let joined = bench.engine.jobs().submit_or_join(Some(&watcher), new_job(job, b"")).value();
    let id = joined.unwrap().job;
    bench.lease("w").expect("it is ready");
    bench.finish(id, true, &[b'r'; 2 * ROOM]).expect("leased");
    let ended = bench.answers();
    let [(_, spindle_engine::Answer::Ended { image, .. })] = &ended[..] else {
        panic!("expected an end and got {ended:?}");
    };
    assert_eq!(result_len(image), Some(2 * ROOM as u32));
}

#[test]
fn a_job_that_is_logged_after_a_failure_is_in_the_foreground_limit_no_more() {
    let bench = bench();
    let watcher = bench.caller(1);
    let named = |foreground| {
        let mut job = plain("q");
        (job.foreground, job.fails_max) = (foreground, Some(1_000));
        let name = Bytes::from_static(b"name");
        job.keys = vec![Key {
            namespace: Origin::Gearman as i32,
            name,
            scope: Scope::WhileUnfinished as i32,
        }];
        new_job(job, b"pp")
    };
    let joined = bench.engine.jobs().submit_or_join(Some(&watcher), named(true)).value().unwrap();
    assert_eq!(result_len(&fail(&bench, joined.job, 900)), Some(900));
    assert!(matches!(submit(&bench, 99), Err(Refused::TooMany(_))));
    let again = bench.engine.jobs().submit_or_join(None, named(false)).value().unwrap();
    assert_eq!(again.job, joined.job);
    submit(&bench, ROOM).unwrap();
    let image = bench.image(joined.job);
    let said = "its result of 900 bytes was not kept: it was in memory only";
    assert_eq!((result_len(&image), message(&image)), (None, said), "a record has no room for it");
    bench.check_fold();
    let found = bench.engine.jobs().find(JobRef::Id(joined.job)).value();
    assert_eq!(found.map(|(_, status)| status), Some(Status::Ready));
}
