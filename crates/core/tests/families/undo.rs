//! Deletions that can be undone.

use spindle_core::audit::{Action, AuditEntry};
use spindle_core::command::{Audited, Claim, Compact, Edit, Extend};
use spindle_core::job::{Cause, Deletion, Origin, Scope, UNDO_MS_MAX};
use spindle_core::payload::BytesRef;
use spindle_core::state::{ScanFilter, Walk};
use spindle_core::{Command, JobId, Rejection, Status, Type};

use crate::harness::{START_MS, Server, complete, key, lease_of, submit, submit_by};

const MINUTE_MS: u64 = 60_000;

fn delete(id: u64) -> Command {
    Command::DeleteLater { id: JobId(id), request: 7, undo_ms: MINUTE_MS }
}

fn undo(id: u64) -> Command {
    Command::Undelete { id: JobId(id) }
}

fn parked(id: u64, parked: bool) -> Command {
    let id = JobId(id);
    Command::Edit(Box::new(Edit { id, parked: Some(parked), ..Edit::default() }))
}

/// A server with a done job.
fn with_done(change: impl FnOnce(&mut spindle_core::command::Submit)) -> Server {
    let mut server = Server::new();
    server.given(submit(1, "mail", change));
    server.given(complete(Claim::Unfinished { id: JobId(1) }));
    server
}

#[test]
fn a_deletion_can_be_undone_until_its_time_is_over() {
    for is_done in [false, true] {
        let mut server = Server::new();
        server.given(submit(1, "mail", |_| {}));
        if is_done {
            server.given(complete(Claim::Unfinished { id: JobId(1) }));
        }
        let before = server.status(1);
        assert_eq!(server.then(delete(1)), ["Deleted"]);
        let gone_ms = START_MS + MINUTE_MS;
        let deletion = Deletion { gone_ms, request: 7, was_parked: false };
        assert_eq!(server.state.deletion(JobId(1)), Some(deletion));
        assert_eq!(server.state.queue(b"mail").map(|queue| queue.deleted()), Some(1));
        assert_eq!(server.pass(MINUTE_MS - 1), [""; 0]);
        assert_eq!(server.then(undo(1)), ["Undeleted"]);
        assert_eq!((server.status(1), server.state.deletion(JobId(1))), (before, None));
        assert_eq!(server.state.queue(b"mail").map(|queue| queue.deleted()), Some(0));
        assert_eq!(server.pass(MINUTE_MS), [""; 0]);
        assert_eq!(server.refused(undo(1)), Rejection::NotDeleted);

        server.given(delete(1));
        assert_eq!(server.pass(MINUTE_MS), ["Gone"]);
        assert_eq!(server.refused(undo(1)), Rejection::NotFound);
        assert!(server.state.queue(b"mail").is_none());
    }
}

#[test]
fn an_undo_gives_back_where_a_waiting_job_stood() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    server.given(submit(2, "mail", |_| {}));
    server.given(submit(3, "mail", |job| job.run_at_ms = Some(START_MS + 50_000)));
    server.given(submit(4, "mail", |job| job.run_at_ms = Some(START_MS + 1_000)));
    server.given(submit(5, "mail", |job| job.parked = true));
    (1..=5).filter(|id| *id != 2).for_each(|id| drop(server.given(delete(id))));
    assert_eq!(server.state.queue(b"mail").map(|queue| queue.count(Status::Parked)), Some(4));
    server.pass(1_000);
    assert_eq!(server.state.ready_jobs(b"mail", 0).count(), 1, "no time makes them ready");
    (1..=5).filter(|id| *id != 2).for_each(|id| drop(server.given(undo(id))));
    let statuses: Vec<_> = (1..=5).filter_map(|id| server.status(id)).collect();
    let (ready, scheduled) = (Status::Ready, Status::Scheduled);
    assert_eq!(statuses, [ready, ready, scheduled, ready, Status::Parked]);
    let line: Vec<u64> = server.state.ready_jobs(b"mail", 0).map(|job| job.id().0).collect();
    assert_eq!(line, [1, 2, 4], "the oldest has its place again");
    assert_eq!(server.pass(49_000), ["Ready"]);
}

#[test]
fn a_deletion_ends_a_lease_and_an_undo_makes_the_job_ready() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |job| job.attempts_max = Some(2)));
    let (_, claim) = server.lease("mail").expect("ready");
    server.given(delete(1));
    assert_eq!(server.refused(complete(claim)), Rejection::NotFound, "to workers it is gone");
    assert_eq!(server.refused(lease_of(&["mail"])), Rejection::NothingReady);
    server.given(undo(1));
    assert_eq!(server.refused(complete(claim)), Rejection::NotHeld);
    let image = server.image(1);
    assert_eq!((image.status(), image.attempts), (Status::Ready, 1));
    assert_eq!(image.history.last().map(|past| past.cause()), Some(Cause::Deleted));

    server.lease("mail").expect("ready again");
    server.given(delete(1));
    assert_eq!(server.then(undo(1)), ["Finished"], "that was its last attempt");
    assert_eq!((server.status(1), server.state.deletion(JobId(1))), (Some(Status::Dead), None));
    assert_eq!(server.finished(1).attempts, 2);
}

