//! Jobs that wait for others.

use spindle_core::command::{Claim, Edit};
use spindle_core::job::{AFTER_MAX, Cause, OnDead, Origin};
use spindle_core::{Command, EVENTS_MAX, Event, JobId, Rejection, Status};

use crate::harness::{
    START_MS, Server, after, complete, dead, delete, done, fail, retry, submit, submit_by,
};

const ALL: [OnDead; 3] = OnDead::ALL;

/// Jobs 1 and 2 in `mail`, and 3 in `bill`, which waits for both.
fn with_three(on_dead: OnDead) -> Server {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    server.given(submit(2, "mail", |_| {}));
    server.given(submit(3, "bill", after(&[2, 1, 2], on_dead)));
    server
}

fn parked(id: u64, parked: bool) -> Command {
    let id = JobId(id);
    Command::Edit(Box::new(Edit { id, parked: Some(parked), ..Edit::default() }))
}

fn open(server: &Server, id: u64) -> Vec<u64> {
    server.image(id).options().open().to_vec()
}

/// The code and the message of a job's end.
fn end(server: &Server, id: u64) -> (String, String) {
    let outcome = server.finished(id).outcome.expect("it has an outcome");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (text(&outcome.code), text(&outcome.message))
}

#[test]
fn a_job_waits_until_all_those_before_it_are_done() {
    let mut server = with_three(OnDead::Cancel);
    assert_eq!((server.status(3), open(&server, 3)), (Some(Status::Blocked), vec![1, 2]));
    assert_eq!(server.lease("bill"), None);
    server.assert_folds();
    server.given(done(2));
    assert_eq!(server.pass(1), ["BlockerEnded"]);
    assert_eq!((server.status(3), open(&server, 3)), (Some(Status::Blocked), vec![1]));
    server.assert_folds();
    server.given(done(1));
    assert_eq!(server.pass(1), ["BlockerEnded"]);
    assert_eq!(server.status(3), Some(Status::Ready));
    server.assert_folds();
    let after = *server.image(3).options().after.clone().expect("it still says so");
    assert_eq!((after.jobs, after.open), (vec![1, 2], vec![]));
    let (leased, claim) = server.lease("bill").expect("it is ready");
    assert_eq!(leased, 3);
    server.given(complete(claim));
    assert!(server.finished(3).options().after.is_some());
}

#[test]
fn a_job_after_ones_that_are_done_is_ready_at_once() {
    let mut server = with_three(OnDead::Cancel);
    for id in [1, 2, 3] {
        server.given(done(id));
    }
    server.given(submit(4, "bill", after(&[1, 3], OnDead::Cancel)));
    assert_eq!((server.status(4), open(&server, 4)), (Some(Status::Ready), vec![]));
    assert_eq!(server.tick(), []);
}

#[test]
fn a_dead_one_cancels_or_lets_run_or_is_waited_for_as_asked() {
    for on_dead in ALL {
        let mut server = with_three(on_dead);
        server.given(done(1));
        server.given(dead(2));
        server.tick();
        match on_dead {
            OnDead::Cancel => {
                assert_eq!(server.status(3), Some(Status::Dead));
                let why = "job 2, which it waited for, is dead";
                assert_eq!(end(&server, 3), ("after_dead".into(), why.into()));
                assert!(server.finished(3).is_cancelled());
            }
            OnDead::Run => assert_eq!(server.status(3), Some(Status::Ready)),
            OnDead::Wait => {
                assert_eq!((server.status(3), open(&server, 3)), (Some(Status::Blocked), vec![2]));
                server.assert_folds();
                server.given(retry(&server, 2));
                server.given(done(2));
                server.tick();
                assert_eq!(server.status(3), Some(Status::Ready));
            }
        }
        server.assert_folds();
    }
}

#[test]
fn one_that_is_gone_cancels_unless_its_end_is_enough() {
    for on_dead in ALL {
        for died_before in [false, true] {
            let mut server = with_three(on_dead);
            if died_before && on_dead == OnDead::Wait {
                server.given(dead(2));
            }
            server.given(delete(2));
            server.tick();
            if on_dead == OnDead::Run {
                assert_eq!((server.status(3), open(&server, 3)), (Some(Status::Blocked), vec![1]));
                server.given(delete(1));
                server.tick();
                assert_eq!(server.status(3), Some(Status::Ready));
            } else {
                let why = "job 2, which it waited for, is gone";
                assert_eq!(end(&server, 3), ("after_gone".into(), why.into()));
            }
            server.assert_folds();
        }
    }
}

