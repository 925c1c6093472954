//! Workers of our client libraries beside those of others, on tasks that do nothing.
//!
//! Each runs one process of its own, as its manual says, on a server of its own: ours is durable,
//! Redis keeps its defaults. A task appends its number to a file, so that a job that did not run,
//! or ran twice, is noticed, and all contestants are timed in the same way: from the first line to
//! the last.

mod contestants;

use crate::figures::Figures;
use crate::http::HttpClient;
use crate::server::{self, Process, Server, empty_folder, tail};
use crate::suite::{Door, Security};
use anyhow::{Context, Result, ensure};
use contestants::{Backend, Program};
pub(crate) use contestants::{Contestant, Language};
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A number of eight digits and the end of its line.
const NOTE_BYTES: u64 = 9;
const POLL_PAUSE: Duration = Duration::from_millis(1);
/// A worker that has done nothing for this long hangs.
const PATIENCE: Duration = Duration::from_secs(60);
/// The variable that only our libraries read.
const SPINDLE_URL: &str = "SPINDLE_URL";
const REDIS_URL: &str = "BENCH_REDIS";
/// The file that tasks write to.
const NOTES: &str = "BENCH_NOTES";

/// When jobs are submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Feed {
    /// All of them before the worker starts.
    Before,
    /// One after the other, by one process, while the worker runs.
    Beside,
}

impl Feed {
    pub(crate) const ALL: [Self; 2] = [Self::Before, Self::Beside];

    /// For people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Before => "jobs that wait",
            Self::Beside => "beside one that submits",
        }
    }
}

/// What is needed to start any contestant.
pub(crate) struct Site<'a> {
    /// The Spindle program.
    spindle: &'a Path,
    /// The program of Redis.
    redis: &'a Path,
    /// Where the libraries are installed.
    libraries: PathBuf,
    /// Where servers and scripts work.
    dir: &'a Path,
}

impl<'a> Site<'a> {
    /// With the libraries of a language, which must be there.
    pub(crate) fn new(
        spindle: &'a Path,
        redis: &'a Path,
        libraries: &Path,
        dir: &'a Path,
        language: Language,
    ) -> Result<Self> {
        // Programs start in folders of their own.
        let libraries = std::path::absolute(libraries)?;
        for need in language.needs() {
            let path = libraries.join(need);
            ensure!(
                path.exists(),
                "there is no {}: `cargo xtask bench suite --only python-worker,node-worker` \
                 installs it",
                path.display()
            );
        }
        Ok(Self { spindle, redis, libraries, dir })
    }

    /// Has a contestant do `jobs` jobs, or its share of them, on a fresh server.
    pub(crate) fn measure(&self, one: &Contestant, feed: Feed, jobs: u64) -> Result<Figures> {
        let jobs = (jobs / one.share).max(2);
        let backend = self.start(one.backend)?;
        let folder = self.scripts()?;
        let stage = Stage { site: self, one, folder, url: backend.url() };
        let rate_per_s = match feed {
            Feed::Before => stage.drain(jobs)?,
            Feed::Beside => stage.beside(jobs)?,
        };
        backend.account()?;
        Ok(Figures { rate_per_s: Some(rate_per_s), ..Figures::default() })
    }

    fn start(&self, backend: Backend) -> Result<Started> {
        if backend == Backend::Spindle {
            let (program, door) = (self.spindle.to_owned(), Door::Api);
            let server = Server::Spindle { program, door, security: Security::Plain, flags: &[] };
            return Ok(Started::Spindle(server.start(self.dir)?));
        }
        let redis = |data: &Path, address: SocketAddr| {
            let mut command = Command::new(self.redis);
            command.args(["--bind", "127.0.0.1", "--port", &address.port().to_string()]);
            command.arg("--dir").arg(data);
            Ok(command)
        };
        let (address, process, folder) = server::start("Redis", self.dir, redis)?;
        Ok(Started::Redis { address, _process: process, _folder: folder })
    }

    /// A folder with the scripts, from which they find the libraries.
    fn scripts(&self) -> Result<TempDir> {
        let folder = empty_folder(self.dir)?;
        for (name, text) in contestants::SCRIPTS {
            fs::write(folder.path().join(name), text)?;
        }
        let modules = folder.path().join("node_modules");
        fs::create_dir(&modules)?;
        for (name, place) in contestants::NODE_MODULES {
            symlink(self.libraries.join(place), modules.join(name))?;
        }
        Ok(folder)
    }

