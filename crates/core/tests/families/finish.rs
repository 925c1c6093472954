//! Finish, release, holders that go, cancel, damaged payloads.

use bytes::Bytes;
use spindle_core::command::{Claim, Compact, Finish};
use spindle_core::job::{Attempt, Backoff, Cause, Origin, Outcome, Words};
use spindle_core::queue::QueueSettings;
use spindle_core::{
    BytesRef, Command, Defaults, Event, JobId, Limit, Policy, Rejection, Source, Status, Type,
};

use crate::harness::{START_MS, Server, complete, fail, finish, lease_with, submit, submit_by};

const HOUR_MS: u64 = 3_600_000;

#[test]
fn a_completed_job_keeps_its_result_as_long_as_asked() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |job| job.keep_ms = Some(100)));
    let (_, claim) = server.lease("mail").expect("ready");
    assert_eq!(server.then(complete(claim)), ["Finished"]);
    assert_eq!(server.status(1), Some(Status::Done));
    assert_eq!(server.pass(99), [""; 0]);
    assert_eq!(server.pass(1), ["Gone"]);
    assert_eq!(server.status(1), None);
}

#[test]
fn retention_never_passes_the_ttl() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |job| job.ttl_ms = Some(50)));
    let claim = Claim::Unfinished { id: JobId(1) };
    server.given(Command::Cancel { id: claim.id() });
    assert_eq!(server.finished(1).kept_until_ms, Some(START_MS + 50));
    assert_eq!(server.pass(50), ["Gone"]);
}

#[test]
fn a_workq_failure_is_final_unless_more_were_asked_for() {
    let mut server = Server::new();
    let claim = |id| Claim::Unfinished { id: JobId(id) };
    server.given(submit_by(Origin::Workq, 1, "mail", |_| {}));
    assert_eq!(server.then(fail(claim(1))), ["Finished"]);
    assert_eq!(server.status(1), Some(Status::Dead));
    server.given(submit_by(Origin::Workq, 2, "mail", |job| job.fails_max = Some(2)));
    assert_eq!(server.then(fail(claim(2))), ["Requeued"]);
    assert_eq!((server.status(2), server.image(2).fails), (Some(Status::Ready), 1));
    assert_eq!(server.then(fail(claim(2))), ["Finished"]);
    assert_eq!(server.finished(2).fails, 2);
    assert_eq!(server.refused(complete(claim(2))), Rejection::Finished);
    assert_eq!(server.refused(complete(claim(3))), Rejection::NotFound);
}

#[test]
fn told_not_to_retry_kills_whatever_tries_are_left() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |job| job.fails_max = Some(9)));
    let (_, claim) = server.lease("mail").expect("ready");
    server.given(finish(claim, |finish| {
        finish.success = false;
        finish.retry = false;
    }));
    assert_eq!(server.status(1), Some(Status::Dead));
}

#[test]
fn the_last_attempt_that_ends_without_a_word_leaves_the_job_dead_with_its_last_result() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |job| {
        job.attempts_max = Some(2);
        job.fails_max = Some(9);
        job.backoff = Some(Backoff::NONE);
        job.ttr_ms = Some(10);
    }));
    let (_, claim) = server.lease("mail").expect("ready");
    let result = BytesRef::logged(server.position, 9, 4, Type::Bytes);
    server.given(finish(claim, |finish| {
        finish.success = false;
        finish.result = Some(result.clone());
        finish.message = Bytes::from_static(b"no paper");
        finish.error = Bytes::from_static(b"tray 2");
        finish.code = Bytes::from_static(b"E7");
    }));
    server.lease("mail").expect("a second try");
    assert_eq!(server.pass(10), ["Finished"]);
    let image = server.finished(1);
    assert_eq!((image.status(), image.attempts), (Status::Dead, 2));
    let outcome = image.outcome.expect("kept");
    assert_eq!((outcome.bytes, &outcome.error[..]), (Some(result), &b"tray 2"[..]));
    assert_eq!(outcome.code, "timeout", "why it is dead, not why it was tried again");
    assert_eq!(outcome.message, "2 of 2 attempts: the last one timed out");
}

