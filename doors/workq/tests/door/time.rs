//! What time does to jobs and to those who wait: TTR, TTL, schedules, tries, waiting results.

use spindle_engine::JobRef;
use spindle_testkit::opened;

use crate::harness::{Job, START_MS, TestServer, id_bytes, job};

#[test]
fn a_lease_that_runs_out_gives_the_job_back_with_its_attempt_counted() {
    let server = TestServer::new();
    let mut client = server.client();
    client.talk(
        "> add #1 ttr 150 60000 1
         > a
         < +OK
         > add #2 ttr 150 60000 1
         > a
         < +OK
         > lease ttr 100
         < +OK 1
         < #1 ttr 150 1
         < a",
    );
    let leased = Job { ttr: 150, attempts: 1, state: 4, ..job(1, "ttr") };
    server.pass(149);
    client.inspect(&leased);
    server.pass(1);
    client.inspect(&Job { state: 3, ..leased });
    client.talk(
        "> inspect queue ttr
         < +OK 1
         < ttr 2
         < ready-len 2
         < scheduled-len 0
         > lease ttr 100
         < +OK 1
         < #1 ttr 150 1
         < a",
    );
    // It kept its place. The second attempt runs out too, and the result comes late.
    server.pass(151);
    client.talk(
        "> complete #1 4
         > late
         < +OK
         > inspect queue ttr
         < +OK 1
         < ttr 2
         < ready-len 1
         < scheduled-len 0
         > result #1 0
         < +OK 1
         < #1 1 4
         < late",
    );
    client.finish();
}

#[test]
fn the_last_attempt_that_runs_out_leaves_a_dead_job_with_an_empty_result() {
    let server = TestServer::new();
    let (mut client, mut waiter) = (server.client(), server.client());
    client.talk(
        "> add #1 att 100 60000 1 -max-attempts=2
         > a
         < +OK",
    );
    waiter.begin("> result #1 60000");
    let shown = Job { ttr: 100, max_attempts: 2, ..job(1, "att") };
    for (attempts, state) in [(1, 3), (2, 2)] {
        client.talk(
            "> lease att 100
             < +OK 1
             < #1 att 100 1
             < a",
        );
        server.pass(100);
        client.inspect(&Job { attempts, state, ..shown.clone() });
    }
    let ended = "< +OK 1
         < #1 0 0
         <";
    waiter.talk(ended);
    client.talk(&format!("> result #1 10\n{ended}"));
    client.talk(
        "> lease att 0
         < -TIMEOUT
         > complete #1 0
         >
         < -CLIENT-ERROR Duplicate result",
    );
    client.finish();
    waiter.finish();
}

#[test]
fn a_job_with_max_fails_is_tried_again_until_the_last_one() {
    let server = TestServer::new();
    let (mut client, mut waiter) = (server.client(), server.client());
    client.talk(
        "> add #1 mf 1000 60000 1 -max-fails=3
         > a
         < +OK",
    );
    waiter.begin("> result #1 60000");
    let shown = Job { max_fails: 3, ..job(1, "mf") };
    for fails in 1..=3 {
        client.talk(&format!(
            "> lease mf 100
             < +OK 1
             < #1 mf 1000 1
             < a
             > fail #1 4
             > err{fails}
             < +OK"
        ));
        let state = if fails < 3 { 3 } else { 2 };
        client.inspect(&Job { attempts: fails, fails, state, ..shown.clone() });
        if fails < 3 {
            client.talk(
                "> result #1 0
                 < -TIMEOUT",
            );
        }
    }
    let ended = "< +OK 1
         < #1 0 4
         < err3";
    waiter.talk(ended);
    client.talk(&format!("> result #1 0\n{ended}"));
    client.talk(
        "> lease mf 0
         < -TIMEOUT",
    );
    client.finish();
    waiter.finish();
}

