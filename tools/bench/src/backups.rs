//! Measures what a backup costs a load that runs at the same time.
//!
//! A fresh server has all jobs waiting. `spindle backup` copies it into a fresh folder while a load
//! goes through a queue of its own: the rate from the start of the command to its end is compared
//! with the rate of the same server without a backup over the same length of time. The loads are
//! life cycles through Workq, and submits to the API, whose threads send the backup too. A backup
//! that fails fails the suite. From the last backup a server is restored, on which every job that
//! waited before must wait.

use crate::figures::Figures;
use crate::load::{self, Checker, Jobs, Plan, Target};
use crate::run;
use crate::server::{self, Server, empty_folder, free_address};
use crate::suite::Bound;
use crate::wire::{Wire, waiting_jobs};
use anyhow::{Context, Result, ensure};
use std::io::Read;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The least share of the rate without a backup that must be left beside one.
pub(crate) const RATE_MIN: Bound = Bound::AtLeast(0.8);
/// How many times the waiting jobs are on the disk: in the server's folder with what the load adds,
/// in a backup of all that, and in what is restored from it.
pub(crate) const COPIES: u64 = 5;
/// One part of the load has one job for this many waiting ones; after each part it is checked
/// whether more are needed.
const WAITING_PER_JOB: u64 = 500;
const CONNECTIONS: usize = 8;

/// What goes on beside a backup.
#[derive(Clone, Copy)]
pub(crate) enum Beside {
    LifeCycles,
    Submits,
}

impl Beside {
    /// All of them.
    pub(crate) const ALL: [Self; 2] = [Self::LifeCycles, Self::Submits];

    /// For people.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::LifeCycles => "life cycles",
            Self::Submits => "submits to the API",
        }
    }
}

/// A server on which all jobs wait.
pub(crate) struct Site<'a> {
    program: &'a Path,
    dir: &'a Path,
    beside: Beside,
    life: run::Site,
    http: Target,
    waiting: Jobs,
    count: u64,
    /// What is submitted to the API.
    submits: Jobs,
    submitted: u64,
    backup: TempDir,
}

impl<'a> Site<'a> {
    /// Starts one, fills it, and warms up the load.
    pub(crate) fn open(
        program: &'a Path,
        dir: &'a Path,
        beside: Beside,
        count: u64,
    ) -> Result<Self> {
        let (gearman, http) = (free_address()?, free_address()?);
        let server = Server::SpindleDoors { program: program.to_owned(), gearman, http };
        let life = run::Site::open(&server, dir)?;
        let waiting = Jobs::fresh(Wire::Workq);
        let plan = Plan::submits(count, CONNECTIONS, 32);
        load::run(life.target(), &waiting, plan, &mut Checker::default())?;
        let http = Target { address: http, tls: None, token: None };
        let (submits, submitted) = (Jobs::fresh(Wire::Api), 0);
        let backup = empty_folder(dir)?;
        let mut site =
            Self { program, dir, beside, life, http, waiting, count, submits, submitted, backup };
        site.account(site.life.target().address)?;
        site.play()?;
        Ok(site)
    }

    /// The load while a backup is taken, and how long that takes.
    pub(crate) fn back_up(&mut self) -> Result<Figures> {
        let began = Instant::now();
        let mut copying = Copying::start(self.program, self.http.address, &self.backup())?;
        let figures = self.play_until(|| copying.has_ended())?;
        Ok(Figures { backup_s: Some(began.elapsed().as_secs_f64()), ..figures })
    }

    /// The load for a given time, without a backup.
    pub(crate) fn rest(&mut self, time: Duration) -> Result<Figures> {
        let began = Instant::now();
        self.play_until(|| Ok(began.elapsed() >= time))
    }

    /// Restores the backup: the jobs that waited wait there, too.
    pub(crate) fn restore(&self) -> Result<()> {
        let data = self.backup.path().join("restored");
        let mut command = Command::new(self.program);
        let made = command.arg("restore").arg(self.backup()).arg(&data).output()?;
        let said = String::from_utf8_lossy(&made.stderr);
        ensure!(made.status.success(), "the restore ended with {}: {said}", made.status);
        let serve = |_: &Path, workq: SocketAddr| {
            let mut command = Command::new(self.program);
            command.arg("serve").arg("--data").arg(&data).args(["--workq", &workq.to_string()]);
            command.args(["--gearman", "off", "--http", "off", "--jobd-master", "off"]);
            Ok(command)
        };
        let (workq, _process, _folder) = server::start("the restored server", self.dir, serve)?;
        self.account(workq)
    }

    /// Plays parts of the load until it is over. A part that was not finished by then does not
    /// count.
    fn play_until(&mut self, mut is_over: impl FnMut() -> Result<bool>) -> Result<Figures> {
        let (began, mut done, mut elapsed) = (Instant::now(), 0, Duration::ZERO);
        loop {
            let played = self.play()?;
            let is_over = is_over()?;
            if !is_over || done == 0 {
                (done, elapsed) = (done + played, began.elapsed());
            }
            if is_over {
                break;
            }
        }
        self.account(self.life.target().address)?;
        let rate_per_s = Some(done as f64 / elapsed.as_secs_f64());
        Ok(Figures { rate_per_s, ..Figures::default() })
    }

    /// Plays a part of the load, and returns its number of jobs. Every job is accounted for.
    fn play(&mut self) -> Result<u64> {
        let jobs = self.count / WAITING_PER_JOB;
        match self.beside {
            Beside::LifeCycles => {
                self.life.play(Plan::life_cycles(jobs, CONNECTIONS))?;
            }
            Beside::Submits => {
                let first = self.submitted;
                let plan = Plan { first, ..Plan::submits(jobs, CONNECTIONS, 1) };
                load::run(&self.http, &self.submits, plan, &mut Checker::default())?;
                self.submitted += jobs;
                check(Wire::Api, self.http.address, self.submits.queue(), self.submitted)?;
            }
        }
        Ok(jobs)
    }

    fn backup(&self) -> PathBuf {
        self.backup.path().join("backup")
    }

    /// Checks that all jobs that waited in the beginning still wait.
    fn account(&self, workq: SocketAddr) -> Result<()> {
        check(Wire::Workq, workq, self.waiting.queue(), self.count)
    }
}

fn check(wire: Wire, address: SocketAddr, queue: &str, expected: u64) -> Result<()> {
    let counted = waiting_jobs(wire, address, None, queue)?;
    ensure!(counted == expected, "{counted} jobs wait in {queue}, and not {expected}");
    Ok(())
}

/// A backup under way, which ends with its handle.
struct Copying(Child);

impl Copying {
    fn start(program: &Path, http: SocketAddr, folder: &Path) -> Result<Self> {
        let mut command = Command::new(program);
        command.arg("backup").arg(format!("http://{http}")).arg(folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        Ok(Self(command.spawn().context("cannot start the backup")?))
    }

    fn has_ended(&mut self) -> Result<bool> {
        let Some(status) = self.0.try_wait()? else { return Ok(false) };
        let mut said = String::new();
        if let Some(stderr) = &mut self.0.stderr {
            stderr.read_to_string(&mut said)?;
        }
        ensure!(status.success(), "the backup ended with {status}: {said}");
        Ok(true)
    }
}

impl Drop for Copying {
    fn drop(&mut self) {
        let _already_gone = self.0.kill();
        let _already_waited_for = self.0.wait();
    }
}
