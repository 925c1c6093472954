//! Submit, persist, reserve ids.

use bytes::Bytes;
use spindle_core::command::{Compact, Edit};
use spindle_core::job::{
    Cause, JOB_ID_END, JOB_ID_SEQUENCE_END, JobOptions, Label, Origin, Scope, TraceParent,
};
use spindle_core::payload::BytesRef;
use spindle_core::queue::{LimitScope, QueueSettings};
use spindle_core::seat::Seat;
use spindle_core::{Command, JobId, Rejection, Status, Type};

use crate::harness::{START_MS, Server, complete, key, lease_of, submit, submit_by};

#[test]
fn a_submit_is_ready_scheduled_or_parked_as_asked() {
    let mut server = Server::new();
    assert_eq!(server.then(submit(1, "mail", |_| {})), ["Submitted"]);
    server.given(submit(2, "mail", |job| job.run_at_ms = Some(START_MS + 1)));
    server.given(submit(3, "mail", |job| job.run_at_ms = Some(START_MS)));
    server.given(submit(4, "mail", |job| job.parked = true));
    let statuses = [1, 2, 3, 4].map(|id| server.status(id).expect("it is there"));
    assert_eq!(statuses, [Status::Ready, Status::Scheduled, Status::Ready, Status::Parked]);
}

#[test]
fn a_ttl_counts_from_the_time_the_job_may_run() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |job| job.ttl_ms = Some(10)));
    server.given(submit(2, "mail", |job| {
        job.ttl_ms = Some(10);
        job.run_at_ms = Some(START_MS + 100);
    }));
    server.given(submit(3, "mail", |job| job.ttl_ms = Some(u64::MAX)));
    assert_eq!(server.pass(9), [""; 0]);
    assert_eq!(server.pass(1), ["Gone"]);
    assert_eq!(server.status(1), None);
    assert_eq!(server.pass(90), ["Ready"]);
    assert_eq!(server.pass(10), ["Gone"]);
    assert_eq!((server.status(2), server.status(3)), (None, Some(Status::Ready)));
}

#[test]
fn a_taken_key_refuses_and_names_the_holder() {
    let mut server = Server::new();
    let keyed = |id, origin, scope| {
        submit_by(origin, id, "mail", |job| job.keys = vec![key(origin, &[9; 16], scope)])
    };
    server.given(keyed(1, Origin::Workq, Scope::WhileKept));
    let refused = server.refused(keyed(2, Origin::Workq, Scope::WhileKept));
    assert_eq!(refused, Rejection::KeyTaken(JobId(1)));
    // Another door's name is another name.
    server.given(keyed(3, Origin::Gearman, Scope::WhileUnfinished));
    let claim = spindle_core::command::Claim::Unfinished { id: JobId(3) };
    server.given(complete(claim));
    server.given(keyed(4, Origin::Gearman, Scope::WhileUnfinished));
    let claim = spindle_core::command::Claim::Unfinished { id: JobId(1) };
    server.given(complete(claim));
    let refused = server.refused(keyed(5, Origin::Workq, Scope::WhileKept));
    assert_eq!(refused, Rejection::KeyTaken(JobId(1)), "a finished job keeps such a name");
    server.given(Command::Delete { id: JobId(1), cause: Cause::Deleted });
    server.given(keyed(6, Origin::Workq, Scope::WhileKept));
}

#[test]
fn ids_come_from_the_reserved_block_and_are_not_used_twice() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    assert_eq!(server.refused(submit(1, "mail", |_| {})), Rejection::IdNotReserved);
    assert_eq!(server.refused(submit(1_000_000, "mail", |_| {})), Rejection::IdNotReserved);
    assert_eq!(server.then(Command::ReserveIds { until: 1_000_001 }), ["IdsReserved"]);
    assert_eq!(server.then(Command::ReserveIds { until: 5 }), [""; 0]);
    server.given(submit(1_000_000, "mail", |_| {}));
}

