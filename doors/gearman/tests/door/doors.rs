//! Jobs of other doors worked by Gearman's workers, and the other way round.

use bytes::Bytes;
use spindle_core::audit::{Action, Actor};
use spindle_engine::Audit;
use spindle_gearman::wire::{GrabKind, Response};

use crate::harness::{Bench, known, wants_exceptions};

#[test]
fn a_job_of_another_door_is_worked_here_and_its_result_is_whole() {
    let bench = Bench::new();
    let (mut worker, mut client) = (bench.open(), bench.open());
    let id = bench.add_foreign("f", "foreign");
    worker.can_do("f");
    let job = worker.grab(GrabKind::Plain).unwrap();
    assert_eq!(job.handle, format!("H:localhost:{id}"));
    assert_eq!(client.status(&job.handle), known(true));
    worker.progress(&job.handle, "1", "2");
    assert_eq!(client.status(&job.handle).denominator, 2);
    worker.data(&job.handle, "one ");
    worker.complete(&job.handle, "two");
    worker.hears_nothing();
    assert_eq!(bench.kept_result(&job.handle).unwrap(), "one two");
}

#[test]
fn a_foreign_worker_ends_a_job_of_this_door_and_its_client_hears_it() {
    let bench = Bench::new();
    let mut client = bench.open();
    let handle = client.run("f", "", "x");
    let job = bench.lease_foreign("f").unwrap();
    assert_eq!(client.status(&handle), known(true));
    bench.finish_foreign(job.id, true, "done");
    client.hears_complete(&handle, "done");
}

#[test]
fn what_a_foreign_worker_says_of_a_failure_is_an_exception_for_those_who_asked() {
    let bench = Bench::new();
    let (mut plain, mut keen) = (bench.open(), bench.open());
    wants_exceptions(&mut keen);
    for words in ["boom", ""] {
        let handle = plain.run("f", "k", "x");
        assert_eq!(keen.run("f", "k", "x"), handle);
        let job = bench.lease_foreign("f").unwrap();
        bench.finish_foreign(job.id, false, words);
        plain.hears_fail(&handle);
        let data = Bytes::copy_from_slice(words.as_bytes());
        assert_eq!(keen.hear(), Response::WorkException { handle, data });
        plain.hears_nothing();
        keen.hears_nothing();
    }
}

#[test]
fn a_job_deleted_elsewhere_fails_for_its_clients() {
    let bench = Bench::new();
    let mut client = bench.open();
    let handle = client.run("f", "", "x");
    let id = crate::harness::id_of(&handle);
    let cause = spindle_core::job::Cause::Deleted;
    bench.execute(spindle_core::Command::Delete { id, cause });
    client.hears_fail(&handle);
}

#[test]
fn a_failure_that_is_tried_again_is_told_to_nobody() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    let set = bench.engine.people(&mut Audit::new(Actor::default())).change_queue(
        Action::SetQueue,
        &Bytes::from_static(b"f"),
        |queue| {
            queue.fails_max = Some(2);
        },
    );
    assert!(spindle_testkit::opened(set).is_ok());
    wants_exceptions(&mut client);
    let handle = client.run("f", "", "x");
    worker.can_do("f");
    worker.take();
    worker.except(&handle, "first");
    client.hears_nothing();
    assert_eq!(worker.take(), handle);
    worker.except(&handle, "second");
    let data = Bytes::from_static(b"second");
    assert_eq!(client.hear(), Response::WorkException { handle, data });
}
