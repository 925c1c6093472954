//! Queue settings and constraints.

use bytes::Bytes;
use spindle_core::command::{Claim, Edit, Matched};
use spindle_core::event::Gone;
use spindle_core::job::{Cause, Label, Origin};
use spindle_core::payload::BytesRef;
use spindle_core::queue::{Constraint, LimitScope, QueueSettings, Rate};
use spindle_core::{Command, Defaults, Event, JobId, Rejection, Type};

use crate::harness::{Server, complete, defaults, submit, submit_by};

fn labelled(id: u64, revision: u64, value: u64) -> Command {
    submit(id, "mail", |job| {
        job.labels = vec![Label { constraint: 1, value }];
        job.constraints_revision = revision;
    })
}

fn relabel(id: u64, constraints_revision: u64, labels: Vec<Label>) -> Command {
    let matched = Matched { labels, constraints_revision };
    Command::Relabel { id: JobId(id), revision: None, matched }
}

#[test]
fn settings_are_remembered_and_default_ones_forgotten() {
    let mut server = Server::new();
    let set = |paused| Command::SetQueue {
        name: Bytes::from_static(b"mail"),
        settings: QueueSettings { paused, ..QueueSettings::default() },
    };
    assert_eq!(server.then(set(true)), ["QueueSet"]);
    server.restart();
    assert!(server.state.queue(b"mail").is_some_and(|queue| queue.settings().paused));
    server.given(set(false));
    assert!(server.state.queue(b"mail").is_none());
    let settings = QueueSettings::default();
    let refused = server.refused(Command::SetQueue { name: Bytes::new(), settings });
    assert_eq!(refused, Rejection::OutOfRange("queue name"));
}

#[test]
fn every_value_has_its_own_bucket() {
    let mut server = Server::new();
    let rule = Constraint { running_max: Some(1), ..Constraint::default() };
    assert_eq!(server.then(Command::SetConstraint(rule, LimitScope::Whole)), ["ConstraintSet"]);
    for (id, value) in [(1, 7), (2, 7), (3, 8)] {
        server.given(labelled(id, 1, value));
    }
    let (first, claim) = server.lease("mail").expect("nothing runs yet");
    let (second, _) = server.lease("mail").expect("another value");
    assert_eq!((first, second, server.lease("mail")), (1, 3, None));
    server.given(complete(claim));
    assert_eq!(server.lease("mail").map(|(id, _)| id), Some(2));
}

#[test]
fn a_rate_gives_its_burst_and_then_its_pace_across_restarts() {
    let mut server = Server::new();
    let rate = Rate { count: 1, per_ms: 100, burst: 2 };
    server.given(Command::SetConstraint(
        Constraint { rate: Some(rate), ..Constraint::default() },
        LimitScope::Whole,
    ));
    for id in 1..=4 {
        server.given(labelled(id, 1, 0));
    }
    assert!(server.lease("mail").is_some() && server.lease("mail").is_some());
    assert_eq!(server.lease("mail"), None);
    server.restart();
    server.now_ms += 99;
    assert_eq!(server.lease("mail"), None);
    server.now_ms += 1;
    assert!(server.lease("mail").is_some());
    assert_eq!(server.lease("mail"), None);
}

#[test]
fn a_removed_constraint_holds_nothing_back() {
    let mut server = Server::new();
    let rule = Constraint { running_max: Some(0), ..Constraint::default() };
    server.given(Command::SetConstraint(rule, LimitScope::Whole));
    server.given(labelled(1, 1, 0));
    assert_eq!(server.lease("mail"), None);
    assert_eq!(server.then(Command::RemoveConstraint { number: 1 }), ["ConstraintRemoved"]);
    assert_eq!(server.refused(Command::RemoveConstraint { number: 1 }), Rejection::NoConstraint);
    assert!(server.lease("mail").is_some());
}

#[test]
fn a_changed_constraint_keeps_its_number_and_raises_the_revision() {
    let mut server = Server::new();
    let mut rule = Constraint { running_max: Some(1), ..Constraint::default() };
    server.given(Command::SetConstraint(rule.clone(), LimitScope::Whole));
    rule.number = 1;
    rule.running_max = Some(2);
    server.given(Command::SetConstraint(rule.clone(), LimitScope::Whole));
    assert_eq!(server.state.server().constraints_revision, 2);
    assert_eq!(server.state.constraints().count(), 1);
    rule.number = 5;
    assert_eq!(
        server.refused(Command::SetConstraint(rule, LimitScope::Whole)),
        Rejection::NoConstraint
    );
}

#[test]
fn a_relabelled_job_counts_under_its_new_label() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    server.given(submit(2, "mail", |_| {}));
    let rule = Constraint { running_max: Some(1), ..Constraint::default() };
    server.given(Command::SetConstraint(rule, LimitScope::Whole));
    server.lease("mail").expect("ready");
    for id in [1, 2] {
        let relabel = relabel(id, 1, vec![Label { constraint: 1, value: 0 }]);
        assert_eq!(server.then(relabel.clone()), ["Relabelled"]);
        assert_eq!(server.then(relabel), [""; 0]);
    }
    assert_eq!(server.lease("mail"), None, "the running one counts");
}