#[test]
fn ids_that_were_never_used_are_given_back_and_given_again() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    server.given(submit(2, "mail", |_| {}));
    server.given(Command::Delete { id: JobId(2), cause: Cause::Deleted });
    let back = |from| Command::ReturnIds { from };
    assert_eq!(server.refused(back(1)), Rejection::IdInUse);
    assert_eq!(server.refused(back(0)), Rejection::OutOfRange("id"));
    assert_eq!(server.refused(back(1_000_001)), Rejection::OutOfRange("id"));
    assert_eq!(server.then(back(1_000_000)), [""; 0], "there is nothing to give back");
    assert_eq!(server.then(back(3)), ["IdsReserved"]);
    assert_eq!(server.refused(submit(3, "mail", |_| {})), Rejection::IdNotReserved);
    // This holds after compaction and a new fold.
    let first = server.position;
    server.given(Command::Compact(Compact::Server));
    assert_eq!(server.folded(first).server().ids_until, 3);
    server.restart();
    assert_eq!(server.state.server().ids_until, 3);
    assert_eq!(server.then(Command::ReserveIds { until: 9 }), ["IdsReserved"]);
    server.given(submit(3, "mail", |_| {}));
    assert_eq!(server.folded(0).server().ids_until, 9);
}

#[test]
fn ids_begin_with_any_shards_and_stay_in_it() {
    let shard = 3 * JOB_ID_SEQUENCE_END;
    let mut server = Server::empty();
    let reserve = |until| Command::ReserveIds { until };
    assert_eq!(server.refused(reserve(JOB_ID_END + 1)), Rejection::OutOfRange("id"));
    assert_eq!(server.then(reserve(shard + 100)), ["IdsReserved"]);
    server.given(submit(shard + 1, "mail", |_| {}));
    // Even with all ids given back, from the very first one, it is still the same shard.
    server.given(Command::Delete { id: JobId(shard + 1), cause: Cause::Deleted });
    assert_eq!(server.then(Command::ReturnIds { from: shard + 1 }), ["IdsReserved"]);
    let end = shard + JOB_ID_SEQUENCE_END;
    assert_eq!(server.refused(reserve(end + 1)), Rejection::OutOfRange("id"));
    assert_eq!(server.then(reserve(end)), ["IdsReserved"]);
    server.given(submit(end - 1, "mail", |_| {}));
    assert_eq!(server.refused(reserve(end + 1)), Rejection::OutOfRange("id"));
}

#[test]
fn a_queue_of_another_shard_takes_no_jobs_and_no_settings() {
    let mut server = Server::empty();
    let seat = Seat { shard: 1, shards: 3 };
    server.given(Command::Start { epoch: 1, seat });
    server.given(Command::ReserveIds { until: JOB_ID_SEQUENCE_END + 100 });
    let names = || (0..).map(|number| format!("queue-{number}"));
    let here = names().find(|name| seat.shard_of(name.as_bytes()) == 1).expect("one of many");
    let there = names().find(|name| seat.shard_of(name.as_bytes()) == 2).expect("one of many");
    let id = |number| JOB_ID_SEQUENCE_END + number;
    server.given(submit(id(1), &here, |_| {}));
    assert_eq!(server.refused(submit(id(2), &there, |_| {})), Rejection::OtherShard(2));
    let set = Command::SetQueue { name: there.clone().into(), settings: QueueSettings::default() };
    assert_eq!(server.refused(set), Rejection::OtherShard(2));
    let to_there = Some(there.clone().into());
    let edit = Edit { id: JobId(id(1)), queue: to_there, ..Edit::default() };
    assert_eq!(server.refused(Command::Edit(Box::new(edit))), Rejection::OtherShard(2));
    // LightJQ's clients know one shard only.
    server.given(submit(id(2), &there, |job| job.origin = Origin::Lightjq));
}

#[test]
fn the_nil_uuid_is_nobodys_name() {
    let mut server = Server::new();
    let refused = server.refused(submit(1, "mail", |job| job.uuid = Some([0; 16])));
    assert_eq!(refused, Rejection::OutOfRange("uuid"));
}

