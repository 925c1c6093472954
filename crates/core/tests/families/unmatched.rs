//! A constraint that lets none of its jobs start, put over jobs that are still to be matched.

use bytes::Bytes;
use spindle_core::command::Matched;
use spindle_core::job::Label;
use spindle_core::queue::{Constraint, LimitScope, QueuePattern, QueueSettings};
use spindle_core::{Command, JobId};

use crate::harness::{Server, complete, lease_of, submit};

/// A matcher as the engine writes it: version 1, then the queue (field 2) or a pattern (field 3).
fn matcher(field: u8, text: &str) -> Bytes {
    let mut bytes = vec![0x08, 1];
    if field > 0 {
        bytes.extend([field << 3 | 2, text.len() as u8]);
        bytes.extend(text.as_bytes());
    }
    bytes.into()
}

fn stop(number: u32, matcher: Bytes) -> Command {
    let running_max = Some(0);
    Command::SetConstraint(
        Constraint { number, matcher, running_max, ..Constraint::default() },
        LimitScope::Whole,
    )
}

fn matched(server: &Server, below: u64) -> Command {
    let revision = server.state.server().constraints_revision;
    Command::NoteRelabelled { revision, below: JobId(below) }
}

fn add(server: &mut Server, id: u64, queue: &str, priority: i64) {
    let revision = server.state.server().constraints_revision;
    server.given(submit(id, queue, |job| {
        job.priority = priority;
        job.constraints_revision = revision;
    }));
}

fn leased(server: &mut Server, queue: &str) -> Option<u64> {
    server.lease(queue).map(|(id, _)| id)
}

#[test]
fn nothing_that_is_still_to_be_matched_starts_under_a_constraint_that_lets_none_start() {
    let mut server = Server::new();
    for (id, queue) in [(1, "mail"), (2, "mail"), (3, "bill"), (4, "mail")] {
        add(&mut server, id, queue, 0);
    }
    server.given(stop(0, matcher(2, "mail")));
    assert_eq!(server.state.unmatched_below(1), 5);
    assert_eq!(leased(&mut server, "mail"), None);
    assert_eq!(leased(&mut server, "bill"), Some(3), "the constraint does not take it");
    let held = |server: &Server, id| {
        server.state.unmatched_by(b"mail", JobId(id)).map(|rule| rule.number).collect::<Vec<_>>()
    };
    assert_eq!((held(&server, 1), held(&server, 5)), (vec![1], vec![]));
    // A job that comes now is matched, and starts before the others if it is its turn.
    add(&mut server, 5, "mail", 0);
    add(&mut server, 6, "mail", 9);
    assert_eq!(leased(&mut server, "mail"), Some(6));
    assert_eq!(leased(&mut server, "mail"), None);
    server.given(matched(&server, 2));
    assert_eq!(leased(&mut server, "mail"), Some(1), "it was matched and falls under nothing");
    assert_eq!(leased(&mut server, "mail"), None);
    let label =
        Matched { labels: vec![Label { constraint: 1, value: 0 }], constraints_revision: 1 };
    server.given(Command::Relabel { id: JobId(2), revision: None, matched: label });
    server.given(matched(&server, u64::MAX));
    assert!(!server.state.has_unmatched());
    let rest: Vec<u64> = std::iter::from_fn(|| leased(&mut server, "mail")).collect();
    assert_eq!(rest, [4, 5], "2 falls under it");
}

#[test]
fn a_put_between_two_matchings_holds_from_the_new_beginning() {
    let mut server = Server::new();
    for id in 1..=4 {
        add(&mut server, id, "mail", 0);
    }
    server.given(stop(0, matcher(2, "mail")));
    server.given(matched(&server, 3));
    // Another constraint is set: matching begins anew before it was complete for the first.
    server.given(stop(0, matcher(2, "bill")));
    assert_eq!(leased(&mut server, "mail"), Some(1), "it was matched after the put");
    server.given(matched(&server, 2));
    assert_eq!(leased(&mut server, "mail"), None, "2 is to be matched again");
    server.given(matched(&server, u64::MAX));
    assert_eq!(leased(&mut server, "mail"), Some(2));
    // A job that was matched once stays matched.
    server.given(stop(0, matcher(2, "bill")));
    assert_eq!(leased(&mut server, "mail"), Some(3));
}

#[test]
fn a_limit_that_lets_some_start_does_not_wait_for_matching() {
    let mut server = Server::new();
    add(&mut server, 1, "mail", 0);
    add(&mut server, 2, "mail", 0);
    let rule = |number, max| {
        let matcher = matcher(2, "mail");
        let running_max = Some(max);
        Command::SetConstraint(
            Constraint { number, matcher, running_max, ..Default::default() },
            LimitScope::Whole,
        )
    };
    server.given(rule(0, 1));
    assert_eq!(leased(&mut server, "mail"), Some(1));
    server.given(rule(1, 0));
    assert_eq!(leased(&mut server, "mail"), None);
    server.given(rule(1, 1));
    assert_eq!(leased(&mut server, "mail"), Some(2));
}

