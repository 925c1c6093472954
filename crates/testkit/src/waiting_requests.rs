//! Requests that wait for the log, and what a TCP door counts for them.

use std::io::{Read, Write};
use std::sync::Arc;

use spindle_engine::{Door, Engine, Options};
use spindle_log::MemoryLog;

use crate::{ManualEngine, TcpServer, commit_all, wait_until};

/// Checks a door while the log is behind. A second job waits for the log, with its payload in memory. That counts, so that
/// a third, larger one is too much and its connection ends; it counts no more once the job is taken.
///
/// `request` submits a job with a number of its own and a payload of so many bytes; `answer` is how the answer to one that
/// is taken begins.
#[track_caller]
pub fn check_waiting_requests<D: Door>(
    door: impl FnOnce(&Engine) -> D,
    request: impl Fn(u8, usize) -> Vec<u8>,
    answer: &[u8],
) {
    let options = Options { undurable_bytes_max: 1, ..Options::default() };
    let ManualEngine { engine, .. } =
        ManualEngine::open(Arc::new(MemoryLog::new()), 1_000, options);
    let server = TcpServer::stepped_within(&engine, door(&engine), 200_000);
    let input = || server.budgets.input.readings();
    let jobs = || engine.observe().gauges().jobs;
    let submit = |number: u8, bytes: usize| {
        let mut stream = server.connect();
        stream.write_all(&request(number, bytes)).unwrap();
        stream
    };
    let _first = submit(1, 1);
    wait_until("the first job", || jobs() == 1);
    let mut second = submit(2, 100_000);
    wait_until("the second one's payload", || input().held_bytes >= 100_000);
    let mut third = submit(3, 150_000);
    wait_until("the end of the third", || input().closed == 1);
    // It reads the reason only if it had more to send. A reset means the same as an end.
    let _ = third.read_to_end(&mut Vec::new());
    assert_eq!(jobs(), 1);
    wait_until("the second job", || {
        commit_all(&engine);
        jobs() == 2
    });
    commit_all(&engine);
    let mut heard = vec![0; answer.len()];
    second.read_exact(&mut heard).unwrap();
    assert_eq!(heard, answer);
    wait_until("nothing to be held", || input().held_bytes == 0);
}
