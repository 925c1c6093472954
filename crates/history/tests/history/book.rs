//! What is written down, and what is asked.

use bytes::Bytes;
use spindle_core::JobId;
use spindle_engine::FailedAttempts;
use spindle_history::{BUCKETS, Book, Look, QueueNews, Range, percentile_us};

/// A time at which a slot of every length begins.
const BEGIN_MS: u64 = 1_800_000_000_000;
const DAY_MS: u64 = 24 * 3_600_000;

fn look(after_ms: u64, submitted: u64) -> Look {
    Look { at_ms: BEGIN_MS + after_ms, totals: [submitted, 0, 0, 0], ..Look::default() }
}

fn news(name: &str, submitted: u64) -> QueueNews {
    QueueNews { name: Bytes::copy_from_slice(name.as_bytes()), submitted, ..QueueNews::default() }
}

fn failed(fingerprint: &str, queue: &str, count: u64, after_ms: u64) -> FailedAttempts {
    FailedAttempts {
        fingerprint: fingerprint.to_owned(),
        queue: Bytes::copy_from_slice(queue.as_bytes()),
        count,
        last_job: JobId(after_ms),
        last_ms: BEGIN_MS + after_ms,
    }
}

fn none_ready(names: &[Bytes]) -> Vec<usize> {
    vec![0; names.len()]
}

fn submitted(book: &Book, range: Range, after_ms: u64, max: usize) -> Vec<(u64, u32)> {
    let points = book.server(range, BEGIN_MS + after_ms, max).points;
    points.into_iter().map(|(at, slot)| (at - BEGIN_MS, slot.submitted)).collect()
}

#[test]
fn counts_since_the_last_look_belong_to_the_time_between() {
    let mut book = Book::default();
    book.record(&look(10_000, 7), none_ready);
    book.record(&look(30_000, 27), none_ready);
    assert_eq!(submitted(&book, Range::Hour, 30_000, 360), [(0, 7), (10_000, 10), (20_000, 10)]);
    assert_eq!(submitted(&book, Range::Day, 30_000, 288), [(0, 27)]);
    let points = book.server(Range::Hour, BEGIN_MS + 30_000, 60);
    assert_eq!((points.step_ms, points.points[0].1.seen_ms), (60_000, 30_000));
}

#[test]
fn a_minute_without_a_look_is_known_and_more_is_a_gap() {
    let mut book = Book::default();
    book.record(&look(10_000, 0), none_ready);
    book.record(&look(70_000, 60), none_ready);
    let counts: Vec<u32> =
        submitted(&book, Range::Hour, 70_000, 360).iter().map(|point| point.1).collect();
    assert_eq!(counts, [0, 10, 10, 10, 10, 10, 10]);
    book.record(&look(130_001, 64), none_ready);
    let last = submitted(&book, Range::Hour, 130_001, 360).split_off(7);
    assert_eq!(last, [(120_000, 3), (130_000, 1)], "what was counted belongs to the last 10 s");
}

#[test]
fn time_that_stands_or_goes_back_loses_no_count() {
    let mut book = Book::default();
    book.record(&look(20_000, 5), none_ready);
    book.record(&look(20_000, 6), none_ready);
    book.record(&look(10_000, 8), none_ready);
    let sum: u32 = submitted(&book, Range::Hour, 20_010, 360).iter().map(|point| point.1).sum();
    assert_eq!(sum, 8);
}

#[test]
fn a_restart_counts_from_zero_again() {
    let mut book = Book::default();
    book.record(&look(10_000, 100), none_ready);
    book.record(&look(20_000, 3), none_ready);
    assert_eq!(submitted(&book, Range::Hour, 20_000, 360)[1], (10_000, 0), "no count is below 0");
}

#[test]
fn latencies_are_those_of_the_commits_between_two_looks() {
    let mut book = Book::default();
    let with = |after_ms, fast, slow| {
        let mut commits = [0; BUCKETS];
        (commits[0], commits[5]) = (fast, slow);
        Look { commits, ..look(after_ms, 0) }
    };
    book.record(&with(10_000, 100, 0), none_ready);
    book.record(&with(20_000, 100, 9), none_ready);
    let p99: Vec<Option<u64>> = book
        .server(Range::Hour, BEGIN_MS + 20_000, 360)
        .points
        .iter()
        .map(|(_, slot)| percentile_us(&slot.commits, 0.99))
        .collect();
    assert_eq!(p99, [Some(31), Some(1024)]);
}

#[test]
fn queues_have_rates_and_depths_from_when_they_are_followed() {
    let mut book = Book::default();
    let with = |after_ms, queues| Look { queues, ..look(after_ms, 0) };
    book.record(&with(60_000, vec![news("mail", 4)]), |_| vec![3]);
    book.record(&with(120_000, vec![]), |_| vec![2]);
    let mail = book.queue(b"mail", Range::Hour, BEGIN_MS + 120_000, 60);
    let shown: Vec<_> = mail.points.iter().map(|(_, it)| (it.submitted, it.ready)).collect();
    assert_eq!(shown, [(4, 3), (0, 2)]);
    let other = book.queue(b"other", Range::Hour, BEGIN_MS, 30);
    assert_eq!((other.step_ms, other.points), (120_000, vec![]));
}

