//! `spindle add --lines`: one job per line, with many requests under way.

use std::{
    collections::VecDeque,
    fs::File,
    io::{self, BufRead, BufReader, Read, Write},
    path::Path,
    time::Duration,
};

use anyhow::{Context, anyhow};
use bytes::{Bytes, BytesMut};
use spindle_workq::{
    client::Client,
    wire::{ReplyKind, Request, Uuid},
};

use super::{
    add::{new_job, write_id},
    payload::{block_bytes_max, fit},
    progress::Progress,
    server::Server,
};
use crate::{cli::AddArgs, exit::Code};

/// Requests that are sent in one write.
const BATCH_JOBS: usize = 128;
/// A batch is sent when it has so many bytes.
const BATCH_BYTES: usize = 256 * 1024;
/// Answers that may be outstanding: two batches, so that the server always has one to work on.
const UNANSWERED_MAX: usize = 2 * BATCH_JOBS;

/// Adds a job for each line and prints the ids in the lines' order.
///
/// Stops at the first line that is refused. All ids printed until then are jobs the server has.
pub fn add_lines(args: &AddArgs, path: &Path) -> anyhow::Result<Code> {
    let is_stdin = path.as_os_str() == "-";
    let input: Box<dyn Read> = if is_stdin {
        Box::new(io::stdin().lock())
    } else {
        let told = || format!("cannot read lines from {}", path.display());
        Box::new(File::open(path).with_context(told)?)
    };
    let server = Server::of(&args.common);
    let client = server.connect()?;
    let mut pipeline = Pipeline {
        args,
        server,
        client,
        batch: BytesMut::new(),
        batched: 0,
        unanswered: VecDeque::new(),
        added: 0,
        progress: Progress::open_end(),
    };
    let outcome = pipeline.add_all(&mut BufReader::new(input));
    pipeline.progress.end();
    outcome.with_context(|| format!("stopped after {} jobs", pipeline.added))?;
    Ok(Code::Ok)
}

struct Pipeline<'a> {
    args: &'a AddArgs,
    server: Server,
    client: Client,
    /// Requests that wait to be sent together.
    batch: BytesMut,
    batched: usize,
    /// The ids whose answers are still to come, the batched ones included.
    unanswered: VecDeque<Uuid>,
    added: u64,
    progress: Progress,
}

impl Pipeline<'_> {
    fn add_all(&mut self, input: &mut impl BufRead) -> anyhow::Result<()> {
        while let Some(line) = self.next_line(input)? {
            let job = new_job(&self.args.queue, &self.args.options, line);
            self.unanswered.push_back(job.id);
            Request::Add(job).encode(&mut self.batch);
            self.batched += 1;
            if self.batched == BATCH_JOBS || self.batch.len() >= BATCH_BYTES {
                self.send()?;
                self.read_answers(UNANSWERED_MAX - BATCH_JOBS)?;
            }
        }
        self.send()?;
        self.read_answers(0)
    }

    /// The next line. When it will not do, what came before it is still added first.
    fn next_line(&mut self, input: &mut impl BufRead) -> anyhow::Result<Option<Bytes>> {
        let number = self.added + self.unanswered.len() as u64 + 1;
        let line = read_line(input).with_context(|| format!("line {number}"));
        if line.is_err() {
            self.send()?;
            self.read_answers(0)?;
        }
        line
    }

    fn send(&mut self) -> anyhow::Result<()> {
        self.batched = 0;
        let batch = self.batch.split();
        let sent = self.client.send_raw(&batch);
        sent.map_err(|error| self.server.told(error, "add"))
    }

    /// Reads answers until at most `unanswered_max` are still to come, and prints the ids of the
    /// jobs that the server has.
    fn read_answers(&mut self, unanswered_max: usize) -> anyhow::Result<()> {
        let mut refused = None;
        let mut ids = Vec::new();
        // After a refusal the rest of the answers is awaited: their jobs are there.
        while self.unanswered.len() > unanswered_max || refused.is_some() {
            let Some(id) = self.unanswered.pop_front() else { break };
            match self.client.read_reply(ReplyKind::Ok, Duration::ZERO) {
                Ok(_) => {
                    self.added += 1;
                    write_id(&mut ids, &self.args.common, &self.args.queue, id)?;
                }
                Err(error) => {
                    let is_answer = error.is_answer();
                    let told = self.server.told(error, &format!("job {id}"));
                    refused.get_or_insert(told);
                    if !is_answer {
                        break;
                    }
                }
            }
        }
        self.progress.at(self.added);
        self.progress.aside(|| io::stdout().lock().write_all(&ids))?;
        refused.map_or(Ok(()), Err)
    }
}

/// The bytes up to the next line end, without it.
fn read_line(input: &mut impl BufRead) -> anyhow::Result<Option<Bytes>> {
    let mut line = Vec::new();
    // Room for the line end and for a byte too many.
    let mut limited = input.take(block_bytes_max() as u64 + 2);
    if limited.read_until(b'\n', &mut line).map_err(|error| anyhow!(error))? == 0 {
        return Ok(None);
    }
    if line.ends_with(b"\n") {
        line.pop();
    }
    fit(line.into()).map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_what_stands_before_its_end() {
        let mut input: &[u8] = b"a\n\nb\r\nlast";
        let mut lines = Vec::new();
        while let Some(line) = read_line(&mut input).unwrap() {
            lines.push(line);
        }
        assert_eq!(lines, ["a", "", "b\r", "last"].map(Bytes::from));
    }

    #[test]
    fn a_line_longer_than_a_job_carries_is_refused() {
        let mut line = vec![b'x'; block_bytes_max()];
        line.push(b'\n');
        assert!(read_line(&mut line.as_slice()).is_ok());
        line.insert(0, b'x');
        assert!(read_line(&mut line.as_slice()).is_err());
    }
}
