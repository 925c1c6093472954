//! Time, starts, formats.

use spindle_core::command::{Claim, Compact};
use spindle_core::job::{Cause, Origin};
use spindle_core::seat::Seat;
use spindle_core::{Command, JobId, Rejection, Status};

use crate::harness::{START_MS, Server, complete, lease_with, submit};

#[test]
fn due_jobs_come_in_bounded_steps_and_in_the_order_of_their_time() {
    let mut server = Server::new();
    for id in 1..=700 {
        server.given(submit(id, "mail", |job| job.run_at_ms = Some(START_MS + 701 - id)));
    }
    server.now_ms += 1_000;
    let first = server.tick();
    assert_eq!(first.len(), 700);
    let order: Vec<u64> = server.state.ready_jobs(b"mail", 0).map(|job| job.id().0).collect();
    assert_eq!(order, (1..=700).rev().collect::<Vec<_>>());
}

#[test]
fn jobs_due_at_the_same_time_become_ready_by_number_whatever_their_places_in_memory() {
    let due = |id| submit(id, "mail", |job| job.run_at_ms = Some(START_MS + 50));
    let mut server = Server::new();
    (1..=5).for_each(|id| drop(server.given(due(id))));
    // The slots of deleted jobs are given to the next ones; a fold places all of them anew.
    let delete = |id| Command::Delete { id: JobId(id), cause: Cause::Deleted };
    [4, 1, 2].into_iter().for_each(|id| drop(server.given(delete(id))));
    (6..=8).for_each(|id| drop(server.given(due(id))));
    let mut folded = Server::new();
    folded.state = server.folded(0);
    for mut server in [server, folded] {
        assert_eq!(server.pass(50), ["Ready"; 5]);
        let order: Vec<u64> = server.state.ready_jobs(b"mail", 0).map(|job| job.id().0).collect();
        assert_eq!(order, [3, 5, 6, 7, 8]);
    }
}

#[test]
fn an_expired_lease_goes_back_and_an_expired_job_goes() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |job| {
        job.ttr_ms = Some(10);
        job.ttl_ms = Some(20);
    }));
    server.lease("mail").expect("ready");
    assert_eq!(server.pass(10), ["Requeued"]);
    assert_eq!(server.pass(10), ["Gone"]);
}

#[test]
fn a_held_expiry_deletes_nothing() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |job| job.ttl_ms = Some(20)));
    assert_eq!(server.state.next_deadline(false), Some(START_MS + 20));
    assert_eq!(server.state.next_deadline(true), None);
}

#[test]
fn a_start_raises_the_epoch_only() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    server.lease("mail").expect("ready");
    let start = |epoch| Command::Start { epoch, seat: Seat::default() };
    assert_eq!(server.then(start(5)), ["Started"]);
    assert_eq!(server.refused(start(5)), Rejection::OldEpoch);
    assert_eq!(server.status(1), Some(Status::Leased));
}

#[test]
fn a_restart_ends_bound_leases_and_gives_the_others_time() {
    let mut server = Server::new();
    for (id, ttr_ms) in [(1, Some(100)), (2, Some(100)), (3, Some(90_000))] {
        server.given(submit(id, "mail", |job| job.ttr_ms = ttr_ms));
    }
    server.given(lease_with(&["mail"], |lease| {
        lease.bound = true;
        lease.door = Origin::Gearman;
    }));
    let (_, unbound) = server.lease("mail").expect("ready");
    server.lease("mail").expect("ready");
    server.now_ms += 95;
    server.restart();
    assert_eq!(server.status(1), Some(Status::Ready));
    let deadline = |server: &Server, id| server.image(id).lease.expect("held").deadline_ms;
    assert_eq!(deadline(&server, 2), Some(START_MS + 95 + 100), "at most its own time to run");
    assert_eq!(deadline(&server, 3), Some(START_MS + 90_000), "that is far enough");
    // The token is from the epoch before, and valid: the lease is in the log.
    assert_eq!(server.then(complete(unbound)), ["Finished"]);
}

#[test]
fn a_holder_of_the_new_epoch_with_an_old_number_loses_no_old_lease() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |_| {}));
    server.given(lease_with(&["mail"], |lease| lease.holder = 4));
    server.restart();
    assert_eq!(server.then(Command::HolderGone { holder: 4 }), [""; 0]);
    assert_eq!(server.status(1), Some(Status::Leased));
}

#[test]
fn attempts_survive_a_crash() {
    let mut server = Server::new();
    server.given(submit(1, "mail", |job| job.attempts_max = Some(2)));
    for _ in 0..2 {
        server.given(lease_with(&["mail"], |lease| lease.bound = true));
        server.restart();
    }
    assert_eq!(server.status(1), Some(Status::Dead));
    assert_eq!(server.finished(1).attempts, 2);
    let claim = Claim::Unfinished { id: JobId(1) };
    assert_eq!(server.refused(complete(claim)), Rejection::Finished);
}

#[test]
fn a_log_is_the_same_shard_for_ever() {
    let mut server = Server::empty();
    let start = |epoch, shard, shards| Command::Start { epoch, seat: Seat { shard, shards } };
    assert_eq!(server.then(start(1, 2, 4)), ["Started"]);
    let seat = Seat { shard: 2, shards: 4 };
    for (shard, shards) in [(2, 5), (1, 4), (0, 1)] {
        assert_eq!(server.refused(start(2, shard, shards)), Rejection::OtherSeat(seat));
    }
    // Also when only what was appended again is left.
    let first = server.position;
    server.given(Command::Compact(Compact::Server));
    assert_eq!(server.folded(first).server().seat(), Some(seat));
    assert_eq!(server.then(start(2, 2, 4)), ["Started"]);

    let mut only = Server::new();
    assert_eq!(only.state.server().seat(), None);
    only.restart();
    assert_eq!(only.state.server().seat(), Some(Seat::default()));
    assert_eq!(only.refused(start(9, 0, 4)), Rejection::OtherSeat(Seat::default()));
}

#[test]
fn formats_only_rise() {
    let mut server = Server::new();
    assert_eq!(server.then(Command::RaiseFormat { version: 3 }), ["FormatRaised"]);
    assert_eq!(server.then(Command::RaiseFormat { version: 2 }), [""; 0]);
    assert_eq!(server.state.server().format, 3);
}
