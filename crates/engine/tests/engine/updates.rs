//! Jobq's states, events and changes.

use bytes::Bytes;
use spindle_core::command::Submit;
use spindle_core::job::Origin;
use spindle_core::{BytesRef, JobId, Rejection, Status, Type};
use spindle_engine::{Before, Change, Changes, Gate, JobRef, JobUpdate, Options, Refused, Updated};
use spindle_testkit::disk::SimDisk;

use crate::harness::{
    Bench, START_MS, TakeApart, TakeApartResult, file_log, noise, plain, somebody,
};

pub fn created() -> Submit {
    let queue = Bytes::from_static(b"jobq");
    let mut submit = Submit::new(JobId(0), queue, Origin::Jobq, BytesRef::empty(Type::Json));
    submit.parked = true;
    submit.state = Some(Bytes::from_static(b"[\"CREATED\"]"));
    submit.event = Some(Bytes::from_static(b"created"));
    submit
}

/// A copy of Jobq's jobs is kept.
fn copied() -> Options {
    Options { copied: Some(Origin::Jobq), ..Options::default() }
}

fn note(bench: &Bench, id: JobId, event: &str) -> Gate {
    let event = Bytes::copy_from_slice(event.as_bytes());
    let update = JobUpdate { state: None, event };
    match bench.engine.jobs().update(id, None, |_| Ok::<_, ()>(update.clone())).split() {
        Ok((Updated::Done(_), gate)) => gate,
        other => panic!("{other:?}"),
    }
}

fn set(bench: &Bench, id: JobId, revision: Option<u32>) -> Result<Gate, Rejection> {
    let compose = |before: &Before| {
        let old = before.state.as_ref().expect("it has one");
        let event = [b"from ", &old[..]].concat().into();
        Ok::<_, ()>(JobUpdate { state: Some(Bytes::from_static(b"[\"NEXT\"]")), event })
    };
    match bench.engine.jobs().update(id, revision, compose).split() {
        Ok((Updated::Done(_), gate)) => Ok(gate),
        Err(Refused::Rejected(rejection)) => Err(rejection),
        other => panic!("{other:?}"),
    }
}

/// All events of a job, older ones read from the log.
fn events(bench: &Bench, id: JobId) -> Vec<Bytes> {
    let image = bench.image(id);
    let mut events = Vec::new();
    for index in 0..image.options().pages.len() {
        let page = bench.engine.jobs().event_page(id, index).expect("the log can be read");
        events.extend(page.expect("the page is there"));
    }
    events.extend(image.options().events.iter().cloned());
    events
}

#[test]
fn a_state_is_set_from_what_it_is_and_waits_for_its_record() {
    let bench = Bench::new();
    let id = bench.submit(created(), b"{}");
    bench.commit();
    let revision = bench.image(id).revision;
    let gate = set(&bench, id, Some(revision)).unwrap();
    assert!(!bench.is_durable(gate));
    assert_eq!(set(&bench, id, Some(revision)), Err(Rejection::Stale));
    bench.commit();
    assert!(bench.is_durable(gate));
    assert_eq!(events(&bench, id), ["created", "from [\"CREATED\"]"]);
    assert_eq!(set(&bench, JobId(99), None), Err(Rejection::NotFound));
    bench.finish(id, true, b"").unwrap();
    assert_eq!(set(&bench, id, None), Err(Rejection::Finished));
}

#[test]
fn what_the_door_declines_changes_nothing() {
    let bench = Bench::new();
    let id = bench.submit(created(), b"{}");
    let revision = bench.image(id).revision;
    let declined = bench
        .engine
        .jobs()
        .update(id, None, |before| match before.origin {
            Origin::Jobq => Err("no"),
            _ => Ok(JobUpdate { state: None, event: Bytes::new() }),
        })
        .value();
    assert!(matches!(declined, Ok(Updated::Declined("no"))), "{declined:?}");
    assert_eq!(bench.image(id).revision, revision);
}

#[test]
fn pages_of_events_are_carried_once_each_and_outlive_trims_and_restarts() {
    let disk = SimDisk::new(1);
    let options = Options { payload_memory_bytes: 0, ..Options::default() };
    let bench = Bench::on(file_log(&disk), START_MS, options);
    let id = bench.submit(created(), &noise(1, 300));
    let done = bench.submit(created(), &noise(2, 300));
    for n in 0..4_321 {
        note(&bench, id, &format!("event {n}"));
        if n < 2_500 {
            note(&bench, done, &format!("event {n}"));
        }
    }
    bench.finish(done, true, b"yes").unwrap();
    let expected: Vec<String> = std::iter::once("created".to_owned())
        .chain((0..4_321).map(|n| format!("event {n}")))
        .collect();
    let pages_then = bench.image(id).options().pages.clone();
    assert_eq!(pages_then.len(), 4);
    for n in 0..400 {
        let other = bench.add("other", &noise(n, 2_000));
        bench.delete(other);
        bench.commit();
    }
    bench.compaction();
    assert!(bench.engine.trims() > 0);
    assert_ne!(bench.image(id).options().pages, pages_then, "they lie elsewhere now");
    let check = |bench: &Bench| {
        assert_eq!(events(bench, id), expected);
        assert_eq!(events(bench, done), expected[..2_501]);
        assert_eq!(bench.payload(id), noise(1, 300));
        assert_eq!(bench.payload(done), noise(2, 300));
        assert_eq!(bench.status(done), Some(Status::Done));
    };
    check(&bench);
    let bench = bench.restart(&disk);
    check(&bench);
    bench.check_fold();
    assert!(
        !bench.engine.compaction_step().unwrap(),
        "what lives is counted: nothing more to carry"
    );
}

