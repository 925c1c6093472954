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
    let targets_or_all = || (!arguments.is_empty()).then(|| json!({ "targets": arguments }));
    let (kind, data, show) = match (name.as_str(), is_master) {
        ("list-targets", false) => ("status", none(arguments)?, Show::Targets),
        ("status", false) => ("status", none(arguments)?, Show::WorkerStatus),
        ("list-workers", true) => ("status", poll_workers(arguments)?, Show::Workers),
        ("status", true) => ("status", poll_workers(arguments)?, Show::MasterStatus),
        ("memory-usage", _) => ("status", none(arguments)?, Show::Memory),
        ("poll", false) => ("poll", targets(arguments)?, Show::Text),
        ("poke", true) => ("poke", targets(arguments)?, Show::Text),
        ("pause", _) => ("pause", targets_or_all(), Show::Text),
        ("continue", _) => ("continue", targets_or_all(), Show::Text),
        ("add-target", false) => ("add-target", target_concurrency(arguments)?, Show::Text),
        ("set-target-concurrency", false) => {
            ("set-target-concurrency", target_concurrency(arguments)?, Show::Text)
        }
        ("remove-target", false) => {
            let [target] = arguments else { return Err(WRONG_NUMBER.to_owned()) };
            ("remove-target", Some(json!({ "target": target })), Show::Text)
        }
        ("run-manual", false) => {
            ("run-manual", Some(json!({ "ids": ids(arguments)? })), Show::Results)
        }
        ("run-manual", true) => {
            let (target, ids) = target_ids(arguments)?;
            let job = |id: &i64| json!({ "id": id, "target": target });
            ("run-manual", jobs(ids.iter().map(job).collect::<Vec<_>>()), Show::Results)
        }
        ("send-signal", false) => {
            let (signal, rest) = signal_to(arguments)?;
            let job = |id: i64| (id.to_string(), json!(signal));
            let each: serde_json::Map<_, _> = ids(rest)?.into_iter().map(job).collect();
            ("send-signal", jobs(each), Show::Signals)
        }
        ("send-signal", true) => {
            let (signal, rest) = signal_to(arguments)?;
            let (target, ids) = target_ids(rest)?;
            let job = |id: &i64| json!({ "id": id, "signal": signal, "target": target });
            ("send-signal", jobs(ids.iter().map(job).collect::<Vec<_>>()), Show::Signals)
        }
        _ => return Err(format!("Unsupported command: '{name}'")),
    };
    Ok(Command { kind, data, show })
}

const WRONG_NUMBER: &str = "Invalid number of arguments.";

fn none(arguments: &[String]) -> Result<Option<Value>, String> {
    if arguments.is_empty() { Ok(None) } else { Err(WRONG_NUMBER.to_owned()) }
}

fn poll_workers(arguments: &[String]) -> Result<Option<Value>, String> {
    none(arguments).map(|_| Some(json!({ "poll_workers": true })))
}

fn jobs(jobs: impl Into<Value>) -> Option<Value> {
    Some(json!({ "jobs": jobs.into() }))
}

fn targets(arguments: &[String]) -> Result<Option<Value>, String> {
    if arguments.is_empty() {
        return Err("No targets specified.".to_owned());
    }
    Ok(Some(json!({ "targets": arguments })))
}

fn target_concurrency(arguments: &[String]) -> Result<Option<Value>, String> {
    let [target, concurrency] = arguments else { return Err(WRONG_NUMBER.to_owned()) };
    let number: Result<i64, _> = concurrency.parse();
    let number = number.map_err(|_| "'concurrency' must be a number.".to_owned())?;
    Ok(Some(json!({ "target": target, "concurrency": number })))
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
