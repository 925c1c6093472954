//! The torture through every door: jobs come in through all of them and are worked through all that
//! have workers, the server is killed, and what each door acknowledged must be there.
//!
//! The books are simpler than the [`accountant`](super::accountant)'s, which knows everything about
//! Workq's jobs: here a job is there or not, finished or not, and has a state.

mod books;
mod gearman;
mod http;
mod load;

use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::cycles::{Torture, no_complaints};
use super::job::Dice;
use super::server::{Addresses, Server};
pub(super) use books::{Books, Door, Tally};
pub(super) use http::Http;
pub(super) use load::Manner;
use load::{Load, answered};

/// The queue that is worked through Workq, Gearman and the API.
pub(super) const QUEUE: &str = "torture";
/// Worked on in the same way while it moves from shard to shard. It keeps no done jobs; otherwise
/// it would never leave a shard.
pub(super) const TRAVELLING: &str = "torture-travels";
/// LightJQ's: its workers get MessagePack or JSON, not other doors' bytes.
const LIGHTJQ_QUEUE: &str = "torture-lightjq";
/// Longer than any run, by its wildest clock.
const TTL_MS: u64 = 30 * 86_400_000;
/// Long enough that no lease runs out because the test is slow, and short enough that some do if
/// the server lets a jump of the clock count.
const TTR_MS: u64 = 5 * 60_000;

impl Torture<'_> {
    /// Kills under a load through every door.
    pub(super) fn through_every_door(&self) -> Result<String> {
        let mut dice = Dice::new(self.options.seed);
        let books = Mutex::default();
        for cycle in 0..self.options.cycles {
            self.doors_cycle(&books, &mut dice, only_load, End::Lost(Server::kill))
                .with_context(|| format!("in cycle {cycle}"))?;
        }
        let did = self.finish_doors(&books, &mut dice)?;
        Ok(format!(
            "torture {}: {} kills; {did}; nothing lost",
            self.mode.name(),
            self.options.cycles
        ))
    }

    /// The last cycle of a torture through the doors, and what all of them acknowledged.
    pub(super) fn finish_doors(&self, books: &Mutex<Books>, dice: &mut Dice) -> Result<String> {
        self.doors_cycle(books, dice, only_load, End::Asked(Server::terminate))
            .context("in the cycle that ends by SIGTERM")?;
        let server = self.start(None)?;
        check(books, server.addresses(), true)?;
        server.terminate()?;

        summary(&lock(books).tally())
    }

    /// A load through every door for as long as `meanwhile` takes, which gets the time that it should take; ended by
    /// `end`.
    pub(super) fn doors_cycle(
        &self,
        books: &Mutex<Books>,
        dice: &mut Dice,
        meanwhile: impl FnOnce(&Server, Duration) -> Result<()>,
        end: End,
    ) -> Result<()> {
        let leak_seed = dice.percent(50).then(|| dice.next());
        let server = self.start(leak_seed)?;
        check(books, server.addresses(), false)?;
        keep_for_long(server.addresses(), TTR_MS)?;
        let time = self.load_time(dice);
        let (end, until_it_ends) = match end {
            End::Lost(end) => (end, true),
            End::Asked(end) => (end, false),
        };
        let manner = Manner {
            queue: QUEUE,
            until_it_ends,
            ttr_ms: TTR_MS,
            pace: Duration::ZERO,
            pulse: None,
        };
        let load = Load::new(books, vec![server.addresses()], manner);
        let ended = thread::scope(|scope| {
            load.start(scope);
            let disturbed = load.await_connected().and_then(|()| meanwhile(&server, time));
            load.ending.begin();
            let ended = end(server);
            load.has_ended.store(true, Ordering::SeqCst);
            ended.and(disturbed)
        });
        ended?;
        load.ending.verdict()?;
        verdict(books)
    }
}

