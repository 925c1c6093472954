//! Calls that ask for the wall clock's time.

use super::*;

fn seconds_off() -> i64 {
    // Reading the clock file opens it, and that must not count as a call of the process.
    let Some(entered) = enter() else { return 0 };
    let (seconds, is_set) = entered.troubles().clock_seconds();
    if is_set {
        entered.count(|counts| counts.clock_jumps += 1);
    }
    seconds
}

hooks! {
    fn clock_gettime(clock: libc::clockid_t, time: *mut libc::timespec) -> c_int {
        let outcome = system_call!(libc::SYS_clock_gettime, clock, time) as c_int;
        if outcome == 0 && clock == libc::CLOCK_REALTIME {
            // SAFETY: the call has just filled it in.
            unsafe { (*time).tv_sec += seconds_off() };
        }
        outcome
    }

    fn gettimeofday(time: *mut libc::timeval, zone: *mut c_void) -> c_int {
        let outcome = system_call!(libc::SYS_gettimeofday, time, zone) as c_int;
        if outcome == 0 && !time.is_null() {
            // SAFETY: the call has just filled it in.
            unsafe { (*time).tv_sec += seconds_off() };
        }
        outcome
    }
}
