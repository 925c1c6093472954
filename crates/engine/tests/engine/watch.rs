//! Watching jobs: news, the end, and what becomes of foreground jobs and their watchers.

#![expect(clippy::unwrap_used, reason = "only tests use this")]

use bytes::Bytes;
use spindle_core::command::{Claim, Command};
use spindle_core::job::{Cause, Origin};
use spindle_core::{JobId, Rejection, Status};
use spindle_engine::{
    Answer, ConnectionId, Gate, JobRef, Joined, LeaseReply, LeasedJob, News, Options, Refused,
    Ticket, WorkResult,
};

use crate::harness::{Bench, TakeApart, bytes, new_job, plain, wish};

fn foreground(bench: &Bench, connection: u64, queue: &str, payload: &[u8]) -> Joined {
    let mut submit = plain(queue);
    submit.foreground = true;
    submit.origin = Origin::Gearman;
    let watcher = bench.caller(connection);
    bench.engine.jobs().submit_or_join(Some(&watcher), new_job(submit, payload)).value().unwrap()
}

/// Leases as Gearman does: bound to this connection.
fn grab(bench: &Bench, connection: u64, queue: &str) -> Option<LeasedJob> {
    let mut wish = wish(queue);
    (wish.holder, wish.bound, wish.door) = (connection, true, Origin::Gearman);
    match bench.engine.leases().take(&bench.caller(connection), wish, 0).value().unwrap() {
        LeaseReply::Leased(job) => Some(*job),
        _ => None,
    }
}

fn claim(job: &LeasedJob) -> Claim {
    Claim::Token { id: job.id, epoch: job.epoch, attempt: job.attempt }
}

fn progress(numerator: &'static str, denominator: &'static str) -> News {
    News::Progress {
        numerator: Bytes::from_static(numerator.as_bytes()),
        denominator: Bytes::from_static(denominator.as_bytes()),
        remaining_s: 0,
    }
}

fn data(bytes: &'static [u8]) -> News {
    News::Data(Bytes::from_static(bytes))
}

fn done(result: &'static [u8]) -> WorkResult {
    let result = bytes(result);
    WorkResult { success: true, retry: true, result, ..WorkResult::default() }
}

/// Tickets and news that were delivered; anything else fails the test.
fn news(bench: &Bench) -> Vec<(Ticket, News)> {
    let reported = |answer| match answer {
        Answer::Reported { news, .. } => news,
        other => panic!("expected news and got {other:?}"),
    };
    bench.answers().into_iter().map(|(ticket, answer)| (ticket, reported(answer))).collect()
}

/// The end of a watched job: status, whole result, and how much of it was reported before.
fn end(bench: &Bench) -> Vec<(Ticket, Status, Bytes, u32)> {
    let ended = |answer| match answer {
        Answer::Ended { image, streamed_bytes } => {
            let place = image.outcome.as_ref().and_then(|outcome| outcome.bytes.clone());
            let bytes = place.map(|place| bench.engine.jobs().bytes(&place).unwrap());
            (image.status(), bytes.unwrap_or_default(), streamed_bytes)
        }
        other => panic!("expected an end and got {other:?}"),
    };
    let ends = bench.answers().into_iter().map(|(ticket, answer)| (ticket, ended(answer)));
    ends.map(|(ticket, (status, bytes, streamed))| (ticket, status, bytes, streamed)).collect()
}

#[test]
fn every_watcher_hears_all_news_and_the_end_once() {
    let bench = Bench::new();
    let first = foreground(&bench, 1, "q", b"work");
    let second = bench.engine.waits().watch(&bench.caller(2), first.job).unwrap().unwrap();
    let first_ticket = first.watch.unwrap();
    let job = grab(&bench, 9, "q").unwrap();
    bench.engine.leases().report(claim(&job), progress("1", "10")).value().unwrap();
    bench
        .engine
        .leases()
        .report(claim(&job), News::Warning(Bytes::from_static(b"hot")))
        .value()
        .unwrap();
    let heard = news(&bench);
    assert_eq!(heard.len(), 4);
    assert_eq!(heard[0], (first_ticket, progress("1", "10")));
    assert_eq!(heard[1], (second, progress("1", "10")));
    bench.engine.leases().finish(claim(&job), done(b"result")).value().unwrap();
    let expected = |ticket| (ticket, Status::Done, Bytes::from_static(b"result"), 0);
    assert_eq!(end(&bench), [expected(first_ticket), expected(second)]);
    let late = bench.engine.leases().report(claim(&job), progress("2", "10")).value();
    assert!(matches!(late, Err(Refused::Rejected(Rejection::NotHeld))), "{late:?}");
    assert!(bench.answers().is_empty());
}