#[test]
fn one_that_expires_is_gone_and_one_that_was_done_before_is_not() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |submit| submit.ttl_ms = Some(1_000)));
    server.given(submit(2, "bill", after(&[1], OnDead::Cancel)));
    assert_eq!(server.pass(1_000), ["Gone", "Finished"]);
    assert_eq!(end(&server, 2).0, "after_gone");

    server.given(submit(3, "mail", |submit| submit.keep_ms = Some(0)));
    server.given(submit(4, "bill", after(&[3], OnDead::Cancel)));
    server.given(done(3));
    assert_eq!(server.pass(0), ["BlockerEnded", "Gone"], "it is not kept");
    assert_eq!(server.status(4), Some(Status::Ready));
}

#[test]
fn a_done_one_that_is_gone_before_anybody_was_told_counts_as_done() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    server.given(submit(2, "bill", after(&[1], OnDead::Cancel)));
    server.given(done(1));
    // On a full disk due events may have to wait, while people still delete jobs.
    let gone = spindle_core::event::Gone { ids: vec![1], cause: Cause::Deleted as i32 };
    let place = spindle_core::Place { position: server.position, offset: 0 };
    server.state.evolve(&Event::Gone(gone), place);
    server.tick();
    assert_eq!(server.status(2), Some(Status::Ready));
}

#[test]
fn a_cancelled_job_cancels_those_behind_it_one_step_after_the_other() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    for id in 2..300 {
        server.given(submit(id, "mail", after(&[id - 1], OnDead::Cancel)));
    }
    server.given(submit(300, "mail", after(&[299], OnDead::Run)));
    server.given(Command::Cancel { id: JobId(1) });
    server.tick();
    assert!((1..300).all(|id| server.status(id) == Some(Status::Dead)));
    assert_eq!(end(&server, 299).1, "job 298, which it waited for, is dead");
    assert_eq!(server.status(300), Some(Status::Ready));
    server.assert_folds();
}

#[test]
fn many_that_wait_for_one_are_told_in_bounded_steps_and_a_crash_forgets_none() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    let last = 3 * EVENTS_MAX as u64;
    for id in 2..=last {
        server.given(submit(id, "bill", after(&[1], OnDead::Cancel)));
    }
    let waiting: Vec<u64> = server.state.waiting_for(JobId(1), JobId(5)).map(|id| id.0).collect();
    assert_eq!(waiting, Vec::from_iter(6..=last));
    server.given(done(1));
    assert_eq!(server.state.next_deadline(false), Some(0));
    server.restart();
    assert_eq!(server.state.next_deadline(false), Some(0));
    server.tick();
    assert!((2..=last).all(|id| server.status(id) == Some(Status::Ready)));
    assert_eq!(server.state.waiting_for(JobId(1), JobId(0)).count(), 0);
}

#[test]
fn what_nobody_can_wait_for_is_refused() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    server.given(submit(2, "mail", |_| {}));
    server.given(Command::DeleteLater { id: JobId(2), request: 7, undo_ms: 1_000 });
    server.given(submit_by(Origin::Gearman, 3, "mail", |submit| submit.foreground = true));
    for id in [0, 2, 3, 9] {
        let refused = server.refused(submit(10, "bill", after(&[1, id], OnDead::Run)));
        assert_eq!(refused, Rejection::NoBlocker(JobId(id)), "{id}");
    }
    let too_many: Vec<u64> = (100..=100 + AFTER_MAX as u64).collect();
    for id in &too_many {
        server.given(submit(*id, "mail", |_| {}));
    }
    let refused = server.refused(submit(10, "bill", after(&too_many, OnDead::Run)));
    assert_eq!(refused, Rejection::OutOfRange("after"));
    server.given(submit(10, "bill", after(&too_many[1..], OnDead::Run)));
    let refused = server.refused(submit_by(Origin::Gearman, 11, "mail", |submit| {
        submit.foreground = true;
        submit.after = vec![JobId(1)];
    }));
    assert_eq!(refused, Rejection::OutOfRange("after"));
}

#[test]
fn a_job_after_a_dead_one_is_cancelled_at_once_or_waits_or_runs() {
    let status = |on_dead: OnDead| {
        let mut server = Server::new();
        server.given(submit(1, "mail", |_| {}));
        server.given(dead(1));
        server.given(submit(2, "bill", after(&[1], on_dead)));
        server.tick();
        server.assert_folds();
        server.status(2)
    };
    assert_eq!(ALL.map(status), [Status::Dead, Status::Ready, Status::Blocked].map(Some));
}

