//! Clients that close their sending side and go on reading, as `printf ... | nc` does.

use spindle_testkit::opened;

use crate::harness::{TestServer, with_ids};

#[test]
fn what_was_asked_before_the_end_is_answered() {
    let server = TestServer::new();
    let mut client = server.client();
    client.send(with_ids(
        "add #1 q 1000 60000 1\r\na\r\nlease q 5000\r\ncomplete #1 1\r\nx\r\nresult #1 5000\r\n",
    ));
    client.end_sending();
    client.expect(with_ids("+OK\r\n+OK 1\r\n#1 q 1000 1\r\na\r\n+OK\r\n+OK 1\r\n#1 1 1\r\nx\r\n"));
    client.expect_closed();
}

#[test]
fn a_wait_ends_with_the_input_and_what_stands_behind_it_is_still_done() {
    let server = TestServer::new();
    let mut other = server.client();
    other.talk(
        "> add #1 q 1000 60000 1
         > a
         < +OK",
    );
    for request in ["lease nothing 60000", "result #1 60000", "run #2 r 1000 60000 0\r\n"] {
        for waits_already in [true, false] {
            let mut client = server.client();
            let request = with_ids(request);
            if waits_already {
                let lines = request.replace("\r\n", "\n> ");
                client.begin(&format!("> {lines}\n> inspect queue q"));
            } else {
                client.send(format!("{request}\r\ninspect queue q\r\n"));
            }
            client.end_sending();
            // Every request has its own answer, whether the end came before the wait or during it.
            client.expect("-TIMEOUT\r\n+OK 1\r\nq 2\r\nready-len 1\r\nscheduled-len 0\r\n");
            client.expect_closed();
        }
    }
    server.until("nobody waits", |server| server.door.clients() == 1);
    other.talk(
        "> inspect queues 0 10
         < +OK 1
         < q 2
         < ready-len 1
         < scheduled-len 0",
    );
    other.finish();
}

#[test]
fn answers_that_wait_for_the_disk_still_reach_a_client_that_sends_no_more() {
    let server = TestServer::stepped();
    let mut client = server.client();
    client.send(with_ids("add #1 q 1000 60000 1\r\na\r\nlease q 0\r\n"));
    client.end_sending();
    server.until("both are decided", |server| {
        let which = spindle_engine::JobRef::Uuid(crate::harness::id_bytes(1));
        matches!(opened(server.engine.jobs().find(which)), Some((_, spindle_core::Status::Leased)))
    });
    server.engine.commit_once();
    client.expect(with_ids("+OK\r\n+OK 1\r\n#1 q 1000 1\r\na\r\n"));
    client.expect_closed();
}

#[test]
fn more_answers_than_an_outbox_holds_follow_a_wait_that_the_end_of_input_ends() {
    let server = TestServer::new();
    let mut other = server.client();
    let payload = "x".repeat(2000);
    for job in 1..=100 {
        let id = crate::harness::id(job);
        other.ask(format!("add {id} q 1000 60000 2000\r\n{payload}\r\n"), "+OK\r\n");
    }
    let mut client = server.client();
    client.begin("> lease nothing 60000");
    client.send("inspect jobs q 0 100\r\n".repeat(40));
    client.end_sending();
    client.expect("-TIMEOUT\r\n");
    let mut answers = 0;
    for line in client.lines_to_the_end() {
        answers += usize::from(line == "+OK 100");
    }
    assert_eq!(answers, 40);
}

#[test]
fn requests_that_a_reactor_gives_in_pieces_are_all_answered() {
    let server = TestServer::new();
    let mut other = server.client();
    let payload = "x".repeat(2000);
    for job in 1..=50 {
        let id = crate::harness::id(job);
        other.ask(format!("add {id} q 1000 60000 2000\r\n{payload}\r\n"), "+OK\r\n");
    }
    // The first answers fill the outbox, and what stands behind it is far more than is given at once.
    let mut client = server.client();
    client.begin("> lease nothing 60000");
    let names = "name ".repeat(1000);
    client.send("inspect jobs q 0 100\r\n".repeat(15) + &format!("lease {names}0\r\n").repeat(40));
    client.end_sending();
    let lines = client.lines_to_the_end();
    let count = |answer: &str| lines.iter().filter(|line| *line == answer).count();
    assert_eq!((count("+OK 50"), count("-TIMEOUT")), (15, 41));
}
