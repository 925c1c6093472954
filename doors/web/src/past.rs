//! The parts of the API's history and failures that pages read.

use serde::Deserialize;

use crate::html::{Time, Values};
use crate::shapes::QueueName;

/// How far back a page looks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Span {
    Hour,
    Day,
}

impl Span {
    /// The one that an address names.
    pub fn named(name: Option<&str>) -> Span {
        if name == Some("day") { Span::Day } else { Span::Hour }
    }

    /// Its name in addresses.
    pub fn name(self) -> &'static str {
        match self {
            Span::Hour => "hour",
            Span::Day => "day",
        }
    }

    /// How long it is.
    pub fn ms(self) -> u64 {
        match self {
            Span::Hour => 3_600_000,
            Span::Day => 24 * 3_600_000,
        }
    }
}

/// What the server or a queue did.
#[derive(Deserialize)]
pub(crate) struct History {
    pub step_ms: u64,
    pub points: Vec<Point>,
}

#[derive(Deserialize)]
pub(crate) struct QueuesHistory {
    pub queues: Vec<QueueHistory>,
}

#[derive(Deserialize)]
pub(crate) struct QueueHistory {
    #[serde(flatten)]
    pub name: QueueName,
    #[serde(flatten)]
    pub history: History,
}

#[derive(Deserialize, Clone)]
pub(crate) struct Point {
    at: String,
    seen_ms: u64,
    pub submitted: u64,
    pub done: u64,
    pub failed: u64,
    pub dead: u64,
    pub ready: Option<u64>,
    pub commit_p50_us: Option<u64>,
    pub commit_p99_us: Option<u64>,
}

impl Point {
    /// How many in a minute. A time that was observed only for a moment, as on a server that has
    /// just started, counts as a whole minute, because a burst is no rate.
    pub fn a_minute(&self, count: u64) -> Option<f64> {
        let seen_ms = self.seen_ms.max(SEEN_MS_MIN);
        (self.seen_ms > 0).then(|| count as f64 * 60_000.0 / seen_ms as f64)
    }
}

const SEEN_MS_MIN: u64 = 60_000;
/// The newest minute is shown once this much of it has passed.
const NEWEST_SEEN_MS_MIN: u64 = 45_000;

/// When a chart's first point begins, how long its points are, and how many it has: those of a span
/// that ends now.
#[derive(Clone, Copy)]
pub(crate) struct Frame {
    pub begin_ms: u64,
    pub step_ms: u64,
    pub count: usize,
}

impl History {
    pub fn frame(&self, span: Span, now_ms: u64) -> Frame {
        let step_ms = self.step_ms.max(1);
        let count = (span.ms() / step_ms).max(1);
        let begin_ms = (now_ms / step_ms + 1).saturating_sub(count) * step_ms;
        Frame { begin_ms, step_ms, count: usize::try_from(count).unwrap_or(1) }
    }

    /// A value of each point, with none where there is no point.
    pub fn values(&self, frame: Frame, of: impl Fn(&Point) -> Option<f64>) -> Values {
        let known = self.points.iter().map(|point| (point.at.as_str(), of(point)));
        placed(frame, known)
    }

    /// How many in a minute, for each point. The newest point is left out, if there is another,
    /// while most of its minute is still to come: it would look like a sudden end, or like a spike.
    pub fn rates(&self, frame: Frame, of: fn(&Point) -> u64) -> Values {
        let newest = self.points.last().filter(|_| self.points.len() > 1);
        let begun =
            newest.filter(|point| point.seen_ms < NEWEST_SEEN_MS_MIN).map(|point| &point.at);
        self.values(
            frame,
            |point| {
                if Some(&point.at) == begun { None } else { point.a_minute(of(point)) }
            },
        )
    }

    /// A count of all points together.
    pub fn sum(&self, of: impl Fn(&Point) -> u64) -> u64 {
        self.points.iter().map(of).sum()
    }
}

/// Values at their places in a frame.
fn placed<'a>(frame: Frame, known: impl Iterator<Item = (&'a str, Option<f64>)>) -> Values {
    let mut values = vec![None; frame.count];
    for (at, value) in known {
        let at_ms = Time::read(at, 0).and_then(|time| u64::try_from(time.ms()).ok());
        let place =
            at_ms.and_then(|ms| ms.checked_sub(frame.begin_ms)).map(|ms| ms / frame.step_ms);
        if let Some(slot) = place.and_then(|it| values.get_mut(usize::try_from(it).ok()?)) {
            *slot = value;
        }
    }
    values
}

