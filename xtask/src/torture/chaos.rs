//! All that can go wrong, beside a load through every door.
//!
//! In each cycle every [`Disturbance`] happens at least once, one after the other in a random order, and is seen to
//! have happened: by the power-cut library's report, or by the connections that the server has closed. Then the power is
//! cut, or the disk fails syncs or writes. What was acknowledged must be there all the same, and nothing may surprise
//! the clients but the answer that the disk is full, or that the log cannot grow.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use socket2::SockRef;

use super::cycles::Torture;
use super::doors::{Books, End};
use super::job::Dice;
use super::papers::Papers;
use super::server::{Server, Setup, Trouble};

/// How many descriptors the server has besides those of its log: fewer than a flood takes.
pub const DESCRIPTORS: usize = 512;
const FLOOD_CONNECTIONS: u64 = 600;
/// The longest that a disturbance lasts once it is seen, and a pause between two.
const LASTS_MS: u64 = 100;
const PAUSE_MS: u64 = 50;
/// A disturbance that was not seen within this time did not happen.
const SEEN_WITHIN: Duration = Duration::from_secs(120);
const POLL: Duration = Duration::from_millis(2);
/// How far the wall clock is off, at most: enough that every lease would end if the server believed a jump.
const CLOCK_SECONDS: u64 = 30 * 60;
/// How far the wall clock advances from cycle to cycle; otherwise it would soon always be behind
/// the log.
const CLOCK_DRIFT_SECONDS: u64 = 5 * 60;
/// In all it goes on by less than the time that LightJQ keeps results, which must be there at the end.
const CLOCK_DRIFT_SECONDS_MAX: u64 = 12 * 3600;

/// Ends a server in some way.
type Lose = fn(Server) -> Result<()>;

/// How the cycles end, in turn.
const ENDS: [(&str, Lose); 5] = [
    ("power cuts", Server::kill_under_load),
    ("failed syncs (EIO)", |server| server.break_disk(Trouble::SyncsFail)),
    ("power cuts", Server::kill_under_load),
    ("failed writes (EIO)", |server| server.break_disk(Trouble::WritesFail)),
    ("power cuts", Server::kill_under_load),
];

#[derive(Clone, Copy, Debug)]
enum Disturbance {
    /// The process is stopped, and goes on later.
    Stop,
    /// The disk has no room for a while.
    FullDisk,
    /// The system gives no descriptors for a while.
    NoDescriptors,
    /// The wall clock jumps.
    Clock,
    /// More connections than there are descriptors, with half a request each.
    Flood,
}

const DISTURBANCES: [Disturbance; 5] = [
    Disturbance::Stop,
    Disturbance::FullDisk,
    Disturbance::NoDescriptors,
    Disturbance::Clock,
    Disturbance::Flood,
];

/// How often each thing was seen to happen, by its name in the summary.
#[derive(Default)]
struct Seen(BTreeMap<&'static str, u64>);

/// All that must be seen in a run.
const ALL: [&str; 14] = [
    "cycles with TLS and tokens",
    "cycles with durable leases",
    "power cuts",
    "failed syncs (EIO)",
    "failed writes (EIO)",
    "short writes",
    "stops",
    "writes and files without room (ENOSPC)",
    "opens and accepts without a descriptor (EMFILE)",
    "clock jumps",
    "floods",
    "connections left half open",
    "of them in a handshake",
    "connections turned away for want of descriptors",
];

impl Seen {
    fn add(&mut self, what: &'static str, count: u64) {
        *self.0.entry(what).or_default() += count;
    }

    /// What happened, in words; an error if something did not.
    fn summary(&self) -> Result<String> {
        let count = |what: &&'static str| self.0.get(what).copied().unwrap_or_default();
        let missed: Vec<&str> = ALL.into_iter().filter(|what| count(what) == 0).collect();
        ensure!(
            missed.is_empty(),
            "a run must have all of it, and had no {}",
            missed.join(", no ")
        );
        Ok(ALL.map(|what| format!("{} {what}", count(&what))).join(", "))
    }
}

/// The disturbances of one cycle.
struct Chaos<'a> {
    setup: &'a Setup,
    server: &'a Server,
    seen: &'a mut Seen,
    /// By how much the wall clock of this cycle is off, give or take [`CLOCK_SECONDS`].
    clock_center: i64,
}