#[test]
fn a_constraint_that_goes_lets_everything_compete_in_bounded_steps() {
    const GROUPS: u64 = 1_300;
    let mut server = Server::new();
    // A group for each: their labels are of a constraint that is not there.
    for id in 1..=GROUPS {
        server.given(submit(id, "mail", |job| {
            job.labels = vec![Label { constraint: 9, value: id }];
            job.constraints_revision = 0;
        }));
    }
    server.given(stop(0, matcher(0, "")));
    assert_eq!(leased(&mut server, "mail"), None);
    server.given(Command::RemoveConstraint { number: 1 });
    let mut steps = 0;
    while server.state.is_rebasing() {
        server.state.rebase();
        steps += 1;
        assert!(steps < 100, "it does not come to an end");
    }
    assert!((1..=3).contains(&steps), "{steps} steps");
    assert_eq!(std::iter::from_fn(|| leased(&mut server, "mail")).count() as u64, GROUPS);
}

#[test]
fn queues_with_jobs_that_compete_again_are_named() {
    let mut server = Server::new();
    add(&mut server, 1, "mail", 0);
    add(&mut server, 2, "bill", 0);
    server.given(stop(0, matcher(3, "*a*")));
    assert_eq!(server.when(lease_of(&["mail", "bill"])).map(|events| events.len()), Ok(1));
    assert_eq!(leased(&mut server, "mail"), None);
    server.state.take_promoted();
    server.given(matched(&server, 1));
    assert!(server.state.take_promoted().is_empty(), "1 is still to be matched");
    server.given(matched(&server, 2));
    assert_eq!(server.state.take_promoted(), [Bytes::from_static(b"mail")]);
}

#[test]
fn a_group_that_is_put_aside_leaves_its_bucket_to_the_others() {
    let mut server = Server::new();
    let limit = Constraint { running_max: Some(1), ..Constraint::default() };
    server.given(Command::SetConstraint(limit, LimitScope::Whole));
    server.given(matched(&server, u64::MAX));
    let limited = |id: u64, priority: i64, other: u32| {
        submit(id, "mail", move |job| {
            let label = |constraint| Label { constraint, value: 0 };
            job.labels = vec![label(1), label(other)];
            job.priority = priority;
            job.constraints_revision = 1;
        })
    };
    // Three groups, of which two wait for the bucket and the best tries for both.
    for (id, priority, other) in [(1, 9, 7), (2, 5, 7), (3, 1, 8)] {
        server.given(limited(id, priority, other));
    }
    let (_, claim) = server.lease("mail").expect("the first one starts");
    assert_eq!(leased(&mut server, "mail"), None);
    server.given(stop(0, matcher(2, "mail")));
    // Job 3 is matched, job 2 is not: it is in another group, and of the same bucket.
    let (below, revision) = (4, server.state.server().constraints_revision);
    server.given(submit(below, "mail", |job| {
        job.labels = vec![Label { constraint: 1, value: 0 }, Label { constraint: 8, value: 0 }];
        job.priority = 2;
        job.constraints_revision = revision;
    }));
    server.given(complete(claim));
    assert_eq!(leased(&mut server, "mail"), Some(below));
}

#[test]
fn what_is_still_to_be_matched_outlives_a_restart_and_the_loss_of_older_records() {
    let mut server = Server::new();
    for id in 1..=3 {
        add(&mut server, id, "mail", 0);
    }
    server.given(stop(0, matcher(2, "mail")));
    server.given(matched(&server, 2));
    server.restart();
    assert_eq!(leased(&mut server, "mail"), Some(1));
    assert_eq!(leased(&mut server, "mail"), None);
    let below = server.position;
    for item in server.state.items_needing(below) {
        server.given(Command::Compact(item));
    }
    let folded = server.folded(below);
    assert_eq!((folded.unmatched_below(1), server.state.unmatched_below(1)), (4, 4));
    server.given(matched(&server, u64::MAX));
    for item in server.state.items_needing(server.position) {
        server.given(Command::Compact(item));
    }
    assert!(!server.folded(below).has_unmatched());
    assert!(!server.folded(0).has_unmatched());
    assert_eq!(leased(&mut server, "mail"), Some(2));
}

#[test]
fn a_paused_queue_stays_paused_while_its_jobs_are_matched() {
    let mut server = Server::new();
    add(&mut server, 1, "mail", 0);
    server.given(stop(0, matcher(2, "mail")));
    assert_eq!(leased(&mut server, "mail"), None);
    let settings = QueueSettings { paused: true, ..QueueSettings::default() };
    server.given(Command::SetQueue { name: Bytes::from_static(b"mail"), settings });
    server.given(matched(&server, u64::MAX));
    assert_eq!(leased(&mut server, "mail"), None);
}

#[test]
fn the_queues_of_a_matcher_are_read_and_nothing_else() {
    let name = |text: &str| Bytes::copy_from_slice(text.as_bytes());
    assert_eq!(QueuePattern::decode(&matcher(0, "")), Ok(QueuePattern::Any));
    assert_eq!(QueuePattern::decode(&matcher(2, "mail")), Ok(QueuePattern::Exact(name("mail"))));
    assert_eq!(QueuePattern::decode(&matcher(3, "m*")), Ok(QueuePattern::Glob(name("m*"))));
    let both = [&matcher(2, "a")[..], &matcher(3, "b")].concat();
    for unreadable in [&b""[..], b"m", &[0x08, 2], &both] {
        let unreadable = Bytes::copy_from_slice(unreadable);
        assert!(QueuePattern::decode(&unreadable).is_err(), "{unreadable:?}");
        let mut server = Server::new();
        add(&mut server, 1, "mail", 0);
        server.given(stop(0, unreadable));
        assert_eq!(leased(&mut server, "mail"), Some(1), "the constraint takes no queue");
    }
    assert!(QueuePattern::Glob(name("m*")).takes(b"mail"));
    assert!(!QueuePattern::Glob(name("m*")).takes(b"bill"));
}
