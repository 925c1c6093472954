//! The records that a repair takes out of the log, or that the next start removes behind its end.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use spindle_core::JobId;
use spindle_engine::{EventSummary, Survey};
use spindle_log::{Position, verify::Dropped};

use crate::output::Rows;

/// All of them, in order.
#[derive(Default)]
pub struct DroppedRecords {
    lines: Vec<Line>,
    /// Records that can be read, and the jobs that they are about.
    records: u64,
    jobs: BTreeSet<JobId>,
}

enum Line {
    Record {
        position: Position,
        file: String,
        offset: u64,
        events: Result<Vec<EventSummary>, String>,
    },
    Unreadable {
        from: Position,
        to: Option<Position>,
    },
}

impl DroppedRecords {
    /// Takes the next one. `survey` has folded the records that stay.
    pub fn add(&mut self, dropped: Dropped, survey: &mut Survey) {
        self.lines.push(match dropped {
            Dropped::Unreadable { from, to } => Line::Unreadable { from, to },
            Dropped::Record { file, offset, stored } => {
                self.records += 1;
                let position = stored.position;
                let events = survey.summaries(stored).map_err(|error| error.to_string());
                let jobs = events.iter().flatten().flat_map(|event| &event.jobs);
                self.jobs.extend(jobs.copied());
                Line::Record { position, file, offset, events }
            }
        });
    }

    /// A row for each record, and one that counts them.
    pub fn rows(&self, rows: &mut Rows) {
        for line in &self.lines {
            rows.add(["dropped".to_owned(), line.text()]);
        }
        if self.records > 0 {
            let text = format!("{} records about {} jobs", self.records, self.jobs.len());
            rows.add(["dropped-in-all".to_owned(), text]);
        }
    }

    pub fn json(&self) -> Vec<Value> {
        self.lines.iter().map(Line::json).collect()
    }
}

impl Line {
    fn text(&self) -> String {
        match self {
            Line::Record { position, file, offset, events } => {
                let said = match events {
                    Ok(events) if events.is_empty() => "bytes of a payload or a result".to_owned(),
                    Ok(events) => events.iter().map(said).collect::<Vec<_>>().join("; "),
                    Err(error) => error.clone(),
                };
                format!("record {position} ({file} at byte {offset}): {said}")
            }
            Line::Unreadable { from, to: Some(to) } if from.next() == *to => {
                format!("record {from}: nothing of it can be read")
            }
            Line::Unreadable { from, to: Some(to) } => {
                format!("records {from} to {}: nothing of them can be read", Position(to.0 - 1))
            }
            Line::Unreadable { from, to: None } => {
                format!("record {from}, and maybe more: nothing of them can be read")
            }
        }
    }

    fn json(&self) -> Value {
        match self {
            Line::Record { position, file, offset, events } => {
                let (events, error) = match events {
                    Ok(events) => (events.iter().map(object).collect(), None),
                    Err(error) => (Vec::new(), Some(error)),
                };
                let position = position.0;
                json!({ "position": position, "file": file, "offset": offset, "events": events, "error": error })
            }
            Line::Unreadable { from, to } => {
                json!({ "unreadable_from": from.0, "unreadable_to": to.map(|to| to.0) })
            }
        }
    }
}

/// `submitted job 12 of mail`
fn said(event: &EventSummary) -> String {
    let jobs: Vec<String> = event.jobs.iter().map(JobId::to_string).collect();
    let jobs = match &jobs[..] {
        [] => String::new(),
        [job] => format!(" job {job}"),
        jobs => format!(" jobs {}", jobs.join(", ")),
    };
    let of = if jobs.is_empty() { "" } else { "of " };
    let queue =
        event.queue.as_deref().map(|queue| format!(" {of}{}", String::from_utf8_lossy(queue)));
    format!("{}{jobs}{}", word(event.event), queue.unwrap_or_default())
}

fn object(event: &EventSummary) -> Value {
    let jobs: Vec<u64> = event.jobs.iter().map(|id| id.0).collect();
    let queue = event.queue.as_deref().map(String::from_utf8_lossy);
    json!({ "event": word(event.event), "jobs": jobs, "queue": queue })
}

/// `QueueSet` as `queue_set`, as in the feed.
fn word(name: &str) -> String {
    let mut word = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_ascii_uppercase() && at > 0 {
            word.push('_');
        }
        word.push(letter.to_ascii_lowercase());
    }
    word
}