/// A load through every door of all nodes for as long as `meanwhile` takes.
pub(super) fn through_nodes<T>(
    books: &Mutex<Books>,
    nodes: &[Addresses],
    manner: Manner<'_>,
    who: Clients,
    meanwhile: impl FnOnce() -> Result<T>,
) -> Result<T> {
    let load = Load::new(books, nodes.to_vec(), manner);
    let outcome = thread::scope(|scope| {
        match who {
            Clients::All => load.start(scope),
            Clients::Workers => load.start_workers(scope),
        }
        let outcome = meanwhile();
        load.ending.begin();
        outcome
    })?;
    load.ending.verdict()?;
    verdict(books)?;
    Ok(outcome)
}

/// Which clients take part in a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clients {
    All,
    Workers,
}

/// What was acknowledged; an error if one of the doors was of no use.
pub(super) fn summary(tally: &Tally) -> Result<String> {
    let submits = Door::ALL.map(|door| (door.name(), tally.submits[door as usize]));
    for (door, count) in submits {
        ensure!(count > 0, "nothing came in through {door}: the test proves nothing of it");
    }
    ensure!(tally.finishes > 0 && tally.states > 0, "nothing was worked on: {tally:?}");
    let submits = submits.map(|(door, count)| format!("{count} through {door}")).join(", ");
    let Tally { finishes, states, doubted, refused, .. } = tally;
    Ok(format!(
        "acknowledged submits: {submits}; {refused} refused for want of room; {finishes} finishes, \
         {states} states, {doubted} finishes in doubt had happened"
    ))
}

fn only_load(_: &Server, time: Duration) -> Result<()> {
    thread::sleep(time);
    Ok(())
}

/// What ends a cycle.
pub(super) enum End {
    /// The server is lost while its clients go on.
    Lost(fn(Server) -> Result<()>),
    /// The server ends in order, when its clients have stopped.
    Asked(fn(Server) -> Result<()>),
}

fn lock(books: &Mutex<Books>) -> MutexGuard<'_, Books> {
    books.lock().unwrap_or_else(PoisonError::into_inner)
}

fn verdict(books: &Mutex<Books>) -> Result<()> {
    no_complaints(lock(books).complaints())
}

/// Keeps done jobs until the run ends, however the clock jumps.
pub(super) fn keep_for_long(at: Addresses, ttr_ms: u64) -> Result<()> {
    let mut http = Http::connect(at.entrance(at.http))?;
    let settings = json!({ "keep_ms": TTL_MS, "ttr_default_ms": ttr_ms });
    for queue in [QUEUE, LIGHTJQ_QUEUE] {
        set(&mut http, queue, &settings)?;
    }
    Ok(())
}

/// Done jobs of the queue that travels go at once.
pub(super) fn keep_nothing(at: Addresses, ttr_ms: u64) -> Result<()> {
    let settings = json!({ "keep_ms": 0, "ttr_default_ms": ttr_ms });
    set(&mut Http::connect(at.entrance(at.http))?, TRAVELLING, &settings)
}

fn set(http: &mut Http, queue: &str, settings: &Value) -> Result<()> {
    let path = format!("/api/v1/queues/{queue}/settings");
    answered(http.ask("PUT", &path, "", Some(settings))?, 200)?;
    Ok(())
}

/// Looks at jobs that a door acknowledged, under the name that door gave them; the last time at all of them.
pub(super) fn check(books: &Mutex<Books>, at: Addresses, is_last: bool) -> Result<()> {
    let mut http = Http::connect(at.entrance(at.http))?;
    let jobs = lock(books).due_for_check(is_last);
    for (job, door, name) in jobs {
        let answer = http.get(&format!("/api/v1/jobs/{name}"))?;
        let status = match answer.status {
            200 => Some(text(&answer.body, "status")?),
            404 => None,
            _ => bail!("{} job {name}: {answer:?}", door.name()),
        };
        if door == Door::Jobq {
            let answer = http.get(&format!("/api/v0/job/{name}"))?;
            lock(books).observed_state(job, &answer.body["state"]);
            if status.is_some() {
                continue;
            }
        }
        lock(books).observed(job, status.as_deref());
    }
    verdict(books)
}

fn text(body: &Value, field: &str) -> Result<String> {
    let text = body[field].as_str().with_context(|| format!("no {field} in {body}"))?;
    Ok(text.to_owned())
}
