//! What people did.

use axum::Json;
use axum::extract::State;
use serde::{Deserialize, Serialize};
use spindle_core::JobId;
use spindle_core::audit::{Action, Actor, ActorKind, AuditEntry};
use spindle_core::job::Origin;
use spindle_engine::AuditFilter;
use spindle_http::{Answered, Pass, Problem, door_word};
use tokio::task::yield_now;
use utoipa::{IntoParams, ToSchema};

use crate::api::Api;
use crate::extract::Args;
use crate::numbers::{bounded, cursor_number};
use crate::{instant, naming};

const LIMIT: usize = 100;
pub(crate) const LIMIT_MAX: usize = 1_000;
/// The door in entries of people who used the web pages.
pub(crate) const WEB: &str = "web";
/// Stretches of one request: each looks at up to 1,000 entries.
const STRETCHES_MAX: usize = 200;

/// Which entries to list.
#[derive(Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct Asked {
    /// At most this many, 1 to 1000; 100 by default.
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<usize>,
    /// Where the last page ended: its `next_cursor`.
    #[param(pattern = "^[0-9]{1,15}$")]
    cursor: Option<String>,
    /// Only those of this entry of the tokens file, by its name.
    who: Option<String>,
    /// Only those with this action.
    #[param(format = "audit-action")]
    action: Option<String>,
    /// Only those about this queue, or about a job that was in it.
    #[param(min_length = 1, max_length = 512)]
    queue: Option<String>,
    /// Only those about this queue, its name in base64. Both: they must be the same.
    #[param(format = "queue-base64")]
    queue_base64: Option<String>,
    /// Only those about the job with this number.
    #[param(minimum = 0)]
    job: Option<u64>,
    /// Only what was done at this time (RFC 3339) or later.
    #[param(format = "time-or-now")]
    from: Option<String>,
    /// Only what was done before this time (RFC 3339).
    #[param(format = "time-or-now")]
    before: Option<String>,
}

/// A page of the audit log.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditPage)]
pub(crate) struct Page {
    /// The entries, the newest first.
    entries: Vec<Entry>,
    /// Where to go on. Not there at the end. A page may be short all the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// One request of a person that changed something, or took or brought many jobs.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub(crate) struct Entry {
    /// Its number; newer ones have higher numbers.
    id: u64,
    /// When its first change was made.
    at: String,
    who: Who,
    /// What was done.
    #[schema(format = "audit-action")]
    action: &'static str,
    /// The job it was done to, if it was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    job: Option<u64>,
    /// The queue it was done to, or the job was in before, where the name is UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    queue: Option<String>,
    /// The same in base64, where the name is no UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(format = "queue-base64")]
    queue_base64: Option<String>,
    /// The constraint it was done to.
    #[serde(skip_serializing_if = "Option::is_none")]
    constraint: Option<String>,
    /// The schedule it was done to.
    #[serde(skip_serializing_if = "Option::is_none")]
    schedule: Option<String>,
    /// What changed, or which jobs were meant, briefly and for people.
    #[serde(skip_serializing_if = "String::is_empty")]
    detail: String,
    /// How many jobs were changed, if the request was about many.
    #[serde(skip_serializing_if = "Option::is_none")]
    count: Option<u64>,
}

/// Who did it, as far as the door knew.
#[derive(Serialize, ToSchema)]
#[schema(as = AuditWho)]
pub(crate) struct Who {
    /// How they proved who they are: `token`, `certificate`, or `nobody` where the door did not
    /// ask.
    kind: &'static str,
    /// The name of their entry in the tokens file.
    #[serde(skip_serializing_if = "String::is_empty")]
    name: String,
    /// The client's IP address.
    #[serde(skip_serializing_if = "String::is_empty")]
    address: String,
    /// The door they came through; `web` for the web pages.
    #[schema(format = "audit-door")]
    door: &'static str,
}

/// List what people did to jobs, queues, constraints, schedules and targets of jobd, and who took a
/// backup, exported or imported jobs, the newest first. Other requests that changed nothing are not in
/// it, and neither is what submitters and workers do.
#[utoipa::path(get, path = "/api/v1/audit",
    operation_id = "list_audit", tag = "server", params(Asked),
    responses(
        (status = 200, description = "A page of entries", body = Page),
        (status = "4XX", description = "Refused")))]
pub(crate) async fn list(State(api): State<Api>, Args(asked): Args<Asked>) -> Answered<Json<Page>> {
    let limit = bounded("limit", asked.limit.unwrap_or(LIMIT), 1..=LIMIT_MAX)?;
    let cursor = cursor_number(asked.cursor.as_deref())?;
    let filter = asked.filter()?;
    let mut next = Some(cursor.unwrap_or(u64::MAX)).filter(|_| filter.is_some());
    let filter = filter.unwrap_or_default();
    let mut entries = Vec::new();
    for _ in 0..STRETCHES_MAX {
        let Some(before) = next.filter(|_| entries.len() < limit) else { break };
        let page = api.engine().audit().page(before, &filter, limit - entries.len());
        let page = api.bridge().durable(page).await;
        entries.extend(page.entries.into_iter().map(shown));
        next = page.next;
        yield_now().await;
    }
    Ok(Json(Page { entries, next_cursor: next.map(|next| next.to_string()) }))
}

