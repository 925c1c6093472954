//! The time of day.

use std::time::SystemTime;

use jiff::Timestamp;

/// What the clock of this machine says. A clock may say any time, and a [`Timestamp`] ends with the
/// year 9999: what is before or after all of them becomes the first or the last. (`Timestamp::now`
/// panics then.)
#[must_use]
pub fn now() -> Timestamp {
    nearest(SystemTime::now())
}

fn nearest(time: SystemTime) -> Timestamp {
    let end = if time < SystemTime::UNIX_EPOCH { Timestamp::MIN } else { Timestamp::MAX };
    Timestamp::try_from(time).unwrap_or(end)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn any_time_of_a_clock_is_a_time() {
        let epoch = SystemTime::UNIX_EPOCH;
        let second = Duration::from_secs(1);
        assert_eq!(nearest(epoch + second), Timestamp::from_second(1).unwrap());
        assert_eq!(nearest(epoch - second), Timestamp::from_second(-1).unwrap());
        let last = SystemTime::from(Timestamp::MAX);
        for after in [last, last + second, epoch + Duration::from_secs(1 << 62)] {
            assert_eq!(nearest(after), Timestamp::MAX);
        }
        for before in [epoch - Duration::from_secs(1 << 40), epoch - Duration::from_secs(1 << 62)] {
            assert_eq!(nearest(before), Timestamp::MIN);
        }
        assert!(now() > Timestamp::UNIX_EPOCH);
    }
}
