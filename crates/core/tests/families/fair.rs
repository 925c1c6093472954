//! Fair shares: keys take turns.

use bytes::Bytes;
use spindle_core::command::{Compact, Edit, Matched, Submit};
use spindle_core::job::Label;
use spindle_core::payload::BytesRef;
use spindle_core::queue::{
    Constraint, FAIR_KEY_BYTES_MAX, FAIR_WEIGHT_MAX, FAIR_WEIGHTS_MAX, Fair, FairWeight,
    LimitScope, QueueSettings,
};
use spindle_core::{Command, Defaults, JobId, Rejection, Type};

use crate::harness::{Server, complete, defaults, lease_of, lease_with, submit};

fn settings(weights: &[(&'static str, u32)]) -> QueueSettings {
    let weights = weights.iter().map(|(key, weight)| FairWeight {
        key: Bytes::from_static(key.as_bytes()),
        weight: *weight,
    });
    let fair = Fair { field: String::new(), weights: weights.collect() };
    QueueSettings { fair: Some(fair), ..QueueSettings::default() }
}

fn set(settings: QueueSettings) -> Command {
    Command::SetQueue { name: Bytes::from_static(b"q"), settings }
}

fn fair_with(weights: &[(&'static str, u32)]) -> Server {
    let mut server = Server::new();
    server.given(set(settings(weights)));
    server
}

fn fair() -> Server {
    fair_with(&[])
}

/// A job of a key; "" for none.
fn job(id: u64, key: &str) -> Command {
    job_with(id, key, |_| {})
}

fn job_with(id: u64, key: &str, change: impl FnOnce(&mut Submit)) -> Command {
    submit(id, "q", |job| {
        job.fair_key = (!key.is_empty()).then(|| Bytes::copy_from_slice(key.as_bytes()));
        change(job);
    })
}

fn next(server: &mut Server) -> Option<u64> {
    server.lease("q").map(|(id, _)| id)
}

fn drain(server: &mut Server) -> Vec<u64> {
    std::iter::from_fn(|| next(server)).collect()
}

fn listed(server: &Server) -> Vec<u64> {
    server.state.ready_jobs(b"q", 0).map(|job| job.id().0).collect()
}

#[test]
fn keys_take_turns_whatever_their_number_of_jobs() {
    let mut server = fair();
    for id in 1..=500 {
        server.given(job(id, "large"));
    }
    server.given(job(501, "b"));
    server.given(job(502, "c"));
    server.given(job(503, "b"));
    let given: Vec<u64> = (0..6).filter_map(|_| next(&mut server)).collect();
    assert_eq!(given, [1, 501, 502, 2, 503, 3]);
    // A key that comes now waits for one turn of each other key.
    server.given(job(504, "d"));
    let given: Vec<u64> = (0..3).filter_map(|_| next(&mut server)).collect();
    assert_eq!(given, [4, 504, 5]);
}

#[test]
fn within_a_key_priority_and_age_count_and_between_keys_they_do_not() {
    let mut server = fair();
    server.given(job_with(1, "a", |job| job.priority = -1));
    server.given(job(2, "a"));
    server.given(job_with(3, "b", |job| job.priority = 9));
    server.given(job_with(4, "b", |job| job.priority = 9));
    server.given(job(5, "a"));
    assert_eq!(drain(&mut server), [2, 3, 5, 4, 1]);
}

#[test]
fn jobs_without_key_take_one_turn_together() {
    let mut server = fair();
    for id in 1..=4 {
        server.given(job(id, ""));
    }
    server.given(job(5, "a"));
    server.given(job(6, "a"));
    assert_eq!(drain(&mut server), [1, 5, 2, 6, 3, 4]);
}

#[test]
fn a_key_starts_as_many_jobs_a_turn_as_its_weight_says() {
    let mut server = fair_with(&[("", 2), ("heavy", 3)]);
    for id in 1..=60 {
        server.given(job(id, ["heavy", "light", ""][id as usize % 3]));
    }
    let of = |ids: &[u64], rest: u64| ids.iter().filter(|id| *id % 3 == rest).count();
    for _ in 0..3 {
        let round: Vec<u64> = (0..6).filter_map(|_| next(&mut server)).collect();
        assert_eq!([of(&round, 0), of(&round, 1), of(&round, 2)], [3, 1, 2], "{round:?}");
    }
    // Other weights hold from the next turn of each key.
    server.given(set(settings(&[("light", 4)])));
    (0..3).for_each(|_| assert!(next(&mut server).is_some()));
    let round: Vec<u64> = (0..12).filter_map(|_| next(&mut server)).collect();
    assert_eq!([of(&round, 0), of(&round, 1), of(&round, 2)], [2, 8, 2], "{round:?}");
}

#[test]
fn a_key_that_was_away_has_saved_up_nothing() {
    let mut server = fair();
    server.given(job(1, "away"));
    for id in 2..=60 {
        server.given(job(id, "busy"));
    }
    (0..40).for_each(|_| assert!(next(&mut server).is_some()));
    (0..3).for_each(|nth| drop(server.given(job(100 + nth, "away"))));
    let given: Vec<u64> = (0..5).filter_map(|_| next(&mut server)).collect();
    assert_eq!(given, [41, 100, 42, 101, 43]);
}

/// The key has a new job each time right after its last one started.
#[test]
fn a_key_with_one_job_at_a_time_gets_no_more_than_its_turns() {
    let mut server = fair();
    for id in 1..=20 {
        server.given(job(id, "backlog"));
    }
    let mut given = Vec::new();
    for nth in 0..10 {
        server.given(job(100 + nth, "one"));
        given.extend(next(&mut server));
        given.extend(next(&mut server));
    }
    assert_eq!(given.iter().filter(|id| **id < 100).count(), 10, "{given:?}");
}

// ---- constraints ----

fn running_max(number: u32, max: u64) -> Command {
    let running_max = Some(max);
    Command::SetConstraint(
        Constraint { number, running_max, ..Constraint::default() },
        LimitScope::Whole,
    )
}

fn labelled(id: u64, key: &str, revision: u64, labels: &[(u32, u64)]) -> Command {
    job_with(id, key, |job| {
        let label =
            |(constraint, value): &(u32, u64)| Label { constraint: *constraint, value: *value };
        job.labels = labels.iter().map(label).collect();
        job.constraints_revision = revision;
    })
}

#[test]
fn a_key_whose_jobs_are_held_back_is_passed_over_and_loses_no_turn() {
    let mut server = fair();
    server.given(running_max(0, 1));
    for id in 1..=4 {
        server.given(labelled(id, "held", 1, &[(1, 7)]));
    }
    for id in 11..=30 {
        server.given(labelled(id, ["a", "b"][id as usize % 2], 1, &[]));
    }
    let (first, claim) = server.lease("q").expect("nothing is held yet");
    let passed: Vec<u64> = (0..10).filter_map(|_| next(&mut server)).collect();
    assert_eq!((first, passed), (1, (11..=20).collect()));
    server.given(complete(claim));
    // The key is next once, not ten times for the turns that it missed.
    assert_eq!(next(&mut server), Some(2));
    server.given(running_max(1, 9));
    let rest: Vec<u64> = (0..6).filter_map(|_| next(&mut server)).collect();
    assert_eq!(rest, [21, 22, 3, 23, 24, 4]);
}

/// All jobs wait at one bucket: which of them competes for it when it is free follows the turns.
#[test]
fn keys_take_turns_at_a_bucket_that_they_share() {
    let mut server = fair();
    server.given(running_max(0, 1));
    for id in 1..=12 {
        let key = if id <= 8 { "large" } else { ["b", "c"][id as usize % 2] };
        server.given(labelled(id, key, 1, &[(1, 0)]));
    }
    let mut given = Vec::new();
    while let Some((id, claim)) = server.lease("q") {
        given.push(id);
        assert_eq!(next(&mut server), None, "one at a time");
        server.given(complete(claim));
    }
    assert_eq!(given, [1, 9, 10, 2, 11, 12, 3, 4, 5, 6, 7, 8]);
}

/// A free bucket is probed by a key that has its turn through other jobs meanwhile.
#[test]
fn a_probe_is_handed_over_when_its_key_has_had_its_turn() {
    let mut server = fair();
    server.given(running_max(0, 1));
    server.given(labelled(1, "a", 1, &[(1, 0)]));
    let (_, claim) = server.lease("q").expect("the bucket is free");
    server.given(labelled(2, "a", 1, &[(1, 0)]));
    server.given(labelled(3, "b", 1, &[(1, 0)]));
    assert_eq!(next(&mut server), None, "both wait at the bucket");
    server.given(complete(claim));
    // `a` probes the bucket. An urgent job of `a` takes its turn.
    server.given(job_with(4, "a", |job| {
        (job.priority, job.constraints_revision) = (5, 1);
    }));
    assert_eq!(next(&mut server), Some(4));
    assert_eq!(next(&mut server), Some(3), "it is the turn of `b`");
}

/// What docs/fairness.md says about limits per key.
#[test]
fn a_limit_for_each_key_goes_together_with_turns() {
    let mut server = fair();
    server.given(running_max(0, 2));
    for id in 1..=12 {
        let key = ["a", "b", "c"][id as usize % 3];
        server.given(labelled(id, key, 1, &[(1, id % 3)]));
    }
    let mut claims = Vec::new();
    while let Some(leased) = server.lease("q") {
        claims.push(leased);
    }
    assert_eq!(claims.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
    server.given(complete(claims[1].1));
    assert_eq!(next(&mut server), Some(8));
    assert_eq!(next(&mut server), None);
}

#[test]
fn a_worker_that_takes_small_payloads_only_passes_over_keys_with_large_ones() {
    let mut server = fair();
    let large = |job: &mut Submit| job.payload = BytesRef::logged(1, 64, 2 << 20, Type::Bytes);
    server.given(job_with(1, "a", large));
    server.given(job_with(2, "a", large));
    server.given(job(3, "b"));
    server.given(job(4, "b"));
    server.given(job(5, "a"));
    let small = || lease_with(&["q"], |lease| lease.payload_bytes_max = 1 << 20);
    let leased: Vec<String> = (0..2).map(|_| format!("{:?}", server.given(small()))).collect();
    assert!(leased[0].contains("id: 5,") && leased[1].contains("id: 3,"), "{leased:?}");
    assert_eq!(drain(&mut server), [1, 4, 2]);
}

// ---- what keeps a turn ----

#[test]
fn a_job_that_is_changed_or_compacted_keeps_the_turn_of_its_key() {
    for kind in 0..3 {
        let mut server = fair();
        for (id, key) in [(1, "a"), (2, "b"), (3, "c"), (4, "a")] {
            server.given(job(id, key));
        }
        let image = server.image(1);
        let (id, matched) = (JobId(1), Matched { labels: Vec::new(), constraints_revision: 0 });
        server.given(match kind {
            0 => Command::Edit(Box::new(Edit {
                id,
                revision: None,
                queue: None,
                matched: None,
                priority: Some(3),
                run_at_ms: None,
                parked: None,
            })),
            1 => Command::Compact(Compact::Job {
                id,
                revision: image.revision,
                payload: image.payload,
                result: None,
            }),
            _ => {
                let labels = vec![Label { constraint: 9, value: 1 }];
                Command::Relabel { id, revision: None, matched: Matched { labels, ..matched } }
            }
        });
        assert_eq!(drain(&mut server), [1, 2, 3, 4], "kind {kind}");
    }
}

#[test]
fn a_key_without_ready_jobs_is_forgotten() {
    let mut server = fair();
    for id in 1..=300 {
        server.given(job(id, &format!("key-{id}")));
    }
    let keys = |server: &Server, id| server.state.fair_place(JobId(id)).map(|place| place.keys);
    assert_eq!(keys(&server, 7), Some(300));
    assert_eq!(drain(&mut server).len(), 300);
    server.given(job(301, "last"));
    assert_eq!(keys(&server, 301), Some(1));
}

#[test]
fn a_restart_begins_a_round_in_the_order_of_the_keys_first_jobs() {
    let mut server = fair();
    for (id, key) in [(1, "a"), (2, "a"), (3, "b"), (4, "b"), (5, "c"), (6, "a")] {
        server.given(job_with(id, key, |job| job.priority = i64::from(key == "c")));
    }
    assert_eq!([next(&mut server), next(&mut server)], [Some(1), Some(3)]);
    server.restart();
    assert_eq!(drain(&mut server), [5, 2, 4, 6]);
}

// ---- limits ----

#[test]
fn keys_beyond_the_most_share_the_turn_of_jobs_without_key() {
    let fair_keys_max = 2;
    let mut server = Server::with(Defaults { fair_keys_max, ..defaults() });
    server.given(set(settings(&[])));
    for (id, key) in [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "c"), (6, "a"), (7, "")] {
        server.given(job(id, key));
    }
    assert_eq!(server.state.fair_place(JobId(5)).map(|place| place.key.len()), Some(0));
    assert_eq!(listed(&server), [1, 2, 3, 6, 4, 5, 7]);
    assert_eq!([next(&mut server), next(&mut server)], [Some(1), Some(2)]);
    // `b` is gone: there is room for `c`, whose first jobs stay where they are.
    server.given(job(8, "c"));
    server.given(Command::Delete { id: JobId(5), cause: spindle_core::job::Cause::Deleted });
    assert_eq!(drain(&mut server), [3, 6, 8, 4, 7]);
}

#[test]
fn settings_that_make_no_sense_are_refused() {
    let mut server = Server::new();
    let long = "k".repeat(257).leak();
    for weights in [vec![("a", 0)], vec![("a", 1_001)], vec![("b", 1), ("a", 1)], vec![(&*long, 1)]]
    {
        let refused = server.refused(set(settings(&weights)));
        assert_eq!(refused, Rejection::OutOfRange("fair"), "{weights:?}");
    }
    let twice = server.refused(set(settings(&[("a", 1), ("a", 2)])));
    assert_eq!(twice, Rejection::OutOfRange("fair"));
    for key in [Bytes::new(), Bytes::from_static(long.as_bytes())] {
        let refused = server.refused(submit(1, "q", |job| job.fair_key = Some(key)));
        assert_eq!(refused, Rejection::OutOfRange("fair key"));
    }
}

#[test]
fn keys_and_weights_are_taken_up_to_their_limits() {
    let mut server = Server::new();
    let longest = &*"k".repeat(FAIR_KEY_BYTES_MAX).leak();
    server.given(set(settings(&[(longest, FAIR_WEIGHT_MAX)])));
    server.given(job(1, longest));
    assert_eq!(server.state.fair_place(JobId(1)).map(|place| place.key.len()), Some(256));
    let keys: Vec<&'static str> =
        (0..=FAIR_WEIGHTS_MAX).map(|n| &*format!("{n:04}").leak()).collect();
    let weights: Vec<(&'static str, u32)> = keys.iter().map(|key| (*key, 2)).collect();
    server.given(set(settings(&weights[..FAIR_WEIGHTS_MAX])));
    assert_eq!(server.refused(set(settings(&weights))), Rejection::OutOfRange("fair"));
}

// ---- switching ----

#[test]
fn a_queue_that_becomes_fair_lets_the_keys_of_its_jobs_take_turns() {
    let mut server = Server::new();
    for id in 1..=6 {
        server.given(job(id, if id <= 4 { "a" } else { "b" }));
    }
    server.given(set(settings(&[])));
    assert_eq!(listed(&server), [1, 5, 2, 6, 3, 4]);
    assert_eq!([next(&mut server), next(&mut server)], [Some(1), Some(5)]);
    server.given(set(QueueSettings::default()));
    assert_eq!(drain(&mut server), [2, 3, 4, 6]);
}

#[test]
fn switching_with_many_jobs_takes_bounded_steps_and_loses_none() {
    const JOBS: u64 = 2_500;
    let mut server = Server::new();
    server.given(running_max(0, 3));
    for id in 1..=JOBS {
        let key = format!("key-{}", id % 50);
        let labels: &[(u32, u64)] = if id % 10 == 0 { &[(1, 0)] } else { &[] };
        server.given(labelled(id, &key, 1, labels));
    }
    let ages = QueueSettings { aging_ms: Some(5), ..settings(&[("key-1", 5)]) };
    let plain = QueueSettings { paused: true, ..QueueSettings::default() };
    let mut seen = Vec::new();
    let step = |server: &mut Server, seen: &mut Vec<u64>| {
        for _ in 0..3 {
            if let Some((id, claim)) = server.lease("q") {
                seen.push(id);
                server.given(complete(claim));
            }
        }
        let before = server.state.is_rebasing();
        server.state.rebase();
        before
    };
    for change in [settings(&[]), ages, QueueSettings { paused: false, ..plain }, settings(&[])] {
        server.given(set(change));
        assert!(step(&mut server, &mut seen), "one step is not enough");
        let listed = listed(&server).len();
        assert_eq!(listed + seen.len(), JOBS as usize);
    }
    let mut steps = 0;
    while step(&mut server, &mut seen) {
        steps += 1;
        assert!(steps < 100, "it does not come to an end");
    }
    while let Some((id, claim)) = server.lease("q") {
        seen.push(id);
        server.given(complete(claim));
    }
    seen.sort_unstable();
    assert!(seen.into_iter().eq(1..=JOBS), "each job once");
}

// ---- several queues, and where a job stands ----

#[test]
fn among_queues_the_priority_of_the_job_whose_turn_it_is_counts() {
    let mut server = fair();
    server.given(job(1, "a"));
    server.given(job_with(2, "b", |job| job.priority = 9));
    server.given(submit(3, "other", |job| job.priority = 1));
    let leased = format!("{:?}", server.given(lease_of(&["q", "other"])));
    assert!(leased.contains("id: 3,"), "{leased}");
    assert_eq!(drain(&mut server), [1, 2]);
}

#[test]
fn a_job_stands_where_the_list_has_it_and_is_leased_in_that_order() {
    let mut server = fair();
    for id in 1..=60 {
        server.given(job(id, &format!("key-{}", (id * id) % 7)));
    }
    (0..5).for_each(|_| assert!(next(&mut server).is_some()));
    let listed = listed(&server);
    for (at, id) in listed.iter().enumerate() {
        let before = server.state.ready_before(JobId(*id)).expect("it is ready");
        assert_eq!((before.count, before.at_least), (at, false), "job {id}");
    }
    let third = server.state.fair_place(JobId(listed[9])).expect("it is ready");
    assert_eq!((third.keys, third.weight), (4, 1));
    assert_eq!(third.before.count, 2, "4 keys, and 9 jobs before it");
    assert_eq!(drain(&mut server), listed);
}

#[test]
fn lists_follow_weights() {
    let mut server = fair_with(&[("key-0", 5), ("key-1", 2)]);
    for id in 1..=40 {
        server.given(job(id, &format!("key-{}", id % 3)));
    }
    let listed = listed(&server);
    assert_eq!(drain(&mut server), listed);
}