fn set_queue(settings: QueueSettings) -> Command {
    Command::SetQueue { name: Bytes::from_static(b"mail"), settings }
}

#[test]
fn a_priority_class_is_full_when_the_queue_has_as_many_jobs_of_whatever_class() {
    let mut server = Server::new();
    let of_class = |id, priority| submit(id, "mail", |job| job.priority = priority);
    server.given(of_class(1, 0));
    server.given(of_class(2, 0));
    let classes = |jobs_max_by_class| QueueSettings { jobs_max_by_class, ..Default::default() };
    // As recorded of gearmand: with two normal jobs, `maxqueue mail 3 2 1` lets only high ones in.
    server.given(set_queue(classes(vec![3, 2, 1])));
    assert_eq!(server.refused(of_class(3, 0)), Rejection::QueueFull);
    assert_eq!(server.refused(of_class(3, -1)), Rejection::QueueFull);
    assert_eq!(server.then(of_class(3, 7)), ["Submitted"]);
    assert_eq!(server.refused(of_class(4, 7)), Rejection::QueueFull);
    // A leased job counts, a finished one does not.
    let (_, claim) = server.lease("mail").expect("ready");
    assert_eq!(server.refused(of_class(4, 7)), Rejection::QueueFull);
    server.given(complete(claim));
    assert_eq!(server.then(of_class(4, 7)), ["Submitted"]);
    // 0 and absent values are no limit.
    server.given(set_queue(classes(vec![0])));
    assert_eq!(server.then(of_class(5, 7)), ["Submitted"]);
    assert_eq!(server.then(of_class(6, -7)), ["Submitted"]);
    let refused = server.refused(set_queue(classes(vec![1, 1, 1, 1])));
    assert_eq!(refused, Rejection::OutOfRange("priority classes"));
}

fn end(server: &mut Server, id: u64) {
    server.given(complete(Claim::Unfinished { id: JobId(id) }));
}

/// Which of the first jobs are still there.
fn kept(server: &Server, until: u64) -> Vec<u64> {
    (1..=until).filter(|id| server.status(*id).is_some()).collect()
}

#[test]
fn a_queue_keeps_the_finished_jobs_that_ended_last() {
    let mut server = Server::new();
    for id in 1..=5 {
        let queue = if id == 5 { "bill" } else { "mail" };
        // Jobq's jobs have no retention of their own: only a cap makes them go.
        server.given(submit_by(Origin::Jobq, id, queue, |_| {}));
    }
    server.given(set_queue(QueueSettings { finished_max: Some(2), ..QueueSettings::default() }));
    for id in [5, 3, 1] {
        server.now_ms += 1_000;
        end(&mut server, id);
    }
    assert_eq!(server.pass(1_000), [""; 0]);
    end(&mut server, 2);
    assert_eq!(server.pass(0), ["Gone"]);
    let last = server.log.last().map(|(_, event)| event.clone());
    let gone = Gone { ids: vec![3], cause: Cause::Limit as i32 };
    assert_eq!(last, Some(Event::Gone(gone)), "the first of the queue to end");
    server.restart();
    server.now_ms += 1_000;
    end(&mut server, 4);
    server.pass(0);
    assert_eq!(kept(&server, 5), [2, 4, 5]);
    server.given(set_queue(QueueSettings { finished_max: Some(0), ..QueueSettings::default() }));
    server.pass(0);
    assert_eq!(kept(&server, 5), [5], "a lower cap holds for what is there");
}

#[test]
fn the_server_keeps_the_finished_jobs_that_ended_last() {
    let mut server = Server::with(Defaults { finished_max: 2, ..defaults() });
    for (id, queue) in [(1, "mail"), (2, "bill"), (3, "mail"), (4, "mail")] {
        server.given(submit(id, queue, |job| job.keep_ms = Some(1_000_000 - id)));
    }
    for id in [2, 4, 3, 1] {
        server.now_ms += 1_000;
        end(&mut server, id);
    }
    server.pass(0);
    assert_eq!(kept(&server, 4), [1, 3]);
}

#[test]
fn finished_jobs_are_capped_by_what_they_take_on_disk() {
    let mut server = Server::with(Defaults { finished_bytes_max: 90_000, ..defaults() });
    for id in 1..=4 {
        server.given(submit(id, "mail", |job| {
            job.payload = BytesRef::logged(id, 9, 30_000, Type::Bytes);
        }));
        end(&mut server, id);
        server.pass(1_000);
    }
    // Three payloads and images, rounded up by an eighth at most, pass the cap: two do not.
    assert_eq!(kept(&server, 4), [3, 4]);
    assert!((60_000..=68_500).contains(&server.state.finished_bytes()));
    let folded = server.folded(0);
    assert_eq!(folded.finished_bytes(), server.state.finished_bytes());
    server.given(Command::Delete { id: JobId(3), cause: Cause::Deleted });
    server.given(Command::Retry { image: Box::new(server.finished(4)), payload: None });
    assert_eq!(server.state.finished_bytes(), 0);
}

