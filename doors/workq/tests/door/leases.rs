//! Who gets a job: the longest waiter, never somebody who has gone.

use std::collections::BTreeMap;

use spindle_engine::JobRef;
use spindle_testkit::opened;

use crate::harness::{Job, TestServer, id_bytes, job, with_ids};

#[test]
fn without_a_job_a_lease_times_out_and_its_queue_is_listed_only_meanwhile() {
    let server = TestServer::new();
    let (mut worker, mut client) = (server.client(), server.client());
    worker.begin("> lease b-waits a-waits 50");
    client.talk(
        "> add #1 b 1000 60000 1
         > a
         < +OK
         > inspect queues 0 10
         < +OK 3
         < a-waits 2
         < ready-len 0
         < scheduled-len 0
         < b 2
         < ready-len 1
         < scheduled-len 0
         < b-waits 2
         < ready-len 0
         < scheduled-len 0
         > inspect queues 1 1
         < +OK 1
         < b 2
         < ready-len 1
         < scheduled-len 0
         > inspect queue a-waits
         < +OK 1
         < a-waits 2
         < ready-len 0
         < scheduled-len 0
         > inspect jobs a-waits 0 10
         < +OK 0
         > inspect scheduled-jobs a-waits 0 10
         < +OK 0",
    );
    server.pass(49);
    client.talk(
        "> inspect queues 2 10
         < +OK 1
         < b-waits 2
         < ready-len 0
         < scheduled-len 0",
    );
    server.pass(1);
    worker.talk("< -TIMEOUT");
    client.talk(
        "> lease never-added 0
         < -TIMEOUT
         > inspect queues 0 10
         < +OK 1
         < b 2
         < ready-len 1
         < scheduled-len 0
         > inspect queue a-waits
         < -NOT-FOUND",
    );
    worker.finish();
    client.finish();
}

#[test]
fn a_queue_is_listed_while_it_has_a_finished_job() {
    let server = TestServer::new();
    let mut client = server.client();
    client.talk(
        "> add #1 q 1000 60000 1
         > a
         < +OK
         > complete #1 0
         >
         < +OK
         > inspect queues 0 10
         < +OK 1
         < q 2
         < ready-len 0
         < scheduled-len 0
         > delete #1
         < +OK
         > inspect queues 0 10
         < +OK 0",
    );
    client.finish();
}

#[test]
fn the_longest_waiter_is_handed_the_job() {
    let server = TestServer::new();
    let mut client = server.client();
    let mut workers: Vec<_> = (0..5).map(|_| server.client()).collect();
    for worker in &mut workers {
        worker.begin("> lease line other 60000");
    }
    for (number, worker) in workers.iter_mut().enumerate() {
        let number = number + 1;
        client.talk(&format!(
            "> add #{number} line 1000 60000 1
             > a
             < +OK"
        ));
        worker.talk(&format!(
            "< +OK 1
             < #{number} line 1000 1
             < a"
        ));
    }
    // Those who got one wait no longer.
    client.talk(
        "> inspect queues 0 10
         < +OK 1
         < line 2
         < ready-len 0
         < scheduled-len 0",
    );
    for worker in workers {
        worker.finish();
    }
    client.finish();
}

#[test]
fn a_job_given_back_goes_to_the_one_who_waits() {
    let server = TestServer::new();
    let (mut first, mut second, mut client) = (server.client(), server.client(), server.client());
    client.talk(
        "> add #1 q 100 60000 1 -max-fails=9
         > a
         < +OK",
    );
    let leased = "< +OK 1
         < #1 q 100 1
         < a";
    first.talk(&format!("> lease q 0\n{leased}"));
    second.begin("> lease q 60000");
    server.pass(100);
    second.talk(leased);
    first.begin("> lease q 60000");
    client.talk(
        "> fail #1 0
         >
         < +OK",
    );
    first.talk(leased);
    for client in [first, second, client] {
        client.finish();
    }
}

#[test]
fn a_leaser_that_went_away_swallows_nothing() {
    let server = TestServer::new();
    let mut client = server.client();
    for (number, breaks_off) in [(1, true), (2, false)] {
        let mut ghost = server.client();
        ghost.begin("> lease ghost 2000");
        if breaks_off {
            ghost.reset();
        } else {
            drop(ghost);
        }
        server
            .until("it has gone", |server| opened(server.engine.queues().get(b"ghost")).is_none());
        client.talk(&format!(
            "> add #{number} ghost 60000 60000 1
             > a
             < +OK"
        ));
        client.inspect(&Job { ttr: 60_000, ..job(number, "ghost") });
        client.talk(&format!(
            "> delete #{number}
             < +OK"
        ));
    }
    client.finish();
}

#[test]
fn a_worker_that_goes_keeps_its_lease_until_the_ttr() {
    let server = TestServer::new();
    let (mut client, mut worker) = (server.client(), server.client());
    client.talk(
        "> add #1 drop 300 60000 1
         > a
         < +OK",
    );
    worker.talk(
        "> lease drop 100
         < +OK 1
         < #1 drop 300 1
         < a",
    );
    worker.finish();
    server.until("it has gone", |server| server.door.clients() == 1);
    server.pass(299);
    let shown = Job { ttr: 300, attempts: 1, state: 4, ..job(1, "drop") };
    client.inspect(&shown);
    server.pass(1);
    client.inspect(&Job { state: 3, ..shown });
    client.finish();
}

