//! Times as people write them, in UTC whatever the machine's zone is, so that everybody sees the
//! same times, which are also those of the server's log.

use jiff::Timestamp;
use serde_json::Value;

const SECOND_MS: u64 = 1_000;
const MINUTE_MS: u64 = 60 * SECOND_MS;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;

/// `2026-11-22 06:31:07 UTC (3m ago)` of an RFC 3339 time; anything else stays what it is.
pub fn with_distance(text: &str, now: Timestamp) -> String {
    match text.parse::<Timestamp>() {
        Ok(time) => format!("{} ({})", plain(time), distance(time, now)),
        Err(_) => text.to_owned(),
    }
}

/// `3m ago` of an RFC 3339 time; anything else stays what it is.
pub fn distance_of(text: &str, now: Timestamp) -> String {
    text.parse::<Timestamp>().map_or_else(|_| text.to_owned(), |time| distance(time, now))
}

/// `2026-11-22 06:31:07 UTC`
pub fn plain(time: Timestamp) -> String {
    time.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// `3m ago`, `in 2h`, `now`.
fn distance(time: Timestamp, now: Timestamp) -> String {
    let ms = now.as_millisecond() - time.as_millisecond();
    let length = lasting(ms.unsigned_abs() / SECOND_MS * SECOND_MS);
    match ms {
        -999..=999 => "now".to_owned(),
        1_000.. => format!("{length} ago"),
        _ => format!("in {length}"),
    }
}

/// How long from one RFC 3339 time to another.
pub fn between(from: &str, to: &str) -> Option<String> {
    let [from, to] = [from, to].map(|text| text.parse::<Timestamp>().ok());
    let ms = to?.as_millisecond() - from?.as_millisecond();
    // If the clock was set back in between, it counts as no time.
    Some(lasting(u64::try_from(ms).unwrap_or(0)))
}

/// A length of time in its two largest units: `2h 5m`, `1.250s`, `80ms`.
pub fn lasting(ms: u64) -> String {
    let two = |large: u64, small: u64, [large_unit, small_unit]: [&str; 2]| match ms % large / small
    {
        0 => format!("{}{large_unit}", ms / large),
        rest => format!("{}{large_unit} {rest}{small_unit}", ms / large),
    };
    match ms {
        0..SECOND_MS => format!("{ms}ms"),
        SECOND_MS..MINUTE_MS if ms.is_multiple_of(SECOND_MS) => format!("{}s", ms / SECOND_MS),
        SECOND_MS..MINUTE_MS => format!("{}.{:03}s", ms / SECOND_MS, ms % SECOND_MS),
        MINUTE_MS..HOUR_MS => two(MINUTE_MS, SECOND_MS, ["m", "s"]),
        HOUR_MS..DAY_MS => two(HOUR_MS, MINUTE_MS, ["h", "m"]),
        _ => two(DAY_MS, HOUR_MS, ["d", "h"]),
    }
}

/// A field of the native API as people read it: its name says whether it is a time or a length of
/// time.
pub fn of_field(name: &str, value: &Value, now: Timestamp) -> Option<String> {
    let is_time = name.ends_with("_at") || name.ends_with("_until");
    match value {
        Value::String(text) if is_time => Some(with_distance(text, now)),
        Value::Number(ms) if name.ends_with("_ms") => ms.as_u64().map(lasting),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn a_time_is_told_with_how_far_away_it_is() {
        let now = at("2026-11-22T06:34:10Z");
        for (time, expected) in [
            ("2026-11-22T06:31:07.120Z", "2026-11-22 06:31:07 UTC (3m 2s ago)"),
            ("2026-11-22T08:34:10+02:00", "2026-11-22 06:34:10 UTC (now)"),
            ("2026-11-22T06:34:09.001Z", "2026-11-22 06:34:09 UTC (now)"),
            ("2026-11-22T06:34:11Z", "2026-11-22 06:34:11 UTC (in 1s)"),
            ("2026-12-22T08:34:10Z", "2026-12-22 08:34:10 UTC (in 30d 2h)"),
            ("soon", "soon"),
        ] {
            assert_eq!(with_distance(time, now), expected);
        }
    }

    #[test]
    fn a_length_of_time_has_at_most_two_units() {
        for (ms, expected) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (1_250, "1.250s"),
            (59_999, "59.999s"),
            (60_000, "1m"),
            (185_000, "3m 5s"),
            (3_600_000, "1h"),
            (7_500_000, "2h 5m"),
            (86_400_000, "1d"),
            (90_061_001, "1d 1h"),
        ] {
            assert_eq!(lasting(ms), expected);
        }
        let [from, to] = ["2026-11-22T06:31:07.000Z", "2026-11-22T06:31:08.250Z"];
        assert_eq!(between(from, to).as_deref(), Some("1.250s"));
        assert_eq!(between(to, from).as_deref(), Some("0ms"));
        assert_eq!(between(from, ""), None);
    }

    #[test]
    fn what_a_field_says_is_told_by_its_name() {
        let now = at("2026-01-01T00:00:00Z");
        let shown = of_field("finished_at", &json!("2025-12-31T23:59:00Z"), now);
        assert_eq!(shown.as_deref(), Some("2025-12-31 23:59:00 UTC (1m ago)"));
        assert_eq!(of_field("keep_ms", &json!(90_000), now).as_deref(), Some("1m 30s"));
        assert_eq!(of_field("queue", &json!("2025-12-31T23:59:00Z"), now), None);
    }
}
