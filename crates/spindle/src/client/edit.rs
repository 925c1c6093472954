//! `spindle park`, `release`, `edit` and `move`: changes to waiting jobs.

use serde_json::{Map, Value};
use spindle_client::http::Method;

use super::{
    bulk::{Action, Bulk},
    change::for_each,
    native::Native,
    view::Job,
    web::ApiRequest,
    when::{now_ms, parse_when, rfc3339},
};
use crate::{
    cli::{self, AsRead, EditArgs, MoveArgs, ParkArgs, Selection},
    exit::{Code, Failure},
};

/// Keeps waiting jobs aside.
pub fn park(args: &ParkArgs) -> anyhow::Result<Code> {
    change(&args.native, &args.selection, &args.as_read, Action::Park, Map::new())
}

/// Lets parked jobs run.
pub fn release(args: &ParkArgs) -> anyhow::Result<Code> {
    change(&args.native, &args.selection, &args.as_read, Action::Release, Map::new())
}

/// Moves waiting jobs to another queue.
pub fn move_to(args: &MoveArgs) -> anyhow::Result<Code> {
    let mut fields = Map::new();
    args.to.put(&mut fields, "queue");
    let as_read = AsRead { if_revision: None };
    change(&args.native, &args.selection, &as_read, Action::Move, fields)
}

/// Changes what the options say.
pub fn edit(args: &EditArgs) -> anyhow::Result<Code> {
    let mut fields = Map::new();
    if let Some(priority) = args.priority {
        fields.insert("priority".to_owned(), priority.into());
    }
    if let Some(text) = &args.run_at {
        fields.insert("run_at".to_owned(), run_at(text)?.into());
    }
    if let Some(queue) = &args.to {
        queue.put(&mut fields, "queue");
    }
    change(&args.native, &args.selection, &args.as_read, Action::Edit, fields)
}

fn run_at(text: &str) -> anyhow::Result<String> {
    if text == "now" {
        return Ok(text.to_owned());
    }
    let message = |reason| Failure::with(Code::Usage, format!("--run-at {text}: {reason}"));
    parse_when(text, now_ms()).map(rfc3339).map_err(message)
}

fn change(
    named: &cli::Native,
    selection: &Selection,
    as_read: &AsRead,
    action: Action,
    fields: Map<String, Value>,
) -> anyhow::Result<Code> {
    if let Some(bulk) = Bulk::of(&selection.matching, action)? {
        return bulk.with(fields).run(&Native::of(named)?, named.json);
    }
    if as_read.if_revision.is_some() && selection.ids.len() > 1 {
        let message = "--if-revision goes with one job: each has a revision of its own";
        return Err(Failure::with(Code::Usage, message));
    }
    for_each(named, &selection.ids, |native, id| {
        let (path, patch) = match action {
            Action::Park => (format!("/api/v1/jobs/{id}/park"), false),
            Action::Release => (format!("/api/v1/jobs/{id}/release"), false),
            _ => (format!("/api/v1/jobs/{id}"), true),
        };
        let mut asking = if patch {
            ApiRequest::of(Method::PATCH, &path).with(&fields)
        } else {
            ApiRequest::post(&path)
        };
        if let Some(revision) = as_read.if_revision {
            asking.headers.push(("If-Match", format!("\"{revision}\"")));
        }
        native.http().ask::<Job>(asking)
    })
}