impl Torture<'_> {
    pub(super) fn in_chaos(&self) -> Result<String> {
        let cycles = self.options.cycles;
        ensure!(cycles >= ENDS.len() as u64, "chaos has {} kinds of cycles", ENDS.len());
        let drift = CLOCK_DRIFT_SECONDS.min(CLOCK_DRIFT_SECONDS_MAX / cycles);
        let mut dice = Dice::new(self.options.seed);
        let (books, mut seen) = (Mutex::new(Books::default()), Seen::default());
        let papers = Papers::in_folder(&self.setup.root)?;
        for cycle in 0..cycles {
            let papers = (cycle % 2 == 1).then_some(papers);
            let durable_leases = cycle % 3 == 2;
            let setup = Setup { papers, durable_leases, ..self.setup.clone() };
            let torture = Torture { books: super::load::Books::new(), setup, ..*self };
            let clock_center = (cycle * drift) as i64;
            self.setup.set_clock(clock_center + clock(&mut dice))?;
            let (how, end) = ENDS[cycle as usize % ENDS.len()];
            let mut cycle_dice = Dice::new(dice.next());
            let disturb = |server: &Server, time| {
                let seen = &mut seen;
                let mut chaos = Chaos { setup: &torture.setup, server, seen, clock_center };
                chaos.disturb(&mut cycle_dice, time)
            };
            torture
                .doors_cycle(&books, &mut dice, disturb, End::Lost(end))
                .with_context(|| format!("in cycle {cycle}"))?;
            seen.add(how, 1);
            seen.add("cycles with TLS and tokens", u64::from(papers.is_some()));
            seen.add("cycles with durable leases", u64::from(durable_leases));
            seen.add("short writes", self.setup.reported("short_writes")?);
        }
        let did = self.finish_doors(&books, &mut dice)?;
        let mode = self.mode.name();
        Ok(format!("torture {mode}: {cycles} cycles; {}; {did}; nothing lost", seen.summary()?))
    }
}

impl Chaos<'_> {
    /// Each disturbance at least once, and again until the time is over.
    fn disturb(&mut self, dice: &mut Dice, time: Duration) -> Result<()> {
        let begun = Instant::now();
        while {
            for what in shuffled(dice) {
                self.happen(what, dice).with_context(|| format!("{what:?}"))?;
                thread::sleep(Duration::from_millis(dice.below(PAUSE_MS)));
            }
            begun.elapsed() < time
        } {}
        Ok(())
    }

    fn happen(&mut self, what: Disturbance, dice: &mut Dice) -> Result<()> {
        let lasts = Duration::from_millis(1 + dice.below(LASTS_MS));
        match what {
            Disturbance::Stop => {
                self.server.pause(true)?;
                thread::sleep(lasts);
                self.server.pause(false)?;
                self.seen.add("stops", 1);
                Ok(())
            }
            Disturbance::FullDisk => {
                let name = "writes and files without room (ENOSPC)";
                self.trouble(Trouble::FullDisk, name, lasts)
            }
            Disturbance::NoDescriptors => {
                // A client connects, and is accepted once there are descriptors again.
                let _somebody = TcpStream::connect(self.server.addresses().gearman)?;
                let name = "opens and accepts without a descriptor (EMFILE)";
                self.trouble(Trouble::NoDescriptors, name, lasts)
            }
            Disturbance::Clock => {
                let before = self.setup.reported("clock_jumps")?;
                self.setup.set_clock(self.clock_center + clock(dice))?;
                let jumps = self.await_more("clock_jumps", before)?;
                self.seen.add("clock jumps", jumps);
                Ok(())
            }
            Disturbance::Flood => self.flood(dice, lasts),
        }
    }

    /// A trouble that lasts until the library has counted an effect, and a little longer.
    fn trouble(&mut self, trouble: Trouble, name: &'static str, lasts: Duration) -> Result<()> {
        let (reported, _) = trouble.counted();
        let before = self.setup.reported(reported)?;
        self.setup.trouble(trouble, true)?;
        let felt = self.await_more(reported, before);
        thread::sleep(lasts);
        self.setup.trouble(trouble, false)?;
        felt?;
        self.seen.add(name, self.setup.reported(reported)? - before);
        Ok(())
    }

    /// Waits until the library has counted more than before; by how much.
    fn await_more(&self, reported: &str, before: u64) -> Result<u64> {
        until_seen(|| Ok(self.setup.reported(reported)?.saturating_sub(before)))
            .with_context(|| format!("the library counts no more {reported}"))
    }

    /// More connections than there is room for. It lasts until the server has turned some away.
    fn flood(&mut self, dice: &mut Dice, lasts: Duration) -> Result<()> {
        let at = self.server.addresses();
        let (door, half) = HALVES[dice.below(HALVES.len() as u64) as usize];
        let half = if at.papers.is_some() { HALF_HANDSHAKE } else { half };
        let mut open: Vec<TcpStream> =
            (0..FLOOD_CONNECTIONS).filter_map(|_| half_open(door(at), half, dice)).collect();
        let came = open.len() as u64;
        let turned_away = until_seen(|| {
            open.retain(is_open);
            Ok(FLOOD_CONNECTIONS - open.len() as u64)
        })
        .with_context(|| format!("all of {came} connections are served"))?;
        thread::sleep(lasts);
        self.seen.add("floods", 1);
        self.seen.add("connections turned away for want of descriptors", turned_away);
        let left = open.iter().filter(|stream| is_open(stream)).count() as u64;
        self.seen.add("connections left half open", left);
        self.seen.add("of them in a handshake", if at.papers.is_some() { left } else { 0 });
        Ok(())
    }
}