/// An event that is as long as may be finds its room in a record, however full the open one is.
#[test]
fn long_events_never_overflow_a_record() {
    let bench = Bench::new();
    let long = "x".repeat(256 * 1024);
    for filling in [3_700_000, 3_900_000, 4_000_000, 4_100_000, 4_150_000] {
        let id = bench.submit(created(), b"{}");
        bench.add("other", &noise(1, filling));
        note(&bench, id, &long);
        note(&bench, id, &long);
        bench.commit();
        assert!(bench.engine.failure().is_none(), "behind {filling} bytes");
        assert_eq!(events(&bench, id), ["created", &long, &long]);
    }
    bench.check_fold();
}

fn named(changes: Changes) -> Vec<(u64, &'static str)> {
    let name = |change| match change {
        Change::Gone(id) => (id.0, "gone"),
        Change::Live { image, payload_changed: true } => (image.id, "new"),
        Change::Live { image, payload_changed: false } => (image.id, "changed"),
        Change::Finished(id) => (id.0, "finished"),
    };
    changes.changes.into_iter().map(name).collect()
}

#[test]
fn changes_of_jobqs_jobs_are_taken_once_and_those_of_others_never() {
    let bench = Bench::with(copied());
    let ids: Vec<JobId> = (0..4).map(|_| bench.submit(created(), b"{}")).collect();
    let foreign = bench.add("mail", b"");
    let (changes, gate) = bench.engine.replica().changes().both();
    assert!(!bench.is_durable(gate), "an answer made of it waits");
    let all: Vec<(u64, &str)> = ids.iter().map(|id| (id.0, "new")).collect();
    assert_eq!(named(changes), all);
    assert_eq!(named(bench.engine.replica().changes().value()), []);
    set(&bench, ids[1], None).unwrap();
    note(&bench, ids[1], "again");
    note(&bench, foreign, "not ours");
    bench.delete(ids[0]);
    bench.delete(foreign);
    bench.finish(ids[3], true, b"").unwrap();
    let expected = [(ids[0].0, "gone"), (ids[1].0, "changed"), (ids[3].0, "finished")];
    assert_eq!(named(bench.engine.replica().changes().value()), expected);
    // A deleted job is gone from the copy, and is new when it is back.
    let mut audit = somebody();
    bench.engine.people(&mut audit).delete_for(JobRef::Id(ids[1]), 60_000).value().unwrap();
    assert_eq!(named(bench.engine.replica().changes().value()), [(ids[1].0, "gone")]);
    bench.engine.people(&mut audit).undo(ids[1]).value().unwrap();
    assert_eq!(named(bench.engine.replica().changes().value()), [(ids[1].0, "new")]);
    bench.engine.replica().restart();
    let again = bench.engine.replica().changes().value();
    assert!(again.restart);
    let expected = [(ids[1].0, "new"), (ids[2].0, "new"), (ids[3].0, "finished")];
    assert_eq!(named(again), expected);
}

#[test]
fn a_started_engine_tells_all_jobs_in_slices() {
    let disk = SimDisk::new(3);
    let bench = Bench::on(file_log(&disk), START_MS, copied());
    let ids: Vec<u64> = (0..1_000).map(|_| bench.submit(created(), b"{}").0).collect();
    bench.commit();
    let bench = bench.restart(&disk);
    let mut seen = Vec::new();
    loop {
        let slice = bench.engine.replica().changes().value();
        let more = slice.more;
        assert!(slice.changes.len() <= 256);
        seen.extend(named(slice).into_iter().map(|(id, _)| id));
        if !more {
            break;
        }
        // Changes made meanwhile are in the next round, so that this one ends.
        set(&bench, JobId(ids[0]), None).unwrap();
    }
    assert_eq!(seen, ids);
    assert_eq!(named(bench.engine.replica().changes().value()), [(ids[0], "changed")]);
}

#[test]
fn an_event_of_a_finished_job_is_in_the_log() {
    let disk = SimDisk::new(4);
    let bench = Bench::on_disk(&disk);
    let id = bench.submit(plain("mail"), b"payload");
    bench.finish(id, true, b"result").unwrap();
    let event = Bytes::from_static(b"late");
    let gate = bench.engine.jobs().add_event_to_finished(id, &event).unwrap().acked().unwrap();
    assert!(!bench.is_durable(gate));
    bench.check_fold();
    let bench = bench.restart(&disk);
    assert_eq!(events(&bench, id), ["late"]);
    assert_eq!((bench.payload(id), bench.result(id)), ("payload".into(), "result".into()));
    let live = bench.add("mail", b"");
    let refused = bench.engine.jobs().add_event_to_finished(live, &event).unwrap().value();
    assert!(matches!(refused, Err(Refused::Rejected(Rejection::NotFound))), "{refused:?}");
}