    fn program(&self, program: Program) -> PathBuf {
        program.place().map_or("node".into(), |place| self.libraries.join(place))
    }
}

/// What keeps the jobs.
enum Started {
    Spindle(server::Running),
    // The process before the folder, so that it is gone when the folder goes.
    Redis { address: SocketAddr, _process: Process, _folder: TempDir },
}

impl Started {
    fn url(&self) -> String {
        match self {
            Self::Spindle(running) => format!("http://{}", running.address),
            Self::Redis { address, .. } => format!("redis://{address}/0"),
        }
    }

    /// Checks that, once the worker has ended, no job is left in Spindle, and none is leased.
    fn account(&self) -> Result<()> {
        let Self::Spindle(running) = self else { return Ok(()) };
        let mut client = HttpClient::connect(running.address)?;
        let path = format!("/api/v1/queues/{}", contestants::QUEUE);
        let queue = client.ask_json("GET", &path, &Value::Null)?;
        for status in ["ready", "leased", "scheduled", "dead"] {
            let count = queue["jobs"][status].as_u64();
            ensure!(count == Some(0), "the queue has {count:?} jobs that are {status}: {queue}");
        }
        Ok(())
    }
}

/// One run of a contestant.
struct Stage<'a> {
    site: &'a Site<'a>,
    one: &'a Contestant,
    folder: TempDir,
    url: String,
}

impl Stage<'_> {
    /// The rate of jobs that wait.
    fn drain(&self, jobs: u64) -> Result<f64> {
        self.submit(0, jobs, "together")?.end("the submits")?;
        let worker = self.work()?;
        let rate_per_s = self.rate_per_s(&worker, 0, jobs)?;
        self.finish(worker, jobs)?;
        Ok(rate_per_s)
    }

    /// The rate of jobs that come meanwhile.
    fn beside(&self, jobs: u64) -> Result<f64> {
        let worker = self.work()?;
        // One job shows that the worker has started.
        self.submit(0, 1, "singly")?.end("the first submit")?;
        self.wait_for(&worker, 1)?;
        let submits = self.submit(1, jobs, "singly")?;
        let rate_per_s = self.rate_per_s(&worker, 1, jobs)?;
        submits.end("the submits")?;
        self.finish(worker, jobs + 1)?;
        Ok(rate_per_s)
    }

    /// The rate from the first to the last of these jobs, where `first` jobs ran before. The first
    /// check may see several.
    fn rate_per_s(&self, worker: &Group, first: u64, jobs: u64) -> Result<f64> {
        let seen = self.wait_for(worker, first + 1)?;
        let began = Instant::now();
        let all = self.wait_for(worker, first + jobs)?;
        let elapsed = began.elapsed().max(POLL_PAUSE);
        Ok((all - seen).max(1) as f64 / elapsed.as_secs_f64())
    }

    /// Waits until so many tasks have run; how many have.
    fn wait_for(&self, worker: &Group, count: u64) -> Result<u64> {
        let (mut noted, mut noted_at) = (0, Instant::now());
        loop {
            let now = fs::metadata(self.notes()).map_or(0, |notes| notes.len()) / NOTE_BYTES;
            if now >= count {
                return Ok(now);
            }
            if now > noted {
                (noted, noted_at) = (now, Instant::now());
            }
            let hangs = noted_at.elapsed() > PATIENCE;
            ensure!(!hangs, "{now} of {count} jobs have run; it said: {}", worker.said());
            sleep(POLL_PAUSE);
        }
    }

    /// Ends the worker in order. Each job must have run once.
    fn finish(&self, mut worker: Group, jobs: u64) -> Result<()> {
        kill(Pid::from_raw(worker.child.id().try_into()?), Signal::SIGTERM)?;
        let status = worker.ended()?;
        let in_order = may_end(self.one.backend, status);
        ensure!(in_order, "the worker ended with {status}; it said: {}", worker.said());
        ran_once(&fs::read_to_string(self.notes())?, jobs)
    }

    fn submit(&self, first: u64, count: u64, how: &str) -> Result<Group> {
        let numbers = [first.to_string(), count.to_string()];
        let mut command = self.command(self.one.submit);
        command.args(numbers).arg(how);
        Group::start(command, self.folder.path().join("submits"))
    }

    fn work(&self) -> Result<Group> {
        Group::start(self.command(self.one.work), self.folder.path().join("worker"))
    }

    fn command(&self, (program, words): (Program, &[&str])) -> Command {
        let mut command = Command::new(self.site.program(program));
        let is_url = |word: &str| word == contestants::URL;
        let words = words.iter().map(|word| if is_url(word) { &*self.url } else { word });
        command.args(words).current_dir(self.folder.path());
        command.env(SPINDLE_URL, &self.url).env(REDIS_URL, &self.url).env(NOTES, self.notes());
        command
    }

    fn notes(&self) -> PathBuf {
        self.folder.path().join("notes")
    }
}

