//! Times of schedules, by table: every row is a promise of docs/schedules.md.

use jiff::Timestamp;
use spindle_core::schedule::Schedule;
use spindle_schedule::{Timing, TimingError};

fn ms(text: &str) -> u64 {
    let at: Timestamp = text.parse().expect("the table has times");
    u64::try_from(at.as_millisecond()).expect("the table is behind 1970")
}

fn schedule(expression: &str, zone: &str) -> Schedule {
    Schedule {
        name: "report".to_owned(),
        expression: expression.to_owned(),
        zone: zone.to_owned(),
        ..Schedule::default()
    }
}

/// Checks that the next times after `after` are these, each as UTC.
#[track_caller]
fn check(expression: &str, zone: &str, after: &str, times: &[&str]) {
    let timing = Timing::of(&schedule(expression, zone)).expect("the table has expressions");
    let found = timing.all_after(ms(after)).take(times.len());
    let found: Vec<String> = found.map(|due| shown(due.due_ms)).collect();
    assert_eq!(found, times, "{expression} in {zone}");
}

fn shown(ms: u64) -> String {
    Timestamp::from_millisecond(ms as i64).expect("within the table").to_string()
}

#[test]
fn fields_names_lists_steps_and_nicknames() {
    let monday = "2026-11-23T14:30:30Z";
    for (expression, times) in [
        ("* * * * *", ["2026-11-23T14:31:00Z", "2026-11-23T14:32:00Z"]),
        ("*/15 * * * * *", ["2026-11-23T14:30:45Z", "2026-11-23T14:31:00Z"]),
        ("0 9-17/4 * * MON-FRI", ["2026-11-23T17:00:00Z", "2026-11-24T09:00:00Z"]),
        ("30 6 1,15 jan,Jul *", ["2027-01-01T06:30:00Z", "2027-01-15T06:30:00Z"]),
        ("0 0 * * 7", ["2026-11-29T00:00:00Z", "2026-12-06T00:00:00Z"]),
        ("0 12 L * *", ["2026-11-30T12:00:00Z", "2026-12-31T12:00:00Z"]),
        ("0 12 * * FRI#L", ["2026-11-27T12:00:00Z", "2026-12-25T12:00:00Z"]),
        ("0 12 * * 2#2", ["2026-12-08T12:00:00Z", "2027-01-12T12:00:00Z"]),
        ("0 12 15W * *", ["2026-12-15T12:00:00Z", "2027-01-15T12:00:00Z"]),
        // One of the two fields of days is enough, as in cron.
        ("0 0 1 * MON", ["2026-11-30T00:00:00Z", "2026-12-01T00:00:00Z"]),
        ("@hourly", ["2026-11-23T15:00:00Z", "2026-11-23T16:00:00Z"]),
        ("@daily", ["2026-11-24T00:00:00Z", "2026-11-25T00:00:00Z"]),
        ("@weekly", ["2026-11-29T00:00:00Z", "2026-12-06T00:00:00Z"]),
        ("@monthly", ["2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z"]),
        ("@yearly", ["2027-01-01T00:00:00Z", "2028-01-01T00:00:00Z"]),
        ("every 90s", ["2026-11-23T14:31:30Z", "2026-11-23T14:33:00Z"]),
        ("every 1h", ["2026-11-23T15:00:00Z", "2026-11-23T16:00:00Z"]),
    ] {
        check(expression, "UTC", monday, &times);
    }
}

#[test]
fn leap_days_come_every_four_years_but_for_centuries() {
    check(
        "0 0 29 2 *",
        "UTC",
        "2095-01-01T00:00:00Z",
        &["2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"],
    );
    check(
        "0 0 L 2 *",
        "UTC",
        "2095-12-01T00:00:00Z",
        &["2096-02-29T00:00:00Z", "2097-02-28T00:00:00Z"],
    );
}

/// In Berlin the clock goes from 02:00 to 03:00 on 2027-03-28, at 01:00 in UTC.
#[test]
fn a_time_in_a_gap_is_replaced_by_the_moment_behind_it() {
    let before = "2027-03-27T12:00:00Z";
    for (expression, times) in [
        // 02:30 does not exist: 03:00 in summer time is there instead.
        ("30 2 * * *", ["2027-03-28T01:00:00Z", "2027-03-29T00:30:00Z"]),
        ("0 2 * * *", ["2027-03-28T01:00:00Z", "2027-03-29T00:00:00Z"]),
        // Times next to the gap are not affected.
        ("59 1 * * *", ["2027-03-28T00:59:00Z", "2027-03-28T23:59:00Z"]),
        ("0 3 * * *", ["2027-03-28T01:00:00Z", "2027-03-29T01:00:00Z"]),
    ] {
        check(expression, "Europe/Berlin", before, &times);
    }
    // Patterns that run through the hours have no time in the gap.
    check(
        "*/30 * * * *",
        "Europe/Berlin",
        "2027-03-28T00:15:00Z",
        &["2027-03-28T00:30:00Z", "2027-03-28T01:00:00Z", "2027-03-28T01:30:00Z"],
    );
    check(
        "every 30m",
        "Europe/Berlin",
        "2027-03-28T00:15:00Z",
        &["2027-03-28T00:30:00Z", "2027-03-28T01:00:00Z"],
    );
}

