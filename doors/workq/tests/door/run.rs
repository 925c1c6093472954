//! `run` in all its endings.

use spindle_testkit::opened;

use crate::harness::{Job, TestServer, job};

const NO_QUEUES: &str = "> inspect queues 0 10
     < +OK 0";

#[test]
fn nobody_takes_the_job_in_time() {
    let server = TestServer::new();
    let (mut client, mut other) = (server.client(), server.client());
    client.begin(
        "> run #1 rn 1000 200 1
         > a",
    );
    // It is there meanwhile, without a TTL.
    other.inspect(&Job { ttl: 0, ..job(1, "rn") });
    server.pass(199);
    other.inspect(&Job { ttl: 0, ..job(1, "rn") });
    server.pass(1);
    client.talk("< -TIMEOUT");
    client.talk(
        "> inspect job #1
         < -NOT-FOUND",
    );
    client.talk(NO_QUEUES);
    client.finish();
}

#[test]
fn a_wait_timeout_of_zero_ends_at_once() {
    let server = TestServer::new();
    let mut client = server.client();
    client.talk(
        "> run #1 rn 1000 0 1
         > a
         < -TIMEOUT
         > run #1 rn 1000 0 1 -max-fails=3
         > a
         < -TIMEOUT",
    );
    client.talk(NO_QUEUES);
    client.finish();
}

#[test]
fn a_waiting_worker_completes_it() {
    let server = TestServer::new();
    let (mut client, mut worker) = (server.client(), server.client());
    worker.begin("> lease rn 1000");
    client.begin(
        "> run #1 rn 1000 500 4
         > ping",
    );
    worker.talk(
        "< +OK 1
         < #1 rn 1000 4
         < ping",
    );
    worker.inspect(&Job { ttl: 0, payload: "ping", attempts: 1, state: 4, ..job(1, "rn") });
    worker.talk(
        "> complete #1 4
         > pong
         < +OK",
    );
    client.talk(
        "< +OK 1
         < #1 1 4
         < pong
         > result #1 10
         < -NOT-FOUND",
    );
    client.talk(NO_QUEUES);
    client.finish();
    worker.finish();
}

#[test]
fn a_worker_that_comes_later_fails_it() {
    let server = TestServer::new();
    let (mut client, mut worker) = (server.client(), server.client());
    client.begin(
        "> run #1 rn 1000 500 4 -priority=7
         > ping",
    );
    worker.inspect(&Job { ttl: 0, payload: "ping", priority: 7, ..job(1, "rn") });
    worker.talk(
        "> lease rn 1000
         < +OK 1
         < #1 rn 1000 4
         < ping
         > fail #1 4
         > nope
         < +OK
         > fail #1 4
         > nope
         < -NOT-FOUND",
    );
    client.talk(
        "< +OK 1
         < #1 0 4
         < nope",
    );
    client.talk(NO_QUEUES);
    client.finish();
    worker.finish();
}

#[test]
fn somebody_completes_it_without_a_lease() {
    let server = TestServer::new();
    let (mut client, mut other) = (server.client(), server.client());
    client.begin(
        "> run #1 rn 1000 500 4
         > ping",
    );
    other.talk(
        "> complete #1 2
         > ok
         < +OK",
    );
    client.talk(
        "< +OK 1
         < #1 1 2
         < ok",
    );
    client.finish();
}

#[test]
fn once_leased_only_the_ttr_counts_and_when_it_ends_the_job_is_gone() {
    let server = TestServer::new();
    let (mut client, mut worker, mut other) = (server.client(), server.client(), server.client());
    client.begin(
        "> run #1 rn 300 100 4
         > ping",
    );
    worker.talk(
        "> lease rn 1000
         < +OK 1
         < #1 rn 300 4
         < ping",
    );
    server.pass(299);
    other.inspect(&Job {
        ttr: 300,
        ttl: 0,
        payload: "ping",
        attempts: 1,
        state: 4,
        ..job(1, "rn")
    });
    other.begin("> lease rn 1000");
    server.pass(1);
    client.talk("< -TIMEOUT");
    worker.talk(
        "> complete #1 4
         > late
         < -NOT-FOUND",
    );
    // No other worker gets it, though the wait-timeout of the original would allow one.
    server.pass(1000);
    other.talk("< -TIMEOUT");
    client.talk(NO_QUEUES);
    client.finish();
    worker.finish();
    other.finish();
}

