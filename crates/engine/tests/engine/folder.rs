//! The engine and the folder of its log: an orderly stop notes where the log ends, and a folder that is taken away ends
//! the server even when it has nothing to do.

use std::sync::mpsc::channel;
use std::time::Duration;

use spindle_engine::Failure;
use spindle_log::LogError;
use spindle_log::verify::verify;
use spindle_testkit::disk::SimDisk;

use crate::harness::Bench;

#[test]
fn an_orderly_stop_notes_where_the_log_ends_and_the_next_start_withdraws_it() {
    let disk = SimDisk::new(4);
    let bench = Bench::on_disk(&disk);
    bench.add("q", b"x");
    bench.engine.stop();
    drop(bench);
    let report = verify(&disk, false);
    assert!(report.ended_in_order && report.is_sound());
    let bench = Bench::on_disk(&disk);
    drop(bench);
    assert!(!verify(&disk, false).ended_in_order, "it has begun an epoch and was not stopped");
}

#[test]
fn an_idle_server_ends_when_its_folder_is_taken_away() {
    let disk = SimDisk::new(4);
    let bench = Bench::on_disk(&disk);
    let (failed, failure) = channel();
    bench.engine.spawn(move |failure| drop(failed.send(failure))).expect("threads");
    disk.take_away();
    let failure = failure.recv_timeout(Duration::from_secs(120)).expect("it goes on");
    assert!(matches!(failure, Failure::Log(LogError::FolderLost { .. })), "{failure}");
    bench.engine.stop();
}
