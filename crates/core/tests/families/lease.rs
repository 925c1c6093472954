//! Lease, extend.

use bytes::Bytes;
use spindle_core::command::{Claim, Extend, Select};
use spindle_core::job::{Label, Origin};
use spindle_core::payload::BytesRef;
use spindle_core::queue::{Constraint, LimitScope, QueueSettings, Rate};
use spindle_core::{
    Command, Decision, Event, Found, JobId, Rejection, Reservations, Status, Type, decide_lease,
};

use crate::harness::{START_MS, Server, complete, fail, lease_of, lease_with, submit, submit_by};

fn leased(events: &[Event]) -> u64 {
    let leased = events.iter().find_map(|event| match event {
        Event::Leased(leased) => Some(leased.id),
        _ => None,
    });
    leased.expect("a job was leased")
}

#[test]
fn by_priority_gives_the_highest_then_the_oldest_over_all_queues() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    server.given(submit(2, "bill", |job| job.priority = 1));
    server.given(submit(3, "mail", |job| job.priority = 1));
    server.given(submit(4, "mail", |job| job.priority = -1));
    let given: Vec<u64> =
        (0..4).map(|_| leased(&server.given(lease_of(&["mail", "bill"])))).collect();
    assert_eq!(given, [2, 3, 1, 4]);
    assert_eq!(server.refused(lease_of(&["mail", "bill"])), Rejection::NothingReady);
}

#[test]
fn round_robin_takes_turns_among_queues_of_equal_priority() {
    let mut server = Server::new();
    for (id, queue) in [(1, "a"), (2, "a"), (3, "b"), (4, "c")] {
        server.given(submit(id, queue, |_| {}));
    }
    server.given(submit(5, "a", |job| job.priority = 1));
    let mut after = None;
    let mut given = Vec::new();
    for _ in 0..5 {
        let lease = lease_with(&["a", "b", "c"], |lease| {
            lease.select = Select::RoundRobin { after: after.clone() };
        });
        let id = leased(&server.given(lease));
        after = Some(server.image(id).queue);
        given.push(id);
    }
    assert_eq!(given, [5, 3, 4, 1, 2]);
}

#[test]
fn a_random_draw_reaches_every_queue_with_work_and_no_other() {
    let mut reached = std::collections::BTreeSet::new();
    for draw in 0..64u64 {
        let mut server = Server::new();
        server.given(submit(1, "a", |_| {}));
        server.given(submit(2, "c", |_| {}));
        server.given(submit(3, "c", |job| job.priority = 1));
        let lease = lease_with(&["a", "b", "c"], |lease| {
            lease.select = Select::RandomQueue { draw: draw << 58 };
        });
        reached.insert(leased(&server.given(lease)));
    }
    assert_eq!(reached.into_iter().collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn a_lease_lasts_the_smaller_of_the_jobs_time_and_the_workers() {
    let mut server = Server::new();
    let deadline = |server: &mut Server, ttr_ms, timeout_ms, bound| {
        let id = server.position;
        server.given(submit(id, "mail", |job| job.ttr_ms = ttr_ms));
        server.given(lease_with(&["mail"], |lease| {
            lease.timeout_ms = timeout_ms;
            lease.bound = bound;
        }));
        server.image(id).lease.expect("leased").deadline_ms.map(|at| at - START_MS)
    };
    assert_eq!(deadline(&mut server, Some(500), Some(900), false), Some(500));
    assert_eq!(deadline(&mut server, Some(500), Some(90), true), Some(90));
    assert_eq!(deadline(&mut server, None, Some(90), true), Some(90));
    assert_eq!(deadline(&mut server, None, None, true), None);
    assert_eq!(deadline(&mut server, None, None, false), Some(60_000));
    let settings = QueueSettings { ttr_default_ms: Some(7), ..QueueSettings::default() };
    server.given(Command::SetQueue { name: Bytes::from_static(b"mail"), settings });
    assert_eq!(deadline(&mut server, None, None, false), Some(7));
}

#[test]
fn a_door_passes_over_what_it_cannot_carry() {
    let mut server = Server::new();
    let large = BytesRef::logged(1, 9, 1_048_577, Type::Bytes);
    server.given(submit(1, "mail", |job| job.payload = large));
    server.given(submit(2, "mail", |_| {}));
    let workq = || lease_with(&["mail"], |lease| lease.payload_bytes_max = 1_048_576);
    assert_eq!(leased(&server.given(workq())), 2);
    assert_eq!(server.refused(workq()), Rejection::NothingReady);
    assert_eq!(leased(&server.given(lease_of(&["mail"]))), 1);
}

#[test]
fn a_token_of_an_older_lease_is_refused() {
    let mut server = Server::new();
    server.given(submit_by(Origin::Workq, 1, "mail", |job| job.ttr_ms = Some(10)));
    let (_, first) = server.lease("mail").expect("ready");
    assert_eq!(server.pass(10), ["Requeued"]);
    let (_, second) = server.lease("mail").expect("ready again");
    assert_eq!(server.refused(complete(first)), Rejection::NotHeld);
    assert_eq!(server.then(complete(second)), ["Finished"]);
}

#[test]
fn a_released_jobs_old_token_does_not_fit_the_next_lease() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    let (_, first) = server.lease("mail").expect("ready");
    let cause = spindle_core::job::Cause::Released;
    server.given(Command::Release { claim: first, cause });
    let (_, second) = server.lease("mail").expect("ready again");
    assert_ne!(first, second);
    assert_eq!(server.refused(complete(first)), Rejection::NotHeld);
}

#[test]
fn extending_moves_the_deadline_of_the_live_lease_only() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |job| job.ttr_ms = Some(10)));
    let (_, claim) = server.lease("mail").expect("ready");
    assert_eq!(server.then(Command::Extend(Extend { claim, ttr_ms: 50 })), ["Extended"]);
    assert_eq!(server.pass(49), [""; 0]);
    assert_eq!(server.pass(1), ["Requeued"]);
    let refused = server.refused(Command::Extend(Extend { claim, ttr_ms: 50 }));
    assert_eq!(refused, Rejection::NotHeld);
    let anyone = Claim::Unfinished { id: JobId(1) };
    let refused = server.refused(Command::Extend(Extend { claim: anyone, ttr_ms: 50 }));
    assert_eq!(refused, Rejection::NotHeld);
}