/// How a job ends when every attempt ends without a report from its worker.
fn worn_out(attempts_max: Option<u32>, lose: impl Fn(&mut Server, Claim)) -> (u32, Outcome) {
    let mut server = Server::new();
    server.given(submit(1, "mail", |job| {
        job.attempts_max = attempts_max;
        job.ttr_ms = Some(10);
    }));
    while server.status(1) != Some(Status::Dead) {
        server.pass(HOUR_MS);
        let (_, claim) = server.lease("mail").expect("it has attempts left");
        lose(&mut server, claim);
    }
    let image = server.finished(1);
    (image.attempts, *image.outcome.expect("the server says why"))
}

#[test]
fn a_job_that_ends_its_worker_each_time_is_dead_and_says_so() {
    let (attempts, outcome) = worn_out(None, |server, _| drop(server.pass(10)));
    assert_eq!((attempts, &outcome.code[..]), (25, &b"timeout"[..]));
    assert_eq!(outcome.message, "25 of 25 attempts: the last one timed out");
    let (attempts, outcome) = worn_out(Some(3), |server, claim| {
        server.given(Command::Release { claim, cause: Cause::HolderGone });
    });
    assert_eq!((attempts, &outcome.code[..]), (3, &b"worker_lost"[..]));
    assert_eq!(outcome.message, "3 of 3 attempts: the last worker was lost");
    let (_, outcome) = worn_out(Some(1), |server, claim| {
        server.given(Command::Release { claim, cause: Cause::Released });
    });
    assert_eq!(outcome.code, "released");
    assert_eq!(outcome.message, "1 of 1 attempts: the last worker gave the job back");
}

#[test]
fn a_job_of_the_api_has_five_tries_and_waits_longer_after_each() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    let mut waits = Vec::new();
    loop {
        let (_, claim) = server.lease("mail").expect("ready");
        server.given(fail(claim));
        if server.status(1) == Some(Status::Dead) {
            break;
        }
        let run_at_ms = server.image(1).options().run_at_ms.expect("it waits");
        waits.push(run_at_ms - server.now_ms);
        server.pass(waits[waits.len() - 1]);
    }
    assert_eq!(server.finished(1).fails, 5);
    // Up to a fifth is taken off, so that jobs that failed together do not come back together.
    for (wait, most) in waits.iter().zip([5_000, 15_000, 45_000, 135_000]) {
        assert!((most * 4 / 5..=most).contains(wait), "{wait} of {most}");
    }
    assert_eq!(waits.len(), 4);
}

#[test]
fn what_a_job_or_its_queue_says_of_tries_goes_before_the_default() {
    let mut server = Server::new();
    let one_second =
        Backoff { base_ms: 1_000, factor_thousandths: 1_000, cap_ms: 1_000, jitter_thousandths: 0 };
    let settings =
        QueueSettings { fails_max: Some(2), backoff: Some(one_second), ..QueueSettings::default() };
    server.given(Command::SetQueue { name: Bytes::from_static(b"mail"), settings });
    server.given(submit(1, "mail", |job| {
        job.attempts_max = Some(0);
        job.backoff = Some(Backoff::NONE);
    }));
    let tries = server.state.tries_of(&server.image(1));
    assert_eq!(tries.attempts_max, Limit { value: 0, from: Source::Job });
    assert_eq!(tries.fails_max, Limit { value: 2, from: Source::Queue });
    assert_eq!(tries.backoff, Limit { value: Backoff::NONE, from: Source::Job });
    server.given(submit(2, "bill", |job| job.fails_max = Some(0)));
    for _ in 0..40 {
        let (_, claim) = server.lease("bill").expect("no limit of fails");
        server.given(fail(claim));
        if server.image(2).attempts == 24 {
            break;
        }
        server.pass(HOUR_MS);
    }
    let tries = server.state.tries_of(&server.image(2));
    assert_eq!(tries.attempts_max, Limit { value: 25, from: Source::Door });
    assert_eq!(server.status(2), Some(Status::Scheduled), "24 failures, and no limit of them");
}

#[test]
fn a_job_has_the_tries_that_its_door_declares() {
    let policy = Policy { attempts_max: 7, fails_max: 3, ..Policy::ONCE };
    let policies = [(Origin::Workq, policy)].into_iter().collect();
    for (door, expected) in [(Origin::Workq, policy), (Origin::Jobq, Policy::RETRIED)] {
        let mut server = Server::with(Defaults { policies, ..Defaults::default() });
        server.given(submit_by(door, 1, "mail", |_| {}));
        let tries = server.state.tries_of(&server.image(1));
        let from = Source::Door;
        assert_eq!(tries.attempts_max, Limit { value: expected.attempts_max, from }, "{door:?}");
        assert_eq!(tries.fails_max, Limit { value: expected.fails_max, from }, "{door:?}");
        assert_eq!(tries.backoff, Limit { value: expected.backoff, from }, "{door:?}");
    }
}

