//! Queue settings and constraints.

use bytes::Bytes;
use spindle_core::job::Label;
use spindle_core::queue::{Constraint, QueueSettings, Rate};
use spindle_core::{Command, Rejection};

use crate::harness::{Server, complete, submit};

fn labelled(id: u64, revision: u64, value: u64) -> Command {
    submit(id, "mail", |job| {
        job.labels = vec![Label { constraint: 1, value }];
        job.constraints_revision = revision;
    })
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
    assert_eq!(server.then(Command::SetConstraint(rule)), ["ConstraintSet"]);
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
    server.given(Command::SetConstraint(Constraint { rate: Some(rate), ..Constraint::default() }));
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
    server.given(Command::SetConstraint(rule));
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
    server.given(Command::SetConstraint(rule.clone()));
    rule.number = 1;
    rule.running_max = Some(2);
    server.given(Command::SetConstraint(rule.clone()));
    assert_eq!(server.state.server().constraints_revision, 2);
    assert_eq!(server.state.constraints().count(), 1);
    rule.number = 5;
    assert_eq!(server.refused(Command::SetConstraint(rule)), Rejection::NoConstraint);
}

#[test]
fn a_relabelled_job_counts_under_its_new_label() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    server.given(submit(2, "mail", |_| {}));
    let rule = Constraint { running_max: Some(1), ..Constraint::default() };
    server.given(Command::SetConstraint(rule));
    server.lease("mail").expect("ready");
    for id in [1, 2] {
        let labels = vec![Label { constraint: 1, value: 0 }];
        let relabel = Command::Relabel { id: spindle_core::JobId(id), labels };
        assert_eq!(server.then(relabel.clone()), ["Relabelled"]);
        assert_eq!(server.then(relabel), [""; 0]);
    }
    assert_eq!(server.lease("mail"), None, "the running one counts");
}
