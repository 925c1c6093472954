//! `spindle import --from`: takes the waiting jobs out of a running server of another kind.
//!
//! Jobs go over in batches. A batch is taken there, so that no worker has it meanwhile; it is
//! submitted here, with an idempotency key for each job that says which one it was; and when it is on
//! disk here, it is deleted there. Whatever is killed in between, no job is lost: what was not
//! deleted is found again by the next run, and what is here already is known by its key.

mod beanstalkd;

use std::io;

use anyhow::anyhow;
use base64::{Engine, prelude::BASE64_STANDARD};
use serde::Deserialize;
use serde_json::{Value, json};

use self::beanstalkd::Beanstalkd;
use super::{
    batch::{self, Problem, Refusable},
    native::Native,
};
use crate::{
    cli::{ImportArgs, Source},
    exit::{Code, Failure},
    output::print_counts,
};

/// A server of another kind.
trait Other {
    /// Some jobs that wait there, those first that would be worked first. None: there are no more.
    /// Nobody else gets them until they are removed or the connection ends.
    fn take(&mut self) -> anyhow::Result<Vec<Taken>>;

    /// Deletes jobs there. How many of them were gone.
    fn remove(&mut self, jobs: &[Taken]) -> anyhow::Result<u64>;

    /// Jobs that stay as they are.
    fn leave(&mut self, jobs: &[Taken]);

    /// How many jobs workers have there: they come back if their workers fail.
    fn at_work(&mut self) -> anyhow::Result<u64>;
}

/// A job of another server.
struct Taken {
    /// Which one it is there.
    id: u64,
    /// Which one it is among all jobs of all servers.
    key: String,
    queue: Vec<u8>,
    payload: Vec<u8>,
    priority: i64,
    ttr_ms: u64,
    stage: Stage,
}

/// Where a job stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    Ready,
    /// It waits for its time.
    Scheduled {
        run_at_ms: i64,
    },
    /// Somebody put it aside.
    Parked,
}

impl Taken {
    /// As the API takes jobs.
    fn to_json(&self) -> Value {
        let mut job = json!({
            "queue_base64": BASE64_STANDARD.encode(&self.queue),
            "payload_base64": BASE64_STANDARD.encode(&self.payload),
            "priority": self.priority,
            "ttr_ms": self.ttr_ms,
            "idempotency_key": self.key,
        });
        match self.stage {
            Stage::Ready => {}
            Stage::Scheduled { run_at_ms } => {
                let run_at = jiff::Timestamp::from_millisecond(run_at_ms).unwrap_or_default();
                job["run_at"] = run_at.to_string().into();
            }
            Stage::Parked => job["parked"] = true.into(),
        }
        job
    }
}

/// Runs `spindle import --from`.
pub fn take_over(args: &ImportArgs, source: Source) -> anyhow::Result<Code> {
    let native = Native::of(&args.native)?;
    let Some(address) = args.file.to_str() else {
        return Err(Failure::with(Code::Usage, "the address is HOST:PORT".to_owned()));
    };
    let mut other = match source {
        Source::Beanstalkd => Beanstalkd::connect(address)?,
    };
    let mut moving = Moving { native, skip_refused: args.skip_refused, done: Done::default() };
    let moved = moving.all_of(&mut other);
    if moved.is_ok() {
        moving.done.at_work = other.at_work()?;
    }
    moving.done.print(args.native.json)?;
    moved?;
    Ok(if moving.done.refused > 0 { Code::Error } else { Code::Ok })
}

/// What was done.
#[derive(Default)]
struct Done {
    /// Jobs that were made here.
    imported: u64,
    /// Jobs that an earlier run had made here already.
    existing: u64,
    /// Jobs that the server here refused; they stay there.
    refused: u64,
    /// Jobs that were gone there when they were to be deleted: somebody may have worked them.
    gone: u64,
    /// Jobs that stay there because workers have them.
    at_work: u64,
}

impl Done {
    fn print(&self, as_json: bool) -> io::Result<()> {
        let counts = [
            ("imported", self.imported),
            ("existing", self.existing),
            ("refused", self.refused),
            ("gone", self.gone),
            ("at_work", self.at_work),
        ];
        print_counts(&counts, as_json)
    }
}

/// A move under way.
struct Moving {
    native: Native,
    skip_refused: bool,
    done: Done,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Answer {
    Here { existing: bool },
    Refused { problem: Problem },
}

impl Refusable for Answer {
    fn problem(&self) -> Option<&Problem> {
        match self {
            Self::Refused { problem } => Some(problem),
            Self::Here { .. } => None,
        }
    }
}

impl Moving {
    fn all_of(&mut self, other: &mut impl Other) -> anyhow::Result<()> {
        loop {
            let jobs = other.take()?;
            if jobs.is_empty() {
                return Ok(());
            }
            let answers = self.submit(&jobs)?;
            let (mut here, mut refused) = (vec![], vec![]);
            for (job, answer) in jobs.into_iter().zip(answers) {
                match answer {
                    Answer::Here { existing: true } => {
                        self.done.existing += 1;
                        here.push(job);
                    }
                    Answer::Here { existing: false } => {
                        self.done.imported += 1;
                        here.push(job);
                    }
                    // The same job, whose time is reckoned anew at each run.
                    Answer::Refused { problem } if problem.code == "idempotency_key_reused" => {
                        self.done.existing += 1;
                        here.push(job);
                    }
                    Answer::Refused { problem } => {
                        eprintln!("job {}: the server refused: {}", job.id, problem.detail);
                        refused.push(job);
                    }
                }
            }
            self.done.gone += other.remove(&here)?;
            self.done.refused += refused.len() as u64;
            if !refused.is_empty() && !self.skip_refused {
                return Err(anyhow!(
                    "{} jobs were refused and stay where they are; fix what is listed above and run \
                     it again: it goes on with them, or passes over them with --skip-refused",
                    refused.len()
                ));
            }
            other.leave(&refused);
        }
    }

    /// Submits jobs: what becomes of each, once that is on disk.
    fn submit(&self, jobs: &[Taken]) -> anyhow::Result<Vec<Answer>> {
        let jobs: Vec<Value> = jobs.iter().map(Taken::to_json).collect();
        let body = json!({ "jobs": jobs }).to_string();
        batch::send(&self.native, "/api/v1/jobs/batch", &body, jobs.len())
    }
}
