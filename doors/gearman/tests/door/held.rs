//! What clients make the server hold.

use spindle_engine::Engine;
use spindle_gearman::GearmanDoor;
use spindle_testkit::check_waiting_requests;

#[test]
fn a_request_that_waits_for_the_log_counts_and_the_largest_goes() {
    let submit_job_bg = |number: u8, bytes: usize| {
        let data = [&b"mail\0"[..], &[b'0' + number, 0], &vec![b'x'; bytes]].concat();
        let length = data.len() as u32;
        [&b"\0REQ\0\0\0\x12"[..], &length.to_be_bytes(), &data].concat()
    };
    let door = |engine: &Engine| GearmanDoor::new(engine.clone(), Default::default());
    check_waiting_requests(door, submit_job_bg, b"\0RES\0\0\0\x08");
}