/// Asks until the answer is more than nothing.
fn until_seen(mut count: impl FnMut() -> Result<u64>) -> Result<u64> {
    let deadline = Instant::now() + SEEN_WITHIN;
    loop {
        let seen = count()?;
        if seen > 0 {
            return Ok(seen);
        }
        ensure!(Instant::now() < deadline, "not seen within {SEEN_WITHIN:?}");
        thread::sleep(POLL);
    }
}

fn shuffled(dice: &mut Dice) -> [Disturbance; DISTURBANCES.len()] {
    let mut deck = DISTURBANCES;
    for last in (1..deck.len()).rev() {
        deck.swap(last, dice.below(last as u64 + 1) as usize);
    }
    deck
}

/// Up to [`CLOCK_SECONDS`] ahead or behind.
fn clock(dice: &mut Dice) -> i64 {
    dice.below(2 * CLOCK_SECONDS) as i64 - CLOCK_SECONDS as i64
}

type DoorOf = fn(super::server::Addresses) -> SocketAddr;

/// Incomplete requests, one for each door, which waits for the rest.
const HALVES: [(DoorOf, &[u8]); 3] = [
    (|at| at.workq, b"add 7472740a-0000-4000-8000-000000000000 torture 60000 60000 1000\r\nhalf"),
    (|at| at.gearman, b"\0REQ\0\0\0\x12\0\x10\0\0torture"),
    (
        |at| at.http,
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{",
    ),
];

/// The beginning of a handshake of TLS, for any door that wants one: a record of 512 bytes with most of them missing.
const HALF_HANDSHAKE: &[u8] = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03half a hello";

/// A connection with half a request, if the server takes one more. Some end with a reset.
fn half_open(door: SocketAddr, half: &[u8], dice: &mut Dice) -> Option<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&door, Duration::from_secs(1)).ok()?;
    // A server that has no room for it may have closed it.
    stream.write_all(half).ok()?;
    stream.set_nonblocking(true).ok()?;
    if dice.percent(50) {
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).ok()?;
    }
    Some(stream)
}

/// Whether the server waits for the rest. It closes a connection that it turns away, or answers it
/// at once.
fn is_open(stream: &TcpStream) -> bool {
    matches!(stream.peek(&mut [0]), Err(error) if error.kind() == ErrorKind::WouldBlock)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_in_which_something_did_not_happen_fails() {
        let mut seen = Seen::default();
        ALL[1..].iter().for_each(|what| seen.add(what, 2));
        let missed = seen.summary().unwrap_err().to_string();
        assert!(missed.ends_with(&format!("had no {}", ALL[0])), "{missed}");
        seen.add(ALL[0], 1);
        let said = seen.summary().unwrap();
        assert!(said.starts_with(
            "1 cycles with TLS and tokens, 2 cycles with durable leases, 2 power cuts, "
        ));
    }
}
