//! Waiting for what must come, with a deadline.

use std::thread::park_timeout;
use std::time::{Duration, Instant};

/// How long a test waits for something that must come. It bounds how long a failure takes to show,
/// and does not measure speed.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Between two looks at a condition.
const LOOK_EVERY: Duration = Duration::from_millis(1);

/// Waits until `condition` holds; panics with `what` when it does not within [`PATIENCE`].
#[track_caller]
pub fn wait_until(what: &str, condition: impl FnMut() -> bool) {
    wait_within(PATIENCE, what, condition);
}

/// Waits until `condition` holds; panics with `what` when it does not within `time`. For conditions
/// that something else would fulfil later.
#[track_caller]
pub fn wait_within(time: Duration, what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + time;
    while !condition() {
        assert!(Instant::now() < deadline, "waited in vain for: {what}");
        park_timeout(LOOK_EVERY);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_asked_until_it_holds() {
        let mut asked = 0;
        wait_until("the third question", || {
            asked += 1;
            asked == 3
        });
        assert_eq!(asked, 3);
    }

    #[test]
    #[should_panic(expected = "waited in vain for: the end of days")]
    fn a_condition_that_never_holds_fails_the_test_by_name() {
        wait_within(Duration::from_millis(5), "the end of days", || false);
    }
}
