//! Edit, park, retry, delete, read results.

use bytes::Bytes;
use spindle_core::command::{Claim, Edit};
use spindle_core::job::{Cause, Origin, Scope};
use spindle_core::payload::BytesRef;
use spindle_core::{Command, JobId, Rejection, Status, Type};

use crate::harness::{START_MS, Server, complete, fail, finish, key, submit, submit_by};

fn edit(id: u64, change: impl FnOnce(&mut Edit)) -> Command {
    let mut edit = Edit { id: JobId(id), ..Edit::default() };
    change(&mut edit);
    Command::Edit(Box::new(edit))
}

#[test]
fn a_parked_job_runs_only_after_its_release_and_then_takes_its_place_by_age() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    server.given(submit(2, "mail", |_| {}));
    assert_eq!(server.then(edit(1, |edit| edit.parked = Some(true))), ["Edited"]);
    assert_eq!(server.lease("mail").map(|(id, _)| id), Some(2));
    assert_eq!(server.lease("mail"), None);
    server.given(submit(3, "mail", |_| {}));
    server.given(edit(1, |edit| edit.parked = Some(false)));
    assert_eq!(server.lease("mail").map(|(id, _)| id), Some(1), "it is the older one");
}

#[test]
fn edits_compare_the_revision_and_leave_leased_and_finished_jobs_alone() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    let revision = server.image(1).revision;
    let higher = |revision| {
        edit(1, |edit| {
            edit.priority = Some(4);
            edit.revision = Some(revision);
        })
    };
    assert_eq!(server.refused(higher(revision + 1)), Rejection::Stale);
    server.given(higher(revision));
    assert_eq!(server.refused(higher(revision)), Rejection::Stale);
    let (_, claim) = server.lease("mail").expect("ready");
    assert_eq!(server.refused(edit(1, |_| {})), Rejection::Leased);
    server.given(complete(claim));
    assert_eq!(server.refused(edit(1, |_| {})), Rejection::Finished);
    assert_eq!(server.refused(edit(2, |_| {})), Rejection::NotFound);
}

#[test]
fn a_moved_job_is_in_its_new_queue_only() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    server.given(edit(1, |edit| edit.queue = Some(Bytes::from_static(b"bill"))));
    assert_eq!(server.lease("mail"), None);
    assert!(server.state.queue(b"mail").is_none(), "a queue without jobs is forgotten");
    assert_eq!(server.lease("bill").map(|(id, _)| id), Some(1));
}

#[test]
fn an_edited_time_is_kept_or_taken_off() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    server.given(edit(1, |edit| edit.run_at_ms = Some(START_MS + 100)));
    assert_eq!(server.status(1), Some(Status::Scheduled));
    server.given(edit(1, |edit| edit.run_at_ms = Some(0)));
    assert_eq!(server.status(1), Some(Status::Ready));
    server.given(edit(1, |edit| edit.run_at_ms = Some(START_MS + 100)));
    assert_eq!(server.pass(100), ["Ready"]);
}

#[test]
fn a_retried_job_starts_over() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |job| job.fails_max = Some(1)));
    let (_, claim) = server.lease("mail").expect("ready");
    server.given(fail(claim));
    let image = Box::new(server.finished(1));
    let retry = Command::Retry { image, payload: None };
    assert_eq!(server.then(retry.clone()), ["Retried"]);
    assert_eq!((server.image(1).attempts, server.image(1).fails), (0, 0));
    assert_eq!(server.refused(retry.clone()), Rejection::NotFinished);
    let (_, claim) = server.lease("mail").expect("ready again");
    server.given(complete(claim));
    let payload = Some(BytesRef::logged(5, 9, 77, Type::Json));
    server.given(Command::Retry { image: Box::new(server.finished(1)), payload });
    assert_eq!(server.image(1).payload.expect("there").len, 77);
    server.given(Command::Delete { id: JobId(1), cause: Cause::Deleted });
    assert_eq!(server.refused(retry), Rejection::NotFound);
}

