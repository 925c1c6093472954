//! Offers: leases that are undone unless they are taken.

#![expect(clippy::unwrap_used, reason = "only tests use this")]

use crate::harness::TestServer;

const ADD: &str = "> add #1 q 60000 600000 1 -max-attempts=1
                   > a
                   < +OK";
const OFFERED: &str = "< +OK 1
                       < #1 q 60000 1
                       < a";

/// How often the job was leased, and whether it is now.
fn attempts_and_state(server: &TestServer) -> (String, String) {
    let mut client = server.client();
    client.send(crate::harness::with_ids("inspect job #1\r\n"));
    client.end_sending();
    let lines = client.lines_to_the_end();
    let value =
        |key: &str| lines.iter().find_map(|line| line.strip_prefix(key)).unwrap().to_owned();
    (value("attempts "), value("state "))
}

#[track_caller]
fn expect_untouched(server: &TestServer) {
    assert_eq!(attempts_and_state(server), ("0".to_owned(), "0".to_owned()));
}

#[test]
fn an_offer_that_is_taken_is_a_lease() {
    let server = TestServer::new();
    let mut worker = server.client();
    worker.talk(&format!("{ADD}\n> offer other q 1000\n{OFFERED}"));
    worker.talk(
        "> take #1
         < +OK
         > take #1
         < -CLIENT-ERROR Not leased
         > pass
         < +OK",
    );
    assert_eq!(attempts_and_state(&server), ("1".to_owned(), "4".to_owned()));
}

#[test]
fn an_offer_goes_back_untried_whatever_else_is_asked_next() {
    for next in ["pass", "what is this", "take #2", "offer nothing 0", "auth wrong"] {
        let server = TestServer::new();
        let mut worker = server.client();
        worker.talk(&format!("{ADD}\n> offer q 0\n{OFFERED}\n> {next}"));
        worker.line();
        expect_untouched(&server);
        // Its one attempt is still there, for the next one too.
        server.client().talk(&format!("> offer q 0\n{OFFERED}\n> take #1\n< +OK"));
    }
}

#[test]
fn an_offer_goes_back_untried_when_its_connection_ends() {
    let server = TestServer::new();
    let mut worker = server.client();
    worker.talk(&format!("{ADD}\n> offer q 0\n{OFFERED}"));
    drop(worker);
    server.until("it is gone", |server| server.door.clients() == 0);
    expect_untouched(&server);
}

#[test]
fn a_wait_for_an_offer_ends_when_its_client_says_something_else() {
    let server = TestServer::new();
    let mut worker = server.client();
    worker.begin("> offer q 60000");
    worker.talk(
        "> pass
         < -TIMEOUT
         < +OK",
    );
    server.until("nobody waits", |server| server.engine.observe().gauges().waits == 0);
    worker.talk(ADD);
    expect_untouched(&server);
}

#[test]
fn who_waits_for_an_offer_is_handed_the_job_in_turn() {
    let server = TestServer::new();
    let (mut first, mut second) = (server.client(), server.client());
    first.begin("> offer q 60000");
    second.begin("> lease q 60000");
    server.client().talk(ADD);
    first.talk(OFFERED);
    // Who waits gets what the first passes on.
    first.talk("> pass\n< +OK");
    second.talk(OFFERED);
    assert_eq!(attempts_and_state(&server), ("1".to_owned(), "4".to_owned()));
}

#[test]
fn an_offer_that_was_asked_for_last_ends_with_the_input() {
    let server = TestServer::new();
    assert_eq!(server.answers("offer q 60000\r\n"), "-TIMEOUT\r\n");
    let mut worker = server.client();
    worker.begin("> offer q 60000");
    worker.end_sending();
    worker.expect("-TIMEOUT\r\n");
    worker.expect_closed();
}
