//! Finish, release, holders that go, cancel, damaged payloads.

use bytes::Bytes;
use spindle_core::command::Claim;
use spindle_core::job::{Cause, Origin};
use spindle_core::{Command, Event, JobId, Rejection, Status};

use crate::harness::{START_MS, Server, complete, fail, finish, lease_with, submit, submit_by};

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
        job.ttr_ms = Some(10);
    }));
    let (_, claim) = server.lease("mail").expect("ready");
    server.given(finish(claim, |finish| {
        finish.success = false;
        finish.message = Bytes::from_static(b"no paper");
    }));
    server.lease("mail").expect("a second try");
    assert_eq!(server.pass(10), ["Finished"]);
    let image = server.finished(1);
    assert_eq!((image.status(), image.attempts), (Status::Dead, 2));
    assert_eq!(image.outcome.expect("kept").message, "no paper");
}

#[test]
fn a_given_back_job_keeps_its_place_but_a_lost_one_of_gearman_goes_to_the_tail() {
    for (door, first) in [(Origin::Api, 1), (Origin::Gearman, 2)] {
        let mut server = Server::new();
        server.given(submit(1, "mail", |_| {}));
        server.given(submit(2, "mail", |_| {}));
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
    assert_eq!(server.finished(1).outcome.expect("told").code, "cancelled");
    let refused = server.refused(complete(claim));
    assert!(matches!(refused, Rejection::NotHeld | Rejection::Finished));
    assert_eq!(server.refused(Command::Cancel { id: JobId(1) }), Rejection::Finished);
}

#[test]
fn a_damaged_payload_makes_its_job_dead() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    assert_eq!(server.then(Command::PayloadDamaged { id: JobId(1) }), ["Finished"]);
    assert_eq!(server.finished(1).outcome.expect("told").code, "payload damaged");
}

#[test]
fn many_leases_of_a_holder_end_by_number_whatever_their_places_in_memory() {
    let mut server = Server::new();
    for id in 1..=6 {
        server.given(submit(id, "mail", |_| {}));
    }
    // Places of jobs that went are given to the next ones: 7 lies where 2 lay, before 3.
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
