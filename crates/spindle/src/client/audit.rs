//! `spindle audit`: who did what.

use std::io::{self, IsTerminal};

use clap::ValueEnum as _;
use serde_json::Value;

use super::{native::Native, times::distance_of, view::text_of, web::encoded};
use crate::{
    cli::{AuditAction, AuditArgs},
    exit::Code,
    output::{Rows, print_all},
    queue_name::QueueName,
};

/// Lists what people did, the newest first.
pub fn audit(args: &AuditArgs) -> anyhow::Result<Code> {
    let native = Native::of(&args.native)?;
    let path = format!("/api/v1/audit{}", filter(args));
    let entries = native.first(&path, "entries", "audit", args.limit)?;
    print_all(&entries, args.native.json, || rows(&entries))
}

/// As the native API writes it.
fn word(action: &AuditAction) -> String {
    action.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// The wanted entries as the query part of the URL.
fn filter(args: &AuditArgs) -> String {
    let said = [
        ("who", args.who.clone()),
        ("action", args.action.as_ref().map(word)),
        ("job", args.job.map(|job| job.to_string())),
        ("from", args.since.clone()),
        ("before", args.before.clone()),
    ];
    let queue = args.queue.as_ref().map(QueueName::field);
    let said = said.into_iter().filter_map(|(name, value)| Some((name, value?))).chain(queue);
    let said: Vec<String> =
        said.map(|(name, value)| format!("{name}={}", encoded(&value))).collect();
    if said.is_empty() { String::new() } else { format!("?{}", said.join("&")) }
}

fn rows(entries: &[Value]) -> Rows {
    let (now, for_eyes) = (spindle_client::now(), io::stdout().is_terminal());
    let mut rows = Rows::new(&["time", "who", "address", "door", "action", "what", "detail"]);
    for entry in entries {
        let field = |name: &str| entry.get(name).map(text_of).unwrap_or_default();
        let who = |name: &str| entry.pointer(&format!("/who/{name}")).map(text_of);
        let time = field("at");
        let time = if for_eyes { distance_of(&time, now) } else { time };
        let name = who("name").or_else(|| who("kind")).unwrap_or_default();
        let [address, door] = ["address", "door"].map(|name| who(name).unwrap_or_default());
        rows.add([time, name, address, door, field("action"), what(entry), detail(entry)]);
    }
    rows
}

/// What it was done to: `job 7 of mail`, `queue mail`, `constraint smtp`, `schedule report`.
fn what(entry: &Value) -> String {
    let text = |name: &str| entry.get(name).and_then(Value::as_str);
    let queue = match (text("queue"), text("queue_base64")) {
        (None, None) => None,
        (name, base64) => Some(QueueName::from_api(name, base64).to_string()),
    };
    if let Some(name) = text("schedule") {
        return format!("schedule {name}");
    }
    let job = entry.get("job").map(text_of);
    match (job, queue, text("constraint")) {
        (Some(job), Some(queue), _) => format!("job {job} of {queue}"),
        (Some(job), None, _) => format!("job {job}"),
        (None, Some(queue), _) => format!("queue {queue}"),
        (None, None, Some(name)) => format!("constraint {name}"),
        (None, None, None) => String::new(),
    }
}

/// What changed, and how many jobs.
fn detail(entry: &Value) -> String {
    let count = entry.get("count").map(|count| match count.as_u64() {
        Some(1) => "1 job".to_owned(),
        _ => format!("{} jobs", text_of(count)),
    });
    let detail = entry.get("detail").map(text_of);
    count.into_iter().chain(detail).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_was_done_is_said_in_a_few_words() {
        for (entry, words) in [
            (json!({ "job": 7, "queue": "mail" }), ["job 7 of mail", ""]),
            (json!({ "queue_base64": "/1w=", "count": 1 }), ["queue \\xff\\\\", "1 job"]),
            (json!({ "constraint": "c", "detail": "new" }), ["constraint c", "new"]),
            (json!({ "count": 3, "detail": "status dead" }), ["", "3 jobs, status dead"]),
        ] {
            assert_eq!([what(&entry), detail(&entry)], words, "{entry}");
        }
    }
}
