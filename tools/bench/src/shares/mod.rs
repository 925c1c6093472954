//! Checks that a client that floods one door leaves the others their share.
//!
//! A fresh server has all doors open, and clients of each door that ask for little ([`honest`]). They
//! are measured alone, and then beside a [`flood`]. The gate is the p99 of all their requests
//! beside it, divided by their p99 before. Alone, two of the three requests of a job wait for a
//! sync of the disk, so the p99 before is about that of one sync.
//!
//! A flood comes from other machines; here it shares the processors with the server. So it runs as a
//! process of its own with a lower priority: it gets what the server and the measured clients leave,
//! which is enough to keep the flooded threads busy.
//!
//! The cost to clients of processors, kernel and disk being busy with a flood, regardless of which
//! server answers it, is measured too: the same clients *apart*, that is while the flood goes to a
//! second server.

mod flood;
mod honest;

pub(crate) use flood::{Flood, run as flood};

use crate::figures::Figures;
use crate::load::{self, Checker, Jobs, Plan, Target};
use crate::process;
use crate::server::{Running, Server, free_address};
use crate::suite::{Bound, Door};
use crate::wire::Wire;
use anyhow::{Context, Result, bail, ensure};
use std::cell::RefCell;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Where clients are measured.
pub(crate) const DOORS: [Door; 3] = [Door::Workq, Door::Gearman, Door::Api];
/// How long clients are measured alone, and beside a flood that does not end by itself.
pub(crate) const TIME: Duration = Duration::from_secs(3);
/// What the log takes at most in [`TIME`]; payloads of megabytes take the most.
pub(crate) const DISK_BYTES: u64 = 8 << 30;

/// The most that a door's clients may lose while their own door is flooded.
const SAME_DOOR_MAX: f64 = 5.0;
/// The same while another door is flooded.
const OTHER_DOOR_MAX: f64 = 3.0;
/// How much lower the priority of a flood is.
const FLOOD_NICENESS: &str = "10";
/// One part in this many of the time passes as a warm-up before clients are measured, and after a
/// flood has begun.
const WARM_UPS: u32 = 10;
/// How many queues of jobs there are for floods that use up jobs.
const QUEUES: usize = 3;
/// The longest time of a flood that ends by itself.
const FLOOD_TIME_MAX: Duration = Duration::from_secs(300);

/// What the clients of a door are judged by while another one, or theirs, is flooded.
pub(crate) fn bound(flooded: Door, measured: Door) -> Bound {
    Bound::AtMost(if flooded == measured { SAME_DOOR_MAX } else { OTHER_DOOR_MAX })
}

/// What is measured, and where.
pub(crate) struct Site<'a> {
    /// The Spindle program.
    pub(crate) program: &'a Path,
    /// Where its data goes.
    pub(crate) dir: &'a Path,
    /// The number of jobs in each queue that floods use up.
    pub(crate) jobs: u64,
}

