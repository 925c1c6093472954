//! `spindle logs`: what a job's workers write, and how far they are.

use std::{
    io::{self, IsTerminal, Write},
    ops::ControlFlow,
};

use serde_json::{Map, Value};

use super::{follow::Followed, native::Native, view::text_of, web::Event};
use crate::{
    cli::LogsArgs,
    exit::Code,
    output::{escape, write_line},
};

/// Prints a job's output: the part that is kept, or with `--follow` all until the job has ended. With
/// `--follow`, the job's progress goes to standard error.
pub fn logs(args: &LogsArgs) -> anyhow::Result<Code> {
    let native = Native::of(&args.native)?;
    let path = format!("/api/v1/jobs/{}/events?follow={}", args.id, args.follow);
    let what = format!("job {}", args.id);
    let followed = Followed { native: &native, what: &what, path, goes_on: args.follow };
    let mut printer = Printer {
        as_json: args.native.json,
        with_news: args.follow,
        for_eyes: io::stdout().is_terminal(),
        at_begin: true,
    };
    followed.read(|event| printer.print(&event, &mut io::stdout().lock()))
}

/// How the job ended, as the exit code of `result` says it.
fn code_of(status: &str) -> Code {
    if status == "done" { Code::Ok } else { Code::JobFailed }
}

struct Printer {
    as_json: bool,
    /// Whether statuses and progress are shown, too.
    with_news: bool,
    /// The output is a terminal, so characters that would control it are escaped.
    for_eyes: bool,
    /// Whether the next output begins a line.
    at_begin: bool,
}

impl Printer {
    fn print(&mut self, event: &Event, out: &mut impl Write) -> anyhow::Result<ControlFlow<Code>> {
        let data: Map<String, Value> = serde_json::from_str(&event.data)?;
        let field = |name: &str| data.get(name).map(text_of).unwrap_or_default();
        let kind = field("type");
        if self.as_json && (self.with_news || kind == "output") {
            write_line(out, Value::Object(data.clone()))?;
        } else if kind == "output" {
            self.write(&field("text"), out)?;
        } else if self.with_news {
            self.end_line(out)?;
            eprintln!("{}", escape(&news(&kind, field)));
        }
        out.flush()?;
        Ok(match kind.as_str() {
            "ended" if self.with_news => ControlFlow::Break(code_of(&field("status"))),
            "gone" if self.with_news => ControlFlow::Break(Code::NotFound),
            _ => ControlFlow::Continue(()),
        })
    }

    fn write(&mut self, text: &str, out: &mut impl Write) -> io::Result<()> {
        if !text.is_empty() {
            self.at_begin = text.ends_with('\n');
        }
        if !self.for_eyes {
            return out.write_all(text.as_bytes());
        }
        let lines = text.split_inclusive('\n');
        lines.into_iter().try_for_each(|line| match line.strip_suffix('\n') {
            Some(line) => write_line(out, shown(line)),
            None => out.write_all(shown(line).as_bytes()),
        })
    }

    /// What is said between pieces of output begins a line of its own.
    fn end_line(&mut self, out: &mut impl Write) -> io::Result<()> {
        if self.for_eyes && !self.at_begin {
            self.at_begin = true;
            return write_line(out, "");
        }
        Ok(())
    }
}

/// A line as a terminal may have it.
fn shown(line: &str) -> String {
    let cells = line.strip_suffix('\r').unwrap_or(line).split('\t');
    cells.map(escape).collect::<Vec<_>>().join("\t")
}

/// What happened to the job, besides its output.
fn news(kind: &str, field: impl Fn(&str) -> String) -> String {
    match kind {
        "progress" => {
            let remaining = Some(field("remaining_s")).filter(|seconds| !seconds.is_empty());
            let remaining = remaining.map(|seconds| format!(", {seconds} s left"));
            let (done, all) = (field("numerator"), field("denominator"));
            format!("progress: {done} of {all}{}", remaining.unwrap_or_default())
        }
        "status" | "ended" => format!("status: {}", field("status")),
        _ => kind.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn printed(printer: &mut Printer, data: &str) -> (String, Option<Code>) {
        let event = Event { id: String::new(), data: data.to_owned() };
        let mut out = Vec::new();
        let code = match printer.print(&event, &mut out).unwrap() {
            ControlFlow::Break(code) => Some(code),
            ControlFlow::Continue(()) => None,
        };
        (String::from_utf8(out).unwrap(), code)
    }

    #[test]
    fn a_terminal_is_not_steered_by_output_and_programs_get_it_as_it_is() {
        let data = r#"{"type":"output","text":"a\tb\u001b[2J\r\nc"}"#;
        let mut printer =
            Printer { as_json: false, with_news: true, for_eyes: true, at_begin: true };
        assert_eq!(printed(&mut printer, data).0, "a\tb\\u{1b}[2J\nc");
        // News do not go on in a line of the output.
        assert_eq!(printed(&mut printer, r#"{"type":"status","status":"leased"}"#).0, "\n");
        printer.for_eyes = false;
        assert_eq!(printed(&mut printer, data).0, "a\tb\u{1b}[2J\r\nc");
    }

    #[test]
    fn the_end_of_a_followed_job_is_the_end_of_the_command() {
        let mut printer =
            Printer { as_json: false, with_news: true, for_eyes: false, at_begin: true };
        let dead = r#"{"type":"ended","status":"dead"}"#;
        for (data, code) in [
            (r#"{"type":"ended","status":"done"}"#, Code::Ok),
            (dead, Code::JobFailed),
            (r#"{"type":"gone"}"#, Code::NotFound),
        ] {
            assert_eq!(printed(&mut printer, data).1, Some(code));
        }
        printer.with_news = false;
        assert_eq!(printed(&mut printer, dead).1, None);
    }
}
