//! Constraints that change under existing jobs: rebased in bounded steps, with outcomes
//! that do not depend on how far the steps have come.

use bytes::Bytes;
use spindle_core::command::{Claim, Compact, Edit, Matched};
use spindle_core::job::{Cause, Label};
use spindle_core::queue::{Constraint, LimitScope, QueueSettings, Rate};
use spindle_core::{Command, Defaults, JobId, Rejection, Type};

use crate::harness::{Server, complete, defaults, submit};

/// More values than one step settles.
const VALUES: u64 = 600;

fn label(value: u64) -> Vec<Label> {
    vec![Label { constraint: 1, value }]
}

fn labelled(id: u64, revision: u64, value: u64) -> Command {
    submit(id, "mail", |job| {
        job.labels = label(value);
        job.constraints_revision = revision;
    })
}

fn rate(number: u32, count: u64, burst: u64) -> Command {
    let rate = Some(Rate { count, per_ms: 1_000_000, burst });
    Command::SetConstraint(Constraint { number, rate, ..Constraint::default() }, LimitScope::Whole)
}

fn running_max(number: u32, max: u64) -> Command {
    let running_max = Some(max);
    Command::SetConstraint(
        Constraint { number, running_max, ..Constraint::default() },
        LimitScope::Whole,
    )
}

/// Two jobs of each value, one of them done: every bucket is empty, and a job waits at it.
fn many_empty_buckets() -> Server {
    let mut server = Server::new();
    server.given(rate(0, 1, 1));
    for value in 1..=VALUES {
        server.given(labelled(value, 1, value));
        let (_, claim) = server.lease("mail").expect("its bucket is full");
        server.given(complete(claim));
    }
    for value in 1..=VALUES {
        server.given(labelled(VALUES + value, 1, value));
    }
    assert_eq!(server.lease("mail"), None, "every bucket is empty");
    server
}

fn steps(server: &mut Server) -> usize {
    let mut steps = 0;
    while server.state.is_rebasing() {
        server.state.rebase();
        steps += 1;
        assert!(steps < 100, "it does not come to an end");
    }
    steps
}

#[test]
fn a_changed_constraint_of_many_values_is_settled_in_bounded_steps() {
    let mut server = many_empty_buckets();
    assert_eq!(server.then(rate(1, 1, 2)), ["ConstraintSet"]);
    assert!(server.state.is_rebasing(), "one step is not enough");
    assert_eq!(server.refused(rate(1, 1, 3)), Rejection::Rebasing);
    // A step settles 256 items, and each bucket and each line that waits at one is an item.
    let steps = steps(&mut server);
    assert!((3..=5).contains(&steps), "{steps} steps");
    assert_eq!(server.then(rate(1, 1, 3)), ["ConstraintSet"]);
}

#[test]
fn a_looser_limit_lets_everything_start_that_waited_and_a_removed_one_too() {
    for change in [running_max(1, 5), Command::RemoveConstraint { number: 1 }] {
        let mut server = Server::new();
        server.given(running_max(0, 0));
        for value in 1..=VALUES {
            server.given(labelled(value, 1, value));
        }
        assert_eq!(server.lease("mail"), None);
        server.given(change.clone());
        steps(&mut server);
        let leased = (1..=VALUES).filter(|_| server.lease("mail").is_some()).count() as u64;
        assert_eq!(leased, VALUES, "{change:?}");
        assert_eq!(server.lease("mail"), None);
    }
}