#[test]
fn the_busiest_queues_are_followed_and_no_more_than_128() {
    let mut book = Book::default();
    for round in 1..=20 {
        let rare = (0..40).map(|n| news(&format!("rare {round} {n}"), 1));
        let often = (0..100).map(|n| news(&format!("often {n}"), 50));
        let queues = often.chain(rare).collect();
        book.record(&Look { queues, ..look(round * 10_000, 0) }, none_ready);
    }
    let found = book.busiest(Range::Hour, BEGIN_MS + 200_000, 60, 1_000);
    assert_eq!(found.len(), 128);
    let often = found.iter().filter(|(name, _)| name.starts_with(b"often"));
    assert_eq!(often.count(), 100);
    assert!(found[0].0.starts_with(b"often"), "the busiest comes first");
    assert_eq!(book.busiest(Range::Hour, BEGIN_MS + 200_000, 60, 5).len(), 5);
    book.record(&look(DAY_MS + 200_000, 0), none_ready);
    let silent = book.queue(b"often 1", Range::Day, BEGIN_MS + DAY_MS, 60);
    assert_eq!(silent.points, [], "silent for a day");
}

#[test]
fn failures_are_grouped_over_queues_and_by_queue() {
    let mut book = Book::default();
    let with = |after_ms, failures| Look { failures, ..look(after_ms, 0) };
    let first = vec![failed("no db-#", "a", 2, 5_000), failed("late", "a", 9, 6_000)];
    book.record(&with(10_000, first), none_ready);
    book.record(&with(130_000, vec![failed("no db-#", "b", 10, 125_000)]), none_ready);
    let now_ms = BEGIN_MS + 130_000;
    let groups = book.failures(None, Range::Hour, now_ms, 60, 10);
    let heads: Vec<_> = groups.iter().map(|it| (&it.fingerprint[..], it.count)).collect();
    assert_eq!(heads, [("no db-#", 12), ("late", 9)]);
    let group = &groups[0];
    assert_eq!((group.last_ms, group.last_job), (BEGIN_MS + 125_000, JobId(125_000)));
    let queues: Vec<_> = group.queues.iter().map(|it| (&it.queue[..], it.count)).collect();
    assert_eq!(queues, [(&b"b"[..], 10), (b"a", 2)]);
    let trend: u64 = group.trend.points.iter().map(|(_, count)| count).sum();
    assert_eq!((trend, group.trend.points[0]), (12, (BEGIN_MS, 2)));
    let of_a = book.failures(Some(b"a"), Range::Hour, now_ms, 60, 10);
    assert_eq!((of_a[0].fingerprint.as_str(), of_a[1].count), ("late", 2));
    assert_eq!(of_a[1].queues.len(), 1, "what others have is not said");
    assert_eq!(of_a[1].last_job, JobId(5_000));
    assert_eq!(book.failures(Some(b"c"), Range::Day, now_ms, 60, 10), []);
    assert_eq!(book.failures(None, Range::Hour, now_ms, 60, 1).len(), 1);
    let later = now_ms + 3_600_000;
    assert_eq!(book.failures(None, Range::Hour, later, 60, 10), []);
    assert_eq!(book.failures(None, Range::Day, later, 96, 10).len(), 2);
}

#[test]
fn the_least_frequent_failures_give_way_at_512() {
    let mut book = Book::default();
    for round in 1..=3 {
        let rare = (0..300).map(|n| failed(&format!("rare {round} {n}"), "q", 1, round * 10_000));
        let often = (0..400).map(|n| failed(&format!("often {n}"), "q", 20, round * 10_000));
        let failures = often.chain(rare).collect();
        book.record(&Look { failures, ..look(round * 10_000, 0) }, none_ready);
    }
    let groups = book.failures(None, Range::Hour, BEGIN_MS + 30_000, 60, 1_000);
    assert_eq!(groups.len(), 512);
    assert_eq!(groups.iter().filter(|it| it.fingerprint.starts_with("often")).count(), 400);
}

#[test]
fn as_many_queues_and_failures_as_fit_are_followed_and_one_more_takes_a_place() {
    let mut book = Book::default();
    let queues = (1..=128).map(|n| news(&format!("{n}"), n)).collect();
    let failures = (1..=512).map(|n| failed(&format!("{n}"), "q", n, 10_000)).collect();
    book.record(&Look { queues, failures, ..look(10_000, 0) }, none_ready);
    let followed = |book: &Book| {
        let queues = book.busiest(Range::Hour, BEGIN_MS + 20_000, 60, 1_000);
        let failures = book.failures(None, Range::Hour, BEGIN_MS + 20_000, 60, 1_000);
        let has_first = queues.iter().any(|(name, _)| &name[..] == b"1");
        let has_first_failure = failures.iter().any(|failure| failure.fingerprint == "1");
        (queues.len(), has_first, failures.len(), has_first_failure)
    };
    assert_eq!(followed(&book), (128, true, 512, true));
    let (queues, failures) = (vec![news("new", 1)], vec![failed("new", "q", 1, 20_000)]);
    book.record(&Look { queues, failures, ..look(20_000, 0) }, none_ready);
    assert_eq!(followed(&book), (128, false, 512, false));
}
