//! What the server and its queues did in the last hour or day: charts, sparklines and failures.

use maud::{Markup, html};

use crate::html::{
    Chart, Line, Values, cut, duration_us, grouped, number, plural, queue_link, short_count,
    short_us, sparkline, time,
};
use crate::page::Page;
use crate::past::{FailureGroup, Failures, Frame, History, Point, QueuesHistory, Span};
use crate::query::Query;
use crate::shapes::{Queue, QueueName};

/// Points of a chart: of a minute each in an hour, of half an hour in a day.
const HOUR_POINTS: &str = "60";
const DAY_POINTS: &str = "48";
/// Points of a sparkline: of two minutes each.
const SPARK_POINTS: &str = "30";
/// The most queues that have a sparkline.
const QUEUES_MAX: &str = "128";
/// Failures that are shown.
const FAILURES_MAX: usize = 10;
const FAILURES_BYTES_MAX: usize = 16_000;
/// The longest fingerprint that is shown whole.
const FINGERPRINT_CHARS: usize = 90;

/// The span that the address of a page names.
pub(crate) fn span(page: &Page) -> Span {
    Span::named(page.query().get("range"))
}

/// The links from one span to the other.
fn spans(page: &Page, path: &str, now: Span) -> Markup {
    let to = |span: Span| {
        let name = if span == Span::Hour { "" } else { span.name() };
        page.query().with("range", name).to(path)
    };
    html! {
        nav.spans aria-label="How far back" {
            @for (span, word) in [(Span::Hour, "Last hour"), (Span::Day, "Last day")] {
                a href=(to(span)) aria-current=[(span == now).then_some("true")] { (word) }
            }
        }
    }
}

fn asked(span: Span) -> Query {
    let points = if span == Span::Hour { HOUR_POINTS } else { DAY_POINTS };
    Query::new().with("range", span.name()).with("points", points)
}

/// Charts of the server.
pub(crate) async fn of_server(page: &Page, span: Span) -> Markup {
    let path = asked(span).to("/api/v1/history");
    let Ok(history) = page.ask.get::<History>(&path).await else { return html! {} };
    let draw = Draw { frame: history.frame(span, page.now_ms()), span, history: &history };
    html! {
        div.charts-head { h2 { "Jobs a minute" } (spans(page, "/", span)) }
        div.charts {
            (draw.rate("Submitted", "ready", |point| point.submitted))
            (draw.rate("Done", "done", |point| point.done))
            (draw.rate("Failed attempts", "dead", |point| point.failed))
            (draw.commits())
        }
    }
}

/// Charts of a queue.
pub(crate) async fn of_queue(page: &Page, name: &QueueName) -> Markup {
    let span = span(page);
    let (field, text) = name.field();
    let path = asked(span).with(field, &text).to("/api/v1/history");
    let Ok(history) = page.ask.get::<History>(&path).await else { return html! {} };
    let draw = Draw { frame: history.frame(span, page.now_ms()), span, history: &history };
    html! {
        div.charts-head { h2 { "History" } (spans(page, "/queue", span)) }
        div.charts {
            (draw.ready())
            (draw.rate("Submitted a minute", "ready", |point| point.submitted))
            (draw.rate("Done a minute", "done", |point| point.done))
            (draw.rate("Failed attempts a minute", "dead", |point| point.failed))
        }
    }
}

/// What is needed to draw charts.
struct Draw<'a> {
    frame: Frame,
    span: Span,
    history: &'a History,
}

impl Draw<'_> {
    fn chart(&self, title: &'static str, lines: Vec<Line>) -> Chart {
        let (span, times) = match self.span {
            Span::Hour => ("last hour", ["1 h ago", "30 min ago", "now"]),
            Span::Day => ("last day", ["24 h ago", "12 h ago", "now"]),
        };
        let Frame { begin_ms, step_ms, .. } = self.frame;
        let said = |value: f64| grouped(value.round() as u64);
        Chart { title, begin_ms, step_ms, span, times, lines, said, short: short_count }
    }

    fn rate(&self, title: &'static str, colour: &'static str, of: fn(&Point) -> u64) -> Markup {
        let values = self.history.rates(self.frame, of);
        self.chart(title, vec![Line { name: "", colour, values }]).drawn()
    }

    fn ready(&self) -> Markup {
        let values = self.history.values(self.frame, |point| Some(point.ready? as f64));
        self.chart("Ready jobs", vec![Line { name: "", colour: "ready", values }]).drawn()
    }

    fn commits(&self) -> Markup {
        let line = |name, colour, of: fn(&Point) -> Option<u64>| {
            let values = self.history.values(self.frame, |point| Some(of(point)? as f64));
            Line { name, colour, values }
        };
        let lines = vec![
            line("p50", "parked", |point| point.commit_p50_us),
            line("p99", "scheduled", |point| point.commit_p99_us),
        ];
        let chart = self.chart("Commit", lines);
        Chart { said: duration_us, short: short_us, ..chart }.drawn()
    }
}

