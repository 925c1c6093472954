//! `spindle events`: what happens on the server, as it happens or as it happened.

use std::{
    io::{self, Write},
    ops::ControlFlow,
};

use serde_json::{Map, Value};

use super::{follow::Followed, native::Native, view::text_of, web::encoded};
use crate::{
    cli::EventsArgs,
    exit::Code,
    output::{escape, write_line},
    queue_name::QueueName,
};

/// Prints events: those that are kept, or with `--follow` those to come.
pub fn events(args: &EventsArgs) -> anyhow::Result<Code> {
    let native = Native::of(&args.native)?;
    let after = args.after.as_deref().or((!args.follow).then_some("oldest"));
    let mut path = format!("/api/v1/events?follow={}", args.follow);
    if let Some(after) = after {
        path += &format!("&after={}", encoded(after));
    }
    Followed { native: &native, what: "events", path, goes_on: args.follow }.read(|event| {
        let data: Map<String, Value> = serde_json::from_str(&event.data)?;
        let mut out = io::stdout().lock();
        write_line(&mut out, line(&event.id, data, args.native.json))?;
        // So that a reader sees each event at once.
        out.flush()?;
        Ok(ControlFlow::Continue(()))
    })
}

/// One line: the event as JSON; or id, time, type, and everything else with its name.
fn line(id: &str, mut data: Map<String, Value>, as_json: bool) -> String {
    if as_json {
        if !id.is_empty() {
            data.insert("id".to_owned(), id.into());
        }
        return Value::Object(data).to_string();
    }
    let mut take = |name: &str| data.remove(name).map(|value| text_of(&value)).unwrap_or_default();
    let (at, kind) = (take("at"), take("type"));
    let rest = data.iter().filter(|(_, value)| !value.is_null());
    let rest = rest.map(|(name, value)| match (name.as_str(), value.as_str()) {
        ("queue", text @ Some(_)) => format!("queue={}", QueueName::from_api(text, None)),
        ("queue_base64", text @ Some(_)) => format!("queue={}", QueueName::from_api(None, text)),
        _ => format!("{name}={}", text_of(value)),
    });
    let cells = [id.to_owned(), at, kind].into_iter().chain(rest);
    cells.map(|cell| escape(&cell)).collect::<Vec<_>>().join("\t")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line() {
        let text = r#"{"type":"dead","at":"T","job":7,"code":"a\tb","run_at":null}"#;
        let data: Map<String, Value> = serde_json::from_str(text).unwrap();
        assert_eq!(line("3.1", data.clone(), false), "3.1\tT\tdead\tcode=a\\tb\tjob=7");
        let named: Map<String, Value> =
            serde_json::from_str(r#"{"type":"submitted","at":"T","queue_base64":"/1w="}"#).unwrap();
        assert_eq!(line("3.2", named, false), "3.2\tT\tsubmitted\tqueue=\\xff\\\\");
        let json: Value = serde_json::from_str(&line("3.1", data, true)).unwrap();
        assert_eq!((&json["id"], &json["job"]), (&"3.1".into(), &7.into()));
    }
}