#[test]
fn what_is_outside_its_limits_is_refused() {
    let mut server = Server::new();
    let out_of_range = |rejection| matches!(rejection, Rejection::OutOfRange(_));
    assert!(out_of_range(server.refused(submit(1, "", |_| {}))));
    assert!(out_of_range(server.refused(submit(1, &"q".repeat(513), |_| {}))));
    assert!(out_of_range(server.refused(submit(1, "mail", |job| {
        job.labels = (0..9).map(|value| Label { constraint: 1, value }).collect();
    }))));
    server.given(submit(1, &"q".repeat(512), |_| {}));
}

#[test]
fn labels_made_for_other_constraints_are_refused() {
    let mut server = Server::new();
    let rule = spindle_core::queue::Constraint { running_max: Some(1), ..Default::default() };
    server.given(Command::SetConstraint(rule, LimitScope::Whole));
    let labelled = |revision| {
        submit(1, "mail", |job| {
            job.labels = vec![Label { constraint: 1, value: 0 }];
            job.constraints_revision = revision;
        })
    };
    assert_eq!(server.refused(labelled(0)), Rejection::StaleConstraints);
    server.given(labelled(1));
}

#[test]
fn a_full_queue_takes_no_more_until_a_job_finishes() {
    let mut server = Server::new();
    let settings = QueueSettings { jobs_max: Some(1), ..QueueSettings::default() };
    server.given(Command::SetQueue { name: Bytes::from_static(b"mail"), settings });
    server.given(submit(1, "mail", |_| {}));
    assert_eq!(server.refused(submit(2, "mail", |_| {})), Rejection::QueueFull);
    let (_, claim) = server.lease("mail").expect("a job is ready");
    server.given(complete(claim));
    server.given(submit(2, "mail", |_| {}));
}

fn foreground(id: u64) -> Command {
    submit_by(Origin::Gearman, id, "mail", |job| {
        job.foreground = true;
        job.payload = BytesRef::in_memory(Bytes::from_static(b"now"), Type::Bytes);
    })
}

#[test]
fn a_foreground_job_leaves_no_trace_in_the_log() {
    let mut server = Server::new();
    let before = server.log.len();
    server.given(foreground(1));
    let (_, claim) = server.lease("mail").expect("a job is ready");
    server.given(complete(claim));
    assert_eq!((server.log.len(), server.status(1)), (before, None));
    server.given(foreground(2));
    server.restart();
    assert_eq!(server.status(2), None);
}

#[test]
fn a_persisted_foreground_job_survives_a_restart() {
    let mut server = Server::new();
    server.given(foreground(1));
    let payload = BytesRef::logged(server.position, 9, 3, Type::Bytes);
    let persist = Command::Persist { id: JobId(1), payload, keep_ms: Some(1_000) };
    assert_eq!(server.then(persist.clone()), ["Persisted"]);
    assert_eq!(server.then(persist), [""; 0], "it is logged already");
    server.restart();
    assert_eq!(server.status(1), Some(Status::Ready));
    assert!(!server.image(1).foreground);
    assert_eq!(server.image(1).options().keep_ms, Some(1_000));
}

#[test]
fn a_parked_job_keeps_the_time_it_may_run_at() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |job| {
        job.parked = true;
        job.run_at_ms = Some(START_MS + 500);
    }));
    let edit = Edit { id: JobId(1), parked: Some(false), ..Edit::default() };
    server.given(Command::Edit(Box::new(edit)));
    assert_eq!(server.status(1), Some(Status::Scheduled));
    assert_eq!(server.lease("mail"), None);
}

#[test]
fn a_submit_that_replaces_takes_the_key_of_a_waiting_job_in_one_step() {
    let mut server = Server::new();
    let keyed = |id: u64, name: &'static [u8], replaces: bool| {
        submit(id, "mail", move |job| {
            job.keys = vec![key(Origin::Api, name, Scope::WhileUnfinished)];
            job.replaces = replaces;
        })
    };
    server.given(keyed(1, b"a", true));
    assert_eq!(server.refused(keyed(2, b"a", false)), Rejection::KeyTaken(JobId(1)));
    assert_eq!(server.then(keyed(2, b"a", true)), ["Gone", "Submitted"]);
    assert_eq!((server.status(1), server.status(2)), (None, Some(Status::Ready)));
    // Jobs with other keys, or with the same name in another namespace, are left alone.
    server.given(keyed(3, b"b", true));
    assert_eq!((server.status(2), server.status(3)), (Some(Status::Ready), Some(Status::Ready)));
    // Scheduled and parked jobs wait as well.
    server.given(Command::Edit(Box::new(Edit {
        id: JobId(2),
        parked: Some(true),
        ..Edit::default()
    })));
    server.given(keyed(4, b"a", true));
    assert_eq!((server.status(2), server.status(4)), (None, Some(Status::Ready)));
}