/// Whether a worker that was told to end may end like this. Ours ends in order. A worker of another
/// library may fail because of the signal, as RQ's does if the signal comes while the end of the
/// last job is on its way to Redis; everything that is measured has happened by then.
fn may_end(backend: Backend, status: ExitStatus) -> bool {
    backend == Backend::Redis || status.success()
}

/// Checks that the notes have each of the jobs once.
fn ran_once(notes: &str, jobs: u64) -> Result<()> {
    let numbers: Vec<u64> =
        notes.lines().map(str::parse).collect::<Result<_, _>>().context("a torn note")?;
    let ran: BTreeSet<u64> = numbers.iter().copied().filter(|number| *number < jobs).collect();
    let (runs, ran) = (numbers.len() as u64, ran.len() as u64);
    ensure!(runs == jobs && ran == jobs, "{ran} of {jobs} jobs ran, {runs} times together");
    Ok(())
}

/// A process and those that it starts: none of them outlives its handle.
struct Group {
    child: Child,
    output: PathBuf,
}

impl Group {
    fn start(mut command: Command, output: PathBuf) -> Result<Self> {
        command.stdin(Stdio::null()).stdout(File::create(&output)?).process_group(0);
        command.stderr(File::options().append(true).open(&output)?);
        let program = command.get_program().to_owned();
        let child = command.spawn();
        let child = child.with_context(|| format!("cannot run {}", program.to_string_lossy()))?;
        Ok(Self { child, output })
    }

    /// Waits for a program that ends by itself.
    fn end(mut self, what: &str) -> Result<()> {
        let status = self.ended()?;
        ensure!(status.success(), "{what} ended with {status}; it said: {}", self.said());
        Ok(())
    }

    fn ended(&mut self) -> Result<ExitStatus> {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            ensure!(began.elapsed() < PATIENCE, "it does not end; it said: {}", self.said());
            sleep(POLL_PAUSE);
        }
    }

    fn said(&self) -> String {
        tail(&fs::read_to_string(&self.output).unwrap_or_default()).to_owned()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if let Ok(pid) = self.child.id().try_into() {
            let _already_gone = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
        let _already_waited_for = self.child.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_that_ran_twice_or_not_at_all_is_seen() {
        ran_once("00000001\n00000000\n", 2).unwrap();
        for wrong in
            ["00000001\n", "00000001\n00000001\n", "00000000\n00000002\n", "0000\n0001 1\n"]
        {
            ran_once(wrong, 2).unwrap_err();
        }
        ran_once("00000001\n00000000\n00000001\n", 2).unwrap_err();
    }

    #[test]
    fn only_workers_of_others_may_trip_over_their_end() {
        let status = |word: &str| Command::new(word).status().unwrap();
        for (backend, word, may) in [
            (Backend::Spindle, "true", true),
            (Backend::Spindle, "false", false),
            (Backend::Redis, "true", true),
            (Backend::Redis, "false", true),
        ] {
            assert_eq!(may_end(backend, status(word)), may, "{backend:?} {word}");
        }
    }

    #[test]
    fn a_worker_that_fails_or_says_nothing_fails_the_run() {
        let folder = tempfile::tempdir().unwrap();
        let start = |words: &[&str]| {
            let mut command = Command::new("sh");
            command.arg("-c").args(words);
            Group::start(command, folder.path().join("output")).unwrap()
        };
        start(&["true"]).end("it").unwrap();
        let failed = start(&["echo no; exit 3"]).end("it").unwrap_err().to_string();
        assert!(failed.contains("exit status: 3") && failed.ends_with("it said: no"), "{failed}");
    }
}