#[test]
fn what_is_deleted_is_left_alone_until_that_is_undone() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    server.given(submit(2, "mail", |_| {}));
    server.given(Command::Cancel { id: JobId(2) });
    let image = Box::new(server.finished(2));
    server.given(delete(1));
    server.given(delete(2));
    let claim = Claim::Unfinished { id: JobId(1) };
    let of_people = [
        delete(1),
        delete(2),
        parked(1, false),
        Command::Cancel { id: JobId(1) },
        Command::Retry { image, payload: None },
    ];
    for command in of_people {
        assert_eq!(server.refused(command.clone()), Rejection::Deleted, "{command:?}");
    }
    let of_workers = [
        complete(claim),
        Command::Extend(Extend { claim, ttr_ms: 9 }),
        Command::Release { claim, cause: Cause::Released },
        Command::AddEvent { id: JobId(1), event: "{}".into(), page: None },
    ];
    for command in of_workers {
        assert_eq!(server.refused(command.clone()), Rejection::NotFound, "{command:?}");
    }
    for id in [1, 2] {
        let at_once = Command::Delete { id: JobId(id), cause: Cause::Deleted };
        assert_eq!(server.then(at_once), ["Gone"]);
    }
}

#[test]
fn a_deleted_jobs_names_are_free_and_come_back_unless_they_are_taken() {
    let name = key(Origin::Gearman, b"mail\0k", Scope::WhileUnfinished);
    let named = |id, uuid| {
        submit_by(Origin::Gearman, id, "mail", |job| {
            job.keys = vec![key(Origin::Gearman, b"mail\0k", Scope::WhileUnfinished)];
            job.uuid = Some([uuid; 16]);
        })
    };
    let mut server = Server::new();
    server.given(named(1, 1));
    server.given(delete(1));
    assert!(server.state.job_by_key(&name).is_none());
    assert!(server.state.job_by_uuid(&[1; 16]).is_none());
    server.given(undo(1));
    let holder = |server: &Server| server.state.job_by_key(&name).map(|job| job.id().0);
    assert_eq!(holder(&server), Some(1));
    assert!(server.state.job_by_uuid(&[1; 16]).is_some());

    server.given(delete(1));
    server.given(named(2, 2));
    assert_eq!(server.refused(undo(1)), Rejection::KeyTaken(JobId(2)));
    assert_eq!(server.pass(MINUTE_MS), ["Gone"]);
    assert_eq!(holder(&server), Some(2), "the one that went had nothing of it");
}

#[test]
fn a_finished_jobs_names_are_free_while_it_is_deleted() {
    let kept = key(Origin::Api, b"once", Scope::WhileKept);
    let mut server = with_done(|job| {
        job.keys = vec![key(Origin::Api, b"once", Scope::WhileKept)];
        job.uuid = Some([9; 16]);
    });
    server.given(delete(1));
    assert!(
        server.state.job_by_key(&kept).is_none() && server.state.job_by_uuid(&[9; 16]).is_none()
    );
    server.given(submit(2, "mail", |job| job.uuid = Some([9; 16])));
    assert_eq!(server.refused(undo(1)), Rejection::KeyTaken(JobId(2)));
    server.given(Command::Delete { id: JobId(2), cause: Cause::Deleted });
    server.given(undo(1));
    assert_eq!(server.state.job_by_key(&kept).map(|job| job.id()), Some(JobId(1)));
    assert_eq!(server.state.job_by_uuid(&[9; 16]).map(|job| job.id()), Some(JobId(1)));
}

#[test]
fn a_finished_job_gets_its_retention_back_even_one_that_was_shortened_meanwhile() {
    let mut server = with_done(|job| job.keep_ms = Some(500_000));
    server.given(delete(1));
    server.given(undo(1));
    assert_eq!(server.state.next_deadline(false), Some(START_MS + 500_000));
    server.given(delete(1));
    server.given(Command::ResultRead { id: JobId(1), keep_read_ms: 90_000 });
    assert_eq!(server.state.next_deadline(false), Some(START_MS + MINUTE_MS));
    server.given(undo(1));
    assert_eq!(server.state.next_deadline(false), Some(START_MS + 90_000));
    // A job whose retention ends first goes then.
    server.pass(89_000);
    server.given(delete(1));
    assert_eq!(server.pass(1_000), ["Gone"]);
}

