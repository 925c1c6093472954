//! A disk that runs full under the server, is worked on while it is, and gets room again.
//!
//! The disk is a small file system in memory. Each cycle begins with an empty one, fills it by
//! adding jobs until the server refuses, and works on what is there. Then room comes back in one of
//! two ways: a file that is not the server's is removed, or clients delete most of the jobs. In
//! every second pair of cycles the server is killed while the disk is full and has to start on it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::client::{Answer, Client};
use super::cycles::{Torture, check};
use super::job::{Dice, Job};
use super::load::{self, Books, Load, delete, finish, lease};

/// One segment is the reserve: it must hold the work that is done while the disk is full.
pub const SEGMENT_SIZE: &str = "1MiB";
/// Room for some thirty segments.
const DISK_BYTES: u64 = 32 << 20;
/// The part of it that a file takes which is not the server's.
const BALLAST_BYTES: usize = 10 << 20;
/// Larger ones take much of the reserve when compaction appends them again.
const PAYLOAD_BYTES_MAX: usize = 64 << 10;
/// Of jobs with smaller payloads only some are added, so that the disk is soon full.
const PAYLOAD_BYTES_SMALL: usize = 8_000;
const SMALL_TAKEN_EVERY: u64 = 16;
const FILLED_BY: u64 = 3;
/// Jobs worked while the disk is full, each way.
const WORKED_FULL: usize = 40;
/// How soon new jobs are taken again.
const ROOM_WITHIN: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(20);
/// New jobs once there is room again: few enough for it.
const ADDS_AFTER: u64 = 150;
const LOAD_AFTER: Duration = Duration::from_millis(400);

/// A small mounted disk. Dropping this unmounts it.
pub struct Disk {
    folder: PathBuf,
}

impl Disk {
    pub fn mount(folder: PathBuf) -> Result<Self> {
        fs::create_dir(&folder)?;
        let size = format!("size={DISK_BYTES},mode=700");
        let status = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &size, "spindle-torture"])
            .arg(&folder)
            .status()
            .context("starting mount")?;
        ensure!(status.success(), "a tmpfs cannot be mounted here: {status}");
        Ok(Self { folder })
    }

    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Leaves it as evidence.
    pub fn keep(self) {
        eprintln!("{} stays mounted; unmount it when you have seen it", self.folder.display());
        std::mem::forget(self);
    }

    fn ballast(&self) -> PathBuf {
        self.folder.join("ballast")
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        match Command::new("umount").arg(&self.folder).status() {
            Ok(status) if status.success() => {}
            outcome => eprintln!("{} is still mounted: {outcome:?}", self.folder.display()),
        }
    }
}

/// What gives room again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relief {
    BallastGoes,
    JobsGo,
}