#[test]
fn another_connection_may_finish_what_was_leased() {
    let server = TestServer::new();
    let (mut client, mut worker) = (server.client(), server.client());
    client.talk(
        "> add #1 q 300 60000 1
         > a
         < +OK",
    );
    worker.talk(
        "> lease q 100
         < +OK 1
         < #1 q 300 1
         < a",
    );
    client.talk(
        "> complete #1 1
         > x
         < +OK",
    );
    worker.talk(
        "> complete #1 1
         > y
         < -CLIENT-ERROR Duplicate result",
    );
    client.finish();
    worker.finish();
}

#[test]
fn a_lease_whose_bytes_never_left_is_undone() {
    let server = TestServer::stepped();
    let mut client = server.client();
    client.send(with_ids("add #1 q 60000 60000 1 -max-attempts=1\r\na\r\n"));
    let attempts = |server: &TestServer| {
        let image = server.engine.jobs().get(JobRef::Uuid(id_bytes(1))).ok()?;
        opened(image).map(|image| image.attempts)
    };
    server.until("the job is there", |server| attempts(server) == Some(0));
    server.engine.commit_once();
    client.expect("+OK\r\n");
    let mut worker = server.client();
    // A job with max-attempts waits for the lease's own record, which nobody writes here.
    worker.send("lease q 1000\r\n");
    server.until("the job is leased", |server| attempts(server) == Some(1));
    worker.reset();
    server.until("the lease is undone", |server| attempts(server) == Some(0));
    client.send("lease q 1000\r\n");
    server.until("the job is leased again", |server| attempts(server) == Some(1));
    server.engine.commit_once();
    client.expect(with_ids("+OK 1\r\n#1 q 60000 1\r\na\r\n"));
}

#[test]
fn of_several_queues_with_jobs_one_is_drawn_at_random() {
    const JOBS: u64 = 400;
    let server = TestServer::new();
    let mut client = server.client();
    let mut number = 0;
    for queue in ["mul-a", "mul-b", "mul-c"] {
        for _ in 0..JOBS {
            number += 1;
            client.send(with_ids(&format!("add #{number} {queue} 60000 60000 1\r\n1\r\n")));
        }
    }
    client.expect("+OK\r\n".repeat(3 * JOBS as usize));
    let mut drawn: BTreeMap<u64, u64> = BTreeMap::new();
    for _ in 0..JOBS {
        let before = counts(&server);
        client.send("lease mul-a none mul-b mul-c 1000\r\n");
        server.until("one is leased", |server| counts(server) != before);
        let (queue, left) = (0..3)
            .map(|queue| (queue, counts(&server)[queue]))
            .find(|(queue, left)| before[*queue] != *left)
            .expect("one count went down");
        // Within the queue the oldest goes first.
        let number = queue as u64 * JOBS + JOBS - left as u64;
        let name = ["mul-a", "mul-b", "mul-c"][queue];
        client.expect(with_ids(&format!("+OK 1\r\n#{number} {name} 60000 1\r\n1\r\n")));
        *drawn.entry(queue as u64).or_default() += 1;
    }
    // A fair draw is outside of this once in about 10^9 runs.
    assert!(drawn.values().all(|count| (75..=195).contains(count)), "{drawn:?}");
    assert_eq!(drawn.len(), 3);
    client.finish();
}

fn counts(server: &TestServer) -> [usize; 3] {
    [&b"mul-a"[..], b"mul-b", b"mul-c"].map(|name| {
        let listing = opened(server.engine.queues().get(name)).expect("it has jobs");
        listing.counts[spindle_core::Status::Ready as usize]
    })
}

#[test]
fn a_name_given_several_times_is_one_queue() {
    let server = TestServer::new();
    let (mut worker, mut client) = (server.client(), server.client());
    worker.begin("> lease q q q 1000");
    client.talk(
        "> add #1 q 1000 60000 1
         > a
         < +OK
         > add #2 q 1000 60000 1
         > b
         < +OK",
    );
    worker.talk(
        "< +OK 1
         < #1 q 1000 1
         < a
         > lease q q q 1000
         < +OK 1
         < #2 q 1000 1
         < b
         > lease q q q 0
         < -TIMEOUT",
    );
    worker.finish();
    client.finish();
}

#[test]
fn at_shutdown_waiting_leases_and_results_are_told_and_run_at_the_very_end() {
    let server = TestServer::new();
    let mut clients = [server.client(), server.client(), server.client(), server.client()];
    let [lease, result, run, idle] = &mut clients;
    idle.talk(
        "> add #1 q 1000 60000 1
         > a
         < +OK",
    );
    lease.begin("> lease other 60000");
    result.begin("> result #1 60000");
    run.begin(
        "> run #2 r 1000 60000 1
         > a",
    );
    server.engine.stop_leasing();
    server.net.begin_shutdown();
    let [mut lease, mut result, mut run, idle] = clients;
    lease.talk("< -TIMEOUT");
    lease.expect_closed();
    result.talk("< -TIMEOUT");
    result.expect_closed();
    idle.expect_closed();
    let ended = std::thread::scope(|scope| {
        let ended = scope.spawn(|| server.net.shutdown(std::time::Duration::ZERO));
        run.talk("< -TIMEOUT");
        run.expect_closed();
        ended.join().expect("no panic")
    });
    assert!(!ended, "the run was still under way");
    server.engine.stop();
}
