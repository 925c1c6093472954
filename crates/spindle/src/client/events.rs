//! `spindle events`: what happens on the server, as it happens or as it happened.

use std::{
    io::{self, Write},
    thread,
};

use serde_json::{Map, Value};

use super::{
    backoff::Backoff,
    native::Native,
    session::AskError,
    view::text_of,
    web::{Event, EventStream, encoded},
};
use crate::{
    cli::EventsArgs,
    exit::{Code, Failure},
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
    let mut printer = Printer { as_json: args.native.json, last: None };
    let mut backoff = Backoff::new();
    let mut was_connected = false;
    loop {
        let trouble = match native.http().events(&path, printer.last.as_deref()) {
            Ok(mut stream) => {
                (was_connected, backoff) = (true, Backoff::new());
                match printer.print_all(&mut stream)? {
                    None if !args.follow => return Ok(Code::Ok),
                    None => "the server ended the stream".to_owned(),
                    Some(trouble) => trouble.to_string(),
                }
            }
            Err(error) if was_connected && error.may_pass() => error.to_string(),
            Err(error) => return Err(native.explain(error, "events")),
        };
        if !args.follow {
            return Err(Failure::with(Code::Error, format!("events: {trouble}")));
        }
        let pause = backoff.next();
        eprintln!("events: {trouble}; connecting again in {pause:?}");
        thread::sleep(pause);
    }
}

/// What was printed.
struct Printer {
    as_json: bool,
    last: Option<String>,
}

impl Printer {
    /// Prints a stream to its end. What broke it, if it was not ended.
    fn print_all(&mut self, stream: &mut EventStream<'_>) -> anyhow::Result<Option<AskError>> {
        loop {
            match stream.next() {
                Ok(Some(event)) => self.print_one(event)?,
                Ok(None) => return Ok(None),
                Err(error) => return Ok(Some(error)),
            }
        }
    }

    fn print_one(&mut self, event: Event) -> anyhow::Result<()> {
        if !event.data.is_empty() {
            let data: Map<String, Value> = serde_json::from_str(&event.data)?;
            let mut out = io::stdout().lock();
            write_line(&mut out, line(&event.id, data, self.as_json))?;
            // Whoever reads along sees each at once.
            out.flush()?;
        }
        if !event.id.is_empty() {
            self.last = Some(event.id);
        }
        Ok(())
    }
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