#[test]
fn a_job_that_fails_and_then_completes_gives_its_waiters_the_last_word() {
    let server = TestServer::new();
    let (mut client, mut waiter) = (server.client(), server.client());
    client.talk(
        "> add #1 mf 1000 60000 1 -max-fails=2
         > a
         < +OK",
    );
    waiter.begin("> result #1 60000");
    client.talk(
        "> fail #1 3
         > bad
         < +OK
         > complete #1 4
         > good
         < +OK",
    );
    waiter.talk(
        "< +OK 1
         < #1 1 4
         < good",
    );
    client.inspect(&Job { max_fails: 2, fails: 1, state: 1, ..job(1, "mf") });
    waiter.finish();
    client.finish();
}

#[test]
fn unfinished_jobs_whose_ttl_passes_are_gone_and_counted() {
    let server = TestServer::new();
    let (mut client, mut waiter) = (server.client(), server.client());
    client.talk(
        "> add #1 ttl 1000 150 1
         > a
         < +OK
         > add #2 ttl 1000 150 1
         > b
         < +OK
         > complete #2 1
         > b
         < +OK
         > add #3 ttl 1000 150 1
         > c
         < +OK
         > lease ttl 0
         < +OK 1
         < #1 ttl 1000 1
         < a",
    );
    waiter.begin("> result #3 60000");
    server.pass(149);
    client.talk(
        "> result #2 0
         < +OK 1
         < #2 1 1
         < b",
    );
    server.pass(1);
    // One leased, one ready, one done: the done one is not counted.
    waiter.talk("< -NOT-FOUND");
    client.talk(
        "> inspect job #1
         < -NOT-FOUND
         > result #1 10
         < -NOT-FOUND
         > complete #1 0
         >
         < -NOT-FOUND
         > result #2 10
         < -NOT-FOUND
         > lease ttl 0
         < -TIMEOUT
         > inspect queues 0 10
         < +OK 0
         > inspect server
         < +OK 1
         < server 3
         < active-clients 2
         < evicted-jobs 2
         < started 2016-08-22T01:50:51Z",
    );
    client.finish();
    waiter.finish();
}

#[test]
fn a_result_is_waited_for_until_the_time_is_up() {
    let server = TestServer::new();
    let (mut client, mut first, mut second) = (server.client(), server.client(), server.client());
    client.talk(
        "> add #1 res 1000 60000 1
         > a
         < +OK",
    );
    first.begin("> result #1 100");
    second.begin("> result #1 101");
    server.pass(100);
    first.talk("< -TIMEOUT");
    server.pass(1);
    second.talk("< -TIMEOUT");
    first.finish();
    second.finish();
    client.finish();
}

#[test]
fn everybody_who_waits_for_a_result_gets_it() {
    let server = TestServer::new();
    let mut client = server.client();
    client.talk(
        "> add #1 res 1000 60000 1
         > a
         < +OK",
    );
    let mut waiters: Vec<_> = (0..20).map(|_| server.client()).collect();
    for waiter in &mut waiters {
        waiter.begin("> result #1 700");
    }
    client.talk(
        "> complete #1 2
         > ok
         < +OK",
    );
    for mut waiter in waiters {
        waiter.talk(
            "< +OK 1
             < #1 1 2
             < ok",
        );
        waiter.finish();
    }
    client.finish();
}

#[test]
fn deleting_a_job_tells_those_who_wait_for_it() {
    let server = TestServer::new();
    let mut client = server.client();
    client.talk(
        "> add #1 res 1000 60000 1
         > a
         < +OK",
    );
    let mut waiters = [server.client(), server.client()];
    for waiter in &mut waiters {
        waiter.begin("> result #1 500");
    }
    client.talk(
        "> delete #1
         < +OK",
    );
    for mut waiter in waiters {
        waiter.talk("< -NOT-FOUND");
        waiter.finish();
    }
    client.finish();
}