/// What became of a queue's ready jobs in the last hour, and how many of its jobs died.
pub(crate) struct Trend {
    ready: Values,
    /// Jobs that died.
    pub died: u64,
}

impl Trend {
    /// A sparkline of the ready jobs.
    pub fn sparkline(&self) -> Markup {
        let most = self.ready.iter().copied().flatten().fold(0.0, f64::max);
        let what = format!("Ready in the last hour: at most {}", grouped(most as u64));
        sparkline(&self.ready, "parked", &what)
    }
}

/// Adds their trends to the queues that have one.
pub(crate) async fn trends(page: &Page, queues: &mut [Queue]) {
    let asked = Query::new().with("points", SPARK_POINTS).with("limit", QUEUES_MAX);
    let found: Option<QueuesHistory> = page.ask.get(&asked.to("/api/v1/history/queues")).await.ok();
    for it in found.into_iter().flat_map(|found| found.queues) {
        if let Some(queue) = queues.iter_mut().find(|queue| queue.name == it.name) {
            let frame = it.history.frame(Span::Hour, page.now_ms());
            let mut ready = it.history.values(frame, |point| Some(point.ready? as f64));
            // Before its first job a queue had none that was ready.
            let begin = ready.iter().position(Option::is_some).unwrap_or_default();
            ready.iter_mut().take(begin).for_each(|value| *value = Some(0.0));
            queue.trend = Some(Trend { ready, died: it.history.sum(|point| point.dead) });
        }
    }
}

/// The failures, grouped by what they say.
pub(crate) async fn failures(page: &Page, span: Span) -> Vec<FailureGroup> {
    let asked = Query::new().with("range", span.name()).with("points", SPARK_POINTS);
    let found: Option<Failures> = page.ask.get(&asked.to("/api/v1/failures")).await.ok();
    found.map(|found| found.failures).unwrap_or_default()
}

/// A fingerprint, as the link to its jobs.
pub(crate) fn fingerprint_link(fingerprint: &str) -> Markup {
    let to = Query::new().with("fingerprint", fingerprint).to("/jobs");
    html! { a.mono href=(to) dir="auto" { (cut(fingerprint, FINGERPRINT_CHARS)) } }
}

/// The first of some parts of a page, as many as fit into `max` bytes, and how many are left. Names
/// and errors may be long, and the size of a page is limited.
pub(crate) fn fitting(parts: Vec<Markup>, max: usize, bytes_max: usize) -> (Vec<Markup>, usize) {
    let (all, mut bytes) = (parts.len(), 0);
    let fits = |part: &Markup| {
        bytes += part.0.len();
        bytes <= bytes_max
    };
    let shown: Vec<Markup> = parts.into_iter().take(max).take_while(fits).collect();
    let left = all - shown.len();
    (shown, left)
}

/// Failures in rows.
pub(crate) fn failures_table(page: &Page, groups: &[FailureGroup], span: Span) -> Markup {
    let now_ms = page.now_ms();
    let rows = groups.iter().map(|group| failure_row(group, span, now_ms)).collect();
    let (rows, left) = fitting(rows, FAILURES_MAX, FAILURES_BYTES_MAX);
    html! {
        h2 { (if span == Span::Hour { "Failures of the last hour" } else { "Failures of the last day" }) }
        table.list.failures {
            thead {
                tr {
                    th { "Error" }
                    th.r { "Attempts" }
                    th.opt { "Trend" }
                    th { "Queues" }
                    th.r { "Last" }
                }
            }
            tbody { @for row in rows { (row) } }
        }
        @if left > 0 { p.muted { "And " (plural(left as u64, "kind")) " more." } }
    }
}

fn failure_row(group: &FailureGroup, span: Span, now_ms: u64) -> Markup {
    let values = group.values(span, now_ms);
    let what = format!("{} in the last {}", plural(group.count, "attempt"), span.name());
    html! {
        tr data-key={ "failure " (cut(&group.fingerprint, 40)) } {
            td.what-failed { (fingerprint_link(&group.fingerprint)) }
            td.r data-label="attempts" { (number(group.count)) }
            td.opt { (sparkline(&values, "dead", &what)) }
            td {
                @for (at, share) in group.queues.iter().take(3).enumerate() {
                    @if at > 0 { ", " }
                    (queue_link(&share.name))
                }
                @if group.queues.len() > 3 { " and " (group.queues.len() - 3) " more" }
            }
            td.r.nowrap data-before="last" {
                a href={ "/jobs/" (group.last_job) } title={ "Job " (group.last_job) } {
                    (time(&group.last_at, now_ms))
                }
            }
        }
    }
}
