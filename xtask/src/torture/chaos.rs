//! All that can go wrong, beside a load through every door.
//!
//! In each cycle disturbances follow each other until the load ends; then the power is cut, or the
//! disk fails a sync. What was acknowledged must be there all the same, and nothing may surprise the
//! clients but a full disk, which they are told of.

use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use socket2::SockRef;

use super::cycles::Torture;
use super::doors::{Books, End};
use super::ending::Ending;
use super::job::Dice;
use super::server::{Server, Setup};

/// So many descriptors does the server have: fewer than a flood takes.
pub const DESCRIPTORS: u32 = 256;
const FLOOD_CONNECTIONS: u64 = 400;
/// The longest that a disturbance lasts, and a pause between two.
const LASTS_MS: u64 = 400;
const PAUSE_MS: u64 = 100;
/// How far the wall clock is off, at most: less than the shortest time that a door keeps finished
/// jobs, which are to be found afterwards.
const CLOCK_SECONDS: u64 = 15 * 60;
/// Of so many cycles one ends with a failed sync.
const BROKEN_EVERY: u64 = 5;

/// Beginnings of requests, none of them whole.
const HALVES: [&[u8]; 4] = [
    b"add 7472740a-0000-4000-8000-000000000000 torture 60000 60000 1000\r\nhalf",
    b"\0REQ\0\0\0\x12\0\x10\0\0torture",
    b"POST /api/v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{",
    b"\x16\x03\x01\x02\x00\x01",
];

#[derive(Clone, Copy, Debug)]
enum Disturbance {
    /// The process is stopped, and goes on later.
    Stop,
    /// The disk has no room for a while.
    FullDisk,
    /// The wall clock jumps.
    Clock,
    /// More connections than there are descriptors, with half a request each.
    Flood,
}

const DISTURBANCES: [Disturbance; 4] =
    [Disturbance::Stop, Disturbance::FullDisk, Disturbance::Clock, Disturbance::Flood];

impl Torture<'_> {
    pub(super) fn in_chaos(&self) -> Result<String> {
        let mut dice = Dice::new(self.options.seed);
        let books = Mutex::new(Books::default());
        let counts = Mutex::new([0_u64; DISTURBANCES.len()]);
        for cycle in 0..self.options.cycles {
            self.setup.set_clock(clock(&mut dice))?;
            let seed = dice.next();
            let disturb = |server: &Server, ending: &Ending| {
                let mut dice = Dice::new(seed);
                while !ending.has_begun() {
                    let at = dice.below(DISTURBANCES.len() as u64) as usize;
                    let what = DISTURBANCES[at];
                    what.happen(&self.setup, server, &mut dice)
                        .with_context(|| format!("{what:?}"))?;
                    counts.lock().unwrap_or_else(std::sync::PoisonError::into_inner)[at] += 1;
                    thread::sleep(Duration::from_millis(dice.below(PAUSE_MS)));
                }
                Ok(())
            };
            let end = if cycle % BROKEN_EVERY == BROKEN_EVERY - 1 {
                End::Lost(Server::break_disk)
            } else {
                End::Lost(Server::kill_under_load)
            };
            self.doors_cycle(&books, &mut dice, disturb, end)
                .with_context(|| format!("in cycle {cycle}"))?;
        }
        let did = self.finish_doors(&books, &mut dice)?;
        let counts = counts.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        let disturbed: Vec<String> = DISTURBANCES
            .iter()
            .zip(counts)
            .map(|(what, count)| format!("{count} {what:?}"))
            .collect();
        Ok(format!(
            "torture {}: {} power cuts and failed syncs; {}; {did}; nothing lost",
            self.mode.name(),
            self.options.cycles,
            disturbed.join(", "),
        ))
    }
}

impl Disturbance {
    fn happen(self, setup: &Setup, server: &Server, dice: &mut Dice) -> Result<()> {
        let lasts = Duration::from_millis(1 + dice.below(LASTS_MS));
        match self {
            Disturbance::Stop => {
                server.pause(true)?;
                thread::sleep(lasts);
                server.pause(false)?;
            }
            Disturbance::FullDisk => {
                setup.fill_disk(true)?;
                thread::sleep(lasts);
                setup.fill_disk(false)?;
            }
            Disturbance::Clock => setup.set_clock(clock(dice))?,
            Disturbance::Flood => {
                let at = server.addresses();
                let doors = [at.workq, at.gearman, at.http];
                let door = doors[dice.below(doors.len() as u64) as usize];
                let held: Vec<TcpStream> =
                    (0..FLOOD_CONNECTIONS).filter_map(|_| half_open(door, dice)).collect();
                thread::sleep(lasts);
                drop(held);
            }
        }
        Ok(())
    }
}

fn clock(dice: &mut Dice) -> i64 {
    dice.below(2 * CLOCK_SECONDS) as i64 - CLOCK_SECONDS as i64
}

/// A connection with half a request, if the server takes one more. Some end with a reset.
fn half_open(door: SocketAddr, dice: &mut Dice) -> Option<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&door, Duration::from_millis(100)).ok()?;
    let half = HALVES[dice.below(HALVES.len() as u64) as usize];
    // A server that has no room for it has closed it.
    stream.write_all(half).ok()?;
    if dice.percent(50) {
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).ok()?;
    }
    Some(stream)
}
