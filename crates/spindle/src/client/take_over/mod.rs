//! `spindle import --from`: takes the waiting jobs out of a running server of another kind.
//!
//! Jobs go over in batches. A batch is taken from the other server, so that no worker has it
//! meanwhile; it is submitted to this server, each job under a name made from its identity there;
//! and when it is on disk here, it is deleted there. Whichever program is killed in between, no job
//! is lost: the next run finds jobs again that were not deleted there, and recognizes those that are
//! here already by their names.
//!
//! - `moving`: the move itself, and its counts
//! - `job`: a job as this server takes it
//! - `beanstalkd`, `gearman`, `workq`, `redis` with `sidekiq` and `bullmq`: the other servers;
//!   `dial`: connections to them

mod beanstalkd;
mod dial;
mod gearman;
mod job;
mod moving;
mod redis;
mod workq;

use std::io;

use serde_json::json;

use self::{
    beanstalkd::Beanstalkd,
    gearman::Gearman,
    job::Job,
    moving::Moving,
    redis::{BullMq, Redis, Sidekiq},
    workq::Workq,
};
use super::{batch::Problem, native::Native, progress::Progress};
use crate::{
    cli::{FromArgs, ImportArgs, Source},
    exit::{Code, Failure},
    output::{Rows, grouped, write_json},
};

/// A server of another kind.
trait Other {
    /// Identifies a job at that server.
    type Handle;

    /// How its jobs come here.
    const ROUTE: Route;

    /// How many jobs wait there, by queue and kind.
    fn waiting(&mut self) -> anyhow::Result<Vec<Waiting>>;

    /// Some jobs that wait there, in the order in which they would be worked. None: there are no
    /// more. No worker gets them until they are removed or left. Entries that cannot be read are
    /// reported.
    fn take(&mut self, progress: &Progress) -> anyhow::Result<Vec<Taken<Self::Handle>>>;

    /// Deletes jobs there. Returns how many of them were gone.
    fn remove(&mut self, jobs: &[Taken<Self::Handle>]) -> anyhow::Result<u64>;

    /// Leaves jobs there as they are. They are not taken again.
    fn leave(&mut self, jobs: Vec<Taken<Self::Handle>>) -> anyhow::Result<()>;

    /// What is there at the end.
    fn rest(&mut self) -> anyhow::Result<Rest>;
}

/// How jobs come here.
#[derive(Clone, Copy)]
enum Route {
    /// As jobs of the API.
    Submit,
    /// In the name of a door. A job whose name or key another job has here is that job.
    Import,
}

impl Route {
    fn path(self) -> &'static str {
        match self {
            Self::Submit => "/api/v1/jobs/batch",
            Self::Import => "/api/v1/jobs/import",
        }
    }

    /// Whether a job is refused because it is here already.
    fn is_here_by(self, problem: &Problem) -> bool {
        match self {
            // The job has changed since: its time to run, or what the other server notes in it.
            Self::Submit => problem.code == "idempotency_key_reused",
            Self::Import => problem.code == "key_taken",
        }
    }
}

/// Jobs of a queue that wait there.
struct Waiting {
    queue: String,
    /// The other server's word for where they stand.
    state: &'static str,
    jobs: u64,
}

/// What a server has at the end.
#[derive(Default)]
struct Rest {
    /// Jobs that workers have: they come back if their workers fail.
    at_work: u64,
    /// Jobs that wait there still.
    left: u64,
    /// Entries that are no jobs.
    unreadable: u64,
    /// Why they are there, for people.
    notes: Vec<String>,
}

/// Why so many jobs are there still.
fn left_there(why: &str, jobs: u64) -> String {
    format!("left there, {why}: {}", grouped(jobs))
}

/// A job that is taken, so that no worker gets it.
struct Taken<H> {
    handle: H,
    /// What people call it.
    shown: String,
    job: Job,
}

/// Runs `spindle import --from`.
pub fn take_over(args: &ImportArgs, source: Source) -> anyhow::Result<Code> {
    let Some(address) = args.file.to_str() else {
        return Err(Failure::with(Code::Usage, "the address is HOST:PORT".to_owned()));
    };
    let queues = &args.other.queue;
    if !matches!(source, Source::RedisSidekiq | Source::RedisBullmq) {
        args.other.refuse_redis_only()?;
    }
    match source {
        Source::Beanstalkd => run(args, &mut Beanstalkd::connect(address, queues)?),
        Source::Gearman => run(args, &mut Gearman::connect(address, queues)?),
        Source::Workq => run(args, &mut Workq::connect(address, queues)?),
        Source::RedisSidekiq => run(args, &mut Redis::<Sidekiq>::connect(address, &args.other)?),
        Source::RedisBullmq => run(args, &mut Redis::<BullMq>::connect(address, &args.other)?),
    }
}

impl FromArgs {
    fn refuse_redis_only(&self) -> anyhow::Result<()> {
        let given = [
            ("--from-prefix", self.from_prefix.is_some()),
            ("--from-password-file", self.from_password_file.is_some()),
            ("--from-ca-file", self.from_ca_file.is_some()),
        ];
        match given.iter().find(|(_, is_given)| *is_given) {
            Some((name, _)) => {
                Err(Failure::with(Code::Usage, format!("{name} is for servers in Redis")))
            }
            None => Ok(()),
        }
    }
}

fn run(args: &ImportArgs, other: &mut impl Other) -> anyhow::Result<Code> {
    if args.other.dry_run {
        print_waiting(&other.waiting()?, &other.rest()?, args.native.json)?;
        return Ok(Code::Ok);
    }
    let mut moving = Moving::new(Native::of(&args.native)?, args.skip_refused);
    let moved = moving.all_of(other);
    moving.done.print(args.native.json)?;
    moved?;
    Ok(if moving.done.is_whole() { Code::Ok } else { Code::Error })
}

fn print_waiting(waiting: &[Waiting], rest: &Rest, as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if as_json {
        let rows: Vec<_> = waiting
            .iter()
            .map(|row| json!({ "queue": row.queue, "state": row.state, "jobs": row.jobs }))
            .collect();
        write_json(&mut out, &json!({ "waiting": rows, "at_work": rest.at_work }))?;
    } else {
        let mut rows = Rows::new(&["queue", "state", "jobs"]);
        for row in waiting {
            rows.add([row.queue.clone(), row.state.to_owned(), row.jobs.to_string()]);
        }
        rows.print(&mut out)?;
    }
    rest.notes.iter().for_each(|note| eprintln!("{note}"));
    Ok(())
}
