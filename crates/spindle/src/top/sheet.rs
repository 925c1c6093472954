//! Lists as columns and rows of text, all of it escaped.

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    client::{
        times::{distance_of, lasting},
        view::{Job, Queue, text_of},
    },
    output::{escape, grouped, preview},
    queue_name::QueueName,
};

/// How many letters of a payload stand in a row.
const PREVIEW_LETTERS: usize = 100;

/// A column.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Column {
    /// Its heading.
    pub title: &'static str,
    /// How wide it is.
    pub width: u16,
    /// It takes what is left, and has at least `width`.
    pub grows: bool,
    /// Numbers.
    pub is_right: bool,
}

const fn left(title: &'static str, width: u16) -> Column {
    Column { title, width, grows: false, is_right: false }
}

const fn right(title: &'static str, width: u16) -> Column {
    Column { title, width, grows: false, is_right: true }
}

const fn growing(title: &'static str, width: u16) -> Column {
    Column { title, width, grows: true, is_right: false }
}

/// In the order in which they are left out on a narrow screen: the last one first.
const QUEUES: [Column; 11] = [
    growing("queue", 12),
    right("ready", 8),
    right("leased", 7),
    left("", 6),
    right("oldest", 7),
    right("in/m", 6),
    right("out/m", 6),
    right("dead", 6),
    right("sched", 7),
    right("parked", 7),
    right("done", 9),
];
const WORKERS: [Column; 6] = [
    growing("worker", 12),
    right("jobs", 5),
    left("seen", 9),
    left("door", 8),
    growing("holds", 14),
    growing("queues", 16),
];
const JOBS: [Column; 7] = [
    right("job", 9),
    left("status", 9),
    right("tries", 6),
    growing("payload", 12),
    left("came", 9),
    growing("queue", 12),
    right("prio", 6),
];

/// A row.
#[derive(Debug, Clone, Default)]
pub struct Row {
    /// What it is: a queue's name as it is typed, a worker's name and door, a job's number.
    pub name: String,
    /// The queue itself, in a list of queues.
    pub queue: Option<QueueName>,
    /// It is paused.
    pub is_paused: bool,
    /// Its cells, as many as there are columns.
    pub cells: Vec<String>,
}

/// A list.
#[derive(Debug, Clone, Default)]
pub struct Sheet {
    /// Its columns; the last ones are left out first where there is no room.
    pub columns: &'static [Column],
    /// Its rows.
    pub rows: Vec<Row>,
}

impl Sheet {
    /// Queues: those with the most jobs that wait come first.
    pub fn of_queues(queues: &[Queue]) -> Self {
        let mut queues: Vec<&Queue> = queues.iter().collect();
        let waiting = |queue: &&Queue| queue.jobs.ready + queue.jobs.leased.unwrap_or(0);
        queues.sort_by_key(|queue| std::cmp::Reverse(waiting(queue)));
        Self { columns: &QUEUES, rows: queues.into_iter().map(queue_row).collect() }
    }

    /// Workers, as the server lists them.
    pub fn of_workers(workers: &[Value]) -> Self {
        let now = spindle_client::now();
        let rows = workers.iter().map(|worker| worker_row(worker, now)).collect();
        Self { columns: &WORKERS, rows }
    }

    /// Jobs, as the server lists them.
    pub fn of_jobs(jobs: &[Job]) -> Self {
        let now = spindle_client::now();
        Self { columns: &JOBS, rows: jobs.iter().map(|job| job_row(job, now)).collect() }
    }

    /// The columns that fit into a width, with their widths, and the titles of the others.
    pub fn fitting(&self, width: u16) -> (Vec<u16>, Vec<&'static str>) {
        let mut left = width;
        let mut widths = Vec::new();
        for column in self.columns {
            let gap = u16::from(!widths.is_empty());
            // The first one is there whatever the width is.
            if !widths.is_empty() && column.width + gap > left {
                break;
            }
            widths.push(column.width.min(left));
            left = left.saturating_sub(column.width + gap);
        }
        let shown = self.columns.iter().zip(&mut widths).filter(|(column, _)| column.grows);
        let growing: Vec<&mut u16> = shown.map(|(_, width)| width).collect();
        let share = left / growing.len().max(1) as u16;
        for width in growing {
            *width += share;
        }
        let hidden = self.columns.iter().skip(widths.len());
        let hidden = hidden.map(|column| column.title).filter(|title| !title.is_empty());
        (widths, hidden.collect())
    }
}