#[test]
fn a_scheduled_job_goes_to_a_waiting_worker_when_its_time_comes() {
    let server = TestServer::new();
    let (mut client, mut worker) = (server.client(), server.client());
    client.talk(
        "> schedule #1 soon 1000 500 2016-08-22T01:50:53Z 1
         > a
         < +OK",
    );
    worker.begin("> lease soon 3000");
    server.pass(1999);
    let scheduled = Job { ttl: 500, time: Some("2016-08-22T01:50:53Z"), ..job(1, "soon") };
    client.inspect(&scheduled);
    server.pass(1);
    worker.talk(
        "< +OK 1
         < #1 soon 1000 1
         < a",
    );
    client.inspect(&Job { attempts: 1, state: 4, ..scheduled });
    // Its TTL counts from its time.
    server.pass(499);
    assert!(opened(server.engine.jobs().find(JobRef::Uuid(id_bytes(1)))).is_some());
    server.pass(1);
    client.talk(
        "> inspect job #1
         < -NOT-FOUND",
    );
    worker.finish();
    client.finish();
}

#[test]
fn a_time_that_has_passed_makes_the_job_ready_at_once() {
    let server = TestServer::new();
    let mut client = server.client();
    client.talk(
        "> schedule #1 past 1000 60000 2016-08-22T01:50:21Z 1
         > a
         < +OK
         > lease past 100
         < +OK 1
         < #1 past 1000 1
         < a
         > schedule #2 past 1000 30000 2016-08-22T01:50:21Z 1
         > a
         < -CLIENT-ERROR Invalid Time
         > schedule #2 past 1000 30001 2016-08-22T01:50:21Z 1
         > a
         < +OK",
    );
    server.pass(1);
    client.talk(
        "> lease past 0
         < -TIMEOUT",
    );
    client.finish();
}

#[test]
fn a_lease_can_be_extended_while_it_runs() {
    let server = TestServer::new();
    let mut client = server.client();
    client.talk(
        "> add #1 long 100 60000 1
         > a
         < +OK
         > extend #1 500
         < -CLIENT-ERROR Not leased
         > lease long 0
         < +OK 1
         < #1 long 100 1
         < a",
    );
    server.pass(99);
    client.talk(
        "> extend #1 500
         < +OK",
    );
    server.pass(499);
    let shown = Job { ttr: 100, attempts: 1, state: 4, ..job(1, "long") };
    client.inspect(&shown);
    server.pass(1);
    client.inspect(&Job { state: 3, ..shown });
    // The next lease has the job's own TTR again.
    client.talk(
        "> lease long 0
         < +OK 1
         < #1 long 100 1
         < a",
    );
    server.pass(100);
    client.talk(
        "> extend #1 500
         < -CLIENT-ERROR Not leased
         > complete #1 0
         >
         < +OK
         > extend #1 500
         < -CLIENT-ERROR Not leased
         > delete #1
         < +OK
         > extend #1 500
         < -NOT-FOUND",
    );
    client.finish();
}

#[test]
fn created_is_when_the_job_came() {
    let server = TestServer::new();
    server.pass(2_500);
    assert_eq!(server.engine.now_ms(), START_MS + 2_500);
    let mut client = server.client();
    client.talk(
        "> add #1 ping 1000 60000 1
         > a
         < +OK",
    );
    client.inspect(&Job { created: "2016-08-22T01:50:53Z", ..job(1, "ping") });
    client.finish();
}

#[test]
fn with_a_real_clock_waits_end_by_themselves() {
    let server = TestServer::with_real_time();
    let (mut worker, mut client) = (server.client(), server.client());
    let start = std::time::Instant::now();
    worker.talk(
        "> lease q 60
         < -TIMEOUT",
    );
    assert!(start.elapsed() >= std::time::Duration::from_millis(55));
    // The timer that slept without anything due hears of a lease's end as well.
    client.talk(
        "> add #1 q 40 60000 1
         > a
         < +OK",
    );
    for _ in 0..2 {
        worker.talk(
            "> lease q 20000
             < +OK 1
             < #1 q 40 1
             < a",
        );
    }
    worker.finish();
    client.finish();
}
