//! What the words on the command line mean.

use serde_json::{Value, json};

use crate::launcher::SignalNumber;

/// How the answer to a command is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Show {
    /// A text, `ok` most likely.
    Text,
    /// Targets of a worker.
    Targets,
    /// Workers of a master.
    Workers,
    /// Memory of a daemon.
    Memory,
    /// All of a worker's status.
    WorkerStatus,
    /// All of a master's status.
    MasterStatus,
    /// Results of jobs.
    Results,
    /// Which jobs got a signal.
    Signals,
}

/// One request to make.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Command {
    pub(super) kind: &'static str,
    pub(super) data: Option<Value>,
    pub(super) show: Show,
}

impl Command {
    fn new(kind: &'static str, data: Option<Value>, show: Show) -> Self {
        Self { kind, data, show }
    }

    /// Whether asking again changes nothing.
    pub(super) fn is_question(&self) -> bool {
        self.kind == "status"
    }

    /// Whether its answer takes as long as jobs take.
    pub(super) fn waits_for_jobs(&self) -> bool {
        self.kind == "run-manual"
    }
}

/// The command that these words are, or what is wrong with them, in the original's words where it
/// has some.
pub(super) fn parse(words: &[String], is_master: bool) -> Result<Command, String> {
    let (name, arguments) = words.split_first().ok_or("No command specified.")?;
    let command = if is_master { for_master(name, arguments) } else { for_worker(name, arguments) };
    command.unwrap_or_else(|| for_both(name, arguments))
}

type Parsed = Option<Result<Command, String>>;

fn for_worker(name: &str, arguments: &[String]) -> Parsed {
    let text = |kind, data: Result<Value, String>| {
        Some(data.map(|data| Command::new(kind, Some(data), Show::Text)))
    };
    match name {
        "list-targets" => {
            Some(no_arguments(arguments, Command::new("status", None, Show::Targets)))
        }
        "status" => Some(no_arguments(arguments, Command::new("status", None, Show::WorkerStatus))),
        "poll" => text("poll", targets(arguments)),
        "add-target" => text("add-target", target_concurrency(arguments)),
        "set-target-concurrency" => text("set-target-concurrency", target_concurrency(arguments)),
        "remove-target" => text(
            "remove-target",
            match arguments {
                [target] => Ok(json!({ "target": target })),
                _ => Err(WRONG_NUMBER.to_owned()),
            },
        ),
        "run-manual" => Some(
            ids(arguments)
                .map(|ids| Command::new("run-manual", Some(json!({ "ids": ids })), Show::Results)),
        ),
        "send-signal" => Some(signal_to(arguments).and_then(|(signal, rest)| {
            let jobs: serde_json::Map<String, Value> =
                ids(rest)?.iter().map(|id| (id.to_string(), json!(signal))).collect();
            Ok(Command::new("send-signal", Some(json!({ "jobs": jobs })), Show::Signals))
        })),
        _ => None,
    }
}

fn for_master(name: &str, arguments: &[String]) -> Parsed {
    let polling = || Some(json!({ "poll_workers": true }));
    match name {
        "list-workers" => {
            Some(no_arguments(arguments, Command::new("status", polling(), Show::Workers)))
        }
        "status" => {
            Some(no_arguments(arguments, Command::new("status", polling(), Show::MasterStatus)))
        }
        "poke" => Some(targets(arguments).map(|data| Command::new("poke", Some(data), Show::Text))),
        "run-manual" => Some(target_ids(arguments).map(|(target, ids)| {
            let job = |id: &i64| json!({ "id": id, "target": target });
            let jobs: Vec<Value> = ids.iter().map(job).collect();
            Command::new("run-manual", Some(json!({ "jobs": jobs })), Show::Results)
        })),
        "send-signal" => Some(signal_to(arguments).and_then(|(signal, rest)| {
            let (target, ids) = target_ids(rest)?;
            let job = |id: &i64| json!({ "id": id, "signal": signal, "target": target });
            let jobs: Vec<Value> = ids.iter().map(job).collect();
            Ok(Command::new("send-signal", Some(json!({ "jobs": jobs })), Show::Signals))
        })),
        _ => None,
    }
}

fn for_both(name: &str, arguments: &[String]) -> Result<Command, String> {
    let some_or_all = (!arguments.is_empty()).then(|| json!({ "targets": arguments }));
    match name {
        "memory-usage" => no_arguments(arguments, Command::new("status", None, Show::Memory)),
        "pause" => Ok(Command::new("pause", some_or_all, Show::Text)),
        "continue" => Ok(Command::new("continue", some_or_all, Show::Text)),
        _ => Err(format!("Unsupported command: '{name}'")),
    }
}