#[test]
fn a_retried_job_shows_its_old_result_until_its_new_end() {
    let mut server = Server::new();
    let old = BytesRef::logged(server.position, 9, 20, Type::Bytes);
    server.given(submit(1, "mail", |job| {
        job.payload = BytesRef::logged(server.position, 99, 7, Type::Bytes);
        job.attempts_max = Some(1);
    }));
    let claim = Claim::Unfinished { id: JobId(1) };
    server.given(finish(claim, |finish| finish.result = Some(old.clone())));
    // Its new payload lies after the result: the job needs both, and finds each.
    let new = BytesRef::logged(server.position, 9, 5, Type::Bytes);
    let image = Box::new(server.finished(1));
    server.given(Command::Retry { image, payload: Some(new.clone()) });
    for _ in 0..2 {
        let image = server.image(1);
        assert_eq!(image.outcome.and_then(|outcome| outcome.bytes), Some(old.clone()));
        assert_eq!(image.payload, Some(new.clone()));
        let oldest_record = server.state.job(JobId(1)).and_then(|job| job.oldest_record());
        assert_eq!(oldest_record, Some(old.position));
        server.restart();
    }
    let (_, claim) = server.lease("mail").expect("ready again");
    server.given(Command::Release { claim, cause: Cause::Released });
    let kept = server.finished(1).outcome.and_then(|outcome| outcome.bytes);
    assert_eq!(kept, Some(old), "dead without a word: the last result stays");
}

#[test]
fn a_job_whose_payload_is_damaged_runs_again_only_with_another_one() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    server.given(Command::PayloadDamaged { id: JobId(1) });
    let image = Box::new(server.finished(1));
    let retry = |payload| Command::Retry { image: image.clone(), payload };
    assert_eq!(server.refused(retry(None)), Rejection::PayloadDamaged);
    let sound = BytesRef::logged(server.position, 9, 5, Type::Bytes);
    assert_eq!(server.then(retry(Some(sound.clone()))), ["Retried"]);
    assert_eq!(server.image(1).payload, Some(sound));
}

#[test]
fn a_retried_job_leaves_its_unique_name_to_a_younger_holder() {
    let mut server = Server::new();
    let unique = |id| {
        submit_by(Origin::Gearman, id, "mail", |job| {
            job.keys = vec![key(Origin::Gearman, b"mail\0k", Scope::WhileUnfinished)];
        })
    };
    server.given(unique(1));
    server.given(fail(Claim::Unfinished { id: JobId(1) }));
    server.given(unique(2));
    server.given(Command::Retry { image: Box::new(server.finished(1)), payload: None });
    let name = key(Origin::Gearman, b"mail\0k", Scope::WhileUnfinished);
    assert_eq!(server.state.job_by_key(&name).map(|job| job.id()), Some(JobId(2)));
    server.given(complete(Claim::Unfinished { id: JobId(2) }));
    assert!(server.state.job_by_key(&name).is_none());
}

#[test]
fn a_deleted_job_is_gone_whatever_its_status() {
    let mut server = Server::new();
    let delete = |id| Command::Delete { id: JobId(id), cause: Cause::Deleted };
    server.given(submit(1, "mail", |_| {}));
    let (_, claim) = server.lease("mail").expect("ready");
    assert_eq!(server.then(delete(1)), ["Gone"]);
    assert_eq!(server.refused(complete(claim)), Rejection::NotFound);
    server.given(submit(2, "mail", |_| {}));
    server.given(complete(Claim::Unfinished { id: JobId(2) }));
    assert_eq!(server.then(delete(2)), ["Gone"]);
    assert_eq!(server.refused(delete(2)), Rejection::NotFound);
}

#[test]
fn reading_a_result_shortens_its_retention_and_never_lengthens_it() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |job| job.keep_ms = Some(1_000)));
    let read = |keep_read_ms| Command::ResultRead { id: JobId(1), keep_read_ms };
    assert_eq!(server.refused(read(10)), Rejection::NotFinished);
    server.given(complete(Claim::Unfinished { id: JobId(1) }));
    assert_eq!(server.then(read(2_000)), [""; 0]);
    assert_eq!(server.then(read(10)), ["ResultRead"]);
    assert_eq!(server.pass(10), ["Gone"]);
}