/// Failures that say the same together.
#[derive(Deserialize)]
pub(crate) struct Failures {
    pub failures: Vec<FailureGroup>,
}

#[derive(Deserialize)]
pub(crate) struct FailureGroup {
    pub fingerprint: String,
    pub count: u64,
    pub last_at: String,
    pub last_job: u64,
    pub queues: Vec<FailureShare>,
    step_ms: u64,
    trend: Vec<TrendPoint>,
}

#[derive(Deserialize)]
pub(crate) struct FailureShare {
    #[serde(flatten)]
    pub name: QueueName,
}

#[derive(Deserialize)]
struct TrendPoint {
    at: String,
    count: u64,
}

impl FailureGroup {
    /// How many there were from point to point.
    pub fn values(&self, span: Span, now_ms: u64) -> Values {
        let frame = History { step_ms: self.step_ms, points: Vec::new() }.frame(span, now_ms);
        let known = self.trend.iter().map(|point| (point.at.as_str(), Some(point.count as f64)));
        // A missing point means that nothing failed, so its value is known to be zero.
        placed(frame, known).into_iter().map(|value| Some(value.unwrap_or(0.0))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_stand_where_their_time_is_and_the_rest_is_a_gap() {
        let text = r#"{"step_ms": 60000, "points": [
            {"at": "2026-01-02T02:00:00.000Z", "seen_ms": 60000, "submitted": 9, "done": 0, "failed": 0, "dead": 0},
            {"at": "2026-01-02T02:05:00.000Z", "seen_ms": 50000, "submitted": 7, "done": 0, "failed": 0, "dead": 2},
            {"at": "2026-01-02T03:04:00.000Z", "seen_ms": 0, "submitted": 1, "done": 0, "failed": 0, "dead": 1}]}"#;
        let history: History = serde_json::from_str(text).unwrap();
        let now_ms = 1_767_323_045_678;
        let frame = history.frame(Span::Hour, now_ms);
        assert_eq!((frame.begin_ms, frame.step_ms, frame.count), (1_767_319_500_000, 60_000, 60));
        let values = history.values(frame, |point| point.a_minute(point.submitted));
        assert_eq!((values.len(), values[0], values[1], values[59]), (60, Some(7.0), None, None));
        assert_eq!(history.sum(|point| point.dead), 3);
        let rates = history.rates(frame, |point| point.submitted);
        assert_eq!((rates[0], rates[59]), (Some(7.0), None));
        let day = history.frame(Span::Day, now_ms);
        assert_eq!(day.count, 1_440);
    }

    #[test]
    fn a_minute_that_has_just_begun_is_shown_if_it_is_the_first() {
        let point = |at: &str, seen_ms: u64| {
            serde_json::from_value(serde_json::json!({
                "at": at, "seen_ms": seen_ms, "submitted": 5, "done": 0, "failed": 0, "dead": 0,
            }))
            .unwrap()
        };
        let (before, now) = ("2026-01-02T03:03:00.000Z", "2026-01-02T03:04:00.000Z");
        let newest = |points: Vec<Point>| {
            let history = History { step_ms: 60_000, points };
            let frame = history.frame(Span::Hour, 1_767_323_045_678);
            let rates = history.rates(frame, |point| point.submitted);
            (rates[58], rates[59])
        };
        assert_eq!(newest(vec![point(now, 10_000)]), (None, Some(5.0)));
        let two = |seen_ms| newest(vec![point(before, 60_000), point(now, seen_ms)]);
        assert_eq!(two(10_000), (Some(5.0), None), "five in ten seconds are no thirty a minute");
        assert_eq!(two(44_999), (Some(5.0), None));
        assert_eq!(two(45_000), (Some(5.0), Some(5.0)));
    }

    #[test]
    fn a_moment_counts_as_a_minute() {
        let rate = |seen_ms: u64| {
            let text = format!(
                r#"{{"at": "", "seen_ms": {seen_ms}, "submitted": 0, "done": 0, "failed": 0, "dead": 0}}"#
            );
            serde_json::from_str::<Point>(&text).unwrap().a_minute(60)
        };
        assert_eq!(rate(0), None);
        assert_eq!((rate(1), rate(60_000)), (Some(60.0), Some(60.0)));
        assert_eq!(rate(120_000), Some(30.0));
    }
}