#[test]
fn levels_do_not_depend_on_how_far_a_change_is_settled() {
    let mut rebased = many_empty_buckets();
    // Half of a token comes back, then the rule changes: a bucket that was not full keeps its
    // level.
    rebased.pass(500_000);
    rebased.given(rate(1, 2, 5));
    let mut not_rebased = Server::new();
    not_rebased.state = rebased.state.clone();
    not_rebased.now_ms = rebased.now_ms;
    assert!(not_rebased.state.is_rebasing());
    steps(&mut rebased);
    for value in [1, 300, VALUES] {
        let of = |server: &Server| {
            let rule = server.state.constraint(1).expect("it is there").clone();
            let label = Label { constraint: 1, value };
            server.state.bucket(label).expect("jobs have it").level_at(&rule, server.now_ms)
        };
        assert_eq!((of(&rebased), of(&not_rebased)), (500_000, 500_000), "value {value}");
    }
    let now_ms = rebased.now_ms;
    assert_eq!(rebased.state.dump(now_ms), not_rebased.state.dump(now_ms));
    assert_eq!(rebased.folded(0).dump(now_ms), rebased.state.dump(now_ms));
}

#[test]
fn buckets_that_were_full_when_the_rule_changed_are_full_before_their_turn_comes() {
    let mut server = many_empty_buckets();
    // Full again by time alone; the waiting jobs keep the buckets from being forgotten.
    server.now_ms += 1_000_000;
    server.given(rate(1, 1, 3));
    assert!(server.state.is_rebasing());
    let last = Label { constraint: 1, value: VALUES };
    let rule = server.state.constraint(1).expect("it is there").clone();
    let level = server.state.bucket(last).map(|bucket| bucket.level_at(&rule, server.now_ms));
    assert_eq!(level, Some(3_000_000), "full by the old rule is full by the new one");
}

#[test]
fn half_a_token_stays_half_a_token_whatever_a_token_takes_now() {
    let mut server = Server::new();
    let rate = |number, per_ms| {
        let rate = Some(Rate { count: 1, per_ms, burst: 1 });
        Command::SetConstraint(
            Constraint { number, rate, ..Constraint::default() },
            LimitScope::Whole,
        )
    };
    server.given(rate(0, 10_000));
    for id in 1..=3 {
        server.given(labelled(id, 1, 7));
    }
    server.lease("mail").expect("its bucket is full");
    server.pass(5_000);
    server.given(rate(1, 1_000));
    server.pass(499);
    assert_eq!(server.lease("mail"), None);
    server.pass(1);
    server.lease("mail").expect("the other half has come");
    server.pass(500);
    server.given(rate(1, 3_600_000));
    server.pass(1_799_999);
    assert_eq!(server.lease("mail"), None);
    server.restart();
    server.pass(1);
    assert!(server.lease("mail").is_some());
}

#[test]
fn a_change_while_the_fold_still_settles_the_last_one_ends_the_same() {
    let mut server = many_empty_buckets();
    server.pass(500_000);
    for burst in [2, 3, 4] {
        server.given(rate(1, 1, burst));
        steps(&mut server);
    }
    let now_ms = server.now_ms;
    assert_eq!(server.folded(0).dump(now_ms), server.state.dump(now_ms));
}

#[test]
fn many_buckets_that_time_frees_at_once_wake_in_bounded_steps() {
    let mut server = many_empty_buckets();
    server.now_ms += 2_000_000;
    let mut promoted = 0;
    let mut steps = 0;
    while server.state.next_deadline(false).is_some_and(|due| due <= server.now_ms) {
        server.state.wake_buckets(server.now_ms);
        promoted += server.state.take_promoted().len();
        steps += 1;
    }
    assert!(steps >= 3 && promoted >= 1, "{steps} steps");
    let leased = (1..=VALUES).filter(|_| server.lease("mail").is_some()).count() as u64;
    assert_eq!(leased, VALUES);
}

fn relabel(id: u64, revision: Option<u32>, by: u64, labels: Vec<Label>) -> Command {
    let matched = Matched { labels, constraints_revision: by };
    Command::Relabel { id: JobId(id), revision, matched }
}