#[test]
fn only_the_live_lease_may_tell_something() {
    let bench = Bench::new();
    let joined = foreground(&bench, 1, "q", b"work");
    let job = grab(&bench, 9, "q").unwrap();
    for wrong in [
        Claim::Token { id: job.id, epoch: job.epoch, attempt: job.attempt + 1 },
        Claim::Token { id: job.id, epoch: job.epoch + 1, attempt: job.attempt },
        Claim::Token { id: JobId(999), epoch: job.epoch, attempt: 1 },
    ] {
        let refused = bench.engine.leases().report(wrong, progress("1", "2")).value();
        assert!(matches!(refused, Err(Refused::Rejected(..))), "{refused:?}");
    }
    assert!(bench.answers().is_empty());
    let progress = bench.engine.waits().progress(JobRef::Id(joined.job)).value().unwrap();
    assert_eq!((progress.status, &progress.numerator[..]), (Status::Leased, &b""[..]));
}

#[test]
fn progress_stands_until_the_lease_ends() {
    let bench = Bench::new();
    let joined = foreground(&bench, 1, "q", b"work");
    let job = grab(&bench, 9, "q").unwrap();
    bench.engine.leases().report(claim(&job), progress("3", "7")).value().unwrap();
    let progress = bench.engine.waits().progress(JobRef::Id(joined.job)).value().unwrap();
    assert_eq!((&progress.numerator[..], &progress.denominator[..]), (&b"3"[..], &b"7"[..]));
    assert_eq!(progress.waiting, 1);
    bench.engine.waits().connection_gone(ConnectionId(9), None);
    let progress = bench.engine.waits().progress(JobRef::Id(joined.job)).value().unwrap();
    assert_eq!((progress.status, &progress.numerator[..]), (Status::Ready, &b""[..]));
    let too_long = News::Progress {
        numerator: vec![b'1'; 65].into(),
        denominator: Bytes::new(),
        remaining_s: 0,
    };
    let job = grab(&bench, 9, "q").unwrap();
    assert!(bench.engine.leases().report(claim(&job), too_long).value().is_err());
}

#[test]
fn pieces_of_a_result_stand_before_its_end_for_those_who_read_it_later() {
    let bench = Bench::new();
    let id = bench.add("q", b"work");
    let watch = bench.engine.waits().watch(&bench.caller(1), id).unwrap().unwrap();
    let result =
        bench.engine.waits().for_result(&bench.caller(2), id, 1000, false).unwrap().unwrap();
    let job = grab(&bench, 9, "q").unwrap();
    bench.engine.leases().report(claim(&job), data(b"one ")).value().unwrap();
    bench.engine.leases().report(claim(&job), data(b"two ")).value().unwrap();
    assert_eq!(news(&bench), [(watch, data(b"one ")), (watch, data(b"two "))]);
    bench.engine.leases().finish_streamed(claim(&job), done(b"three")).value().unwrap();
    match &bench.answers()[..] {
        [(a, Answer::Ended { image, streamed_bytes: 8 }), (b, Answer::Finished(same))] => {
            assert_eq!((*a, *b, image.id), (watch, result, same.id));
        }
        other => panic!("expected the end of both waits and got {other:?}"),
    }
    assert_eq!(bench.result(id), "one two three");
    bench.check_fold();
}

#[test]
fn pieces_of_an_attempt_that_was_lost_are_not_in_the_result_of_the_next() {
    let bench = Bench::new();
    let id = bench.add("q", b"work");
    let job = grab(&bench, 9, "q").unwrap();
    bench.engine.leases().report(claim(&job), data(b"lost ")).value().unwrap();
    bench.engine.waits().connection_gone(ConnectionId(9), None);
    let job = grab(&bench, 8, "q").unwrap();
    bench.engine.leases().finish_streamed(claim(&job), done(b"whole")).value().unwrap();
    assert_eq!(bench.result(id), "whole");
}

#[test]
fn pieces_over_the_limit_are_told_but_not_kept() {
    let options = Options { payload_bytes_max: 10, ..Options::default() };
    let bench = Bench::on(std::sync::Arc::new(spindle_log::MemoryLog::new()), 1, options);
    let id = bench.add("q", b"work");
    bench.engine.waits().watch(&bench.caller(1), id).unwrap().unwrap();
    let job = grab(&bench, 9, "q").unwrap();
    for piece in [&b"12345678"[..], b"abc", b"9"] {
        bench
            .engine
            .leases()
            .report(claim(&job), News::Data(Bytes::from_static(piece)))
            .value()
            .unwrap();
    }
    assert_eq!(news(&bench).len(), 3);
    bench.engine.leases().finish_streamed(claim(&job), done(b"END")).value().unwrap();
    // What was left out stays out, also what would have had room behind it.
    assert_eq!(bench.result(id), "12345678EN");
}

