//! What clients make the server hold.

use spindle_engine::Engine;
use spindle_testkit::check_waiting_requests;
use spindle_workq::WorkqDoor;
use spindle_workq::wire::Limits;

#[test]
fn a_request_that_waits_for_the_log_counts_and_the_largest_goes() {
    let add = |number: u8, bytes: usize| {
        let head = format!("add 6ba7b810-9dad-11d1-80b4-{number:012x} q 1000 600000 {bytes}\r\n");
        [head.as_bytes(), &vec![b'x'; bytes], b"\r\n"].concat()
    };
    let door = |engine: &Engine| WorkqDoor::new(engine.clone(), Limits::default());
    check_waiting_requests(door, add, b"+OK\r\n");
}
