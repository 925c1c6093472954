//! What clients make the server hold.

use std::io::{Read, Write};
use std::sync::Arc;

use spindle_engine::Options;
use spindle_log::MemoryLog;
use spindle_testkit::{ManualEngine, TcpServer, commit_all, wait_until};
use spindle_workq::WorkqDoor;
use spindle_workq::wire::Limits;

fn request(number: u8, bytes: usize) -> Vec<u8> {
    let head = format!("add 6ba7b810-9dad-11d1-80b4-{number:012x} q 1000 600000 {bytes}\r\n");
    [head.as_bytes(), &vec![b'x'; bytes], b"\r\n"].concat()
}

/// The log is behind: the second job waits for it, with its payload in memory. It counts, so that a third, larger one is
/// too much; and no more once it is taken.
#[test]
fn a_request_that_waits_for_the_log_counts_and_the_largest_goes() {
    let options = Options { undurable_bytes_max: 1, ..Options::default() };
    let ManualEngine { engine, .. } =
        ManualEngine::open(Arc::new(MemoryLog::new()), 1_000, options);
    let server = TcpServer::stepped_within(
        &engine,
        WorkqDoor::new(engine.clone(), Limits::default()),
        200_000,
    );
    let input = || server.budgets.input.readings();
    let jobs = || engine.observe().gauges().jobs;
    let add = |number: u8, bytes: usize| {
        let mut stream = server.connect();
        stream.write_all(&request(number, bytes)).unwrap();
        stream
    };
    let _first = add(1, 1);
    wait_until("the first job", || jobs() == 1);
    let mut second = add(2, 100_000);
    wait_until("the second one's payload", || input().held_bytes >= 100_000);
    let mut third = add(3, 150_000);
    wait_until("the end of the third", || input().closed == 1);
    // It hears why if it had more to send. A reset says the same as an end.
    let _ = third.read_to_end(&mut Vec::new());
    assert_eq!(jobs(), 1);
    wait_until("the second job", || {
        commit_all(&engine);
        jobs() == 2
    });
    commit_all(&engine);
    let mut answer = [0; 5];
    second.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"+OK\r\n");
    wait_until("nothing to be held", || input().held_bytes == 0);
}