#[test]
fn pieces_of_all_jobs_are_kept_up_to_their_limit_and_one_byte_more_is_told_only() {
    let bench = Bench::with(Options { streamed_bytes_max: 10, ..Options::default() });
    let begin = |connection, queue: &str| {
        let id = bench.add(queue, b"work");
        bench.engine.waits().watch(&bench.caller(1), id).unwrap().unwrap();
        (id, grab(&bench, connection, queue).unwrap())
    };
    let say = |job: &LeasedJob, piece| {
        bench.engine.leases().report(claim(job), data(piece)).value().unwrap();
    };
    let (first, one) = begin(8, "a");
    let (second, two) = begin(9, "b");
    say(&one, b"1234");
    say(&two, b"123456");
    say(&two, b"7");
    assert_eq!(news(&bench).len(), 3);
    bench.engine.leases().finish_streamed(claim(&two), done(b"END")).value().unwrap();
    assert_eq!(bench.result(second), "123456END");
    // What ended has made room.
    say(&one, b"567890");
    bench.engine.leases().finish_streamed(claim(&one), done(b"")).value().unwrap();
    assert_eq!(bench.result(first), "1234567890");
}

#[test]
fn a_watched_end_waits_for_its_record_and_a_foreground_one_for_nothing() {
    let bench = Bench::new();
    let id = bench.add("q", b"work");
    bench.engine.waits().watch(&bench.caller(1), id).unwrap().unwrap();
    foreground(&bench, 1, "f", b"work");
    bench.commit();
    for queue in ["q", "f"] {
        let job = grab(&bench, 9, queue).unwrap();
        bench.engine.leases().finish(claim(&job), done(b"r")).value().unwrap();
    }
    let gates = bench.gates();
    assert_eq!(gates.len(), 2);
    assert!(!bench.is_durable(gates[0]));
    assert_eq!(gates[1], Gate::OPEN);
    bench.commit();
    assert!(bench.is_durable(gates[0]));
}

#[test]
fn an_unstarted_foreground_job_goes_with_its_last_watcher_and_a_started_one_runs_on() {
    let bench = Bench::new();
    let unstarted = foreground(&bench, 1, "q", b"a").job;
    let second = bench.engine.waits().watch(&bench.caller(2), unstarted).unwrap().unwrap();
    bench.engine.waits().connection_gone(ConnectionId(1), None);
    assert_eq!(bench.status(unstarted), Some(Status::Ready));
    bench.engine.waits().cancel(&bench.caller(2), second);
    assert_eq!(bench.status(unstarted), None);

    let started = foreground(&bench, 3, "q", b"b").job;
    let job = grab(&bench, 9, "q").unwrap();
    bench.engine.waits().connection_gone(ConnectionId(3), None);
    assert_eq!(bench.status(started), Some(Status::Leased));
    bench.engine.leases().report(claim(&job), progress("1", "2")).value().unwrap();
    let (lines, next) = bench.engine.jobs().lines(JobId(0));
    assert_eq!((lines.len(), lines[0].abandoned, next), (1, true, None));
    // Not given out again.
    bench.engine.waits().connection_gone(ConnectionId(9), None);
    assert_eq!(bench.status(started), None);
    assert!(bench.answers().is_empty());
}

#[test]
fn somebody_who_comes_back_to_a_running_job_keeps_it_alive() {
    let bench = Bench::new();
    let started = foreground(&bench, 3, "q", b"b").job;
    grab(&bench, 9, "q").unwrap();
    bench.engine.waits().connection_gone(ConnectionId(3), None);
    bench.engine.waits().watch(&bench.caller(4), started).unwrap().unwrap();
    bench.engine.waits().connection_gone(ConnectionId(9), None);
    assert_eq!(bench.status(started), Some(Status::Ready));
}

#[test]
fn watchers_hear_that_a_job_was_deleted_or_cancelled() {
    let bench = Bench::new();
    let (deleted, cancelled) = (bench.add("q", b"a"), bench.add("q", b"b"));
    for id in [deleted, cancelled] {
        bench.engine.waits().watch(&bench.caller(1), id).unwrap().unwrap();
    }
    bench.execute(Command::Delete { id: deleted, cause: Cause::Deleted });
    bench.execute(Command::Cancel { id: cancelled });
    match &bench.answers()[..] {
        [(_, Answer::Gone(gone)), (_, Answer::Ended { image, .. })] => {
            assert_eq!((*gone, image.status()), (deleted, Status::Dead));
            assert_eq!(image.outcome.as_ref().unwrap().code, "cancelled");
        }
        other => panic!("expected two ends and got {other:?}"),
    }
    assert!(bench.engine.waits().watch(&bench.caller(1), cancelled).unwrap().is_none());
}
