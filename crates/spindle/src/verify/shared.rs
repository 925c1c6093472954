//! A log that servers share: read from its first to its last record, while nodes may be at work on it.
//!
//! Nothing is written or made, and the nodes are not asked. Records count as they do for a node: a record that a
//! deposed leader has written behind its successor's first one is left out and reported. A node takes the entries of
//! records from the log's servers unchecked; here the checksum of each entry is checked.

use std::io;

use serde_json::{Value, json};
use spindle_engine::{Fence, record::check};
use spindle_log::{Log, Opening, Position, ReadError, Stored};

use super::Contents;
use crate::{
    cli::VerifyArgs,
    exit::Code,
    output::{Rows, write_line},
    shared_log,
};

/// Reads the log that the command names, and reports what is in it.
pub fn verify(args: &VerifyArgs) -> anyhow::Result<Code> {
    let log = shared_log::open(&args.shared, Opening::Reader)?;
    let report = Report::of(&*log);
    let mut out = io::stdout().lock();
    let url = args.shared.log.as_deref().unwrap_or_default();
    if args.json {
        write_line(&mut out, report.object(url))?;
    } else {
        report.rows(url).print(&mut out)?;
    }
    Ok(report.verdict().code())
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Sound,
    /// It has no record.
    Empty,
    /// Only bytes of payloads or results.
    PayloadsDamaged,
    Damaged,
    /// The log's servers did not give all of it.
    Unreadable,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Self::Sound => "sound",
            Self::Empty => "no log",
            Self::PayloadsDamaged => "payloads damaged",
            Self::Damaged => "damaged",
            Self::Unreadable => "unreadable",
        }
    }

    fn code(self) -> Code {
        match self {
            Self::Sound => Code::Ok,
            Self::Empty => Code::NotFound,
            Self::PayloadsDamaged | Self::Damaged | Self::Unreadable => Code::Error,
        }
    }

    fn advice(self) -> Option<&'static str> {
        match self {
            Self::Sound | Self::Empty => None,
            Self::PayloadsDamaged => Some(
                "the jobs named are dead when a worker is to get them, all else is served; a backup may have them",
            ),
            Self::Damaged => Some(
                "a node may not start on it: leave those that run, `spindle export` what their leader has, then restore \
                 a backup to a new log (spindle restore BACKUP --log URL)",
            ),
            Self::Unreadable => Some("look after the servers of the log, and run it again"),
        }
    }
}

struct Report {
    first: Position,
    /// The position behind the last record that was read and is the right one.
    next: Position,
    bytes: u64,
    contents: Contents,
    /// Records that do not count.
    fenced: Vec<u64>,
    /// Records that have damaged bytes of payloads or results.
    damaged_parts: Vec<Position>,
    /// The first record that should be there and is not, and why.
    damage: Option<(Position, String)>,
    failure: Option<String>,
}

impl Report {
    fn of(log: &dyn Log) -> Self {
        let first = log.first();
        let mut report = Self {
            first,
            next: first,
            bytes: 0,
            contents: Contents::new(),
            fenced: Vec::new(),
            damaged_parts: Vec::new(),
            damage: None,
            failure: None,
        };
        let mut fence = Fence::shared(first.0);
        if let Err(error) = report.read(log, &mut fence) {
            report.note(error);
        } else if report.damage.is_none() && report.next < log.next() {
            report.damage = Some((report.next, "it is missing".to_owned()));
        }
        let Ok(()) = fence.end(|stored| report.contents.count(stored));
        report.fenced = fence.into_fenced();
        report
    }

    /// Reads up to the end or to the first damage.
    fn read(&mut self, log: &dyn Log, fence: &mut Fence) -> Result<(), ReadError> {
        for stored in log.read(self.first)? {
            let mut stored = stored?;
            if stored.position != self.next {
                let found = format!("it is missing: record {} comes in its place", stored.position);
                self.damage = Some((self.next, found));
                return Ok(());
            }
            match check(&stored.bytes, stored.epoch) {
                Ok(is_sound) => stored.damaged = !is_sound,
                Err(error) => {
                    self.damage = Some((stored.position, error.to_string()));
                    return Ok(());
                }
            }
            if stored.damaged {
                self.damaged_parts.push(stored.position);
            }
            self.next = stored.position.next();
            self.bytes += stored.bytes.len() as u64;
            let Ok(()) = fence.take(stored, |stored| self.contents.count(stored));
        }
        Ok(())
    }

    fn note(&mut self, error: ReadError) {
        match error {
            ReadError::Damaged { position, file, reason, .. } => {
                self.damage = Some((position, format!("{file}: {reason}")));
            }
            other => self.failure = Some(other.to_string()),
        }
    }

    fn verdict(&self) -> Verdict {
        if self.failure.is_some() {
            Verdict::Unreadable
        } else if self.damage.is_some() || self.contents.unreadable.is_some() {
            Verdict::Damaged
        } else if !self.damaged_parts.is_empty() {
            Verdict::PayloadsDamaged
        } else if self.first == self.next {
            Verdict::Empty
        } else {
            Verdict::Sound
        }
    }

    fn rows(&self, url: &str) -> Rows {
        let mut rows = Rows::new(&["what", "found"]);
        let mut row = |name: &str, text: String| rows.add([name.to_owned(), text]);
        row("verdict", self.verdict().word().to_owned());
        row("log", url.to_owned());
        if let Some(failure) = &self.failure {
            row("failure", failure.clone());
        }
        row("records", (self.next.0 - self.first.0).to_string());
        row("first", self.first.to_string());
        row("next", self.next.to_string());
        row("bytes", self.bytes.to_string());
        self.contents.rows(&mut row);
        for position in &self.fenced {
            let text = "a leader that was none any more has written it; no node takes it";
            row("fenced", format!("record {position}: {text}"));
        }
        for position in &self.damaged_parts {
            let text = "bytes of a payload or a result are damaged, the events are sound";
            row("damaged-bytes", format!("record {position}: {text}"));
        }
        self.contents.damaged_rows(&mut row);
        if let Some((position, reason)) = &self.damage {
            row("damage", format!("record {position}: {reason}"));
        }
        if let Some(advice) = self.verdict().advice() {
            row("advice", advice.to_owned());
        }
        rows
    }

    fn object(&self, url: &str) -> Value {
        let place = |position: &Position| json!({ "position": position.0 });
        let damage = self.damage.as_ref();
        let mut object = json!({
            "verdict": self.verdict().word(),
            "sound": self.verdict() == Verdict::Sound,
            "log": url,
            "failure": self.failure,
            "records": self.next.0 - self.first.0,
            "first": self.first.0,
            "next": self.next.0,
            "bytes": self.bytes,
            "fenced": self.fenced,
            "damage": damage.map(|(at, reason)| json!({ "position": at.0, "reason": reason })),
            "damaged_records": self.damaged_parts.iter().map(place).collect::<Vec<_>>(),
        });
        for (name, value) in self.contents.fields() {
            object[name] = value;
        }
        object
    }
}

impl Contents {
    fn count(&mut self, stored: Stored) -> Result<(), std::convert::Infallible> {
        self.add(stored);
        Ok(())
    }
}
