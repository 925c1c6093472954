//! `spindle workers`.

use std::io::{self, IsTerminal};

use serde_json::Value;

use super::{native::Native, times::distance_of, view::text_of};
use crate::{
    cli,
    exit::Code,
    output::{Rows, print_all},
    queue_name::QueueName,
};

/// Lists the workers and what they hold.
pub fn workers(args: &cli::Native) -> anyhow::Result<Code> {
    let native = Native::of(args)?;
    let workers = native.list("/api/v1/workers", "workers")?;
    print_all(&workers, args.json, || rows(&workers))
}

fn rows(workers: &[Value]) -> Rows {
    let (now, for_eyes) = (spindle_client::now(), io::stdout().is_terminal());
    let mut rows = Rows::new(&["worker", "door", "queues", "last-seen", "jobs"]);
    for worker in workers {
        let field = |name: &str| worker.get(name).map(words).unwrap_or_default();
        let seen = field("seen_at");
        let seen = if for_eyes { distance_of(&seen, now) } else { seen };
        rows.add([field("name"), field("door"), queues(worker), seen, field("jobs")]);
    }
    rows
}

/// The queues' names, each with a blank between.
fn queues(worker: &Value) -> String {
    let list = |name: &str| worker.get(name).and_then(Value::as_array).into_iter().flatten();
    let texts = list("queues").map(|name| QueueName::from_api(name.as_str(), None));
    let coded = list("queues_base64").map(|name| QueueName::from_api(None, name.as_str()));
    texts.chain(coded).map(|name| name.to_string()).collect::<Vec<_>>().join(" ")
}

/// A list as words, each with a blank between.
fn words(value: &Value) -> String {
    match value {
        Value::Array(items) => items.iter().map(words).collect::<Vec<_>>().join(" "),
        Value::Object(fields) => fields.get("id").map(text_of).unwrap_or_default(),
        other => text_of(other),
    }
}