const WRONG_NUMBER: &str = "Invalid number of arguments.";

fn no_arguments(arguments: &[String], command: Command) -> Result<Command, String> {
    if arguments.is_empty() { Ok(command) } else { Err(WRONG_NUMBER.to_owned()) }
}

fn targets(arguments: &[String]) -> Result<Value, String> {
    if arguments.is_empty() {
        return Err("No targets specified.".to_owned());
    }
    Ok(json!({ "targets": arguments }))
}

fn target_concurrency(arguments: &[String]) -> Result<Value, String> {
    let [target, concurrency] = arguments else { return Err(WRONG_NUMBER.to_owned()) };
    let concurrency: i64 =
        concurrency.parse().map_err(|_| "'concurrency' must be a number.".to_owned())?;
    Ok(json!({ "target": target, "concurrency": concurrency }))
}

fn ids(arguments: &[String]) -> Result<Vec<i64>, String> {
    if arguments.is_empty() {
        return Err("No job ids specified.".to_owned());
    }
    let id = |word: &String| word.parse().map_err(|_| format!("'{word}' is not a job id."));
    arguments.iter().map(id).collect()
}

fn target_ids(arguments: &[String]) -> Result<(&String, Vec<i64>), String> {
    let (target, rest) = arguments.split_first().ok_or("No target specified.")?;
    Ok((target, ids(rest)?))
}

/// A signal by number or name. The request has the number: the original's master takes no names.
fn signal_to(arguments: &[String]) -> Result<(i32, &[String]), String> {
    let (word, rest) = arguments.split_first().ok_or("No signal specified.")?;
    let number = SignalNumber::number_of(word)
        .ok_or_else(|| format!("'{word}' is not a signal; write TERM, SIGTERM or 15."))?;
    Ok((number, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(words: &str, is_master: bool) -> Result<(&'static str, Value), String> {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let command = parse(&words, is_master)?;
        Ok((command.kind, command.data.unwrap_or_default()))
    }

    #[test]
    fn commands_become_requests() {
        for (words, is_master, kind, data) in [
            ("list-targets", false, "status", json!(null)),
            ("poll low normal", false, "poll", json!({"targets": ["low", "normal"]})),
            ("pause", false, "pause", json!(null)),
            ("continue low", true, "continue", json!({"targets": ["low"]})),
            ("add-target a 3", false, "add-target", json!({"target": "a", "concurrency": 3})),
            ("remove-target a", false, "remove-target", json!({"target": "a"})),
            ("run-manual 5 6", false, "run-manual", json!({"ids": [5, 6]})),
            ("run-manual t 5", true, "run-manual", json!({"jobs": [{"id": 5, "target": "t"}]})),
            ("send-signal term 5", false, "send-signal", json!({"jobs": {"5": 15}})),
            (
                "send-signal KILL t 5",
                true,
                "send-signal",
                json!({"jobs": [{"id": 5, "signal": 9, "target": "t"}]}),
            ),
            (
                "send-signal 9 t 5",
                true,
                "send-signal",
                json!({"jobs": [{"id": 5, "signal": 9, "target": "t"}]}),
            ),
            ("list-workers", true, "status", json!({"poll_workers": true})),
            ("memory-usage", true, "status", json!(null)),
        ] {
            assert_eq!(parsed(words, is_master), Ok((kind, data)), "{words}");
        }
    }

    #[test]
    fn wrong_words_are_told_with_the_originals_texts() {
        for (words, is_master, expected) in [
            ("poll", false, "No targets specified."),
            ("poke", true, "No targets specified."),
            ("set-target-concurrency low", false, "Invalid number of arguments."),
            ("set-target-concurrency low x", false, "'concurrency' must be a number."),
            ("list-targets", true, "Unsupported command: 'list-targets'"),
            ("poke low", false, "Unsupported command: 'poke'"),
            ("run-manual", false, "No job ids specified."),
            ("run-manual x", false, "'x' is not a job id."),
            ("send-signal TREM 5", false, "'TREM' is not a signal; write TERM, SIGTERM or 15."),
            ("send-signal 65 t 5", true, "'65' is not a signal; write TERM, SIGTERM or 15."),
        ] {
            assert_eq!(parsed(words, is_master), Err(expected.to_owned()), "{words}");
        }
    }
}