impl Site<'_> {
    /// The figures of each of [`DOORS`]: beside this flood, while it goes to another server, and
    /// alone.
    pub(crate) fn measure(
        &self,
        flooded: Door,
        flood: Flood,
        time: Duration,
    ) -> Result<Vec<Figures>> {
        let place = DOORS.iter().position(|door| *door == flooded).context("no such door")?;
        let (measured, other) = (self.start()?, self.start()?);

        measured.play(None, time / WARM_UPS, "warming up")?;
        let alone = measured.play(None, time, "alone")?;
        let elsewhere = self.flood(&other, place, flood)?;
        let apart = measured.play(Some(elsewhere), time, "apart from the flood")?;
        drop(other);
        let here = self.flood(&measured, place, flood)?;
        let beside = measured.play(Some(here), time, "beside the flood")?;
        let of_doors = beside.into_iter().zip(apart).zip(alone);
        Ok(of_doors.flat_map(|((beside, apart), alone)| [beside, apart, alone]).collect())
    }

    fn start(&self) -> Result<Measured> {
        let (gearman, http) = (free_address()?, free_address()?);
        let program = self.program.to_owned();
        let running = Server::SpindleDoors { program, gearman, http }.start(self.dir)?;
        let addresses = [running.address, gearman, http];
        Ok(Measured { running, doors: DOORS.into_iter().zip(addresses).collect() })
    }

    /// Begins to flood one of a server's doors.
    fn flood(&self, server: &Measured, place: usize, flood: Flood) -> Result<Flooding> {
        let workq = server.running.address;
        let queues = if flood.needs_jobs() { self.fill(workq)? } else { vec![] };
        let (door, address) = server.doors[place];
        Flooding::start(door, flood, address, &queues)
    }

    /// Lets jobs wait in some queues, and returns their names.
    fn fill(&self, workq: SocketAddr) -> Result<Vec<String>> {
        let fill = |_| {
            let jobs = Jobs::fresh(Wire::Workq);
            let target = Target { address: workq, tls: None, token: None };
            load::run(&target, &jobs, Plan::submits(self.jobs, 8, 32), &mut Checker::default())?;
            Ok(jobs.queue().to_owned())
        };
        (0..QUEUES).map(fill).collect()
    }
}

/// A server, and where its doors are.
struct Measured {
    running: Running,
    doors: Vec<(Door, SocketAddr)>,
}

impl Measured {
    /// Plays clients of all doors for a while, or until a flood that ends has ended.
    fn play(&self, flood: Option<Flooding>, time: Duration, what: &str) -> Result<Vec<Figures>> {
        let mut flood = flood;
        if flood.as_ref().is_some_and(|flood| !flood.ends) {
            sleep(time / WARM_UPS);
        }
        let (begun, cpu) = (Instant::now(), process::cpu_time(self.running.pid())?);
        let flood = RefCell::new(&mut flood);
        let is_over = || {
            let mut flood = flood.borrow_mut();
            let Some(flood) = flood.as_mut() else { return Ok(begun.elapsed() >= time) };
            match (flood.has_ended()?, flood.ends) {
                (has_ended, true) => {
                    ensure!(begun.elapsed() < FLOOD_TIME_MAX, "the flood does not end");
                    Ok(has_ended)
                }
                (true, false) => bail!("the flood ended"),
                (false, false) => Ok(begun.elapsed() >= time),
            }
        };
        let figures = honest::play(&self.doors, is_over).with_context(|| what.to_owned())?;
        let used = process::cpu_time(self.running.pid())?.saturating_sub(cpu);
        let cores = used.as_secs_f64() / begun.elapsed().as_secs_f64();
        let with_cores = |figures| Figures { server_cores: Some(cores), ..figures };
        Ok(figures.into_iter().map(with_cores).collect())
    }
}

/// A flood under way, which ends with its handle.
struct Flooding {
    process: Child,
    /// Whether it ends by itself.
    ends: bool,
}

impl Flooding {
    fn start(door: Door, flood: Flood, address: SocketAddr, queues: &[String]) -> Result<Self> {
        let mut command = Command::new("nice");
        command.args(["-n", FLOOD_NICENESS]).arg(std::env::current_exe()?);
        command.arg("flood").arg(word_of(flood)).args(["--door", &word_of(door)]);
        command.args(["--address", &address.to_string()]).args(queues);
        let process = command.stdin(Stdio::null()).spawn().context("cannot start the flood")?;
        Ok(Self { process, ends: flood.ends() })
    }

    fn has_ended(&mut self) -> Result<bool> {
        let Some(status) = self.process.try_wait()? else { return Ok(false) };
        ensure!(status.success(), "the flood failed: {status}");
        Ok(true)
    }
}

impl Drop for Flooding {
    fn drop(&mut self) {
        let _already_gone = self.process.kill();
        let _already_waited_for = self.process.wait();
    }
}

/// What the command line calls it.
fn word_of(value: impl clap::ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
