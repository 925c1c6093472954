//! Bytes on the wire: blocks and lines cut and joined in every way, the largest and the too large.

use crate::harness::{Client, Job, TestServer, id, job, with_ids};

const MIB: usize = 1024 * 1024;

#[test]
fn what_is_longer_than_announced_is_read_as_the_next_line() {
    let server = TestServer::new();
    let mut client = server.client();
    client.ask(
        with_ids("add #4 ping 1000 60000 3\r\nabcdefg\r\n"),
        "-CLIENT-ERROR Invalid payload size\r\n-CLIENT-ERROR Unknown command\r\n",
    );
    client.ask("inspect queue ping\r\n", "-NOT-FOUND\r\n");
    client.finish();
    // Here what is left is a bare LF.
    let mut client = server.client();
    client.ask(
        with_ids("add #4 ping 1000 60000 3\r\nabcd\r\n"),
        "-CLIENT-ERROR Invalid payload size\r\n",
    );
    client.expect_closed();
    let mut client = server.client();
    client.ask(with_ids("fail #4 3\r\nabcdefg\r\n"), "-CLIENT-ERROR Invalid result size\r\n");
    client.expect("-CLIENT-ERROR Unknown command\r\n");
    client.finish();
}

#[test]
fn payloads_and_results_may_hold_any_bytes() {
    let server = TestServer::new();
    let mut client = server.client();
    client.ask(with_ids("add #4 ping 1000 60000 4\r\n\r\n\r\n\r\n"), "+OK\r\n");
    client.inspect(&Job { payload: "\r\n\r\n", ..job(4, "ping") });
    let all: Vec<u8> = (0..=255).collect();
    let request = [with_ids("complete #4 256\r\n").as_bytes(), &all, b"\r\n"].concat();
    client.ask(request, "+OK\r\n");
    client.send(with_ids("result #4 0\r\n"));
    client.expect([with_ids("+OK 1\r\n#4 1 256\r\n").as_bytes(), &all, b"\r\n"].concat());
    client.finish();
}

#[test]
fn a_request_may_come_in_any_number_of_packets() {
    let server = TestServer::new();
    let mut client = server.client();
    let request = with_ids("add #4 ping 1000 60000 5\r\na\r\nbc\r\n");
    for byte in request.as_bytes() {
        client.send([*byte]);
    }
    client.expect("+OK\r\n");
    client.inspect(&Job { payload: "a\r\nbc", ..job(4, "ping") });
    client.send(with_ids("complete #4 3\r\nabc\r"));
    // The server has read that much when it has answered somebody who came later.
    server.client().ask("inspect queue nope\r\n", "-NOT-FOUND\r\n");
    client.ask("\n", "+OK\r\n");
    client.finish();
}

#[test]
fn a_short_block_takes_its_rest_from_what_follows() {
    let server = TestServer::new();
    let mut client = server.client();
    client.send(with_ids("add #4 ping 1000 60000 10\r\nabc\r\n"));
    client.ask("xxxxx\r\n", "+OK\r\n");
    client.inspect(&Job { payload: "abc\r\nxxxxx", ..job(4, "ping") });
    client.finish();
}

#[test]
fn a_bare_line_feed_closes_the_connection_without_a_word() {
    let server = TestServer::new();
    for bad in ["inspect server\n", "\n", "inspect queue ping\r\ninspect server\n"] {
        let mut client = server.client();
        client.send(bad);
        if bad.contains('\r') {
            client.expect("-NOT-FOUND\r\n");
        }
        client.expect_closed();
    }
}