#[test]
fn a_lost_job_keeps_its_place_unless_its_workers_door_sends_it_to_the_tail() {
    for (door, first) in [(Origin::Api, 1), (Origin::Gearman, 2)] {
        let mut server = Server::new();
        server.given(submit_by(Origin::Workq, 1, "mail", |_| {}));
        server.given(submit_by(Origin::Workq, 2, "mail", |_| {}));
        server.given(lease_with(&["mail"], |lease| {
            lease.door = door;
            lease.bound = true;
            lease.holder = 7;
        }));
        assert_eq!(server.then(Command::HolderGone { holder: 7 }), ["Requeued"]);
        assert_eq!(server.lease("mail").map(|(id, _)| id), Some(first), "{door:?}");
    }
}

#[test]
fn an_undone_lease_never_happened() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |job| job.attempts_max = Some(1)));
    let (_, claim) = server.lease("mail").expect("ready");
    server.given(Command::Release { claim, cause: Cause::Undone });
    let image = server.image(1);
    assert_eq!((image.status(), image.attempts), (Status::Ready, 0));
    assert!(image.history.is_empty());
}

#[test]
fn a_holder_with_many_leases_loses_them_in_bounded_steps() {
    let mut server = Server::new();
    for id in 1..=600 {
        server.given(submit(id, "mail", |_| {}));
        server.given(lease_with(&["mail"], |lease| {
            lease.bound = id % 2 == 0;
            lease.holder = 3;
        }));
    }
    let steps: Vec<usize> =
        (0..3).map(|_| server.then(Command::HolderGone { holder: 3 }).len()).collect();
    assert_eq!(steps, [256, 44, 0]);
    assert_eq!(server.status(1), Some(Status::Leased), "an unbound lease stays");
}

#[test]
fn a_cancelled_job_is_dead_with_that_code_even_while_leased() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    let (_, claim) = server.lease("mail").expect("ready");
    assert_eq!(server.then(Command::Cancel { id: JobId(1) }), ["Finished"]);
    assert_eq!(server.finished(1).outcome.expect("it has one").code, "cancelled");
    let refused = server.refused(complete(claim));
    assert!(matches!(refused, Rejection::NotHeld | Rejection::Finished));
    assert_eq!(server.refused(Command::Cancel { id: JobId(1) }), Rejection::Finished);
}

#[test]
fn a_damaged_payload_makes_its_job_dead() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    assert_eq!(server.then(Command::PayloadDamaged { id: JobId(1) }), ["Finished"]);
    assert_eq!(server.finished(1).outcome.expect("it has one").code, "payload damaged");
}

#[test]
fn many_leases_of_a_holder_end_by_number_whatever_their_places_in_memory() {
    let mut server = Server::new();
    for id in 1..=6 {
        server.given(submit(id, "mail", |_| {}));
    }
    // The slots of deleted jobs are given to the next ones: 7 lies where 2 lay, before 3.
    server.given(Command::Delete { id: JobId(2), cause: Cause::Deleted });
    server.given(submit(7, "mail", |_| {}));
    while server
        .when(lease_with(&["mail"], |lease| {
            lease.bound = true;
            lease.door = Origin::Gearman;
            lease.holder = 9;
        }))
        .is_ok()
    {}
    let ids = |events: Vec<Event>| {
        events
            .iter()
            .filter_map(|event| match event {
                Event::Requeued(requeued) => Some(requeued.id),
                _ => None,
            })
            .collect::<Vec<_>>()
    };
    let live = ids(server.given(Command::HolderGone { holder: 9 }));
    assert_eq!(live, [1, 3, 4, 5, 6, 7]);
}

#[test]
fn a_failed_try_does_not_bring_forward_the_time_a_job_may_run() {
    let mut server = Server::new();
    server.given(submit_by(Origin::Workq, 1, "mail", |job| {
        job.run_at_ms = Some(START_MS + 1_000);
        job.fails_max = Some(3);
    }));
    server.given(fail(Claim::Unfinished { id: JobId(1) }));
    assert_eq!(server.status(1), Some(Status::Scheduled));
    assert_eq!(server.lease("mail"), None);
}