#[test]
fn a_ttl_that_ends_before_ends_a_deleted_job_too() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |job| job.ttl_ms = Some(9_000)));
    server.given(delete(1));
    assert_eq!(server.pass(8_999), [""; 0]);
    assert_eq!(server.pass(1), ["Gone"]);
}

#[test]
fn what_is_deleted_and_undone_survives_compaction_and_restarts() {
    let mut server = Server::new();
    for id in 1..=4 {
        let payload = BytesRef::logged(server.position, 9, 40, Type::Bytes);
        server.given(submit(id, "mail", |job| {
            job.payload = payload;
            job.uuid = Some([id as u8; 16]);
        }));
    }
    for id in [2, 4] {
        server.given(complete(Claim::Unfinished { id: JobId(id) }));
    }
    (1..=4).for_each(|id| drop(server.given(delete(id))));
    let below = server.position;
    let again = |server: &mut Server| {
        for id in 1..=4 {
            let item = match id {
                2 | 4 => Compact::Finished(Box::new(server.finished(id))),
                _ => {
                    let revision = server.image(id).revision;
                    Compact::Job { id: JobId(id), revision, payload: None, result: None }
                }
            };
            server.given(Command::Compact(item));
        }
    };
    again(&mut server);
    let same = |server: &Server, below| {
        let folded = server.folded(below);
        assert!((1..=4).all(|id| {
            folded.deletion(JobId(id)) == server.state.deletion(JobId(id))
                && folded.status(JobId(id)) == server.status(id)
                && folded.job_by_uuid(&[id as u8; 16]).is_some()
                    == server.state.job_by_uuid(&[id as u8; 16]).is_some()
        }));
        assert_eq!(folded.next_deadline(false), server.state.next_deadline(false));
        folded
    };
    same(&server, below);
    for id in [1, 2] {
        server.given(undo(id));
    }
    let folded = same(&server, 0);
    assert_eq!(folded.dump(server.now_ms), server.state.dump(server.now_ms));
    server.restart();
    assert_eq!(server.status(1), Some(Status::Ready));
    // An image that was written while its job was deleted does not delete it again.
    let below = server.position;
    again(&mut server);
    same(&server, below);
    assert_eq!(server.pass(MINUTE_MS), ["Gone"]);
    assert_eq!([1, 2, 3, 4].map(|id| server.status(id).is_some()), [true, true, false, false]);
}

#[test]
fn jobs_that_a_request_deleted_are_found_by_its_number() {
    let mut server = Server::new();
    for id in 1..=600 {
        server.given(submit(id, "mail", |_| {}));
    }
    let by = |id, request| Command::DeleteLater { id: JobId(id), request, undo_ms: 5 };
    server.given(complete(Claim::Unfinished { id: JobId(300) }));
    for id in [5, 300, 599] {
        server.given(by(id, 7));
    }
    server.given(by(400, 8));
    server.given(parked(401, true));
    let mut found = |deleted_by: &[u64]| {
        let filter = ScanFilter { deleted_by: deleted_by.to_vec(), ..ScanFilter::default() };
        server.state.scan(Walk::Up(JobId(0)), &filter, 1_000, 1_000).found
    };
    assert_eq!(found(&[7]), [5, 300, 599].map(JobId));
    assert_eq!(found(&[8, 7]), [5, 300, 400, 599].map(JobId));
    assert_eq!(found(&[9]), []);
}

#[test]
fn a_foreground_job_and_one_with_a_damaged_payload_go_at_once() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |job| job.foreground = true));
    assert_eq!(server.then(delete(1)), ["Gone"]);
    server.given(submit(2, "mail", |_| {}));
    server.given(delete(2));
    assert_eq!(server.then(Command::PayloadDamaged { id: JobId(2) }), ["Gone"]);
}

#[test]
fn a_deletion_names_a_request_and_a_time_within_bounds() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    let by = |request, undo_ms| Command::DeleteLater { id: JobId(1), request, undo_ms };
    for (request, undo_ms) in [(0, 9), (1, 0), (1, UNDO_MS_MAX + 1)] {
        let refused = server.refused(by(request, undo_ms));
        assert!(matches!(refused, Rejection::OutOfRange(_)), "{refused}");
    }
    let entry = AuditEntry { action: Action::Delete as i32, ..AuditEntry::default() };
    let command = Some(by(1, UNDO_MS_MAX));
    let audited = Command::Audited(Box::new(Audited { command, entry }));
    assert_eq!(server.then(audited), ["Deleted", "Audited"]);
}

#[test]
fn nothing_that_is_deleted_goes_while_the_clock_is_not_believed() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    server.given(delete(1));
    server.now_ms += 2 * MINUTE_MS;
    let held = Command::Tick { hold_expiry: true };
    let mut out = spindle_core::Decision::default();
    spindle_core::decide(&server.state, &held, server.now_ms, &mut out).expect("never refused");
    assert!(out.events.is_empty());
    assert_eq!(server.state.next_deadline(true), None);
}