/// In Berlin the clock goes from 03:00 back to 02:00 on 2026-10-25, at 01:00 in UTC.
#[test]
fn a_time_that_exists_twice_counts_once_the_first_time() {
    let before = "2026-10-24T12:00:00Z";
    for (expression, times) in [
        ("30 2 * * *", ["2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z"]),
        ("0 2 * * *", ["2026-10-25T00:00:00Z", "2026-10-26T01:00:00Z"]),
        ("0 3 * * *", ["2026-10-25T02:00:00Z", "2026-10-26T02:00:00Z"]),
    ] {
        check(expression, "Europe/Berlin", before, &times);
    }
    // Patterns that run through the hours have both.
    check(
        "*/30 * * * *",
        "Europe/Berlin",
        "2026-10-24T23:45:00Z",
        &[
            "2026-10-25T00:00:00Z",
            "2026-10-25T00:30:00Z",
            "2026-10-25T01:00:00Z",
            "2026-10-25T01:30:00Z",
            "2026-10-25T02:00:00Z",
        ],
    );
}

/// On Lord Howe the clock goes by half an hour only: back from 02:00 to 01:30 on 2026-04-05.
#[test]
fn a_change_of_half_an_hour_is_a_change_like_others() {
    check(
        "45 1 * * *",
        "Australia/Lord_Howe",
        "2026-04-04T00:00:00Z",
        &["2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"],
    );
}

#[test]
fn a_window_bounds_the_times() {
    let mut hourly = schedule("0 * * * *", "UTC");
    hourly.start_ms = Some(ms("2027-01-01T10:00:00Z"));
    hourly.end_ms = Some(ms("2027-01-01T12:00:00Z"));
    let timing = Timing::of(&hourly).expect("the window is sound");
    let times: Vec<String> = timing.all_after(0).map(|due| shown(due.due_ms)).collect();
    assert_eq!(times, ["2027-01-01T10:00:00Z", "2027-01-01T11:00:00Z", "2027-01-01T12:00:00Z"]);
    let never = timing.first_after(ms("2027-01-01T12:00:00Z"));
    assert_eq!(never, Err(TimingError::NeverFires("0 * * * *".to_owned())));
    let mut odd = schedule("every 90s", "UTC");
    odd.start_ms = Some(ms("2027-01-01T10:00:07Z"));
    let first = Timing::of(&odd).expect("sound").first_after(5).expect("it fires");
    assert_eq!(shown(first.due_ms), "2027-01-01T10:00:07Z");
    hourly.end_ms = hourly.start_ms.map(|start| start - 1);
    assert_eq!(Timing::of(&hourly).err(), Some(TimingError::Window));
}

#[test]
fn the_far_ends_of_time_have_no_times_and_no_panic() {
    let far = ms("9999-12-30T22:00:00Z");
    for expression in ["* * * * * *", "0 0 29 2 *"] {
        let timing = Timing::of(&schedule(expression, "Europe/Berlin")).expect("sound");
        for after in [ms("5000-01-01T00:00:00Z"), far, far + 1, u64::MAX / 2, u64::MAX] {
            assert_eq!(timing.after(after), None, "{expression} behind {after}");
        }
    }
    let every = Timing::of(&schedule("every 366d", "UTC")).expect("sound");
    assert_eq!(every.after(u64::MAX), None);
    let mut late = schedule("@daily", "UTC");
    late.start_ms = Some(far);
    let never = Timing::of(&late).expect("sound").first_after(0);
    assert_eq!(never, Err(TimingError::NeverFires("@daily".to_owned())));
}

#[test]
fn what_cannot_be_read_or_never_fires_says_so() {
    for expression in [
        "",
        "   ",
        "* * * *",
        "* * * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * 32 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "5-1-2 * * * *",
        ", * * * *",
        ",, * * * * *",
        "* * * , *",
        "@never",
        "every",
        "every 0s",
        "every 90",
        "every 1500ms",
        "every -5s",
        "every 5s 6s",
        "every 9999999999999999999s",
        "every 367d",
        "noon",
    ] {
        let error = Timing::of(&schedule(expression, "UTC")).expect_err(expression);
        assert!(matches!(error, TimingError::Expression { .. }), "{expression}: {error}");
    }
    for zone in ["", "Mars/Olympus", "Europe", "../etc/passwd", "Europe/Berlin\0"] {
        let error = Timing::of(&schedule("@daily", zone)).expect_err(zone);
        assert_eq!(error, TimingError::Zone(zone.to_owned()));
    }
    for expression in ["0 0 30 2 *", "0 0 31 4,6,9,11 *", "* * * 31 2 *"] {
        let timing = Timing::of(&schedule(expression, "Europe/Berlin")).expect("it can be read");
        let never = timing.first_after(ms("2026-01-01T00:00:00Z"));
        assert_eq!(never, Err(TimingError::NeverFires(expression.to_owned())));
    }
}

#[test]
fn a_jitter_is_within_its_bound_and_always_the_same_for_a_time() {
    let mut one = schedule("* * * * *", "UTC");
    one.jitter_ms = 30_000;
    let mut other = one.clone();
    other.name = "other".to_owned();
    let jitters = |schedule: &Schedule| -> Vec<u64> {
        let timing = Timing::of(schedule).expect("sound");
        timing.all_after(0).take(500).map(|due| due.fire_ms - due.due_ms).collect()
    };
    let first = jitters(&one);
    assert_eq!(first, jitters(&one));
    assert_ne!(first, jitters(&other));
    assert!(first.iter().all(|jitter| *jitter <= 30_000));
    assert!(first.iter().any(|jitter| *jitter < 3_000) && first.iter().any(|it| *it > 27_000));
}