#[test]
fn a_holder_that_drops_its_timeout_has_the_jobs_own_time() {
    for (ttr_ms, bound, ends) in [
        (None, true, None),
        (Some(90), true, Some(90)),
        (Some(90), false, Some(90)),
        (None, false, Some(60_000)),
    ] {
        let mut server = Server::new();
        server.given(submit(1, "mail", |job| job.ttr_ms = ttr_ms));
        let lease = lease_with(&["mail"], |lease| {
            lease.bound = bound;
            lease.timeout_ms = Some(10);
        });
        server.given(lease);
        server.pass(5);
        let claim = Claim::Unfinished { id: JobId(1) };
        assert_eq!(server.then(Command::DropTimeout { claim }), ["Extended"]);
        match ends {
            None => assert_eq!(server.pass(1_000_000), [""; 0], "it lasts as long as its holder"),
            Some(ends) => {
                assert_eq!(server.pass(ends - 6), [""; 0], "{ttr_ms:?} {bound}");
                assert_eq!(server.pass(1), ["Requeued"], "{ttr_ms:?} {bound}");
                assert_eq!(server.refused(Command::DropTimeout { claim }), Rejection::NotHeld);
            }
        }
    }
}

#[test]
fn a_dropped_timeout_takes_no_time_that_was_given() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |job| job.ttr_ms = Some(20)));
    let (_, claim) = server.lease("mail").expect("ready");
    server.given(Command::Extend(Extend { claim, ttr_ms: 500 }));
    server.given(Command::DropTimeout { claim });
    assert_eq!(server.pass(499), [""; 0]);
    assert_eq!(server.pass(1), ["Requeued"]);
}

/// The reservations for a worker that was woken for the oldest job of a queue.
fn left_for_one(server: &Server, queue: &'static str, id: u64) -> Reservations {
    let Some(Found::Live(job)) = server.state.job(JobId(id)) else { panic!("job {id} waits") };
    let mut reserved = Reservations::NONE;
    reserved.add(&Bytes::from_static(queue.as_bytes()), job.labels());
    reserved
}

/// The job that a lease takes if it leaves these to others.
fn taken_beside(server: &Server, queue: &str, reserved: &Reservations) -> Option<u64> {
    let Command::Lease(request) = lease_of(&[queue]) else { unreachable!("it is a lease") };
    let mut out = Decision::default();
    let decided = decide_lease(&server.state, &request, reserved, server.now_ms, &mut out);
    let leased = out.events.iter().find_map(|(event, _)| match event {
        Event::Leased(leased) => Some(leased.id),
        _ => None,
    });
    assert_eq!(decided.is_ok(), leased.is_some());
    assert!(decided.is_ok() || !out.left.is_empty(), "it says where it left something");
    leased
}

