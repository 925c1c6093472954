//! One action on all jobs that a filter matches, or only their number.

use std::{collections::BTreeMap, io};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    confirm::{can_be_asked, is_meant},
    native::Native,
    web::ApiRequest,
};
use crate::{
    cli::Matching,
    exit::{Code, Failure},
    output::{jobs_counted, write_json, write_line},
};

/// What is done to jobs: the API's word for it, and people's before it and after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// They are ended as dead.
    Cancel,
    /// They are deleted.
    Delete,
    /// They run again.
    Retry,
    /// They go to another queue.
    Move,
    /// Something else of them is changed.
    Edit,
    /// They are kept aside.
    Park,
    /// They are not kept aside any more.
    Release,
}

impl Action {
    fn words(self) -> [&'static str; 3] {
        match self {
            Self::Cancel => ["cancel", "Cancel", "cancelled"],
            Self::Delete => ["delete", "Delete", "deleted"],
            Self::Retry => ["retry", "Retry", "retried"],
            Self::Move => ["edit", "Move", "moved"],
            Self::Edit => ["edit", "Change", "changed"],
            Self::Park => ["park", "Park", "parked"],
            Self::Release => ["release", "Release", "released"],
        }
    }
}

/// An action on all jobs that a filter means.
pub struct Bulk {
    body: Map<String, Value>,
    action: Action,
    dry_run: bool,
    /// The action is done without asking.
    is_meant: bool,
}

/// What was done, or would be.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Done {
    dry_run: bool,
    matched: u64,
    changed: u64,
    refused: BTreeMap<String, u64>,
    #[serde(skip_serializing)]
    next_cursor: Option<String>,
}

impl Bulk {
    /// An action on all jobs that a filter matches; `None` if jobs are named instead.
    ///
    /// # Errors
    ///
    /// A filter beside named jobs is refused, because it would have no effect.
    pub fn of(matching: &Matching, action: Action) -> anyhow::Result<Option<Self>> {
        let Matching { all_matching, queue, filter, dry_run, yes } = matching;
        if !all_matching {
            if filter.is_empty() {
                return Ok(None);
            }
            let message = "a filter goes with --all-matching, not with jobs that are named";
            return Err(Failure::with(Code::Usage, message));
        }
        let mut fields = Map::new();
        if let Some(queue) = queue {
            queue.put(&mut fields, "queue");
        }
        let statuses: Vec<&str> = filter.status.iter().map(|status| status.word()).collect();
        if !statuses.is_empty() {
            fields.insert("status".to_owned(), statuses.join(",").into());
        }
        let others = filter.fields().into_iter();
        fields.extend(others.map(|(name, value)| (name.to_owned(), value.into())));
        let mut body = Map::new();
        body.insert("filter".to_owned(), Value::Object(fields));
        let [word, ..] = action.words();
        body.insert("action".to_owned(), word.into());
        Ok(Some(Self { body, action, dry_run: *dry_run, is_meant: *yes }))
    }

    /// With more fields.
    pub fn with(mut self, fields: Map<String, Value>) -> Self {
        self.body.extend(fields);
        self
    }

    /// Does it, request by request, and tells how many there were. A person at a terminal is asked
    /// first.
    pub fn run(self, native: &Native, as_json: bool) -> anyhow::Result<Code> {
        if self.body.get("filter").and_then(Value::as_object).is_none_or(Map::is_empty) {
            let message = "--all-matching needs a filter: --queue, --status, --door, --tag, --batch, \
                        --text, --field, --fingerprint, --since or --before";
            return Err(Failure::with(Code::Usage, message));
        }
        if !self.dry_run && !self.is_meant && can_be_asked() {
            let count = self.all(native, true)?.changed;
            let [_, doing, _] = self.action.words();
            if count > 0 && !is_meant(&format!("{doing} {}?", jobs_counted(count)))? {
                return Ok(Code::Error);
            }
        }
        let all = self.all(native, self.dry_run)?;
        self.print(&all, as_json)?;
        Ok(Code::Ok)
    }

    fn all(&self, native: &Native, dry_run: bool) -> anyhow::Result<Done> {
        let mut body = self.body.clone();
        body.insert("dry_run".to_owned(), dry_run.into());
        let mut all = Done { dry_run, ..Done::default() };
        loop {
            let asking = ApiRequest::post("/api/v1/jobs/bulk").with(&body);
            let done: Done = native.ask(asking, "jobs")?;
            all.matched += done.matched;
            all.changed += done.changed;
            for (code, count) in done.refused {
                *all.refused.entry(code).or_default() += count;
            }
            let Some(next) = done.next_cursor else { return Ok(all) };
            body.insert("cursor".to_owned(), next.into());
        }
    }

    fn print(&self, all: &Done, as_json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if as_json {
            return write_json(&mut out, all);
        }
        let would = if self.dry_run { "would be " } else { "" };
        let [.., changed] = self.action.words();
        let jobs = if all.changed == 1 { "job" } else { "jobs" };
        write_line(&mut out, format_args!("{} {jobs} {would}{changed}", all.changed))?;
        for (code, count) in &all.refused {
            eprintln!("{count} {would}left as they are: {}", code.replace('_', " "));
        }
        Ok(())
    }
}