#[test]
fn there_are_at_most_so_many_queues_until_one_is_forgotten() {
    let mut server = Server::with(Defaults { queues_max: 2, ..defaults() });
    let job = |id, queue| submit(id, queue, |_| {});
    server.given(job(1, "one"));
    server.given(job(2, "two"));
    let full = Rejection::OutOfRange("number of queues");
    assert_eq!(server.refused(job(3, "three")), full);
    let settings = QueueSettings { paused: true, ..QueueSettings::default() };
    let three = Bytes::from_static(b"three");
    assert_eq!(server.refused(Command::SetQueue { name: three.clone(), settings }), full);
    let edit = Edit { id: JobId(1), queue: Some(three), ..Edit::default() };
    assert_eq!(server.refused(Command::Edit(Box::new(edit))), full);
    assert_eq!(server.then(job(3, "two")), ["Submitted"], "a queue there is has room");
    server.given(Command::Delete { id: JobId(1), cause: Cause::Deleted });
    assert_eq!(server.then(job(4, "three")), ["Submitted"]);
}

#[test]
fn a_constraint_has_a_bounded_number_of_values_and_forgets_the_full_ones() {
    let mut server = Server::with(Defaults { values_max: 2, ..defaults() });
    let rate = Rate { count: 1, per_ms: 5_000, burst: 1 };
    server.given(Command::SetConstraint(
        Constraint { rate: Some(rate), ..Constraint::default() },
        LimitScope::Whole,
    ));
    server.given(labelled(1, 1, 7));
    server.given(labelled(2, 1, 8));
    assert_eq!(server.refused(labelled(3, 1, 9)), Rejection::TooManyValues);
    assert_eq!(server.then(labelled(3, 1, 8)), ["Submitted"], "a known value has room");
    let (first, claim) = server.lease("mail").expect("every bucket is full");
    server.given(complete(claim));
    assert_eq!(first, 1);
    assert_eq!(server.refused(labelled(4, 1, 9)), Rejection::TooManyValues, "not yet full again");
    assert_eq!(server.state.buckets_count(), 2);
    server.pass(6_000);
    assert_eq!(server.then(labelled(4, 1, 9)), ["Submitted"]);
    for id in 2..=4 {
        server.given(Command::Delete { id: JobId(id), cause: Cause::Deleted });
    }
    server.pass(6_000);
    assert_eq!(server.state.buckets_count(), 0);
}

#[test]
fn many_full_buckets_are_forgotten_in_bounded_steps() {
    let mut server = Server::new();
    let rate = Rate { count: 1, per_ms: 1_000, burst: 1 };
    server.given(Command::SetConstraint(
        Constraint { rate: Some(rate), ..Constraint::default() },
        LimitScope::Whole,
    ));
    for id in 1..=600 {
        server.given(labelled(id, 1, id));
        let (_, claim) = server.lease("mail").expect("its bucket is full");
        server.given(complete(claim));
    }
    server.now_ms += 2_000;
    let mut counts = Vec::new();
    while server.state.buckets_count() > 0 {
        server.state.wake_buckets(server.now_ms);
        counts.push(server.state.buckets_count());
    }
    assert_eq!(counts, [344, 88, 0]);
}

#[test]
fn a_bucket_that_was_full_is_full_by_a_new_rule_whether_it_was_forgotten_or_not() {
    let mut server = Server::new();
    let rate = |burst| Rate { count: 1, per_ms: 1_000, burst };
    let mut rule = Constraint { rate: Some(rate(1)), ..Constraint::default() };
    server.given(Command::SetConstraint(rule.clone(), LimitScope::Whole));
    server.given(labelled(1, 1, 0));
    let (_, claim) = server.lease("mail").expect("its bucket is full");
    server.given(complete(claim));
    server.pass(1_000);
    assert_eq!(server.state.buckets_count(), 0, "forgotten at once");
    rule.number = 1;
    rule.rate = Some(rate(3));
    server.given(Command::SetConstraint(rule, LimitScope::Whole));
    (2..=5).for_each(|id| drop(server.given(labelled(id, 2, 0))));
    server.state = server.folded(0);
    let given = (2..=5).filter(|_| server.lease("mail").is_some()).count();
    assert_eq!(given, 3, "the fold knows an old level, which must not count");
}

#[test]
fn a_submit_that_knows_too_few_constraints_is_refused_even_without_labels() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    server.given(Command::SetConstraint(Constraint::default(), LimitScope::Whole));
    assert_eq!(server.refused(submit(2, "mail", |_| {})), Rejection::StaleConstraints);
    let knowing = submit(2, "mail", |job| job.constraints_revision = 1);
    assert_eq!(server.then(knowing), ["Submitted"]);
}
