//! Constraints put by name: which jobs fall under them, however they come, and how jobs that are
//! there already are matched.

use std::collections::VecDeque;

use bytes::Bytes;
use spindle_core::audit::Action;
use spindle_core::command::{Command, Edit, Submit};
use spindle_core::job::{Label, Origin};
use spindle_core::queue::{LimitScope, Rate};
use spindle_core::{BytesRef, JobId, Rejection, Status, Type};
use spindle_engine::{
    Committed, Condition, ConstraintSpec, Expected, Matcher, NewJob, Options, Payload,
    QueuePattern, Refused, RelabelStep, Scalar, Test,
};
use spindle_testkit::disk::SimDisk;

use crate::harness::{Bench, START_MS, TakeApart, file_log, new_job, noise, plain, somebody};

pub fn few(matcher: Matcher, max: u64) -> ConstraintSpec {
    ConstraintSpec { matcher, rate: None, running_max: Some(max) }
}

pub fn in_queue(name: &'static str) -> Matcher {
    let queue = QueuePattern::Exact(Bytes::from_static(name.as_bytes()));
    Matcher { queue, ..Matcher::default() }
}

pub fn free_plan() -> Matcher {
    let test = Test::Eq(Scalar::Text("free".to_owned()));
    let conditions = vec![Condition { pointer: "/plan".to_owned(), test }];
    Matcher { conditions, ..Matcher::default() }
}

fn per_user() -> Matcher {
    Matcher { per: Some("/user".to_owned()), ..Matcher::default() }
}

pub fn put(bench: &Bench, name: &str, spec: &ConstraintSpec) -> u64 {
    bench
        .engine
        .people(&mut somebody())
        .put_constraint(name, spec, LimitScope::Whole, Expected::Any)
        .value()
        .expect("it is taken")
        .revision
}

/// Matches everything there is.
pub fn relabel(bench: &Bench) -> usize {
    let mut steps = 0;
    while bench.engine.relabel_step() == RelabelStep::More {
        steps += 1;
        assert!(steps < 1000, "it does not come to an end");
    }
    steps
}

pub fn json(bench: &Bench, queue: &str, text: &str) -> JobId {
    typed(bench, queue, text.as_bytes(), Type::Json)
}

fn typed(bench: &Bench, queue: &str, payload: &[u8], kind: Type) -> JobId {
    let payload = Payload::new(payload.to_vec(), kind);
    bench.engine.jobs().submit(NewJob { submit: plain(queue), payload }).value().expect("taken")
}

fn labels(bench: &Bench, id: JobId) -> Vec<Label> {
    bench.image(id).options().labels.clone()
}

pub fn numbers(bench: &Bench, id: JobId) -> Vec<u32> {
    labels(bench, id).iter().map(|label| label.constraint).collect()
}