#[test]
fn a_blocked_job_with_a_later_time_is_scheduled_then_and_its_ttl_runs() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    for (id, run_at_ms) in [(2, START_MS + 50), (3, START_MS + 500)] {
        server.given(submit(id, "bill", |submit| {
            submit.run_at_ms = Some(run_at_ms);
            after(&[1], OnDead::Cancel)(submit);
        }));
    }
    server.given(submit(4, "bill", |submit| {
        submit.ttl_ms = Some(60);
        after(&[1], OnDead::Cancel)(submit);
    }));
    assert_eq!(server.pass(100), ["Gone"], "the TTL of 4");
    assert_eq!(
        [2, 3, 4].map(|id| server.status(id)),
        [Some(Status::Blocked), Some(Status::Blocked), None]
    );
    server.given(done(1));
    server.tick();
    assert_eq!([2, 3].map(|id| server.status(id)), [Some(Status::Ready), Some(Status::Scheduled)]);
    server.assert_folds();
    assert_eq!(server.pass(400), ["Ready"]);
}

#[test]
fn a_parked_job_is_told_and_its_release_finds_out_where_it_stands() {
    let mut server = with_three(OnDead::Cancel);
    server.given(parked(3, true));
    server.given(done(1));
    server.tick();
    assert_eq!((server.status(3), open(&server, 3)), (Some(Status::Parked), vec![2]));
    server.given(parked(3, false));
    assert_eq!(server.status(3), Some(Status::Blocked));
    server.given(parked(3, true));
    server.given(done(2));
    server.tick();
    assert_eq!(server.status(3), Some(Status::Parked));
    server.assert_folds();
    server.given(parked(3, false));
    assert_eq!(server.status(3), Some(Status::Ready));

    let mut server = with_three(OnDead::Cancel);
    server.given(parked(3, true));
    server.given(dead(1));
    server.tick();
    assert_eq!(server.status(3), Some(Status::Dead));
}

#[test]
fn a_deleted_job_is_told_and_its_undo_finds_out_where_it_stands() {
    let deletion = |id| Command::DeleteLater { id: JobId(id), request: 7, undo_ms: 60_000 };
    let undo = |id| Command::Undelete { id: JobId(id) };
    for ends in [None, Some(done(1)), Some(dead(1))] {
        let mut server = with_three(OnDead::Cancel);
        server.given(done(2));
        server.given(deletion(3));
        let expected = match &ends {
            None => Status::Blocked,
            Some(Command::Finish(end)) if end.success => Status::Ready,
            Some(_) => Status::Dead,
        };
        ends.map(|end| server.given(end));
        server.tick();
        assert!(server.state.deletion(JobId(3)).is_some());
        server.assert_folds();
        server.given(undo(3));
        assert_eq!(server.status(3), Some(expected));
        server.assert_folds();
    }

    // A job that is waited for has not ended while its deletion can be undone.
    let mut server = with_three(OnDead::Cancel);
    server.given(deletion(1));
    assert_eq!(server.pass(59_999), [""; 0]);
    assert_eq!(server.status(3), Some(Status::Blocked));
    assert_eq!(server.pass(1), ["Gone", "Finished"]);
    assert_eq!(end(&server, 3).0, "after_gone");
}

#[test]
fn a_retried_job_waits_for_those_before_it_that_run_again() {
    let mut server = with_three(OnDead::Cancel);
    server.given(dead(1));
    server.tick();
    assert_eq!(server.status(3), Some(Status::Dead));
    server.given(retry(&server, 1));
    server.given(retry(&server, 3));
    assert_eq!((server.status(3), open(&server, 3)), (Some(Status::Blocked), vec![1, 2]));
    for id in [1, 2] {
        server.given(done(id));
    }
    server.tick();
    assert_eq!(server.status(3), Some(Status::Ready));

    let mut server = with_three(OnDead::Cancel);
    server.given(done(2));
    server.given(dead(1));
    server.tick();
    server.given(retry(&server, 3));
    assert_eq!(server.status(3), Some(Status::Ready), "who retries it knows that 1 is dead");
    server.assert_folds();
}

#[test]
fn a_blocked_job_that_ends_or_fails_by_hand_waits_as_before_or_is_forgotten() {
    let mut server = with_three(OnDead::Cancel);
    // Protocols without tokens may fail any unfinished job.
    server.given(fail(Claim::Unfinished { id: JobId(3) }));
    assert_ne!(server.status(3), Some(Status::Ready));
    server.assert_folds();
    server.given(done(3));
    assert_eq!(server.state.waiting_for(JobId(1), JobId(0)).count(), 0);
    server.given(done(1));
    assert_eq!(server.tick(), []);
}