fn queue_row(queue: &Queue) -> Row {
    let rate = |name: &str| {
        let minute = queue.more.get("last_minute");
        let count = minute.and_then(|minute| minute.get(name)).and_then(Value::as_u64);
        count.unwrap_or(0)
    };
    let oldest = queue.more.get("next_ready_age_ms").and_then(Value::as_u64);
    let oldest = oldest.filter(|_| queue.jobs.ready > 0).map(age).unwrap_or_default();
    let count = |count: Option<u64>| grouped(count.unwrap_or(0));
    let (jobs, is_paused) = (&queue.jobs, queue.paused == Some(true));
    let name = queue.queue_name();
    let cells = vec![
        name.to_string(),
        grouped(jobs.ready),
        count(jobs.leased),
        if is_paused { "paused".to_owned() } else { String::new() },
        oldest,
        grouped(rate("submitted")),
        grouped(rate("completed") + rate("died")),
        count(jobs.dead),
        grouped(jobs.scheduled),
        count(jobs.parked),
        count(jobs.done),
    ];
    Row { name: name.to_string(), queue: Some(name), is_paused, cells }
}

/// An age in its larger unit only, because it has to fit into seven letters.
fn age(ms: u64) -> String {
    let seconds = ms / 1_000 * 1_000;
    lasting(seconds.max(1_000)).split(' ').next().unwrap_or_default().to_owned()
}

fn worker_row(worker: &Value, now: Timestamp) -> Row {
    let field = |name: &str| worker.get(name).map(text_of).unwrap_or_default();
    let list = |name: &str| worker.get(name).and_then(Value::as_array).into_iter().flatten();
    let holds: Vec<String> =
        list("jobs").filter_map(|job| job.get("id")).map(|id| escape(&text_of(id))).collect();
    let texts = list("queues").map(|name| QueueName::from_api(name.as_str(), None));
    let coded = list("queues_base64").map(|name| QueueName::from_api(None, name.as_str()));
    let queues: Vec<String> = texts.chain(coded).map(|name| name.to_string()).collect();
    let name = match field("name") {
        name if name.is_empty() => "(no name)".to_owned(),
        name => escape(&name),
    };
    let seen = distance_of(&field("seen_at"), now);
    let seen = seen.strip_suffix(" ago").unwrap_or(&seen).to_owned();
    Row {
        name: format!("{name} {} {}", field("door"), field("connection")),
        cells: vec![
            name,
            holds.len().to_string(),
            escape(&seen),
            escape(&field("door")),
            holds.join(" "),
            queues.join(" "),
        ],
        ..Row::default()
    }
}

fn job_row(job: &Job, now: Timestamp) -> Row {
    let id = job.id_text();
    let held = job.more.get("held_by").is_some();
    let payload = job.payload_beginning().unwrap_or_default();
    let came = distance_of(&job.created_at, now);
    Row {
        name: id.clone(),
        cells: vec![
            escape(&id),
            escape(if held { "held back" } else { &job.status }),
            format!("{}/{}", job.fails, job.fails_max.unwrap_or(0)),
            preview(&payload, PREVIEW_LETTERS),
            escape(came.strip_suffix(" ago").unwrap_or(&came)),
            job.queue_name().to_string(),
            job.priority.to_string(),
        ],
        ..Row::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_leave_from_the_end_and_are_named() {
        let sheet = Sheet { columns: &QUEUES, rows: Vec::new() };
        let (widths, hidden) = sheet.fitting(200);
        assert_eq!((widths.len(), hidden.len()), (11, 0));
        assert_eq!(widths.iter().sum::<u16>() + 10, 200);
        let (widths, hidden) = sheet.fitting(80);
        assert!(widths.iter().sum::<u16>() + widths.len() as u16 - 1 <= 80);
        assert_eq!(hidden, ["parked", "done"]);
        let (widths, hidden) = sheet.fitting(21);
        assert_eq!((widths, hidden.len()), (vec![12, 8], 8));
        for width in 0..=12 {
            assert_eq!(sheet.fitting(width).0, [width]);
        }
        assert_eq!(Sheet::default().fitting(80), (Vec::new(), Vec::new()));
    }
}