#[test]
fn an_extended_lease_keeps_the_client_waiting() {
    let server = TestServer::new();
    let (mut client, mut worker) = (server.client(), server.client());
    client.begin(
        "> run #1 rn 300 100 4
         > ping",
    );
    worker.talk(
        "> lease rn 1000
         < +OK 1
         < #1 rn 300 4
         < ping
         > extend #1 5000
         < +OK",
    );
    server.pass(4_999);
    worker.talk(
        "> complete #1 2
         > ok
         < +OK",
    );
    client.talk(
        "< +OK 1
         < #1 1 2
         < ok",
    );
    client.finish();
}

#[test]
fn a_client_that_goes_takes_an_unstarted_job_with_it() {
    let server = TestServer::new();
    let (mut client, mut other, mut waiter) = (server.client(), server.client(), server.client());
    client.begin(
        "> run #1 gone 1000 500 4
         > ping",
    );
    other.inspect(&Job { ttl: 0, payload: "ping", ..job(1, "gone") });
    client.reset();
    server
        .until("the job has gone", |server| opened(server.engine.queues().get(b"gone")).is_none());
    other.talk(
        "> inspect job #1
         < -NOT-FOUND
         > lease gone 0
         < -TIMEOUT",
    );
    // Unless somebody else waits for it as well.
    let mut client = server.client();
    client.begin(
        "> run #2 gone 1000 500 4
         > ping",
    );
    waiter.begin("> result #2 60000");
    client.reset();
    server.until("the client has gone", |server| server.door.clients() == 2);
    other.talk(
        "> complete #2 1
         > x
         < +OK",
    );
    waiter.talk(
        "< +OK 1
         < #2 1 1
         < x",
    );
}

#[test]
fn a_client_that_goes_leaves_a_started_job_to_its_worker() {
    let server = TestServer::new();
    for ending in ["complete", "ttr"] {
        let (mut client, mut worker) = (server.client(), server.client());
        client.begin(
            "> run #1 gone 1000 500 4
             > ping",
        );
        worker.talk(
            "> lease gone 0
             < +OK 1
             < #1 gone 1000 4
             < ping",
        );
        let before = server.door.clients();
        client.reset();
        server.until("the client has gone", |server| server.door.clients() < before);
        let leased = Job { ttl: 0, payload: "ping", attempts: 1, state: 4, ..job(1, "gone") };
        worker.inspect(&leased);
        if ending == "complete" {
            worker.talk(
                "> complete #1 0
                 >
                 < +OK",
            );
        } else {
            server.pass(1000);
        }
        worker.talk(
            "> inspect job #1
             < -NOT-FOUND
             > lease gone 0
             < -TIMEOUT",
        );
        worker.talk(NO_QUEUES);
        worker.finish();
    }
}

#[test]
fn deleting_the_job_tells_the_client() {
    let server = TestServer::new();
    let (mut client, mut other) = (server.client(), server.client());
    client.begin(
        "> run #1 rn 1000 500 4
         > ping",
    );
    other.talk(
        "> delete #1
         < +OK",
    );
    client.talk("< -NOT-FOUND");
    client.talk(NO_QUEUES);
    client.finish();
}

#[test]
fn when_a_worker_breaks_off_before_the_job_left_the_server_the_wait_goes_on() {
    let server = TestServer::stepped();
    let (mut client, mut worker) = (server.client(), server.client());
    // Behind an answer that waits for the log, so does the lease.
    client.begin(
        "> run #1 rn 1000 500 4
         > ping",
    );
    worker.send(crate::harness::with_ids("add #2 other 1000 60000 1\r\na\r\nlease rn 0\r\n"));
    let attempts = |server: &TestServer| {
        let which = spindle_engine::JobRef::Uuid(crate::harness::id_bytes(1));
        let image = server.engine.jobs().get(which).ok().and_then(opened);
        image.map(|image| image.attempts)
    };
    server.until("the job is leased", |server| attempts(server) == Some(1));
    worker.reset();
    server.until("the lease is undone", |server| attempts(server) == Some(0));
    server.pass(499);
    assert_eq!(attempts(&server), Some(0));
    // The wait-timeout counts again.
    server.pass(1);
    assert_eq!(attempts(&server), None);
    server.engine.commit_once();
    client.talk("< -TIMEOUT");
}
