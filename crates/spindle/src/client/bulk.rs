//! The same for all jobs that a filter means, or how many there are.

use std::{collections::BTreeMap, io};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{inspect::write_json, native::Native, web::Asking};
use crate::{
    cli::{Filter, Selection},
    exit::{Code, Failure},
    output::write_line,
};

/// An action on all jobs that a filter means.
pub struct Bulk {
    body: Map<String, Value>,
    action: &'static str,
    dry_run: bool,
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
    /// Refuses a filter beside jobs that are named: it would say nothing.
    pub fn check(filter: &Filter, are_named: bool) -> anyhow::Result<()> {
        if are_named && !filter.is_empty() {
            let told = "a filter goes with --all-matching, not with jobs that are named";
            return Err(Failure::with(Code::Usage, told));
        }
        Ok(())
    }

    /// An action on a selection.
    pub fn of(selection: &Selection, action: &'static str) -> Self {
        Self::new(selection.queue.as_deref(), &selection.filter, selection.dry_run, action)
    }

    /// An action on the jobs of a queue, or of all, that a filter means.
    pub fn new(queue: Option<&str>, filter: &Filter, dry_run: bool, action: &'static str) -> Self {
        let mut fields = Map::new();
        fields.extend(queue.map(|queue| ("queue".to_owned(), queue.into())));
        let statuses: Vec<&str> = filter.status.iter().map(|status| status.word()).collect();
        if !statuses.is_empty() {
            fields.insert("status".to_owned(), statuses.join(",").into());
        }
        let others = filter.fields().into_iter();
        fields.extend(others.map(|(name, value)| (name.to_owned(), value.into())));
        let mut body = Map::new();
        body.insert("filter".to_owned(), Value::Object(fields));
        body.insert("action".to_owned(), action.into());
        body.insert("dry_run".to_owned(), dry_run.into());
        Self { body, action, dry_run }
    }

    /// With one field more.
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.body.insert(name.to_owned(), value.into());
        self
    }

    /// Does it, request by request, and tells how many there were.
    pub fn run(mut self, native: &Native, as_json: bool) -> anyhow::Result<Code> {
        if self.body.get("filter").and_then(Value::as_object).is_none_or(Map::is_empty) {
            let told = "--all-matching needs a filter: --queue, --status, --door, --tag, --text, \
                        --since or --before";
            return Err(Failure::with(Code::Usage, told));
        }
        let mut all = Done { dry_run: self.dry_run, ..Done::default() };
        loop {
            let asking = Asking::post("/api/v1/jobs/bulk").with(&self.body);
            let done: Done = native.ask(asking, "jobs")?;
            all.matched += done.matched;
            all.changed += done.changed;
            for (code, count) in done.refused {
                *all.refused.entry(code).or_default() += count;
            }
            let Some(next) = done.next_cursor else { break };
            self.body.insert("cursor".to_owned(), next.into());
        }
        self.tell(&all, as_json)?;
        Ok(Code::Ok)
    }

    fn tell(&self, all: &Done, as_json: bool) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if as_json {
            return write_json(&mut out, all);
        }
        let would = if self.dry_run { "would be " } else { "" };
        let changed = match self.action {
            "delete" => "deleted",
            "cancel" => "cancelled",
            "retry" => "retried",
            _ => "moved",
        };
        let jobs = if all.changed == 1 { "job" } else { "jobs" };
        write_line(&mut out, format_args!("{} {jobs} {would}{changed}", all.changed))?;
        for (code, count) in &all.refused {
            eprintln!("{count} {would}left as they are: {}", code.replace('_', " "));
        }
        Ok(())
    }
}
