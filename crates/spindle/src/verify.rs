//! `spindle verify`: whether a log is sound, what is in it, and where it is not.
//!
//! - here: a data folder; `dropped`: what a repair takes out of it
//! - `shared`: a log that servers share

mod dropped;
mod shared;

use std::{cell::RefCell, io};

use anyhow::Context;
use jiff::Timestamp;
use serde_json::{Map, Value, json};
use spindle_engine::{
    Counts, DamagedBytes, DamagedJob, Options, Survey,
    record::{RecordError, checked_parts},
};
use spindle_log::{
    OpenError, Position, Stored,
    disk::RealDisk,
    verify::{Dropped, Place, TornTail, VerifyReport, verify_with},
};

use self::dropped::DroppedRecords;
use crate::{
    backup,
    cli::{JobStatus, VerifyArgs},
    exit::Code,
    output::{Rows, write_line},
};

/// Reads a log, reports what is in it, and repairs a folder when asked to.
pub fn verify(args: &VerifyArgs) -> anyhow::Result<Code> {
    let Some(folder) = &args.folder else { return shared::verify(args) };
    if spindle_backup::is_backup(folder) {
        return backup::verify(args, folder);
    }
    let message = || format!("cannot read the folder {}", folder.display());
    let disk = RealDisk::open(folder).with_context(message)?;
    let mut contents = Contents::new();
    let contents_too = RefCell::new(&mut contents);
    let each = &mut |stored| contents_too.borrow_mut().add(stored);
    let dropped = &mut |record| contents_too.borrow_mut().drop(record);
    let report = verify_with(&disk, args.repair, checked_parts, each, dropped);
    let verdict = Verdict::of(&report);
    let mut out = io::stdout().lock();
    if args.json {
        write_line(&mut out, object(&report, verdict, &contents))?;
    } else {
        rows(&report, verdict, &contents).print(&mut out)?;
    }
    Ok(match contents.unreadable {
        // Regardless of the verdict, because this program would not start on the folder.
        Some(_) => Code::Error,
        None => verdict.code(),
    })
}

/// What the sound records come to.
struct Contents {
    survey: Survey,
    dropped: DroppedRecords,
    /// The first record that cannot be folded.
    unreadable: Option<(Position, RecordError)>,
}

impl Contents {
    fn new() -> Self {
        let survey = Survey::new(&Options::default());
        Self { survey, dropped: DroppedRecords::default(), unreadable: None }
    }

    fn add(&mut self, stored: Stored) {
        if self.unreadable.is_none() {
            let position = stored.position;
            let folded = self.survey.record(stored);
            self.unreadable = folded.err().map(|error| (position, error));
        }
    }

    fn drop(&mut self, record: Dropped) {
        self.dropped.add(record, &mut self.survey);
    }

    /// The contents' numbers, a row for each.
    fn rows(&self, row: &mut dyn FnMut(&str, String)) {
        if let Some((position, error)) = &self.unreadable {
            row("unreadable", format!("record {position}: {error}"));
        }
        let Some(counts) = self.counts() else { return };
        row("epoch", counts.epoch.to_string());
        row("oldest", time(counts.oldest_ms));
        row("newest", time(counts.newest_ms));
        row("queues", counts.queues.to_string());
        for (status, jobs) in JobStatus::WORDS.iter().zip(counts.jobs) {
            row(status, jobs.to_string());
        }
        row("finished", counts.finished.to_string());
    }

    /// A row for each job whose bytes are damaged.
    fn damaged_rows(&self, row: &mut dyn FnMut(&str, String)) {
        for job in self.survey.damaged() {
            row("damaged-job", format!("{}: {}", job.id, fate(&job)));
        }
    }

