//! `spindle add --lines`: one job per line, many in one request.

use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
    path::Path,
};

use anyhow::{Context, anyhow};
use bytes::Bytes;

use super::{
    add::{self, new_job, write_id},
    payload::fit,
    progress::Progress,
    server::Server,
    session::{NewJob, Session},
};
use crate::{cli::AddArgs, exit::Code, output::grouped};

/// Jobs that are sent together.
const BATCH_JOBS: usize = 500;
/// Fewer are sent together when their payloads have so many bytes.
const BATCH_BYTES: usize = 1 << 20;

/// Adds a job for each line and prints the ids in the lines' order.
///
/// Stops after the first batch in which one is refused. All ids printed are jobs the server has.
pub fn add_lines(args: &AddArgs, path: &Path) -> anyhow::Result<Code> {
    let is_stdin = path.as_os_str() == "-";
    let input: Box<dyn Read> = if is_stdin {
        Box::new(io::stdin().lock())
    } else {
        let message = || format!("cannot read lines from {}", path.display());
        Box::new(File::open(path).with_context(message)?)
    };
    let server = Server::of(&args.common)?;
    let session = server.open()?;
    let progress = Progress::open_end();
    let mut lines =
        Lines { args, server, session, batch: Vec::new(), added: 0, blank: 0, progress };
    let outcome = lines.add_all(&mut BufReader::new(input));
    lines.progress.end();
    outcome.with_context(|| format!("stopped after {} jobs", lines.added))?;
    if lines.blank > 0 {
        let lines_are = if lines.blank == 1 { "line is" } else { "lines are" };
        eprintln!("{} blank {lines_are} skipped", grouped(lines.blank));
    }
    Ok(Code::Ok)
}

struct Lines<'a> {
    args: &'a AddArgs,
    server: Server,
    session: Box<dyn Session>,
    /// Jobs that wait to be sent together.
    batch: Vec<NewJob>,
    added: u64,
    /// Lines with nothing on them: they are no jobs.
    blank: u64,
    progress: Progress,
}

impl Lines<'_> {
    fn add_all(&mut self, input: &mut impl BufRead) -> anyhow::Result<()> {
        let mut batch_bytes = 0;
        while let Some(line) = self.next_line(input)? {
            if is_blank(&line) {
                self.blank += 1;
                continue;
            }
            batch_bytes += line.len();
            self.batch.push(new_job(&self.args.queue, &self.args.options, line));
            if self.batch.len() == BATCH_JOBS || batch_bytes >= BATCH_BYTES {
                self.send()?;
                batch_bytes = 0;
            }
        }
        self.send()
    }

    /// The next line. If it cannot be a job, the jobs before it are added first.
    fn next_line(&mut self, input: &mut impl BufRead) -> anyhow::Result<Option<Bytes>> {
        let number = self.added + self.blank + self.batch.len() as u64 + 1;
        let line = read_line(input, self.server.payload_bytes_max())
            .with_context(|| format!("line {number}"));
        if line.is_err() {
            self.send()?;
        }
        line
    }

    /// Adds the batch and prints the ids of the jobs that the server has.
    fn send(&mut self) -> anyhow::Result<()> {
        let batch = std::mem::take(&mut self.batch);
        if batch.is_empty() {
            return Ok(());
        }
        let answers = self.session.add_all(&batch);
        let answered = answers.len();
        let mut refused = None;
        let mut ids = Vec::new();
        for (job, answer) in batch.iter().zip(answers) {
            match answer {
                Ok(id) => {
                    self.added += 1;
                    write_id(&mut ids, &self.args.common, &job.queue, &id)?;
                }
                // The other jobs of the batch have been added all the same.
                Err(error) => {
                    refused.get_or_insert_with(|| add::refused(&self.server, error, job));
                }
            }
        }
        self.progress.at(self.added);
        self.progress.aside(|| io::stdout().lock().write_all(&ids))?;
        match refused {
            Some(error) => Err(error),
            None if answered < batch.len() => Err(anyhow!("the server left answers out")),
            None => Ok(()),
        }
    }
}

/// Nothing but a line end: that of other systems begins with a carriage return.
fn is_blank(line: &[u8]) -> bool {
    matches!(line, b"" | b"\r")
}

/// The bytes up to the next line end, without it.
fn read_line(input: &mut impl BufRead, bytes_max: usize) -> anyhow::Result<Option<Bytes>> {
    let mut line = Vec::new();
    // Room for the line end and for a byte too many.
    let mut limited = input.take(bytes_max as u64 + 2);
    if limited.read_until(b'\n', &mut line).map_err(|error| anyhow!(error))? == 0 {
        return Ok(None);
    }
    if line.ends_with(b"\n") {
        line.pop();
    }
    fit(line.into(), bytes_max).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_stands_before_its_end() {
        let mut input: &[u8] = b"a\n\nb\r\nlast";
        let mut lines = Vec::new();
        while let Some(line) = read_line(&mut input, 10).unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, ["a", "", "b\r", "last"].map(Bytes::from));
    }

    #[test]
    fn a_line_is_blank_if_nothing_but_its_end_is_on_it() {
        assert!(is_blank(b"") && is_blank(b"\r"));
        assert!(!is_blank(b" ") && !is_blank(b"\t\r") && !is_blank(b"\r\r") && !is_blank(b"x"));
    }

    #[test]
    fn a_line_longer_than_a_job_carries_is_refused() {
        let mut line = vec![b'x'; 10];
        line.push(b'\n');
        assert!(read_line(&mut line.as_slice(), 10).is_ok());
        line.insert(0, b'x');
        assert!(read_line(&mut line.as_slice(), 10).is_err());
    }
}