#[test]
fn browsers_and_tls_are_shown_the_door() {
    let server = TestServer::new();
    for stranger in
        ["GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "POST /a HTTP/1.1\r\n\r\n", "\x16\x03\x01"]
    {
        let mut client = server.client();
        client.send(stranger);
        client.expect_closed();
    }
    // Later on the same letters are just an unknown command.
    let mut client = server.client();
    client.ask("inspect queue q\r\n", "-NOT-FOUND\r\n");
    client.ask("GET / HTTP/1.1\r\n", "-CLIENT-ERROR Unknown command\r\n");
    client.finish();
}

#[test]
fn one_mebibyte_goes_in_and_out_both_ways() {
    let server = TestServer::new();
    let mut client = server.client();
    let (payload, result) = ("p".repeat(MIB), "r".repeat(MIB));
    client.ask(with_ids(&format!("add #9 big 1000 60000 {MIB}\r\n{payload}\r\n")), "+OK\r\n");
    client.ask(
        "lease big 100\r\n",
        with_ids(&format!("+OK 1\r\n#9 big 1000 {MIB}\r\n{payload}\r\n")),
    );
    client.ask(with_ids(&format!("complete #9 {MIB}\r\n{result}\r\n")), "+OK\r\n");
    client.ask(
        with_ids("result #9 100\r\n"),
        with_ids(&format!("+OK 1\r\n#9 1 {MIB}\r\n{result}\r\n")),
    );
    client.finish();
}

#[test]
fn one_byte_more_than_a_mebibyte_is_refused_and_left_on_the_wire() {
    let server = TestServer::new();
    let mut client = server.client();
    client.ask(
        with_ids("add #9 big 1000 60000 1048577\r\ninspect queue big\r\n"),
        "-CLIENT-ERROR Invalid payload size\r\n-NOT-FOUND\r\n",
    );
    client.ask(with_ids("fail #9 1048577\r\n"), "-CLIENT-ERROR Invalid result size\r\n");
    client.finish();
}

#[test]
fn many_large_payloads_stream_through_one_connection() {
    const JOBS: u64 = 24;
    let server = TestServer::new();
    let payload = "x".repeat(MIB);
    let mut client = server.client();
    for number in 1..=JOBS {
        client.send(with_ids(&format!("add #{number} big 1000 60000 {MIB}\r\n{payload}\r\n")));
    }
    client.expect("+OK\r\n".repeat(JOBS as usize));
    // Asked for all at once, they come one after the other as the client reads.
    client.send("lease big 0\r\n".repeat(JOBS as usize));
    for number in 1..=JOBS {
        client.expect(with_ids(&format!("+OK 1\r\n#{number} big 1000 {MIB}\r\n{payload}\r\n")));
    }
    client.finish();
}

#[test]
fn a_line_without_end_closes_the_connection() {
    let server = TestServer::new();
    let mut client = server.client();
    client.send_in_vain(format!("inspect {}\r\n", "x".repeat(300 * 1024)));
    client.expect_closed();
    // The longest lease there can be is shorter than that.
    let mut client = server.client();
    let names = vec!["n".repeat(255); 1024].join(" ");
    client.ask(format!("lease {names} 0\r\n"), "-TIMEOUT\r\n");
    client.ask(format!("lease {names} more 0\r\n"), "-CLIENT-ERROR Invalid command args\r\n");
    client.finish();
}

#[test]
fn inspect_jobs_shows_fewer_jobs_when_they_are_large() {
    let server = TestServer::new();
    let mut client = server.client();
    let payload = "x".repeat(MIB);
    for number in 1..=8 {
        client.ask(
            with_ids(&format!("add #{number} big 1000 60000 {MIB}\r\n{payload}\r\n")),
            "+OK\r\n",
        );
    }
    let shown = |from: u64, to: u64| {
        let jobs: String =
            (from..=to).map(|id| Job { payload: &payload, ..job(id, "big") }.to_string()).collect();
        format!("+OK {}\r\n{jobs}", to + 1 - from)
    };
    client.ask("inspect jobs big 0 100\r\n", shown(1, 5));
    client.ask("inspect jobs big 5 100\r\n", shown(6, 8));
    client.finish();
}

#[test]
fn a_block_cut_by_the_end_is_refused_and_a_line_is_not_answered() {
    let server = TestServer::new();
    let cut = |sent: &str, answer: &str| {
        let mut client: Client = server.client();
        client.send(with_ids(sent));
        client.end_sending();
        client.expect(answer);
        client.expect_closed();
    };
    cut("add #4 ping 1000 60000 10\r\nabc", "-CLIENT-ERROR Invalid payload size\r\n");
    cut("add #4 ping 1000 60000 3\r\nabc\r", "-CLIENT-ERROR Invalid payload size\r\n");
    cut("fail #4 10\r\nabc", "-CLIENT-ERROR Invalid result size\r\n");
    cut("inspect ser", "");
    cut("inspect server\r", "");
    let mut client = server.client();
    client.ask(format!("inspect job {}\r\n", id(4)), "-NOT-FOUND\r\n");
    client.finish();
}
