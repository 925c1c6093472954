//! Emitting again what is alive.

use bytes::Bytes;
use spindle_core::command::{Claim, Compact};
use spindle_core::job::Label;
use spindle_core::payload::BytesRef;
use spindle_core::queue::{Constraint, LimitScope, QueueSettings, Rate};
use spindle_core::{Command, JobId, Rejection, Type};

use crate::harness::{Server, complete, finish, submit};

#[test]
fn a_carried_job_needs_only_its_new_record() {
    let mut server = Server::new();
    let payload = BytesRef::logged(server.position, 9, 40, Type::Bytes);
    server.given(submit(1, "mail", |job| job.payload = payload));
    let below = server.position;
    let compaction = |revision, position| {
        Command::Compact(Compact::Job {
            id: JobId(1),
            revision,
            payload: Some(BytesRef::logged(position, 9, 40, Type::Bytes)),
            result: None,
        })
    };
    let revision = server.image(1).revision;
    assert_eq!(server.refused(compaction(revision + 1, below)), Rejection::Stale);
    assert_eq!(server.then(compaction(revision, below)), ["Compacted"]);
    let job = server.state.job(JobId(1)).expect("there");
    assert_eq!(job.oldest_record(), Some(below));
    assert_eq!(server.image(1).revision, revision, "compaction is no change");
}

#[test]
fn a_carried_finished_job_keeps_a_retention_that_was_shortened() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    server.given(complete(Claim::Unfinished { id: JobId(1) }));
    let image = Box::new(server.finished(1));
    server.given(Command::ResultRead { id: JobId(1), keep_read_ms: 10 });
    let below = server.position;
    let compaction = Command::Compact(Compact::Finished(image));
    assert_eq!(server.then(compaction.clone()), ["Compacted"]);
    let folded = server.folded(below);
    assert_eq!(folded.status(JobId(1)), Some(spindle_core::Status::Done));
    assert_eq!(folded.next_deadline(false), Some(server.now_ms + 10));
    server.pass(10);
    assert_eq!(server.refused(compaction), Rejection::NotFound);
}

#[test]
fn settings_limits_and_the_server_are_carried_whole() {
    let mut server = Server::new();
    let settings = QueueSettings { paused: true, ..QueueSettings::default() };
    server.given(Command::SetQueue { name: Bytes::from_static(b"mail"), settings });
    let rate = Rate { count: 1, per_ms: 9_000, burst: 3 };
    server.given(Command::SetConstraint(
        Constraint { rate: Some(rate), ..Constraint::default() },
        LimitScope::Whole,
    ));
    for value in 0..3 {
        server.given(submit(value + 1, "bill", |job| {
            job.labels = vec![Label { constraint: 1, value }];
            job.constraints_revision = 1;
            job.keep_ms = Some(0);
        }));
        let (_, claim) = server.lease("bill").expect("tokens are left");
        server.given(complete(claim));
    }
    let below = server.position;
    let items = server.state.items_needing(below);
    assert_eq!(items.len(), 3);
    let events: Vec<Vec<&str>> =
        items.into_iter().map(|item| server.then(Command::Compact(item))).collect();
    let limit = ["ConstraintSet", "BucketSet", "BucketSet", "BucketSet"];
    assert_eq!(events, [&["QueueSet"][..], &limit, &["ServerCompacted"]]);
    assert!(server.state.items_needing(below).is_empty());
    let folded = server.folded(below);
    assert_eq!(folded.dump(server.now_ms), server.state.dump(server.now_ms));
}

#[test]
fn a_level_survives_a_change_of_its_constraint_and_the_loss_of_older_records() {
    let mut server = Server::new();
    let rate = Rate { count: 1, per_ms: 60_000, burst: 1 };
    let mut rule = Constraint { rate: Some(rate), ..Constraint::default() };
    server.given(Command::SetConstraint(rule.clone(), LimitScope::Whole));
    server.given(submit(1, "bill", |job| {
        job.labels = vec![Label { constraint: 1, value: 0 }];
        job.constraints_revision = 1;
    }));
    let (_, claim) = server.lease("bill").expect("the bucket is full");
    server.given(complete(claim));
    // The token was taken in a record that is dropped; the constraint was compacted since.
    let below = server.position;
    rule.number = 1;
    rule.name = Bytes::from_static(b"renamed");
    server.given(Command::SetConstraint(rule, LimitScope::Whole));
    for item in server.state.items_needing(below) {
        server.given(Command::Compact(item));
    }
    server.given(Command::Compact(Compact::Finished(Box::new(server.finished(1)))));
    let folded = server.folded(below);
    assert_eq!(
        String::from_utf8_lossy(&folded.dump(server.now_ms)),
        String::from_utf8_lossy(&server.state.dump(server.now_ms))
    );
}

#[test]
fn a_retried_job_needs_every_record_its_bytes_are_in() {
    let mut server = Server::new();
    let early = server.position;
    server.given(submit(1, "mail", |_| {}));
    let result = BytesRef::logged(early, 9, 20, Type::Bytes);
    let claim = Claim::Unfinished { id: JobId(1) };
    server.given(finish(claim, |finish| finish.result = Some(result)));
    let image = Box::new(server.finished(1));
    server.given(Command::Retry { image, payload: None });
    let needs = server.image(1).outcome.and_then(|outcome| outcome.bytes);
    let oldest_record = server.state.job(JobId(1)).and_then(|job| job.oldest_record());
    assert!(needs.is_none_or(|bytes| {
        oldest_record.is_some_and(|oldest_record| oldest_record <= bytes.position)
    }));
}
