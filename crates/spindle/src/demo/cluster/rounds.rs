//! Jobs in rounds: in the middle of each the leader is killed, at its end every job is accounted for.

use std::{
    sync::Arc,
    thread::sleep,
    time::{Duration, Instant},
};

use anyhow::{Context, bail};

use super::stage::{Leader, Node, Stage};
use crate::{
    client::when::now_ms,
    demo::{
        account::Sums,
        crew::{self, AnyNode, Numbers, Shared},
        route::Route,
        show::Screen,
    },
    output::grouped,
};

/// How often to check how far the jobs are.
const LOOK: Duration = Duration::from_millis(50);
/// How often to print which node leads, and how far the jobs are.
const SAY: Duration = Duration::from_secs(5);
/// After this time without any progress, the demo gives up.
const IDLE_MAX: Duration = Duration::from_secs(120);
/// How many numbers for jobs of a route there are in each millisecond, so that no two runs on a log submit
/// the same job.
const NUMBERS_PER_MS: u64 = 1_024;

/// Rounds, one after the other.
pub struct Rounds<'a> {
    stage: &'a Stage,
    nodes: &'a [Node],
    shared: &'a Arc<Shared>,
    screen: &'a Screen,
    client: AnyNode,
    leader: Leader,
    /// The number of the next job.
    first: usize,
    /// What all rounds before this one came to.
    totals: Sums,
    said: Instant,
}

impl<'a> Rounds<'a> {
    /// Before the first one.
    pub fn new(
        stage: &'a Stage,
        nodes: &'a [Node],
        shared: &'a Arc<Shared>,
        screen: &'a Screen,
    ) -> anyhow::Result<Self> {
        let leader = stage.await_leader(nodes, None)?;
        let first = usize::try_from(now_ms() * NUMBERS_PER_MS)?;
        let (client, totals) = (shared.client(), Sums::default());
        let said = Instant::now();
        let rounds = Self { stage, nodes, shared, screen, client, leader, first, totals, said };
        rounds.say_leader();
        Ok(rounds)
    }

    /// Plays a round with so many jobs of each route.
    pub fn play(&mut self, jobs: u32) -> anyhow::Result<Vec<(Route, Sums)>> {
        self.shared.begin(self.first, jobs);
        self.first += jobs as usize;
        let (mut was_killed, mut before, mut moved) = (false, Numbers::default(), Instant::now());
        loop {
            sleep(LOOK);
            self.revive()?;
            let now = self.shared.numbers();
            if self.said.elapsed() >= SAY {
                self.say(now)?;
            }
            if !was_killed && now.accepted * 2 >= now.all {
                was_killed = true;
                self.kill_leader(now)?;
            }
            if was_killed && now.accepted == now.all && self.client.unfinished()? == 0 {
                return self.end();
            }
            if now != before {
                (before, moved) = (now, Instant::now());
            }
            if moved.elapsed() >= IDLE_MAX {
                let trouble = self.shared.trouble();
                bail!(
                    "nothing happens any more: {}",
                    trouble.unwrap_or("no error was seen".to_owned())
                );
            }
        }
    }

    /// Accounts for all jobs of the round.
    fn end(&mut self) -> anyhow::Result<Vec<(Route, Sums)>> {
        let rows = crew::audit(self.shared).context("no node says what was done")?;
        let sums = rows.iter().fold(Sums::default(), |sums, (_, more)| sums.plus(*more));
        self.totals = self.totals.plus(sums);
        let Sums { jobs, again, lost } = sums;
        let count = |count: usize| grouped(count as u64);
        self.screen.line(format!(
            "the nodes were asked for each of {} acknowledged jobs: {} done, {} of them given out twice, lost: {}",
            count(jobs),
            count(jobs - lost),
            count(again),
            count(lost)
        ));
        Ok(rows)
    }

    /// Kills the leader as a crash would, waits for the next one, and starts the killed one again.
    fn kill_leader(&mut self, now: Numbers) -> anyhow::Result<()> {
        let leader = self.stage.await_leader(self.nodes, None)?;
        // Resets the measurement.
        self.shared.longest_pause();
        let pid = self.stage.kill(leader.name)?;
        let Numbers { accepted, worked, .. } = now;
        self.screen.line(format!(
            "SIGKILL for {}, process {pid}, which leads: {accepted} jobs of this round acknowledged, {worked} done",
            leader.name
        ));
        let next = self.stage.await_leader(self.nodes, Some(leader.name))?;
        self.client.unfinished().context("the new leader does not answer")?;
        self.shared.answered();
        self.lead(next);
        self.revive()
    }

    /// Reports that another node leads, and how long clients had no answer meanwhile.
    fn lead(&mut self, leader: Leader) {
        self.leader = leader;
        let ms = grouped(self.shared.longest_pause().as_millis() as u64);
        let Leader { name, epoch } = leader;
        self.screen
            .line(format!("{name} leads now, epoch {epoch}; clients had no answer for {ms} ms"));
    }

    /// Starts servers again that were killed, by the demo or by whoever watches it.
    fn revive(&self) -> anyhow::Result<()> {
        for (name, pid) in self.stage.revive()? {
            self.screen.line(format!("{name} is started again, as process {pid}"));
        }
        Ok(())
    }

    fn say(&mut self, now: Numbers) -> anyhow::Result<()> {
        self.said = Instant::now();
        let leader = self.stage.await_leader(self.nodes, None)?;
        if leader.epoch == self.leader.epoch {
            self.shared.longest_pause();
        } else {
            // The former leader was stopped by someone else, not by the demo.
            self.lead(leader);
        }
        let count = |count: usize| grouped(count as u64);
        let mut line = format!(
            "{} leads, epoch {}: {} jobs acknowledged, {} done, lost: {}",
            self.leader.name,
            self.leader.epoch,
            count(self.totals.jobs + now.accepted),
            // A worker may finish a job before the submitter has its answer.
            count(self.totals.jobs - self.totals.lost + now.worked.min(now.accepted)),
            count(self.totals.lost)
        );
        if now.accepted == now.all {
            // A job may have been leased to a worker while the answer to that was lost with the leader.
            let left = self.client.unfinished()?;
            line += &format!(
                "; {left} come back when the leases end that the crash took from their workers"
            );
        }
        self.screen.line(line);
        Ok(())
    }

    fn say_leader(&self) {
        let Leader { name, epoch } = self.leader;
        self.screen.line(format!("{name} leads, epoch {epoch}; clients may ask any node"));
    }
}
