//! Numbers of jobs: never given twice, whatever ends the server.

use std::collections::BTreeSet;

use spindle_core::JobId;
use spindle_testkit::disk::SimDisk;

use crate::harness::{Bench, TakeApart, TakeApartResult, new_job, plain};

fn foreground(bench: &Bench) -> JobId {
    let mut submit = plain("f");
    submit.foreground = true;
    let (id, gate) = bench.engine.jobs().submit(new_job(submit, b"x")).split().expect("taken");
    assert!(bench.is_durable(gate), "the block its number is from is durable");
    id
}

#[test]
fn numbers_are_never_given_twice_whatever_ends_the_server() {
    let disk = SimDisk::new(8);
    let mut bench = Bench::on_disk(&disk);
    let mut seen = BTreeSet::new();
    for round in 0..12 {
        for _ in 0..20 {
            let fresh = [bench.add("q", b"x"), foreground(&bench)];
            for id in fresh {
                assert!(seen.insert(id), "{id} was given twice");
                assert!(seen.last() == Some(&id), "numbers rise");
            }
        }
        match round % 3 {
            // An orderly end, a process that dies, a machine that dies.
            0 => bench.commit(),
            1 => {}
            _ => disk.crash(),
        }
        bench = bench.restart(&disk);
        bench.check_fold();
    }
}

#[test]
fn a_refused_submit_costs_no_number() {
    let bench = Bench::new();
    let mut submit = plain("q");
    submit.uuid = Some([7; 16]);
    let first = bench.submit(submit.clone(), b"x");
    for _ in 0..10 {
        assert!(bench.engine.jobs().submit(new_job(submit.clone(), b"x")).value().is_err());
    }
    assert_eq!(bench.add("q", b"x"), JobId(first.0 + 1));
    bench.check_fold();
}

#[test]
fn the_next_block_is_durable_before_its_first_number_is_given() {
    let disk = SimDisk::new(9);
    let bench = Bench::on_disk(&disk);
    let mut last = JobId(0);
    for round in 0..70_000 {
        let mut submit = plain("f");
        submit.foreground = true;
        let (id, gate) = bench.engine.jobs().submit(new_job(submit, b"")).split().expect("taken");
        assert!(id > last);
        last = id;
        // While the next block is reserved its numbers wait for that; nothing else does.
        if !bench.is_durable(gate) {
            bench.commit();
            assert!(bench.is_durable(gate), "in round {round}");
        }
    }
    let bench = bench.restart(&disk);
    assert!(foreground(&bench) > last);
}

#[test]
fn numbers_go_on_without_a_gap_after_an_orderly_stop() {
    let disk = SimDisk::new(10);
    let mut bench = Bench::on_disk(&disk);
    let mut next = 1;
    for round in 0..6 {
        for _ in 0..round {
            assert_eq!([bench.add("q", b"x"), foreground(&bench)], [JobId(next), JobId(next + 1)]);
            next += 2;
        }
        bench.engine.stop();
        bench = bench.restart(&disk);
        bench.check_fold();
    }
}

#[test]
fn a_stop_that_is_cut_off_anywhere_gives_no_number_twice() {
    for writes in 0..12 {
        let disk = SimDisk::new(11 + writes);
        let bench = Bench::on_disk(&disk);
        let last = [bench.add("q", b"x"), foreground(&bench)][1];
        bench.commit();
        disk.cut_power_after(writes);
        bench.engine.stop();
        disk.crash();
        let bench = bench.restart(&disk);
        bench.check_fold();
        assert!(bench.add("q", b"x") > last, "after {writes} writes");
    }
}

#[test]
fn a_job_that_comes_after_the_numbers_were_given_back_has_one_of_its_own() {
    let disk = SimDisk::new(30);
    let bench = Bench::on_disk(&disk);
    let first = bench.add("q", b"x");
    bench.engine.stop();
    // Its client had asked before it heard of the stop.
    let mut submit = plain("f");
    submit.foreground = true;
    let (late, gate) = bench.engine.jobs().submit(new_job(submit, b"x")).split().expect("taken");
    assert_eq!(late, JobId(first.0 + 1));
    assert!(!bench.is_durable(gate), "it is told only once its number is reserved anew");
    bench.commit();
    assert!(bench.is_durable(gate));
    disk.crash();
    let bench = bench.restart(&disk);
    assert!(bench.add("q", b"x") > late);
    bench.check_fold();
}