#[test]
fn what_a_worker_has_or_keeps_its_name_for_good_is_not_replaced() {
    let mut server = Server::new();
    let keyed = |id: u64, name: &'static [u8], scope| {
        submit(id, "mail", move |job| {
            job.keys = vec![key(Origin::Api, name, scope)];
            job.replaces = true;
        })
    };
    server.given(keyed(1, b"once", Scope::WhileKept));
    let refused = server.refused(keyed(2, b"once", Scope::WhileKept));
    assert_eq!(refused, Rejection::KeyTaken(JobId(1)));
    server.given(keyed(3, b"a", Scope::WhileUnfinished));
    server.given(Command::Delete { id: JobId(1), cause: Cause::Deleted });
    server.given(lease_of(&["mail"]));
    assert_eq!(server.status(3), Some(Status::Leased));
    let refused = server.refused(keyed(4, b"a", Scope::WhileUnfinished));
    assert_eq!(refused, Rejection::KeyTaken(JobId(3)));
    assert_eq!(server.status(3), Some(Status::Leased), "a refusal changes nothing");
}

#[test]
fn a_full_queue_takes_a_job_in_the_place_of_another() {
    let mut server = Server::new();
    let settings = QueueSettings { jobs_max: Some(1), ..QueueSettings::default() };
    server.given(Command::SetQueue { name: Bytes::from_static(b"mail"), settings });
    let keyed = |id: u64, name: &'static [u8]| {
        submit(id, "mail", move |job| {
            job.keys = vec![key(Origin::Api, name, Scope::WhileUnfinished)];
            job.replaces = true;
        })
    };
    server.given(keyed(1, b"a"));
    assert_eq!(server.refused(keyed(2, b"b")), Rejection::QueueFull);
    server.given(keyed(2, b"a"));
    assert_eq!((server.status(1), server.status(2)), (None, Some(Status::Ready)));
}

const TRACE: TraceParent = TraceParent { trace_high: 1, trace_low: 2, span: 3, flags: 1 };

#[test]
fn a_job_keeps_its_trace_from_its_submit_on_through_its_end_and_a_retry() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |job| job.trace = Some(Box::new(TRACE))));
    let kept = |server: &Server| server.image(1).options().trace.as_deref().copied();
    assert_eq!(kept(&server), Some(TRACE));
    server.given(lease_of(&["mail"]));
    assert_eq!(kept(&server), Some(TRACE));
    server.restart();
    assert_eq!(kept(&server), Some(TRACE));
    let claim = spindle_core::command::Claim::Unfinished { id: JobId(1) };
    server.given(complete(claim));
    let image = server.finished(1);
    assert_eq!(image.options().trace.as_deref(), Some(&TRACE));
    server.given(Command::Retry { image: Box::new(image), payload: None });
    assert_eq!(kept(&server), Some(TRACE));
}

#[test]
fn a_job_of_an_older_log_has_no_trace_and_one_without_takes_no_byte_for_it() {
    use prost::Message;
    // Written by a server that knew nothing of traces: the result is dropped, and one tag.
    let older: &[u8] = &[0x42, 1, b't', 0x68, 1];
    let options = JobOptions::decode(older).expect("it is whole");
    assert_eq!((options.trace.as_ref(), options.drop_result), (None, true));
    assert_eq!(options.encode_to_vec(), older);
    let traced = JobOptions { trace: Some(Box::new(TRACE)), ..JobOptions::NONE };
    assert!(!traced.is_none());
    assert_eq!(JobOptions::decode(&traced.encode_to_vec()[..]), Ok(traced));
}
