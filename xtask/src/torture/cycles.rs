//! Cycles of load and loss, and what must be left of the work after each.

use std::fmt::Display;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use super::accountant::Charge;
use super::client::Client;
use super::job::{Dice, Job};
use super::load::{Books, Load, QUEUES, finish, lease};
use super::mode::{Mode, Options};
use super::server::{Server, Setup, Trouble};

/// New jobs in one cycle, so that a fast machine does not make the checks endless.
const ADDS_MAX: u64 = 4_000;
/// Commands under way at once while the books are checked.
const CHECK_DEPTH: usize = 32;
/// Longer than a brief TTR and than the time that scheduled jobs are ahead: a worker that got
/// nothing for this long will get nothing more.
const DRAINED_AFTER_MS: u64 = 2_500;
/// This many cycles write enough for the oldest part of the log to be trimmed.
const TRIMMED_WITHIN: u64 = 3;
const COMPLAINTS_SHOWN: usize = 15;

/// One mode at work.
pub(super) struct Torture<'a> {
    pub(super) mode: Mode,
    pub(super) options: &'a Options,
    pub(super) setup: Setup,
    pub(super) books: Books,
}

/// What ends the server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Kill,
    BreakDisk,
    Terminate,
}

impl Torture<'_> {
    /// The modes in which nothing may be lost.
    pub(super) fn keep_everything(&self) -> Result<String> {
        let mut dice = Dice::new(self.options.seed);
        let end = if self.mode == Mode::Broken { End::BreakDisk } else { End::Kill };
        let (mut lost_starts, mut log_begins_at, mut trimmed) = (0, 0, 0);
        for cycle in 0..self.options.cycles {
            self.cycle(&mut dice, end).with_context(|| format!("in cycle {cycle}"))?;
            if cycle % 2 == 1 {
                self.kill_while_starting(&mut dice)?;
                lost_starts += 1;
            }
            let before = std::mem::replace(&mut log_begins_at, self.setup.log_begins_at()?);
            ensure!(log_begins_at >= before, "the log began at {before} before, now earlier");
            trimmed += u64::from(log_begins_at > before);
        }
        ensure!(
            trimmed > 0 || self.options.cycles < TRIMMED_WITHIN,
            "no segment was dropped: the torture did not reach compaction"
        );
        self.cycle(&mut dice, End::Terminate).context("in the cycle that ends by SIGTERM")?;
        self.drain().context("while working off what was left")?;
        let tally = self.books.open().tally();
        Ok(format!(
            "torture {}: {} {} under load, {lost_starts} while starting; acknowledged {} adds, \
             {} leases, {} finishes, {} deletes; {} in doubt; nothing lost; trimmed in {trimmed} cycles, up to record \
             {log_begins_at}",
            self.mode.name(),
            self.options.cycles,
            if end == End::BreakDisk { "failed syncs" } else { "kills" },
            tally.adds,
            tally.leases,
            tally.finishes,
            tally.deletes,
            tally.in_doubt,
        ))
    }

    /// The mode that shows that the power cut really loses data: each cycle starts with nothing.
    pub(super) fn lose_something(&self) -> Result<String> {
        let mut dice = Dice::new(self.options.seed);
        let (mut acknowledged, mut lost, mut lossy) = (0, 0, 0);
        for _ in 0..self.options.cycles {
            self.setup.clear()?;
            let fresh = Torture { books: Books::new(), setup: self.setup.clone(), ..*self };
            fresh.cycle(&mut dice, End::Kill)?;
            let server = fresh.start(None)?;
            check(&fresh.books, &mut Client::connect(server.address())?)?;
            server.kill()?;
            let books = fresh.books.open();
            acknowledged += books.tally().adds;
            let losses =
                books.complaints().iter().filter(|c| c.charge == Charge::Lost).count() as u64;
            lost += losses;
            lossy += u64::from(losses > 0);
        }
        ensure!(
            lost > 0,
            "nothing was lost without syncs ({acknowledged} adds acknowledged): either the \
             power-cut library holds nothing back, or --sync os syncs; the test proves nothing"
        );
        Ok(format!(
            "torture {}: {} power cuts without syncs; of {acknowledged} adds acknowledged {lost} \
             jobs lost or changed, in {lossy} cycles, as must be",
            self.mode.name(),
            self.options.cycles,
        ))
    }

    pub(super) fn start(&self, leak_seed: Option<u64>) -> Result<Server> {
        let mut server = self.setup.spawn(leak_seed)?;
        server.wait_ready()?;
        self.books.open().server_started();
        Ok(server)
    }

    fn cycle(&self, dice: &mut Dice, end: End) -> Result<()> {
        let leak_seed = dice.percent(50).then(|| dice.next());
        let server = self.start(leak_seed)?;
        let address = server.address();
        check(&self.books, &mut Client::connect(address)?)?;
        self.verdict()?;

        let time = self.load_time(dice);
        let load = match end {
            // If a segment could not be prepared, there is no room for new jobs until the log
            // fails.
            End::BreakDisk => {
                Load::new(&self.books, address, ADDS_MAX * 10).on_small_disk().until_it_ends()
            }
            End::Kill | End::Terminate => Load::new(&self.books, address, ADDS_MAX),
        };
        let (ended, surprises) = load.run(dice.next(), time, || match end {
            End::Kill => server.kill_under_load(),
            End::BreakDisk => server.break_disk(Trouble::SyncsFail),
            End::Terminate => server.terminate(),
        });
        ended?;
        self.books.open().server_ended();
        surprises?;
        if self.mode != Mode::PowerOs {
            self.verdict()?;
        }
        Ok(())
    }

    /// How long a cycle's load lasts: a quarter of the longest time at least.
    pub(super) fn load_time(&self, dice: &mut Dice) -> Duration {
        let longest_ms = (self.options.seconds * 1_000.0) as u64;
        Duration::from_millis(longest_ms / 4 + dice.below(longest_ms.max(2) * 3 / 4))
    }

    /// A crash during recovery, before any client was answered.
    fn kill_while_starting(&self, dice: &mut Dice) -> Result<()> {
        let server = self.setup.spawn(Some(dice.next()))?;
        // This sleep does not wait for anything: it makes the moment different each time.
        std::thread::sleep(Duration::from_millis(dice.below(30)));
        server.kill()
    }

    /// The last server: whatever can be worked is worked, the rest is finished without a lease, and
    /// every job must have ended once.
    pub(super) fn drain(&self) -> Result<()> {
        let server = self.start(None)?;
        let mut client = Client::connect(server.address())?;
        work_off(&self.books, &mut client)?;
        close(&self.books, &mut client)?;
        drop(client);
        server.terminate()?;

        let server = self.start(None)?;
        check(&self.books, &mut Client::connect(server.address())?)?;
        self.verdict()?;
        server.terminate()
    }

    pub(super) fn verdict(&self) -> Result<()> {
        no_complaints(self.books.open().complaints())
    }
}