#[test]
fn jobs_fall_under_a_constraint_whichever_call_they_come_by() {
    let bench = Bench::new();
    put(&bench, "free", &few(free_plan(), 1));
    let job = |origin, foreground| {
        let mut submit =
            Submit::new(JobId(0), Bytes::from_static(b"q"), origin, BytesRef::empty(Type::Json));
        submit.foreground = foreground;
        NewJob { submit, payload: Payload::new(&br#"{"plan":"free"}"#[..], Type::Json) }
    };
    let plain = bench.engine.jobs().submit(job(Origin::Api, false)).value().expect("taken");
    let joined = bench
        .engine
        .jobs()
        .submit_or_join(None, job(Origin::Gearman, false))
        .value()
        .expect("taken")
        .job;
    let mut many = VecDeque::from([job(Origin::Api, false), job(Origin::Jobq, false)]);
    let many = bench.engine.jobs().submit_batch(&mut many).into_iter();
    let many = many.map(|taken| taken.value().expect("taken"));
    let caller = bench.caller(4);
    bench
        .engine
        .jobs()
        .submit_and_wait(&caller, job(Origin::Workq, true), 1000)
        .value()
        .expect("it waits");
    let waited = bench.engine.inspect(|state| state.jobs_from(JobId(0)).last().map(|job| job.id()));
    for id in [plain, joined].into_iter().chain(many).chain(waited) {
        assert_eq!(labels(&bench, id), [Label { constraint: 1, value: 0 }], "job {id}");
    }
    assert!(bench.lease("q").is_some());
    assert!(bench.lease("q").is_none(), "one of them runs already");
    let other = json(&bench, "q", r#"{"plan":"paid"}"#);
    assert_eq!(bench.lease("q").map(|job| job.id), Some(other));
}

#[test]
fn labels_somebody_brings_are_kept_and_must_be_of_the_newest_set() {
    let bench = Bench::new();
    put(&bench, "q", &few(in_queue("q"), 1));
    let mut submit = plain("other");
    submit.labels = vec![Label { constraint: 1, value: 9 }];
    submit.constraints_revision = 0;
    let refused = bench.engine.jobs().submit(new_job(submit.clone(), b"")).value().map(|_| ());
    assert!(matches!(refused, Err(Refused::Rejected(Rejection::StaleConstraints))));
    submit.constraints_revision = 1;
    let id = bench.submit(submit, b"");
    assert_eq!(labels(&bench, id), [Label { constraint: 1, value: 9 }]);
}

#[test]
fn a_set_that_changed_behind_the_matchers_back_is_matched_again() {
    let bench = Bench::new();
    bench.add("q", b"");
    // Not by name: what the engine has made ready is an older set when the next submit comes.
    let rule = spindle_core::queue::Constraint {
        name: Bytes::from_static(b"raw"),
        matcher: spindle_matching::encode_matcher(&in_queue("q")),
        running_max: Some(0),
        ..Default::default()
    };
    bench.execute(Command::SetConstraint(rule.clone(), LimitScope::Whole));
    let one = bench.add("q", b"");
    assert_eq!(numbers(&bench, one), [1]);
    bench.execute(Command::SetConstraint(rule, LimitScope::Whole));
    let mut one = VecDeque::from([new_job(plain("q"), b"")]);
    let mut taken = bench.engine.jobs().submit_batch(&mut one);
    let two = taken.remove(0).value().expect("taken");
    assert_eq!(numbers(&bench, two), [1, 2]);
    bench.execute(Command::RemoveConstraint { number: 1 });
    bench.execute(Command::RemoveConstraint { number: 2 });
    let three = bench.add("q", b"");
    assert_eq!(numbers(&bench, three), [0; 0]);
}

#[test]
fn only_typed_payloads_are_looked_into_and_a_queue_may_say_what_its_bytes_are() {
    let bench = Bench::new();
    put(&bench, "free", &few(free_plan(), 1));
    let text = br#"{"plan":"free"}"#;
    let opaque = typed(&bench, "q", text, Type::Bytes);
    assert_eq!(numbers(&bench, opaque), [0; 0]);
    let packed = typed(&bench, "q", b"\x81\xa4plan\xa4free", Type::Msgpack);
    assert_eq!(numbers(&bench, packed), [1]);
    let name = Bytes::from_static(b"q");
    let json = Some(Type::Json as i32);
    bench
        .engine
        .people(&mut somebody())
        .change_queue(Action::SetQueue, &name, |settings| settings.bytes_type = json)
        .value()
        .expect("taken");
    let declared = typed(&bench, "q", text, Type::Bytes);
    assert_eq!(numbers(&bench, declared), [1]);
    assert_eq!(numbers(&bench, opaque), [0; 0], "not matched again yet");
    relabel(&bench);
    assert_eq!(numbers(&bench, opaque), [1]);
    assert_eq!(numbers(&bench, packed), [1], "it says itself what it is");
    bench
        .engine
        .people(&mut somebody())
        .change_queue(Action::SetQueue, &name, |settings| settings.bytes_type = None)
        .value()
        .expect("taken");
    relabel(&bench);
    assert_eq!(numbers(&bench, declared), [0; 0]);
    bench.check_fold();
}

#[test]
fn every_value_has_limits_of_its_own_and_those_without_one_share() {
    let bench = Bench::new();
    put(&bench, "each", &few(per_user(), 1));
    let jobs = [r#"{"user":1}"#, r#"{"user":2}"#, r#"{"user":1}"#, "{}", "[]"];
    let ids: Vec<JobId> = jobs.iter().map(|text| json(&bench, "q", text)).collect();
    let leased: Vec<JobId> = std::iter::from_fn(|| bench.lease("q").map(|job| job.id)).collect();
    assert_eq!(leased, [ids[0], ids[1], ids[3]]);
    let (lines, next) = bench.engine.constraints().buckets("each", 0, 2);
    assert_eq!((lines.len(), next.is_some()), (2, true));
    let (rest, end) = bench.engine.constraints().buckets("each", next.expect("there is more"), 10);
    assert_eq!((rest.len(), end), (1, None));
    let all: Vec<_> = lines.into_iter().chain(rest).collect();
    assert!(all.iter().all(|line| line.running == 1 && !line.admits && line.frees_ms.is_none()));
    assert_eq!(all.iter().map(|line| line.jobs).sum::<u64>(), 5);
}

#[test]
fn more_values_than_there_may_be_are_refused_and_existing_jobs_share_a_bucket() {
    let mut options = Options::default();
    options.defaults.values_max = 2;
    let bench = Bench::with(options);
    let ids: Vec<JobId> =
        (0..4).map(|user| json(&bench, "q", &format!(r#"{{"user":{user}}}"#))).collect();
    put(&bench, "each", &few(per_user(), 1));
    relabel(&bench);
    let shared = |id: &&JobId| labels(&bench, **id)[0].value == Label::OVERFLOW;
    assert_eq!(ids.iter().filter(shared).count(), 2);
    let payload = Payload::new(&br#"{"user":9}"#[..], Type::Json);
    let refused = bench.engine.jobs().submit(NewJob { submit: plain("q"), payload }).value();
    assert!(matches!(refused, Err(Refused::Rejected(Rejection::TooManyValues))));
    let leased = std::iter::from_fn(|| bench.lease("q")).count();
    assert_eq!(leased, 3, "one of each value, and one of the two that share");
    bench.check_fold();
}

#[test]
fn the_ninth_constraint_does_not_hold_and_says_so() {
    let bench = Bench::new();
    for number in 1..=9 {
        put(&bench, &format!("c{number}"), &few(Matcher::default(), 10 - number));
    }
    let id = bench.add("q", b"");
    bench.add("q", b"");
    assert_eq!(numbers(&bench, id), (1..=8).collect::<Vec<_>>());
    let left_out =
        |name: &str| bench.engine.constraints().get(name).value().expect("it is there").left_out;
    assert_eq!((left_out("c8"), left_out("c9")), (0, 2));
    // An older one goes: the ninth takes its place.
    bench.remove_constraint("c1");
    relabel(&bench);
    assert_eq!(numbers(&bench, id), (2..=9).collect::<Vec<_>>());
    assert!(bench.lease("q").is_some());
    assert!(bench.lease("q").is_none(), "the ninth lets one run at once");
}

#[test]
fn a_job_that_moves_falls_under_the_constraints_of_its_new_queue_at_once() {
    let bench = Bench::new();
    put(&bench, "a", &few(in_queue("a"), 0));
    put(&bench, "b", &few(Matcher { per: Some("/user".to_owned()), ..in_queue("b") }, 0));
    let id = json(&bench, "a", r#"{"user":7}"#);
    let same = json(&bench, "b", r#"{"user":7}"#);
    let ticket = bench.wait(1, "c", 60_000);
    let waiting = bench.wait(2, "b", 60_000);
    let to = |queue: &'static [u8]| {
        let queue = Some(Bytes::from_static(queue));
        bench.execute(Command::Edit(Box::new(Edit { id, queue, ..Edit::default() })));
    };
    to(b"b");
    assert_eq!(labels(&bench, id), labels(&bench, same));
    assert_eq!(bench.handed(), None, "nobody was handed it on the way");
    to(b"c");
    assert_eq!(bench.handed(), Some((ticket, id)));
    let refused = bench
        .engine
        .jobs()
        .execute(&Command::Edit(Box::new(Edit {
            id,
            queue: Some(Bytes::from_static(b"b")),
            ..Edit::default()
        })))
        .value();
    assert!(matches!(refused, Err(Refused::Rejected(Rejection::Leased))));
    bench.engine.waits().cancel(&bench.caller(2), waiting);
    bench.check_fold();
}

#[test]
fn a_retried_job_is_matched_anew_by_its_old_payload_or_its_new_one() {
    let bench = Bench::new();
    let id = json(&bench, "q", r#"{"plan":"free"}"#);
    bench.finish(id, true, b"").expect("unfinished");
    put(&bench, "free", &few(free_plan(), 5));
    relabel(&bench);
    bench.retry(id, None);
    assert_eq!(numbers(&bench, id), [1]);
    bench.finish(id, true, b"").expect("unfinished");
    let paid = Some(Payload::new(&br#"{"plan":"paid"}"#[..], Type::Json));
    bench.retry(id, paid);
    assert_eq!(numbers(&bench, id), [0; 0]);
    bench.finish(id, true, b"").expect("unfinished");
    let free = Some(Payload::new(&br#"{"plan":"free"}"#[..], Type::Json));
    bench.retry(id, free.clone());
    assert_eq!(numbers(&bench, id), [1]);
    bench.finish(id, true, b"").expect("unfinished");
    bench.remove_constraint("free");
    bench.retry(id, free);
    assert_eq!(numbers(&bench, id), [0; 0]);
    bench.check_fold();
}

#[test]
fn jobs_that_are_there_are_matched_in_slices_while_others_come() {
    let disk = SimDisk::new(7);
    let bench = Bench::on_disk(&disk);
    const JOBS: u64 = 1500;
    for job in 0..JOBS {
        json(&bench, "q", &format!(r#"{{"user":{}}}"#, job % 3));
    }
    put(&bench, "each", &few(per_user(), 1));
    let progress = bench.engine.constraints().relabelling();
    assert_eq!((progress.relabelled, progress.remaining), (0, JOBS));
    assert_eq!(bench.engine.relabel_step(), RelabelStep::More);
    let progress = bench.engine.constraints().relabelling();
    assert_eq!((progress.relabelled, progress.remaining), (512, JOBS - 512));
    // Jobs that come now are matched already.
    let late = json(&bench, "q", r#"{"user":1}"#);
    assert_eq!(numbers(&bench, late), [1]);
    let steps = relabel(&bench);
    assert!((2..=4).contains(&steps), "{steps}");
    let progress = bench.engine.constraints().relabelling();
    assert_eq!((progress.relabelled, progress.remaining), (JOBS, 0));
    assert_eq!(std::iter::from_fn(|| bench.lease("q")).count(), 3);
    bench.compaction();
    bench.check_fold();
}

#[test]
fn a_restart_goes_on_where_matching_stood() {
    let disk = SimDisk::new(8);
    let bench = Bench::on_disk(&disk);
    const JOBS: u64 = 1200;
    let ids: Vec<JobId> = (0..JOBS).map(|_| bench.add("q", b"x")).collect();
    put(&bench, "few", &few(in_queue("q"), 2));
    assert_eq!(bench.engine.relabel_step(), RelabelStep::More);
    bench.commit();
    let bench = bench.restart(&disk);
    assert_eq!(numbers(&bench, ids[0]), [1]);
    assert_eq!(numbers(&bench, ids[600]), [0; 0]);
    let at = bench.engine.inspect(|state| state.server().relabelled_below);
    assert_eq!(at, ids[512].0);
    relabel(&bench);
    assert_eq!(bench.engine.constraints().relabelling().relabelled, JOBS - 512);
    assert!(ids.iter().all(|id| numbers(&bench, *id) == [1]));
    bench.commit();
    let bench = bench.restart(&disk);
    assert_eq!(bench.engine.relabel_step(), RelabelStep::Done, "there is nothing left to do");
    bench.check_fold();
}

#[test]
fn leased_and_foreground_jobs_count_under_a_new_constraint() {
    let bench = Bench::new();
    let ids = [bench.add("q", b""), bench.add("q", b"")];
    let mut foreground = plain("q");
    foreground.foreground = true;
    bench
        .engine
        .jobs()
        .submit_and_wait(&bench.caller(9), new_job(foreground, b""), 60_000)
        .value()
        .expect("waits");
    assert_eq!(bench.lease("q").map(|job| job.id), Some(ids[0]));
    put(&bench, "few", &few(in_queue("q"), 2));
    relabel(&bench);
    assert!(bench.lease("q").is_some());
    assert!(bench.lease("q").is_none(), "one ran already");
    let (lines, _) = bench.engine.constraints().buckets("few", 0, 9);
    assert_eq!((lines[0].running, lines[0].jobs), (2, 3));
    bench.finish(ids[0], true, b"").expect("leased");
    assert!(bench.lease("q").is_some_and(|job| bench.image(job.id).foreground));
}

#[test]
fn a_change_that_matches_as_before_needs_nobody_matched_again() {
    let bench = Bench::new();
    bench.add("q", b"");
    put(&bench, "few", &few(in_queue("q"), 0));
    assert!(relabel(&bench) > 0);
    put(&bench, "few", &few(in_queue("q"), 1));
    assert_eq!(bench.engine.relabel_step(), RelabelStep::Done);
    assert!(bench.lease("q").is_some());
    // Unless that had not been done yet.
    put(&bench, "other", &few(in_queue("r"), 0));
    put(&bench, "other", &few(in_queue("r"), 1));
    assert_eq!(bench.engine.relabel_step(), RelabelStep::More);
}

#[test]
fn puts_and_removals_compare_the_revision() {
    let bench = Bench::new();
    let spec = few(in_queue("q"), 1);
    let engine = &bench.engine;
    let stale =
        |refused: Result<_, Refused>| matches!(refused, Err(Refused::Rejected(Rejection::Stale)));
    let absent = |refused: Result<(), Refused>| {
        matches!(refused, Err(Refused::Rejected(Rejection::NoConstraint)))
    };
    let first = engine
        .people(&mut somebody())
        .put_constraint("few", &spec, LimitScope::Whole, Expected::Nothing)
        .value()
        .expect("there is none");
    assert_eq!((first.created, first.revision), (true, 1));
    assert!(stale(
        engine
            .people(&mut somebody())
            .put_constraint("few", &spec, LimitScope::Whole, Expected::Nothing)
            .value()
            .map(|_| ())
    ));
    assert!(stale(
        engine
            .people(&mut somebody())
            .put_constraint("few", &spec, LimitScope::Whole, Expected::Revision(9))
            .value()
            .map(|_| ())
    ));
    let same = engine
        .people(&mut somebody())
        .put_constraint("few", &spec, LimitScope::Whole, Expected::Revision(1))
        .value()
        .expect("as before");
    assert_eq!((same.created, same.revision), (false, 1), "nothing changed");
    let more = few(in_queue("q"), 2);
    let second = engine
        .people(&mut somebody())
        .put_constraint("few", &more, LimitScope::Whole, Expected::Revision(1))
        .value()
        .expect("newest");
    assert_eq!((second.created, second.revision), (false, 2));
    put(&bench, "other", &spec);
    assert_eq!(engine.constraints().get("few").value().map(|view| view.revision), Some(2));
    assert!(absent(
        engine
            .people(&mut somebody())
            .put_constraint("new", &spec, LimitScope::Whole, Expected::Revision(1))
            .value()
            .map(|_| ())
    ));
    assert!(stale(
        engine
            .people(&mut somebody())
            .remove_constraint("few", Expected::Revision(1))
            .value()
            .map(|_| ())
    ));
    engine
        .people(&mut somebody())
        .remove_constraint("few", Expected::Revision(2))
        .value()
        .expect("newest");
    assert!(absent(
        engine.people(&mut somebody()).remove_constraint("few", Expected::Any).value().map(|_| ())
    ));
    let names: Vec<String> =
        engine.constraints().list(None, 9).value().into_iter().map(|view| view.name).collect();
    assert_eq!(names, ["other"]);
    let nothing = ConstraintSpec { running_max: None, ..spec };
    assert!(
        engine
            .people(&mut somebody())
            .put_constraint("few", &nothing, LimitScope::Whole, Expected::Any)
            .value()
            .is_err()
    );
    assert!(
        engine
            .people(&mut somebody())
            .put_constraint("", &more, LimitScope::Whole, Expected::Any)
            .value()
            .is_err()
    );
}

#[test]
fn constraints_are_listed_by_name_as_they_were_put() {
    let disk = SimDisk::new(3);
    let bench = Bench::on_disk(&disk);
    let rate = Some(Rate { count: 5, per_ms: 1000, burst: 5 });
    let spec = ConstraintSpec { matcher: per_user(), rate, running_max: Some(3) };
    for name in ["c", "a", "b"] {
        put(&bench, name, &spec);
    }
    bench.commit();
    let bench = bench.restart(&disk);
    let listed = |after, limit| {
        let views = bench.engine.constraints().list(after, limit).value();
        views.into_iter().map(|view| (view.name, view.revision)).collect::<Vec<_>>()
    };
    assert_eq!(listed(None, 2), [("a".to_owned(), 2), ("b".to_owned(), 3)]);
    assert_eq!(listed(Some("b"), 2), [("c".to_owned(), 1)]);
    assert_eq!(bench.engine.constraints().get("a").value().expect("it is there").spec, Ok(spec));
}

#[test]
fn a_constraint_of_many_values_changes_while_others_come_in_between() {
    let disk = SimDisk::new(9);
    let bench = Bench::on(file_log(&disk), START_MS, Options::default());
    put(&bench, "each", &few(per_user(), 0));
    const USERS: usize = 1000;
    for user in 0..USERS {
        json(&bench, "q", &format!(r#"{{"user":{user}}}"#));
    }
    assert!(bench.lease("q").is_none());
    let ticket = bench.wait(1, "q", 60_000);
    put(&bench, "each", &few(per_user(), 1));
    // The next change waits until all buckets have heard of this one, in steps of the engine's.
    put(&bench, "each", &few(per_user(), 2));
    while bench.engine.inspect(|state| state.is_rebasing()) {
        bench.engine.tick_once();
    }
    assert!(bench.handed().is_some_and(|(handed, _)| handed == ticket));
    assert_eq!(std::iter::from_fn(|| bench.lease("q")).count(), USERS - 1);
    bench.remove_constraint("each");
    relabel(&bench);
    let waits = bench.engine.inspect(|state| (state.is_rebasing(), state.buckets_count()));
    assert_eq!(waits, (false, 0), "nothing of it is left");
    bench.check_fold();
}

#[test]
fn a_job_that_ends_or_starts_while_it_is_matched_is_no_error() {
    let bench = Bench::new();
    let ids: Vec<JobId> = (0..10).map(|_| json(&bench, "q", r#"{"plan":"free"}"#)).collect();
    put(&bench, "free", &few(free_plan(), 3));
    bench.delete(ids[0]);
    bench.finish(ids[1], true, b"").expect("unfinished");
    assert_eq!(bench.lease("q").map(|job| job.id), Some(ids[2]));
    relabel(&bench);
    assert_eq!(bench.status(ids[1]), Some(Status::Done));
    assert_eq!(std::iter::from_fn(|| bench.lease("q")).count(), 2, "three in all");
    bench.check_fold();
}

#[test]
fn while_there_is_room_only_for_what_frees_room_nobody_is_matched() {
    let disk = SimDisk::new(5);
    let log = file_log(&disk);
    let bench = Bench::on(log.clone(), START_MS, Options::default());
    let id = bench.add("q", b"x");
    put(&bench, "few", &few(in_queue("q"), 2));
    log.maintain();
    disk.set_capacity(Some(disk.used() + 2 * crate::harness::SEGMENT_BYTES));
    let mut filled = 0;
    while bench.engine.jobs().submit(new_job(plain("fill"), &noise(filled, 4000))).value().is_ok() {
        assert_ne!(bench.engine.commit_once(), Committed::Failed);
        log.maintain();
        filled += 1;
        assert!(filled < 1000, "the disk is never full");
    }
    assert_eq!(bench.engine.relabel_step(), RelabelStep::Later);
    assert_eq!(numbers(&bench, id), [0; 0]);
    disk.set_capacity(None);
    log.maintain();
    relabel(&bench);
    assert_eq!(numbers(&bench, id), [1]);
}
