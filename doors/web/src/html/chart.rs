//! Charts and sparklines, drawn here as SVG: zero-based, with labels always shown, values on hover,
//! gaps where nothing is known, and a summary in words for people who cannot see them. Colours are
//! classes.

use std::fmt::Write;

use jiff::Timestamp;
use maud::{Markup, html};

/// The size of a chart, and where its lines are drawn. The style scales it to its place.
const WIDTH: f64 = 280.0;
const HEIGHT: f64 = 92.0;
const LEFT: f64 = 36.0;
const RIGHT: f64 = 278.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 72.0;
/// The size of a sparkline.
const SPARK_WIDTH: f64 = 72.0;
const SPARK_HEIGHT: f64 = 18.0;

/// A row of values; none where nothing is known.
pub(crate) type Values = Vec<Option<f64>>;

/// A line of a chart.
pub(crate) struct Line {
    /// What it is, where a chart has more than one.
    pub name: &'static str,
    /// The class of its colour.
    pub colour: &'static str,
    pub values: Values,
}

/// A chart of some lines that share a scale.
pub(crate) struct Chart {
    pub title: &'static str,
    /// When the first value's stretch of time begins.
    pub begin_ms: u64,
    /// How long the stretch of each value is.
    pub step_ms: u64,
    /// The whole time in words, such as `last hour`.
    pub span: &'static str,
    /// The labels below the beginning, the middle and the end.
    pub times: [&'static str; 3],
    pub lines: Vec<Line>,
    /// How a value is written.
    pub said: fn(f64) -> String,
    /// How a value is written at an axis.
    pub short: fn(f64) -> String,
}

impl Chart {
    /// The chart with its title and its newest values.
    pub fn drawn(&self) -> Markup {
        let top = nice(self.values().fold(0.0, f64::max));
        let is_one = self.lines.len() == 1;
        html! {
            figure.chart {
                figcaption {
                    span { (self.title) }
                    @for line in &self.lines {
                        " " span.now {
                            @if !is_one { span class={ "key " (line.colour) } {} (line.name) " " }
                            b { (newest(&line.values).map_or("–".to_owned(), self.said)) }
                        }
                    }
                }
                svg viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } role="img" aria-label=(self.in_words()) {
                    @for share in [0.0, 0.5, 1.0] {
                        @let y = BOTTOM - share * (BOTTOM - TOP);
                        line.grid x1=(LEFT) x2=(RIGHT) y1=(y) y2=(y) {}
                        text.axis x=(LEFT - 6.0) y=(y + 3.5) text-anchor="end" {
                            ((self.short)(top * share))
                        }
                    }
                    @for (time, x, anchor) in self.time_labels() {
                        text.axis x=(x) y=(HEIGHT - 6.0) text-anchor=(anchor) { (time) }
                    }
                    @for line in &self.lines {
                        @let at = self.scale(top, line.values.len());
                        g class=(line.colour) {
                            @if is_one { path.area d=(area(&line.values, &at)) {} }
                            path.line d=(path(&line.values, &at)) {}
                        }
                    }
                    (self.hover())
                }
            }
        }
    }

    fn values(&self) -> impl Iterator<Item = f64> {
        self.lines.iter().flat_map(|line| line.values.iter().copied().flatten())
    }

    fn time_labels(&self) -> [(&'static str, f64, &'static str); 3] {
        let [begin, middle, end] = self.times;
        [(begin, LEFT, "start"), (middle, LEFT.midpoint(RIGHT), "middle"), (end, RIGHT, "end")]
    }

    fn scale(&self, top: f64, count: usize) -> Scale {
        Scale {
            left: LEFT,
            step: (RIGHT - LEFT) / count.max(1) as f64,
            bottom: BOTTOM,
            height: BOTTOM - TOP,
            top,
        }
    }