/// The words of a failed attempt, as they are remembered.
fn remembered(door: Origin, say: impl FnOnce(&mut Finish)) -> Option<Words> {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    server.given(lease_with(&["mail"], |lease| lease.door = door));
    let lease = server.image(1).lease.expect("it is leased");
    let claim = Claim::Token { id: JobId(1), epoch: lease.epoch, attempt: 1 };
    server.given(finish(claim, |finish| {
        finish.success = false;
        say(finish);
    }));
    assert_eq!(server.folded(0).image(JobId(1)), Some(server.image(1)), "the fold remembers it");
    server.image(1).history[0].words.as_deref().cloned()
}

#[test]
fn a_failed_attempt_is_remembered_with_the_beginning_of_what_its_worker_said() {
    let words = |len: usize| {
        let x = |len: usize| Bytes::from(vec![b'x'; len]);
        remembered(Origin::Api, |finish| {
            (finish.message, finish.error, finish.code) = (x(len), x(len), x(len));
        })
    };
    assert_eq!(words(0), None);
    for (said, message, code) in [(1, 1, 1), (64, 64, 64), (65, 65, 64), (256, 256, 64)] {
        let words = words(said).expect("something was said");
        let lens = (words.message.len(), words.error.len(), words.code.len());
        assert_eq!(lens, (message, message, code));
    }
    let words = words(257).expect("something was said");
    assert_eq!((words.message.len(), words.error.len(), words.code.len()), (256, 256, 64));
    let words = remembered(Origin::Api, |finish| {
        finish.message = Bytes::from(format!("x{}", "\u{e9}".repeat(200)));
    });
    assert_eq!(words.expect("said").message.len(), 255, "no letter is cut in two");
}

#[test]
fn an_error_that_is_no_text_is_remembered_whole_or_not_at_all() {
    for (len, kept) in [(256, 256), (257, 0)] {
        let words = remembered(Origin::Lightjq, |finish| {
            finish.code = Bytes::from_static(b"E");
            finish.error = Bytes::from(vec![0xc0; len]);
        });
        assert_eq!(words.expect("said").error.len(), kept);
    }
}

#[test]
fn attempts_that_end_without_a_word_have_none() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |job| job.ttr_ms = Some(10)));
    let fail = |claim| {
        finish(claim, |finish| {
            finish.success = false;
            finish.message = Bytes::from_static(b"no paper");
        })
    };
    let (_, claim) = server.lease("mail").expect("ready");
    server.given(fail(claim));
    server.pass(HOUR_MS);
    server.lease("mail").expect("ready again");
    server.pass(10);
    server.pass(HOUR_MS);
    let (_, claim) = server.lease("mail").expect("ready again");
    server.given(finish(claim, |finish| finish.message = Bytes::from_static(b"well")));
    let history = server.finished(1).history;
    let words: Vec<bool> = history.iter().map(|attempt| attempt.words.is_some()).collect();
    let causes: Vec<Cause> = history.iter().map(Attempt::cause).collect();
    assert_eq!(causes, [Cause::Failed, Cause::Timeout, Cause::Completed]);
    assert_eq!(words, [true, false, false]);
}

#[test]
fn a_job_with_many_attempts_remembers_a_bounded_part_of_what_was_said() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |job| {
        (job.attempts_max, job.fails_max) = (Some(0), Some(0));
        job.backoff = Some(Backoff::NONE);
    }));
    for attempt in 1..=40 {
        let (_, claim) = server.lease("mail").expect("ready");
        server.given(finish(claim, |finish| {
            finish.success = false;
            finish.message = Bytes::from(format!("{attempt:4096}"));
            finish.error = Bytes::from(format!("{attempt:4096}"));
            finish.code = Bytes::from(format!("{attempt:64}"));
        }));
    }
    let image = server.image(1);
    let attempts: Vec<u32> = image.history.iter().map(|attempt| attempt.attempt).collect();
    assert_eq!(attempts, (1..=16).chain(25..=40).collect::<Vec<u32>>());
    let bytes = prost::Message::encoded_len(&image);
    assert!(bytes <= 32 * (256 + 256 + 64 + 64) + 2 * 4096 + 256, "{bytes} bytes");
    // Compaction does not change it.
    let compaction =
        Compact::Job { id: JobId(1), revision: image.revision, payload: None, result: None };
    let first = server.position;
    server.given(Command::Compact(compaction));
    assert_eq!(
        server.folded(first).image(JobId(1)).map(|image| image.history),
        Some(image.history)
    );
}
