//! A move under way: batches of jobs go from the other server to this one.

use std::io;

use anyhow::anyhow;

use super::{Other, Rest, Route, Taken, job::Job};
use crate::{
    client::{
        batch::{self, Answer, Problem},
        native::Native,
        progress::Progress,
    },
    output::{escape, print_counts},
};

/// A request has 16 MiB at most; some of that is for what stands around the jobs.
const REQUEST_BYTES_MAX: usize = 15 * 1024 * 1024;
/// A job that every server refuses: sent to learn whether jobs could be submitted.
const NOTHING: &str = "{}";

/// What was done.
#[derive(Default)]
pub struct Done {
    /// Jobs that were made here.
    imported: u64,
    /// Jobs that an earlier run had made here already.
    existing: u64,
    /// Jobs that the server here refused; they stay there.
    refused: u64,
    /// Jobs that were gone there when they were to be deleted: somebody may have worked them.
    gone: u64,
    /// What is there now.
    rest: Rest,
}

impl Done {
    /// Whether all that could go over has done so.
    pub fn is_whole(&self) -> bool {
        self.refused == 0 && self.rest.unreadable == 0
    }

    /// Prints the counts.
    pub fn print(&self, as_json: bool) -> io::Result<()> {
        let counts = [
            ("imported", self.imported),
            ("existing", self.existing),
            ("refused", self.refused),
            ("unreadable", self.rest.unreadable),
            ("gone", self.gone),
            ("at_work", self.rest.at_work),
            ("left", self.rest.left),
        ];
        print_counts(&counts, as_json)
    }
}

/// A move under way.
pub struct Moving {
    native: Native,
    skip_refused: bool,
    progress: Progress,
    pub done: Done,
}

/// What became of the jobs of a batch.
struct Sorted<H> {
    here: Vec<Taken<H>>,
    refused: Vec<Taken<H>>,
}

impl Moving {
    pub fn new(native: Native, skip_refused: bool) -> Self {
        Self { native, skip_refused, progress: Progress::open_end(), done: Done::default() }
    }

    /// Moves all that waits there.
    pub fn all_of<O: Other>(&mut self, other: &mut O) -> anyhow::Result<()> {
        // Checked before anything is taken there.
        batch::send(&self.native, O::ROUTE.path(), &[NOTHING.to_owned()])?;
        let moved = self.batches_of(other);
        self.progress.end();
        moved?;
        self.done.rest = other.rest()?;
        self.done.rest.notes.iter().for_each(|note| eprintln!("{note}"));
        Ok(())
    }

    fn batches_of<O: Other>(&mut self, other: &mut O) -> anyhow::Result<()> {
        loop {
            let jobs = other.take(&self.progress)?;
            if jobs.is_empty() {
                return Ok(());
            }
            let (answers, failure) = self.submit(O::ROUTE, &jobs);
            // It is not known whether jobs without an answer are here: the next run finds out.
            let Sorted { here, refused } = self.sorted(O::ROUTE, jobs, answers);
            self.done.gone += other.remove(&here)?;
            self.done.refused += refused.len() as u64;
            self.progress.at(self.done.imported + self.done.existing);
            let count = refused.len();
            other.leave(refused)?;
            if let Some(failure) = failure {
                return Err(failure);
            }
            if count > 0 && !self.skip_refused {
                return Err(anyhow!(
                    "{count} jobs were refused and stay where they are; fix what is listed above \
                     and run it again: it goes on with them, or passes over them with \
                     --skip-refused"
                ));
            }
        }
    }

    /// Counts the answers and says why jobs were refused.
    fn sorted<H>(&mut self, route: Route, jobs: Vec<Taken<H>>, answers: Vec<Answer>) -> Sorted<H> {
        let mut sorted = Sorted { here: vec![], refused: vec![] };
        for (taken, answer) in jobs.into_iter().zip(answers) {
            let why = match answer {
                Answer::Here { existing: false } => {
                    self.done.imported += 1;
                    sorted.here.push(taken);
                    continue;
                }
                Answer::Here { existing: true } => None,
                Answer::Refused { problem } if route.is_here_by(&problem) => None,
                Answer::Refused { problem } => Some(problem.detail),
                Answer::Skipped { skipped } => Some(format!("it is {skipped}")),
            };
            if let Some(why) = why {
                let job = escape(&taken.shown);
                self.progress.print(format!("job {job}: the server refused: {why}"));
                sorted.refused.push(taken);
            } else {
                self.done.existing += 1;
                sorted.here.push(taken);
            }
        }
        sorted
    }

    /// Submits jobs, in as many requests as they need. Returns what became of each, once that is on
    /// disk, and why there is no answer for the last ones.
    fn submit<H>(&self, route: Route, jobs: &[Taken<H>]) -> (Vec<Answer>, Option<anyhow::Error>) {
        let mut answers = vec![];
        let mut request = Request::default();
        for taken in jobs {
            let text = taken.job.to_json().to_string();
            let is_too_long = text.len() > REQUEST_BYTES_MAX;
            if (is_too_long || request.is_full_with(&text))
                && let Err(error) = request.send(&self.native, route, &mut answers)
            {
                return (answers, Some(error));
            }
            if is_too_long {
                answers.push(too_long(&taken.job));
            } else {
                request.add(text);
            }
        }
        let failure = request.send(&self.native, route, &mut answers).err();
        (answers, failure)
    }
}

fn too_long(job: &Job) -> Answer {
    let detail = format!(
        "a payload of {} bytes is too long for a request to the API, which has 16 MiB at most",
        job.payload.len()
    );
    Answer::Refused { problem: Problem { code: "too_large".to_owned(), detail } }
}

/// Jobs that go in one request.
#[derive(Default)]
struct Request {
    jobs: Vec<String>,
    bytes: usize,
}

impl Request {
    fn is_full_with(&self, job: &str) -> bool {
        self.bytes + job.len() > REQUEST_BYTES_MAX
    }

    fn add(&mut self, job: String) {
        self.bytes += job.len() + 1;
        self.jobs.push(job);
    }

    fn send(
        &mut self,
        native: &Native,
        route: Route,
        answers: &mut Vec<Answer>,
    ) -> anyhow::Result<()> {
        let Self { jobs, .. } = std::mem::take(self);
        answers.extend(batch::send(native, route.path(), &jobs)?);
        Ok(())
    }
}