#[test]
fn labels_of_a_job_that_changed_or_of_older_constraints_are_refused() {
    let mut server = Server::with(Defaults { values_max: 2, ..defaults() });
    server.given(submit(1, "mail", |_| {}));
    server.given(running_max(0, 1));
    let revision = server.image(1).revision;
    assert_eq!(server.refused(relabel(1, None, 0, label(1))), Rejection::StaleConstraints);
    assert_eq!(server.refused(relabel(1, Some(revision + 1), 1, label(1))), Rejection::Stale);
    assert_eq!(
        server.refused(relabel(1, None, 1, (1..10).flat_map(label).collect())),
        Rejection::OutOfRange("labels")
    );
    assert_eq!(server.then(relabel(1, Some(revision), 1, label(1))), ["Relabelled"]);
    server.given(labelled(2, 1, 2));
    server.given(submit(3, "mail", |job| job.constraints_revision = 1));
    assert_eq!(server.refused(relabel(3, None, 1, label(3))), Rejection::TooManyValues);
    // What has no room shares a bucket, which is always there to be had.
    assert_eq!(server.then(relabel(3, None, 1, label(Label::OVERFLOW))), ["Relabelled"]);
}

#[test]
fn a_job_that_moves_has_its_new_labels_before_anybody_can_lease_it() {
    let mut server = Server::new();
    server.given(running_max(0, 0));
    server.given(labelled(1, 1, 7));
    let to = |labels, by| {
        let queue = Some(Bytes::from_static(b"bill"));
        let matched = Some(Matched { labels, constraints_revision: by });
        Command::Edit(Box::new(Edit { id: JobId(1), queue, matched, ..Edit::default() }))
    };
    assert_eq!(server.refused(to(Vec::new(), 0)), Rejection::StaleConstraints);
    assert_eq!(server.then(to(label(8), 1)), ["Edited", "Relabelled"]);
    assert_eq!(server.lease("bill"), None);
    assert_eq!(server.then(to(Vec::new(), 1)), ["Edited", "Relabelled"]);
    assert_eq!(server.lease("bill").map(|(id, _)| id), Some(1));
}

#[test]
fn a_retried_job_needs_room_for_its_value_as_a_new_one_does() {
    let mut server = Server::with(Defaults { values_max: 1, ..defaults() });
    server.given(running_max(0, 5));
    server.given(labelled(1, 1, 1));
    server.given(Command::Cancel { id: JobId(1) });
    server.given(labelled(2, 1, 2));
    let retry = Command::Retry { image: Box::new(server.finished(1)), payload: None };
    assert_eq!(server.refused(retry.clone()), Rejection::TooManyValues);
    server.given(Command::Delete { id: JobId(2), cause: Cause::Deleted });
    assert_eq!(server.then(retry), ["Retried"]);
}

#[test]
fn what_a_queues_bytes_are_is_part_of_what_jobs_are_matched_by() {
    let mut server = Server::new();
    let set = |bytes_type: Option<Type>| Command::SetQueue {
        name: Bytes::from_static(b"mail"),
        settings: QueueSettings {
            bytes_type: bytes_type.map(|kind| kind as i32),
            ..QueueSettings::default()
        },
    };
    let revision = |server: &Server| server.state.server().constraints_revision;
    server.given(set(Some(Type::Json)));
    assert_eq!(revision(&server), 0, "without constraints nobody is matched");
    server.given(running_max(0, 1));
    server.given(set(Some(Type::Json)));
    assert_eq!(revision(&server), 1);
    server.given(set(Some(Type::Msgpack)));
    assert_eq!(revision(&server), 2);
    assert_eq!(server.folded(0).server().constraints_revision, 2);
}

#[test]
fn how_far_jobs_are_relabelled_survives_a_restart() {
    let mut server = Server::new();
    let note = |revision, below| Command::NoteRelabelled { revision, below: JobId(below) };
    assert!(server.state.is_relabelled(), "there is nothing to do");
    server.given(running_max(0, 1));
    assert!(!server.state.is_relabelled());
    assert_eq!(server.refused(note(2, 5)), Rejection::StaleConstraints);
    assert_eq!(server.then(note(1, 5)), ["ServerCompacted"]);
    assert_eq!(server.then(note(1, 4)), [""; 0], "it never goes back");
    server.restart();
    assert_eq!(server.state.server().relabelled_below, 5);
    server.given(note(1, u64::MAX));
    assert!(server.state.is_relabelled());
    server.given(running_max(1, 2));
    assert!(!server.state.is_relabelled(), "another pass begins");
}