/// Looks at every job, and at the result of every finished one.
pub(super) fn check(books: &Books, client: &mut Client) -> Result<()> {
    let jobs = books.open().jobs();
    let mut finished = Vec::new();
    for jobs in jobs.chunks(CHECK_DEPTH) {
        for job in jobs {
            client.ask(&format!("inspect job {job}"))?;
        }
        for job in jobs {
            let found = client.hear_inspection()?;
            let now_ms = books.now_ms();
            if books.open().observed(*job, found.as_ref(), now_ms) {
                finished.push(*job);
            }
        }
    }
    for jobs in finished.chunks(CHECK_DEPTH) {
        for job in jobs {
            client.ask(&format!("result {job} 0"))?;
        }
        for job in jobs {
            let found = client.hear_result()?;
            books.open().observed_result(*job, found.as_ref());
        }
    }
    Ok(())
}

/// Works whatever can be worked, finishes the rest without a lease, and looks at all of it.
pub(super) fn work_off(books: &Books, client: &mut Client) -> Result<()> {
    check(books, client)?;
    no_complaints(books.open().complaints())?;
    while let Some(job) = lease(books, client, DRAINED_AFTER_MS)? {
        finish(books, client, job, (true, b"drained".to_vec()))?;
    }
    let left = books.open().unfinished();
    for job in left {
        finish_held(books, client, job)?;
    }
    check(books, client)
}

/// Every job must have ended once, and no queue have any left.
pub(super) fn close(books: &Books, client: &mut Client) -> Result<()> {
    books.open().close();
    for queue in QUEUES.split(' ') {
        let lens = client.queue_lens(queue)?;
        ensure!(lens == (0, 0), "{queue} still has (ready, scheduled) jobs: {lens:?}");
    }
    no_complaints(books.open().complaints())
}

/// A job that is no longer leased out is held by a worker that went away, or is dead.
fn finish_held(books: &Books, client: &mut Client, job: Job) -> Result<()> {
    client.ask(&format!("inspect job {job}"))?;
    if let Some(found) = client.hear_inspection()?
        && (found.state == 0 || found.state == 3)
    {
        books.open().complain(job, "is ready, but no lease gives it");
    }
    finish(books, client, job, (true, b"held".to_vec()))?;
    Ok(())
}

/// Fails with the first of the complaints, if there are any.
pub(super) fn no_complaints(complaints: &[impl Display]) -> Result<()> {
    if complaints.is_empty() {
        return Ok(());
    }
    let shown: Vec<String> =
        complaints.iter().take(COMPLAINTS_SHOWN).map(ToString::to_string).collect();
    bail!("{} complaints, the first:\n{}", complaints.len(), shown.join("\n"))
}