    /// The same for programs: `contents`, `unreadable` and `damaged_jobs` of the object.
    fn fields(&self) -> [(&'static str, Value); 3] {
        let counts = self.counts().map(|counts| {
            let jobs: Map<String, Value> = JobStatus::WORDS
                .iter()
                .zip(counts.jobs)
                .map(|(s, n)| ((*s).to_owned(), n.into()))
                .collect();
            json!({
                "epoch": counts.epoch,
                "oldest_ms": counts.oldest_ms,
                "newest_ms": counts.newest_ms,
                "queues": counts.queues,
                "jobs": jobs,
                "finished": counts.finished,
            })
        });
        let unreadable = self.unreadable.as_ref().map(
            |(position, error)| json!({ "position": position.0, "reason": error.to_string() }),
        );
        let damaged_jobs: Vec<Value> = self.survey.damaged().iter().map(damaged_job).collect();
        [
            ("contents", counts.into()),
            ("unreadable", unreadable.into()),
            ("damaged_jobs", damaged_jobs.into()),
        ]
    }

    /// The counts, if every record was folded and there was one.
    fn counts(&self) -> Option<Counts> {
        let counts = self.survey.counts();
        (self.unreadable.is_none() && counts.oldest_ms.is_some()).then_some(counts)
    }
}

fn time(at_ms: Option<u64>) -> String {
    let at_ms = i64::try_from(at_ms.unwrap_or(0)).unwrap_or(i64::MAX);
    Timestamp::from_millisecond(at_ms).unwrap_or(Timestamp::MAX).to_string()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Sound,
    Repaired,
    NoLog,
    /// Only bytes of payloads or results: a server starts, and says so.
    PayloadsDamaged,
    Damaged,
    /// A server is at work on it: what is read may be half written.
    InUse,
    Unreadable,
}

impl Verdict {
    fn of(report: &VerifyReport) -> Self {
        if matches!(report.failure, Some(OpenError::Locked { .. })) {
            Self::InUse
        } else if report.failure.is_some() {
            Self::Unreadable
        } else if report.repair.is_some() {
            Self::Repaired
        } else if report.damage.is_some() {
            Self::Damaged
        } else if !report.damaged_parts.is_empty() {
            Self::PayloadsDamaged
        } else if report.segments.is_empty() {
            Self::NoLog
        } else {
            Self::Sound
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Sound => "sound",
            Self::Repaired => "repaired",
            Self::NoLog => "no log",
            Self::PayloadsDamaged => "payloads damaged",
            Self::Damaged => "damaged",
            Self::InUse => "in use",
            Self::Unreadable => "unreadable",
        }
    }

    fn code(self) -> Code {
        match self {
            Self::Sound | Self::Repaired => Code::Ok,
            Self::NoLog => Code::NotFound,
            Self::PayloadsDamaged | Self::Damaged | Self::InUse | Self::Unreadable => Code::Error,
        }
    }
}

fn rows(report: &VerifyReport, verdict: Verdict, contents: &Contents) -> Rows {
    let mut rows = Rows::new(&["what", "found"]);
    let mut row = |name: &str, text: String| rows.add([name.to_owned(), text]);
    row("verdict", verdict.word().to_owned());
    row("folder", report.folder.clone());
    if let Some(failure) = &report.failure {
        row("failure", failure.to_string());
    }
    if verdict == Verdict::InUse {
        // Nothing was read, so that there is nothing to count.
        return rows;
    }
    row("segments", report.segments.len().to_string());
    row("records", report.records.to_string());
    row("first", report.first.to_string());
    row("next", report.next.to_string());
    row("bytes", report.bytes.to_string());
    let ended = if report.ended_in_order { "in order" } else { "by a crash, or not known" };
    row("ended", ended.to_owned());
    if report.bounds_copy_damaged {
        let text = "one of its two copies is damaged, the other one fits the log";
        row("bounds", format!("{text}; the next start writes it again"));
    }
    contents.rows(&mut row);
    for record in &report.damaged_parts {
        let (file, offset, position) = (&record.file, record.offset, record.position);
        let text = "bytes of a payload or a result are damaged, the events are sound";
        row("damaged-bytes", format!("{file} at byte {offset}, record {position}: {text}"));
    }
    contents.damaged_rows(&mut row);
    if let Some(tail) = &report.tail {
        row("tail", tail_text(tail, report.ended_in_order));
    }
    if let Some(damage) = &report.damage {
        let (file, offset, position) = (&damage.file, damage.offset, damage.position);
        let reason = damage.reason;
        row("damage", format!("{file} at byte {offset}, record {position}: {reason}"));
        for file in &damage.behind {
            row("behind", format!("{file} cannot follow the records before the damage"));
        }
    }
    if let Some(repair) = &report.repair {
        for file in &repair.saved {
            row("saved", format!("{}/{file}", repair.folder));
        }
    }
    for file in &report.saved_earlier {
        row("saved-earlier", file.clone());
    }
    for folder in &report.repaired_since_start {
        let text = "no server has started since; the dropped records include what it took out";
        row("repaired-since-start", format!("{folder}: {text}"));
    }
    for file in &report.foreign {
        row("foreign", format!("{file} is no part of a log"));
    }
    contents.dropped.rows(&mut rows);
    let mut row = |name: &str, text: String| rows.add([name.to_owned(), text]);
    if verdict == Verdict::Damaged {
        let what =
            "goes on without the dropped records and keeps all files in a folder of their own";
        let files = "bring the files back from a backup if you have one, else";
        row("advice", format!("{files}: spindle verify --repair ({what})"));
    }
    if verdict == Verdict::PayloadsDamaged {
        let what = "jobs whose payload is damaged will be dead, all else is served";
        row("advice", format!("copy the folder, then start the server on it: {what}"));
    }
    rows
}

fn tail_text(tail: &TornTail, ended_in_order: bool) -> String {
    let TornTail { file, offset, bytes, whole_records, .. } = tail;
    let text = if ended_in_order {
        "behind the end that the last stop recorded, so they are no part of the log; the next start \
         removes them"
    } else {
        "that a server had not finished writing; the next start removes them"
    };
    format!(
        "{file} from byte {offset}: {bytes} bytes, {whole_records} whole records in them, {text}"
    )
}

/// What happens to a job whose bytes are damaged.
fn fate(job: &DamagedJob) -> &'static str {
    match (job.bytes, job.finished) {
        (DamagedBytes::Payload, false) => "its payload is damaged, it dies at the next start",
        (DamagedBytes::Payload, true) => "its payload is damaged, it has finished",
        (DamagedBytes::Result, false) => "the result of its last failure is damaged",
        (DamagedBytes::Result, true) => "its result is damaged",
    }
}