impl Asked {
    /// `None` if no entry can match, because two conditions contradict each other.
    fn filter(self) -> Answered<Option<AuditFilter>> {
        let queue = |name: Option<&str>, base64: Option<&str>| match (name, base64) {
            (None, None) => Ok(None),
            (name, base64) => naming::queue(name, base64).map(Some),
        };
        let named = queue(self.queue.as_deref(), None)?;
        let coded = queue(None, self.queue_base64.as_deref())?;
        let action = self.action.as_deref().map(read_action).transpose()?;
        let time = |field: &str, text: Option<String>| {
            text.map(|text| instant::read(field, &text)).transpose()
        };
        let (from_ms, before_ms) = (time("from", self.from)?, time("before", self.before)?);
        let is_possible = named.is_none() || coded.is_none() || named == coded;
        let job = self.job.map(JobId);
        let filter =
            AuditFilter { who: self.who, action, queue: named.or(coded), job, from_ms, before_ms };
        Ok(is_possible.then_some(filter))
    }
}

fn read_action(word: &str) -> Answered<Action> {
    Action::ALL.into_iter().find(|action| action_word(*action) == word).ok_or_else(|| {
        let words = Action::ALL.map(action_word).join(", ");
        Problem::out_of_range(format!("action is one of {words}"))
    })
}

/// Writes an entry about data that somebody takes out or brings in; it is on disk before they get
/// anything. A full disk does not prevent a backup: then the server's own log says who took it.
pub(crate) async fn note(api: &Api, pass: &Pass, action: Action, detail: String) {
    let mut audit = pass.audit(Origin::Api);
    let noted =
        api.bridge().change(|engine| engine.people(&mut audit).note(action, detail.clone()));
    if let Err(refused) = noted.await {
        let Actor { name, address, .. } = pass.actor(Origin::Api);
        let action = action_word(action);
        tracing::warn!(action, name, address, detail, %refused, "no entry in the audit log");
    }
}

/// An action as the API writes it.
pub(crate) fn action_word(action: Action) -> &'static str {
    match action {
        // No entry has this action.
        Action::Counted => "counted",
        Action::Delete => "delete",
        Action::Cancel => "cancel",
        Action::Retry => "retry",
        Action::Edit => "edit",
        Action::Move => "move",
        Action::Park => "park",
        Action::Release => "release",
        Action::Extend => "extend",
        Action::Pause => "pause",
        Action::Resume => "resume",
        Action::Drain => "drain",
        Action::Purge => "purge",
        Action::SetQueue => "set_queue",
        Action::PutConstraint => "put_constraint",
        Action::RemoveConstraint => "remove_constraint",
        Action::AcceptClock => "accept_clock",
        Action::Backup => "backup",
        Action::Export => "export",
        Action::Import => "import",
        Action::Undo => "undo",
        Action::PauseTargets => "pause_targets",
        Action::ContinueTargets => "continue_targets",
        Action::PutSchedule => "put_schedule",
        Action::RemoveSchedule => "remove_schedule",
        Action::PauseSchedule => "pause_schedule",
        Action::ResumeSchedule => "resume_schedule",
        Action::RunSchedule => "run_schedule",
        Action::CancelBatch => "cancel_batch",
        Action::StepDown => "step_down",
        Action::MoveQueue => "move_queue",
    }
}

fn kind_word(kind: ActorKind) -> &'static str {
    match kind {
        ActorKind::Nobody => "nobody",
        ActorKind::Token => "token",
        ActorKind::Certificate => "certificate",
    }
}

fn shown(entry: AuditEntry) -> Entry {
    let action = action_word(entry.action());
    let actor = entry.actor.unwrap_or_default();
    let door = Origin::try_from(actor.door).unwrap_or(Origin::Api);
    let door = if actor.by_page { WEB } else { door_word(door) };
    let kind = kind_word(actor.kind());
    let name = entry.queue.as_deref().map(naming::text_or_base64);
    let (queue, queue_base64) = name.unwrap_or_default();
    Entry {
        id: entry.seq,
        at: instant::shown(entry.at_ms),
        who: Who { kind, name: actor.name, address: actor.address, door },
        action,
        job: entry.job,
        queue,
        queue_base64,
        constraint: entry.constraint,
        schedule: entry.schedule,
        detail: entry.detail,
        count: entry.count,
    }
}