impl Torture<'_> {
    pub(super) fn fill_the_disk(&self, disk: &Disk) -> Result<String> {
        let mut dice = Dice::new(self.options.seed);
        let (mut adds, mut refused, mut worked) = (0, 0, 0);
        for cycle in 0..self.options.cycles {
            self.setup.clear()?;
            fs::write(disk.ballast(), vec![0; BALLAST_BYTES])?;
            let fresh = Torture { books: Books::new(), setup: self.setup.clone(), ..*self };
            let relief = if cycle % 2 == 0 { Relief::BallastGoes } else { Relief::JobsGo };
            let outcome = fresh.full_cycle(&mut dice, disk, relief, cycle % 4 >= 2);
            outcome.with_context(|| format!("in cycle {cycle}, where {relief:?}"))?;
            let tally = fresh.books.open().tally();
            adds += tally.adds;
            refused += tally.refused;
            worked += tally.finishes + tally.deletes;
        }
        Ok(format!(
            "torture {}: the disk ran full {} times; of {} adds {refused} refused, {adds} kept, \
             {worked} finishes and deletes; nothing lost",
            self.mode.name(),
            self.options.cycles,
            adds + refused,
        ))
    }

    fn full_cycle(&self, dice: &mut Dice, disk: &Disk, relief: Relief, killed: bool) -> Result<()> {
        let mut server = self.start(None)?;
        let address = server.address();
        std::thread::scope(|scope| {
            let fill = || fill(&self.books, &mut Client::connect(address)?);
            let fills: Vec<_> = (0..FILLED_BY).map(|_| scope.spawn(fill)).collect();
            fills.into_iter().try_for_each(|fill| match fill.join() {
                Ok(outcome) => outcome,
                Err(panic) => std::panic::resume_unwind(panic),
            })
        })
        .context("filling the disk")?;
        let mut client = Client::connect(address)?;
        self.work_on(&mut client, dice).context("working on a full disk")?;
        self.verdict()?;
        if killed {
            server.kill()?;
            self.books.open().server_ended();
            server = self.start(None).context("starting on a full disk")?;
            client = Client::connect(server.address())?;
            check(&self.books, &mut client)?;
            self.verdict()?;
            self.work_on(&mut client, dice).context("after a start on a full disk")?;
            self.verdict()?;
        }
        match relief {
            Relief::BallastGoes => fs::remove_file(disk.ballast())?,
            Relief::JobsGo => self.delete_most(&mut client)?,
        }
        add_until_taken(&self.books, &mut client).context("once there was room again")?;

        let load = Load::new(&self.books, server.address(), ADDS_AFTER).on_small_disk();
        let (ended, surprises) = load.run(dice.next(), LOAD_AFTER, || server.terminate());
        ended?;
        self.books.open().server_ended();
        surprises?;
        self.verdict()?;
        self.drain().context("while working off what was left")
    }

    /// Finishes with and without a lease, and deletes.
    fn work_on(&self, client: &mut Client, dice: &mut Dice) -> Result<()> {
        for _ in 0..WORKED_FULL {
            let Some(job) = lease(&self.books, client, 0)? else { break };
            finish(&self.books, client, job, (true, dice.bytes(100)))?;
        }
        let left = self.books.open().unfinished();
        let (finished, deleted) = left.split_at(left.len().min(WORKED_FULL));
        for job in finished {
            finish(&self.books, client, *job, (true, dice.bytes(100)))?;
        }
        for job in deleted.iter().take(WORKED_FULL) {
            self.delete_one(client, *job)?;
        }
        Ok(())
    }

    fn delete_most(&self, client: &mut Client) -> Result<()> {
        let jobs = self.books.open().jobs();
        for job in jobs.into_iter().filter(|job| !job.0.is_multiple_of(8)) {
            self.delete_one(client, job)?;
        }
        Ok(())
    }

    fn delete_one(&self, client: &mut Client, job: Job) -> Result<()> {
        if self.books.open().delete_sent(job) {
            delete(&self.books, client, job)?;
        }
        Ok(())
    }
}

/// Adds jobs until one is refused.
fn fill(books: &Books, client: &mut Client) -> Result<()> {
    for _ in 0..DISK_BYTES / 100 {
        if !add(books, client)? {
            return Ok(());
        }
    }
    bail!("more jobs were taken than the disk has room for")
}

fn add_until_taken(books: &Books, client: &mut Client) -> Result<()> {
    let deadline = Instant::now() + ROOM_WITHIN;
    while !add(books, client)? {
        ensure!(Instant::now() < deadline, "new jobs are still refused");
        std::thread::sleep(POLL);
    }
    Ok(())
}

fn fits(job: Job) -> bool {
    let bytes = job.payload().len();
    let small = bytes < PAYLOAD_BYTES_SMALL;
    bytes <= PAYLOAD_BYTES_MAX && (!small || job.0.is_multiple_of(SMALL_TAKEN_EVERY))
}

/// Adds the next job that is right for a small disk. False when it was refused for want of room, in words that say so.
fn add(books: &Books, client: &mut Client) -> Result<bool> {
    let (mut job, mut terms) = books.next_job();
    while !fits(job) {
        (job, terms) = books.next_job();
    }
    let answer = load::add(books, client, job, &terms, Answer::has_no_room)?;
    let is_refused = answer.has_no_room();
    ensure!(is_refused || answer == Answer::Done, "an add was answered {answer:?}");
    Ok(!is_refused)
}