#[test]
fn there_are_only_so_many_constraints() {
    let mut server = Server::new();
    for _ in 0..spindle_core::CONSTRAINTS_MAX {
        server.given(running_max(0, 1));
    }
    let refused = server.refused(running_max(0, 1));
    assert_eq!(refused, Rejection::OutOfRange("the number of constraints"));
    server.given(Command::RemoveConstraint { number: 3 });
    assert_eq!(server.then(running_max(0, 1)), ["ConstraintSet"]);
}

#[test]
fn a_constraint_told_again_keeps_the_revision_it_was_put_with() {
    let mut server = Server::new();
    server.given(running_max(0, 1));
    server.given(running_max(0, 1));
    let compacted = server.position;
    for item in server.state.items_needing(u64::MAX) {
        server.given(Command::Compact(item));
    }
    let folded = server.folded(compacted);
    assert_eq!((folded.constraint_revision(1), folded.constraint_revision(2)), (Some(1), Some(2)));
    assert_eq!(folded.dump(server.now_ms), server.state.dump(server.now_ms));
}

/// A job that waits at a full bucket, and the claim of the one that fills it.
fn one_waits() -> (Server, Claim) {
    let mut server = Server::new();
    server.given(running_max(0, 1));
    server.given(labelled(1, 1, 7));
    server.given(labelled(2, 1, 7));
    let (_, claim) = server.lease("mail").expect("the bucket is free");
    assert_eq!(server.lease("mail"), None, "and now it is full");
    server.state.take_promoted();
    (server, claim)
}

#[test]
fn a_job_that_waits_at_a_bucket_is_heard_of_when_it_is_free_whatever_was_told_of_it_since() {
    let event = Bytes::from_static(b"[]");
    let noted = Command::AddEvent { id: JobId(2), event, page: None };
    let compacted = |server: &Server| {
        let revision = server.image(2).revision;
        Command::Compact(Compact::Job { id: JobId(2), revision, payload: None, result: None })
    };
    let (plain, _) = one_waits();
    for updated in [None, Some(noted), Some(compacted(&plain))] {
        let (mut server, claim) = one_waits();
        let events = updated.iter().map(|command| server.then(command.clone())).collect::<Vec<_>>();
        assert_eq!(server.state.take_promoted(), [""; 0], "{events:?}: it is as full as before");
        server.given(complete(claim));
        assert_eq!(server.state.take_promoted(), ["mail"], "{events:?}");
        assert_eq!(server.lease("mail").map(|(id, _)| id), Some(2), "{events:?}");
    }
}

#[test]
fn a_job_that_comes_forward_in_its_line_is_served_before_the_one_that_tries_the_bucket() {
    let mut server = Server::new();
    server.given(running_max(0, 1));
    server.given(running_max(0, 9));
    server.given(labelled(1, 2, 7));
    let (_, claim) = server.lease("mail").expect("the bucket is free");
    // Two groups that wait at the bucket, a job each.
    server.given(labelled(2, 2, 7));
    server.given(submit(3, "mail", |job| {
        job.labels = [label(7), vec![Label { constraint: 2, value: 0 }]].concat();
        job.constraints_revision = 2;
    }));
    assert_eq!(server.lease("mail"), None, "and now it is full");
    server.given(complete(claim));
    let forward = Edit { id: JobId(3), priority: Some(9), ..Edit::default() };
    server.given(Command::Edit(Box::new(forward)));
    assert_eq!(server.lease("mail").map(|(id, _)| id), Some(3));
}