#[test]
fn a_lease_leaves_as_many_jobs_as_are_reserved() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    let reserved = left_for_one(&server, "mail", 1);
    assert_eq!(taken_beside(&server, "mail", &reserved), None);
    server.given(submit(2, "mail", |_| {}));
    assert_eq!(taken_beside(&server, "mail", &reserved), Some(1), "the other one is left");
    server.given(submit(3, "bill", |_| {}));
    assert_eq!(taken_beside(&server, "bill", &reserved), Some(3));
}

#[test]
fn a_lease_leaves_as_many_starts_as_are_reserved_under_each_label() {
    let mut server = Server::new();
    let rule = Constraint { running_max: Some(1), ..Constraint::default() };
    server.given(Command::SetConstraint(rule, LimitScope::Whole));
    let number = server.state.constraints().next().expect("it is there").number;
    let revision = server.state.server().constraints_revision;
    for (id, queue, value) in [(1, "mail", 0), (2, "mail", 0), (3, "mail", 7), (4, "bill", 0)] {
        server.given(submit(id, queue, |job| {
            job.labels = vec![Label { constraint: number, value }];
            job.constraints_revision = revision;
        }));
    }
    let reserved = left_for_one(&server, "mail", 1);
    // Two have label 0, and one of them may run: it is left. So is it in the other queue.
    assert_eq!(taken_beside(&server, "mail", &reserved), Some(3));
    assert_eq!(taken_beside(&server, "bill", &reserved), None);
    assert_eq!(taken_beside(&server, "bill", &Reservations::NONE), Some(4));
    // Jobs that may not run anyway cannot be left.
    server.given(Command::Delete { id: JobId(1), cause: spindle_core::job::Cause::Deleted });
    server.given(lease_of(&["bill"]));
    let reserved = left_for_one(&server, "mail", 3);
    assert_eq!(taken_beside(&server, "mail", &reserved), None);
}

#[test]
fn a_lease_looks_at_so_many_reserved_groups_and_at_no_more() {
    let mut server = Server::new();
    let rule = Constraint { running_max: Some(1), ..Constraint::default() };
    server.given(Command::SetConstraint(rule, LimitScope::Whole));
    let number = server.state.constraints().next().expect("it is there").number;
    let revision = server.state.server().constraints_revision;
    let mut reserved = Reservations::NONE;
    for id in 1..=66 {
        let labels = vec![Label { constraint: number, value: id }];
        if id <= 64 {
            reserved.add(&Bytes::from_static(b"mail"), &labels);
        }
        server.given(submit(id, "mail", |job| {
            job.labels = labels;
            job.constraints_revision = revision;
        }));
    }
    assert_eq!(taken_beside(&server, "mail", &reserved), Some(65));
    let last = Label { constraint: number, value: 65 };
    reserved.add(&Bytes::from_static(b"mail"), &[last]);
    assert_eq!(taken_beside(&server, "mail", &reserved), None);
}

#[test]
fn a_paused_queue_gives_nothing_until_resumed() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    let name = Bytes::from_static(b"mail");
    let settings = QueueSettings { paused: true, ..QueueSettings::default() };
    server.given(Command::SetQueue { name: name.clone(), settings });
    assert_eq!(server.lease("mail"), None);
    server.restart();
    assert_eq!(server.lease("mail"), None, "a restart does not resume it");
    server.given(Command::SetQueue { name, settings: QueueSettings::default() });
    assert!(server.lease("mail").is_some());
}

#[test]
fn a_waiting_group_is_served_by_age_once_its_limit_frees() {
    let mut server = Server::new();
    let rule = Constraint { running_max: Some(1), ..Constraint::default() };
    server.given(Command::SetConstraint(rule.clone(), LimitScope::Whole));
    server.given(Command::SetConstraint(
        Constraint { rate: None, ..Constraint::default() },
        LimitScope::Whole,
    ));
    let job = |id, value, priority| {
        submit(id, "mail", move |job| {
            job.priority = priority;
            job.constraints_revision = 2;
            job.labels = vec![Label { constraint: 1, value: 0 }, Label { constraint: 2, value }];
        })
    };
    server.given(job(1, 0, 0));
    server.given(job(2, 1, 0));
    server.given(job(3, 2, 0));
    let (first, claim) = server.lease("mail").expect("ready");
    assert_eq!((first, server.lease("mail")), (1, None));
    server.given(complete(claim));
    // While one group tries the freed limit for all, a better job joins one that waits.
    server.given(job(4, 2, 5));
    assert_eq!(server.lease("mail").expect("one may run").0, 4);
}