/// The process that works on the folder, as far as its lock says.
fn in_use_by(report: &VerifyReport) -> Option<u32> {
    match &report.failure {
        Some(OpenError::Locked { pid, .. }) => *pid,
        _ => None,
    }
}

fn damaged_job(job: &DamagedJob) -> Value {
    let bytes = match job.bytes {
        DamagedBytes::Payload => "payload",
        DamagedBytes::Result => "result",
    };
    json!({ "id": job.id.0, "finished": job.finished, "bytes": bytes })
}

fn place(place: &Place) -> Value {
    json!({ "file": place.file, "offset": place.offset, "position": place.position.0 })
}

fn object(report: &VerifyReport, verdict: Verdict, contents: &Contents) -> Value {
    let segments: Vec<Value> = report
        .segments
        .iter()
        .map(|segment| {
            json!({
                "file": segment.file,
                "first": segment.first.0,
                "records": segment.records,
                "bytes": segment.bytes,
            })
        })
        .collect();
    let damage = report.damage.as_ref().map(|damage| {
        json!({
            "file": damage.file,
            "offset": damage.offset,
            "position": damage.position.0,
            "reason": damage.reason,
            "behind": damage.behind,
        })
    });
    let mut object = json!({
        "verdict": verdict.word(),
        "sound": report.is_sound() && verdict == Verdict::Sound,
        "folder": report.folder,
        "failure": report.failure.as_ref().map(ToString::to_string),
        "in_use_by": in_use_by(report),
        "segments": segments,
        "records": report.records,
        "first": report.first.0,
        "next": report.next.0,
        "bytes": report.bytes,
        "ended_in_order": report.ended_in_order,
        "bounds_copy_damaged": report.bounds_copy_damaged,
        "tail": report.tail.as_ref().map(|tail| json!({
            "file": tail.file,
            "offset": tail.offset,
            "position": tail.position.0,
            "bytes": tail.bytes,
            "whole_records": tail.whole_records,
        })),
        "dropped": contents.dropped.json(),
        "damage": damage,
        "damaged_records": report.damaged_parts.iter().map(place).collect::<Vec<_>>(),
        "saved_in": report.repair.as_ref().filter(|repair| !repair.saved.is_empty()).map(|repair| &repair.folder),
        "saved": report.repair.as_ref().map(|repair| &repair.saved),
        "saved_earlier": report.saved_earlier,
        "repaired_since_start": report.repaired_since_start,
        "foreign": report.foreign,
    });
    for (name, value) in contents.fields() {
        object[name] = value;
    }
    object
}
