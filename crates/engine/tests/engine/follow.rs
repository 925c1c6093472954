//! Following a job: its progress and output, and when it is to be looked at again.

#![expect(clippy::unwrap_used, reason = "only tests use this")]

use bytes::Bytes;
use spindle_core::command::{Claim, Command, Submit};
use spindle_core::{JobId, Rejection, Status};
use spindle_engine::{
    Activity, Answer, ConnectionId, LeasedJob, News, OUTPUT_PIECE_BYTES_MAX, Options, OutputFrom,
    Refused, Ticket,
};

use crate::harness::{Bench, TakeApart, plain};

fn claim(job: &LeasedJob) -> Claim {
    Claim::Token { id: job.id, epoch: job.epoch, attempt: job.attempt }
}

fn write(bench: &Bench, claim: Claim, text: &str) -> Result<(), Refused> {
    bench.engine.leases().write(claim, Bytes::copy_from_slice(text.as_bytes())).value()
}

fn activity(bench: &Bench, job: JobId, from: u64) -> Activity {
    bench.engine.jobs().activity(job, OutputFrom::Offset(from)).value().unwrap()
}

fn texts(activity: &Activity) -> Vec<(u32, &str)> {
    let pieces = activity.output.pieces.iter();
    pieces.map(|piece| (piece.attempt, str::from_utf8(&piece.bytes).unwrap())).collect()
}

fn follow(bench: &Bench, job: JobId) -> Ticket {
    bench.engine.waits().for_change(&bench.caller(5), job).unwrap()
}

/// Whether those who follow this job were called, and nobody else.
fn are_called(bench: &Bench, job: JobId, tickets: &[Ticket]) -> bool {
    let answers = bench.answers();
    let called: Vec<_> = answers.iter().map(|(ticket, _)| *ticket).collect();
    called == tickets
        && answers.iter().all(|(_, answer)| matches!(answer, Answer::Changed(id) if *id == job))
}

#[test]
fn output_stays_over_attempts_and_the_end_and_goes_with_the_job() {
    let bench = Bench::new();
    let id = bench.submit(Submit { fails_max: Some(3), ..plain("q") }, b"work");
    let first = bench.lease("q").unwrap();
    write(&bench, claim(&first), "one").unwrap();
    bench.fail(id, "broken").unwrap();
    bench.pass(3_600_000);
    bench.lease("q").unwrap();
    write(&bench, Claim::Unfinished { id }, "two").unwrap();
    let seen = activity(&bench, id, 0);
    assert_eq!((seen.status, texts(&seen)), (Status::Leased, vec![(1, "one"), (2, "two")]));
    assert_eq!(texts(&activity(&bench, id, 3)), [(2, "two")]);
    bench.finish(id, true, b"").unwrap();
    let ended = activity(&bench, id, 0);
    assert_eq!((ended.status, ended.output.next), (Status::Done, 6));
    bench.delete(id);
    assert_eq!(bench.engine.jobs().activity(id, OutputFrom::Offset(0)).value(), None);
}

#[test]
fn only_who_has_the_job_may_write_and_only_so_much_at_once() {
    let bench = Bench::new();
    let id = bench.add("q", b"work");
    let refused = |claim, text: &str| match write(&bench, claim, text) {
        Err(Refused::Rejected(rejection)) => rejection,
        other => panic!("expected a refusal and got {other:?}"),
    };
    assert_eq!(refused(Claim::Unfinished { id }, "early"), Rejection::NotHeld);
    let job = bench.lease("q").unwrap();
    let wrong = Claim::Token { id, epoch: job.epoch, attempt: job.attempt + 1 };
    assert_eq!(refused(wrong, "wrong"), Rejection::NotHeld);
    let most = "x".repeat(OUTPUT_PIECE_BYTES_MAX);
    assert_eq!(refused(claim(&job), &format!("{most}x")), Rejection::OutOfRange("output"));
    write(&bench, claim(&job), &most).unwrap();
    write(&bench, claim(&job), "").unwrap();
    assert_eq!(activity(&bench, id, 0).output.next, most.len() as u64);
    bench.execute(Command::Cancel { id });
    assert_eq!(refused(claim(&job), "late"), Rejection::NotHeld);
}

#[test]
fn warnings_are_output_and_too_long_ones_are_cut() {
    let bench = Bench::new();
    let id = bench.add("q", b"work");
    let job = bench.lease("q").unwrap();
    let warning = Bytes::from(vec![b'w'; OUTPUT_PIECE_BYTES_MAX + 1]);
    bench.engine.leases().report(claim(&job), News::Warning(warning)).value().unwrap();
    assert_eq!(activity(&bench, id, 0).output.next, OUTPUT_PIECE_BYTES_MAX as u64);
}

#[test]
fn who_follows_is_called_for_all_that_changes_and_keeps_no_job_alive() {
    let bench = Bench::new();
    let (id, other) = (bench.add("q", b"work"), bench.add("other", b""));
    let ticket = follow(&bench, id);
    bench.lease("other").unwrap();
    assert!(are_called(&bench, id, &[]), "another job was leased");
    let job = bench.lease("q").unwrap();
    assert!(are_called(&bench, id, &[ticket]), "it was leased");
    write(&bench, claim(&job), "text").unwrap();
    assert!(are_called(&bench, id, &[]), "it is called once");
    let tickets = [follow(&bench, id), follow(&bench, id)];
    write(&bench, claim(&job), "text").unwrap();
    assert!(are_called(&bench, id, &tickets));
    let ticket = follow(&bench, id);
    let (numerator, denominator) = (Bytes::from_static(b"1"), Bytes::from_static(b"2"));
    let news = News::Progress { numerator, denominator, remaining_s: 0 };
    bench.engine.leases().report(claim(&job), news).value().unwrap();
    assert!(are_called(&bench, id, &[ticket]));
    let ticket = follow(&bench, id);
    bench.fail(id, "broken").unwrap();
    assert!(are_called(&bench, id, &[ticket]));
    assert_eq!(activity(&bench, id, 0).progress, None);
    let ticket = follow(&bench, id);
    bench.delete(id);
    assert!(are_called(&bench, id, &[ticket]));
    let ticket = follow(&bench, other);
    bench.engine.waits().connection_gone(ConnectionId(5), Some(ticket));
    bench.execute(Command::Cancel { id: other });
    assert!(bench.answers().is_empty(), "it has gone");
}

#[test]
fn the_output_of_all_jobs_is_bounded() {
    let bench = Bench::with(Options { output_bytes_max: 1000, ..Options::default() });
    let ids: Vec<_> = (0..3).map(|_| bench.submit(plain("q"), b"")).collect();
    for id in &ids {
        bench.lease("q").unwrap();
        write(&bench, Claim::Unfinished { id: *id }, &"x".repeat(400)).unwrap();
    }
    let kept = ids.iter().map(|id| !activity(&bench, *id, 0).output.pieces.is_empty());
    assert_eq!(kept.collect::<Vec<_>>(), [false, true, true]);
}