#[test]
fn a_small_job_is_not_hidden_behind_a_large_one_at_the_same_limit() {
    let mut server = Server::new();
    let rule = Constraint { running_max: Some(1), ..Constraint::default() };
    server.given(Command::SetConstraint(rule, LimitScope::Whole));
    let job = |id, len| {
        submit(id, "mail", move |job| {
            job.payload = BytesRef::logged(1, 9, len, Type::Bytes);
            job.constraints_revision = 1;
            job.labels = vec![Label { constraint: 1, value: 0 }];
        })
    };
    for (id, len) in [(1, 5), (2, 2_000_000), (3, 5)] {
        server.given(job(id, len));
    }
    let (_, claim) = server.lease("mail").expect("nothing runs yet");
    assert_eq!(server.lease("mail"), None, "both classes wait at the limit now");
    server.given(complete(claim));
    let workq = lease_with(&["mail"], |lease| lease.payload_bytes_max = 1_048_576);
    assert_eq!(leased(&server.given(workq)), 3);
}

#[test]
fn a_lease_that_needs_its_own_record_says_so() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    server.given(submit(2, "mail", |job| job.attempts_max = Some(0)));
    let mut out = Decision::default();
    let mut waits = Vec::new();
    for _ in 0..2 {
        spindle_core::decide(&server.state, &lease_of(&["mail"]), server.now_ms, &mut out)
            .expect("ready");
        waits.push(out.waits_for_own_record);
        server.given(lease_of(&["mail"]));
    }
    assert_eq!(waits, [true, false]);
}

#[test]
fn a_foreground_lease_under_a_rate_logs_what_it_took() {
    let mut server = Server::new();
    let rate = Rate { count: 1, per_ms: 1_000, burst: 1 };
    server.given(Command::SetConstraint(
        Constraint { rate: Some(rate), ..Constraint::default() },
        LimitScope::Whole,
    ));
    server.given(submit_by(Origin::Gearman, 1, "mail", |job| {
        job.foreground = true;
        job.payload = BytesRef::in_memory(Bytes::from_static(b"x"), Type::Bytes);
        job.labels = vec![Label { constraint: 1, value: 0 }];
        job.constraints_revision = 1;
    }));
    server.given(submit(2, "mail", |job| {
        job.labels = vec![Label { constraint: 1, value: 0 }];
        job.constraints_revision = 1;
    }));
    assert_eq!(server.then(lease_of(&["mail"])), ["BucketSet", "Leased"]);
    assert!(matches!(server.log.last(), Some((_, Event::BucketSet(_)))));
    server.restart();
    assert_eq!(server.lease("mail"), None, "a crash brings no tokens");
    server.now_ms += 1_000;
    assert_eq!(server.lease("mail").map(|(id, _)| id), Some(2));
}

#[test]
fn a_lowered_maximum_kills_instead_of_leasing_once_more() {
    let mut server = Server::new();
    server.given(submit_by(Origin::Workq, 1, "mail", |job| job.ttr_ms = Some(10)));
    for _ in 0..2 {
        server.lease("mail").expect("ready");
        server.pass(10);
    }
    let settings = QueueSettings { attempts_max: Some(2), ..QueueSettings::default() };
    server.given(Command::SetQueue { name: Bytes::from_static(b"mail"), settings });
    assert_eq!(server.lease("mail"), None);
    let image = server.finished(1);
    assert_eq!(image.attempts, 2, "attempts never pass their maximum");
    let outcome = image.outcome.expect("it says why it is dead");
    assert_eq!(outcome.code, "limit");
    assert_eq!(outcome.message, "it had 2 attempts, and may have no more than 2 now");
}

#[test]
fn leases_of_too_many_queues_are_refused() {
    let mut server = Server::new();
    let names: Vec<String> = (0..1_025).map(|at| format!("q{at}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(server.refused(lease_of(&names)), Rejection::OutOfRange("queues"));
    assert_eq!(server.refused(lease_of(&names[1..])), Rejection::NothingReady);
}

#[test]
fn a_failed_job_waits_out_its_backoff_before_it_is_leased() {
    let mut server = Server::new();
    server.given(submit_by(Origin::Lightjq, 1, "mail", |_| {}));
    let (_, claim) = server.lease("mail").expect("ready");
    server.given(fail(claim));
    assert_eq!(server.status(1), Some(Status::Scheduled));
    assert_eq!(server.lease("mail"), None);
    server.pass(1_000);
    assert!(server.lease("mail").is_some());
}