    /// A stripe for each value, which shows the value under the pointer.
    fn hover(&self) -> Markup {
        let count = self.lines.first().map_or(0, |line| line.values.len());
        let at = self.scale(1.0, count);
        html! {
            g.hover stroke-width=(rounded(at.step)) {
                @for number in 0..count {
                    @if let Some(said) = self.said_at(number) {
                        path d={ "M" (rounded(at.x(number))) " " (TOP) "V" (BOTTOM) } { title { (said) } }
                    }
                }
            }
        }
    }

    fn said_at(&self, number: usize) -> Option<String> {
        let values = self.lines.iter().filter_map(|line| Some((line.name, line.values[number]?)));
        let values: Vec<String> = values
            .map(|(name, value)| {
                let space = if name.is_empty() { "" } else { " " };
                format!("{name}{space}{}", (self.said)(value))
            })
            .collect();
        let begin = i64::try_from(self.begin_ms + number as u64 * self.step_ms).ok()?;
        let time = Timestamp::from_millisecond(begin).ok()?.strftime("%H:%M").to_string();
        (!values.is_empty()).then(|| format!("{time} UTC: {}", values.join(", ")))
    }

    /// What it shows, in words.
    fn in_words(&self) -> String {
        let mut words = format!("{}, {}", self.title, self.span);
        for line in &self.lines {
            let space = if line.name.is_empty() { "" } else { " " };
            let most = line.values.iter().copied().flatten().reduce(f64::max);
            // Writing to a string does not fail.
            let _ = match (newest(&line.values), most) {
                (Some(now), Some(most)) => write!(
                    words,
                    ": {}{space}latest {}, at most {}",
                    line.name,
                    (self.said)(now),
                    (self.said)(most)
                ),
                _ => write!(words, ": {}{space}nothing is known yet", line.name),
            };
        }
        words
    }
}

/// Where values are drawn.
struct Scale {
    left: f64,
    step: f64,
    bottom: f64,
    height: f64,
    top: f64,
}

impl Scale {
    fn x(&self, number: usize) -> f64 {
        self.left + (number as f64 + 0.5) * self.step
    }

    fn y(&self, value: f64) -> f64 {
        self.bottom - (value / self.top).clamp(0.0, 1.0) * self.height
    }
}

/// A small line without axes; none if nothing is known. `what` says what it shows.
pub(crate) fn sparkline(values: &Values, colour: &str, what: &str) -> Markup {
    let most = values.iter().copied().flatten().reduce(f64::max);
    let Some(most) = most else { return html! {} };
    let at = Scale {
        left: 0.0,
        step: SPARK_WIDTH / values.len().max(1) as f64,
        bottom: SPARK_HEIGHT - 1.5,
        height: SPARK_HEIGHT - 3.0,
        top: most.max(1.0),
    };
    html! {
        svg class={ "spark " (colour) } viewBox={ "0 0 " (SPARK_WIDTH) " " (SPARK_HEIGHT) } role="img"
            aria-label=(what) {
            title { (what) }
            path.line d=(path(values, &at)) {}
        }
    }
}

/// A line through the values, broken where nothing is known.
fn path(values: &Values, at: &Scale) -> String {
    let mut path = String::new();
    for (from, run) in runs(values) {
        let half = at.step / 2.0;
        for (number, value) in (from..).zip(&run) {
            let mark = if number == from { 'M' } else { 'L' };
            let _ = write!(path, "{mark}{} {}", rounded(at.x(number)), rounded(at.y(*value)));
        }
        if run.len() == 1 {
            // A single value is drawn as a dash as long as its time.
            let _ = write!(path, "m{} 0h{}", rounded(-half), rounded(at.step));
        }
    }
    path
}

/// The area below that line.
fn area(values: &Values, at: &Scale) -> String {
    let mut path = String::new();
    for (from, run) in runs(values) {
        let _ = write!(path, "M{} {}", rounded(at.x(from)), rounded(at.bottom));
        for (number, value) in (from..).zip(&run) {
            let _ = write!(path, "L{} {}", rounded(at.x(number)), rounded(at.y(*value)));
        }
        let _ = write!(path, "V{}Z", rounded(at.bottom));
    }
    path
}

