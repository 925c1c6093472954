//! Submits of the same work, and uniques that are no names.

use bytes::Bytes;
use spindle_gearman::wire::{GrabKind, JobStatus, Priority, SubmitKind};

use crate::harness::{Bench, known};

#[test]
fn clients_of_the_same_work_share_one_job_and_all_hear_its_end() {
    let bench = Bench::new();
    let (mut one, mut two, mut three) = (bench.open(), bench.open(), bench.open());
    let mut worker = bench.open();
    worker.can_do("uf");
    let handle = one.run("uf", "k", "first");
    assert_eq!(two.run("uf", "k", "second"), handle);
    assert_eq!(one.status_unique("k"), (known(false), 2));
    let job = worker.grab(GrabKind::Uniq).unwrap();
    assert_eq!((&job.payload[..], job.unique), (&b"first"[..], Some(Bytes::from_static(b"k"))));
    // While it runs others may join, in any way.
    let high = SubmitKind::Foreground(Priority::High);
    assert_eq!(three.submit(high, "uf", "k", "third"), handle);
    assert_eq!(three.add("uf", "k", "fourth"), handle);
    assert_eq!(three.status_unique("k"), (known(true), 3));
    worker.complete(&handle, "res");
    for client in [&mut one, &mut two, &mut three] {
        client.hears_complete(&handle, "res");
        client.hears_nothing();
    }
    assert_eq!(one.status_unique("k"), (JobStatus::default(), 0));
}

#[test]
fn a_client_that_asked_twice_hears_twice() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    let handle = client.run("f", "k", "1");
    assert_eq!(client.run("f", "k", "2"), handle);
    worker.can_do("f");
    worker.take();
    worker.complete(&handle, "r");
    client.hears_complete(&handle, "r");
    client.hears_complete(&handle, "r");
    client.hears_nothing();
}

#[test]
fn the_same_unique_of_another_function_is_another_job() {
    let bench = Bench::new();
    let mut client = bench.open();
    assert_ne!(client.add("uf", "k3", "1"), client.add("uf2", "k3", "2"));
    assert_ne!(client.add("uf", "K6", "1"), client.add("uf", "k6", "1"));
    let (long, longer) = ("u".repeat(63), "u".repeat(64));
    assert_ne!(client.add("uf", &long, "1"), client.add("uf", &longer, "1"));
}

#[test]
fn an_empty_unique_joins_nothing() {
    let bench = Bench::new();
    let mut client = bench.open();
    assert_ne!(client.add("uf", "", "1"), client.add("uf", "", "1"));
    assert_eq!(client.status_unique(""), (JobStatus::default(), 0));
}

#[test]
fn a_hyphen_stands_for_the_payload_unless_that_is_empty() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    let same = client.add("uf", "-", "same");
    assert_eq!(client.add("uf", "-", "same"), same);
    assert_ne!(client.add("uf", "-", "other"), same);
    assert_ne!(client.add("uf2", "-", "same"), same);
    assert_ne!(client.add("uf", "-", ""), client.add("uf", "-", ""));
    assert_eq!(worker.text("show unique jobs"), "-\n-\n-\n-\n-\n.\n");
    worker.can_do("uf");
    let job = worker.grab(GrabKind::Uniq).unwrap();
    assert_eq!((job.handle, job.unique), (same, Some(Bytes::from_static(b"-"))));
}

#[test]
fn a_finished_job_is_joined_by_nobody() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    worker.can_do("f");
    let first = client.add("f", "k", "1");
    worker.take();
    worker.complete(&first, "r");
    assert_ne!(client.add("f", "k", "1"), first);
}

#[test]
fn joining_changes_neither_priority_nor_payload() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    let low = client.submit(SubmitKind::Background(Priority::Low), "f", "k", "low");
    client.add("f", "", "normal");
    let high = SubmitKind::Background(Priority::High);
    assert_eq!(client.submit(high, "f", "k", "high"), low);
    worker.can_do("f");
    assert_eq!(worker.take_payload(), "normal");
    assert_eq!(worker.take_payload(), "low");
}

#[test]
fn a_background_submit_keeps_the_foreground_job_it_joins() {
    let bench = Bench::new();
    let (mut client, mut adder, mut worker) = (bench.open(), bench.open(), bench.open());
    let handle = client.run("f", "k", "fg");
    bench.commit();
    adder.send(&crate::harness::submit(SubmitKind::Background(Priority::Normal), "f", "k", "bg"));
    // Not before it is logged.
    assert_eq!(adder.heard_at_once(), 0);
    adder.hear();
    client.close();
    worker.can_do("f");
    assert_eq!(worker.take(), handle);
    worker.complete(&handle, "r");
    worker.hears_nothing();
    assert_eq!(bench.kept_result(&handle).unwrap(), "r");
}

#[test]
fn a_foreground_client_may_join_a_background_job_and_leave_again() {
    let bench = Bench::new();
    let (mut adder, mut client, mut worker) = (bench.open(), bench.open(), bench.open());
    let handle = adder.add("f", "k", "bg");
    assert_eq!(client.run("f", "k", "fg"), handle);
    client.close();
    worker.can_do("f");
    assert_eq!(worker.take_payload(), "bg");
    worker.complete(&handle, "r");
    adder.hears_nothing();
}

#[test]
fn a_job_of_another_door_has_no_unique_and_is_joined_by_nobody() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    bench.add_foreign("f", "foreign");
    let handle = client.add("f", "-", "foreign");
    assert_eq!(worker.text("show unique jobs"), "\n-\n.\n");
    worker.can_do("f");
    let job = worker.grab(GrabKind::Uniq).unwrap();
    assert_ne!(job.handle, handle);
    assert_eq!((&job.payload[..], job.unique), (&b"foreign"[..], Some(Bytes::new())));
}