/// The runs of known values, each with the number of its first.
fn runs(values: &Values) -> Vec<(usize, Vec<f64>)> {
    let mut runs: Vec<(usize, Vec<f64>)> = Vec::new();
    for (number, value) in values.iter().enumerate() {
        let Some(value) = value else { continue };
        match runs.last_mut() {
            Some((from, run)) if *from + run.len() == number => run.push(*value),
            _ => runs.push((number, vec![*value])),
        }
    }
    runs
}

fn newest(values: &Values) -> Option<f64> {
    values.iter().rev().copied().flatten().next()
}

fn rounded(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

/// The top of an axis: a round number of at least this much, whose half is round too.
fn nice(most: f64) -> f64 {
    let mut unit = 1.0;
    loop {
        for step in [2.0, 4.0, 6.0, 8.0, 10.0] {
            if most <= step * unit {
                return step * unit;
            }
        }
        unit *= 10.0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scale() -> Scale {
        Scale { left: 0.0, step: 10.0, bottom: 100.0, height: 100.0, top: 10.0 }
    }

    #[test]
    fn a_line_is_broken_where_nothing_is_known() {
        let values = vec![Some(0.0), Some(10.0), None, Some(5.0), None];
        assert_eq!(path(&values, &scale()), "M5 100L15 0M35 50m-5 0h10");
        assert_eq!(area(&values, &scale()), "M5 100L5 100L15 0V100ZM35 100L35 50V100Z");
        assert_eq!(path(&vec![None; 3], &scale()), "");
        assert_eq!(path(&vec![Some(20.0)], &scale()), "M5 0m-5 0h10", "not beyond the top");
    }

    #[test]
    fn an_axis_ends_at_a_number_that_can_be_halved() {
        for (most, top) in
            [(0.0, 2.0), (2.0, 2.0), (2.1, 4.0), (9.0, 10.0), (10.5, 20.0), (8_001.0, 10_000.0)]
        {
            assert_eq!(nice(most), top, "{most}");
        }
    }

    fn chart(lines: Vec<Line>) -> Chart {
        Chart {
            title: "Done a minute",
            begin_ms: 1_767_323_040_000,
            step_ms: 60_000,
            span: "last hour",
            times: ["1 h ago", "30 min", "now"],
            lines,
            said: |value| format!("{value} jobs"),
            short: |value| format!("{value}"),
        }
    }

    #[test]
    fn a_chart_says_what_it_shows_to_eyes_pointers_and_ears() {
        let values = vec![Some(3.0), None, Some(1.0)];
        let line = Line { name: "", colour: "done", values };
        let drawn = chart(vec![line]).drawn().into_string();
        for part in [
            "Done a minute, last hour: latest 1 jobs, at most 3 jobs",
            "<title>03:04 UTC: 3 jobs</title>",
            "<title>03:06 UTC: 1 jobs</title>",
            ">4</text>",
            ">2</text>",
            "1 h ago",
        ] {
            assert!(drawn.contains(part), "{part} in {drawn}");
        }
        assert!(!drawn.contains("03:05"), "{drawn}");
    }

    #[test]
    fn a_chart_of_nothing_says_so() {
        let lines = || vec![Line { name: "p99", colour: "done", values: vec![None, None] }];
        let drawn = chart(lines()).drawn().into_string();
        assert!(drawn.contains("p99 nothing is known yet") && drawn.contains("–"), "{drawn}");
        assert_eq!(sparkline(&vec![None], "done", "ready").into_string(), "");
        let spark = sparkline(&vec![Some(0.0), Some(0.0)], "done", "none ready").into_string();
        assert!(spark.contains("aria-label=\"none ready\""), "{spark}");
    }
}
