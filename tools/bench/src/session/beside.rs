//! Suites in which something runs beside a load: floods, readers of pages, backups, schedules.

use super::Session;
use crate::backups::{self, Beside};
use crate::figures::Figure;
use crate::machine::require_room;
use crate::pages;
use crate::report::{Judgement, Scenario, Series};
use crate::run::DISK_BYTES_PER_JOB;
use crate::schedules;
use crate::shares::{self, Flood};
use crate::suite::{Bound, Suite};
use anyhow::{Context, Result, ensure};
use std::time::Duration;

impl Session<'_> {
    /// Floods the suite's door in each way, every time on a fresh server. The clients of a door are
    /// compared with what they had before the flood.
    pub(super) fn flooded(&self, suite: &Suite) -> Result<(Vec<Scenario>, Vec<Judgement>)> {
        ensure!(self.args.against.is_none(), "floods are measured of one program at a time");
        let jobs = suite.jobs / self.divisor;
        require_room(&self.args.dir, shares::DISK_BYTES / self.divisor, suite.name)?;
        let mut scenarios = vec![];
        let mut judgements = vec![];
        let is_wanted =
            |flood: &&Flood| self.args.floods.is_empty() || self.args.floods.contains(flood);
        for flood in Flood::of(suite.door).iter().filter(is_wanted) {
            let title = flood.title();
            let mut scenario = self.scenario(suite, Some(title), &[]);
            for door in shares::DOORS {
                for when in ["flooded", "another server flooded", "idle"] {
                    let server = format!("{door:?}, {when}");
                    scenario.series.push(Series { server, runs: vec![] });
                }
            }
            for round in 1..=self.runs {
                if !self.args.quick {
                    self.machine.settle(&self.args.dir)?;
                }
                let site = shares::Site { program: &self.spindle, dir: &self.args.dir, jobs };
                let time = shares::TIME / u32::try_from(self.divisor)?;
                let measured = site.measure(suite.door, *flood, time).context(title)?;
                for (series, figures) in scenario.series.iter_mut().zip(measured) {
                    let name = format!("{title}: {}", series.server);
                    self.progress(suite, round, &name, &figures);
                    series.runs.push(figures);
                }
            }
            for (door, of_door) in shares::DOORS.iter().zip(scenario.series.chunks(3)) {
                let bound = shares::bound(suite.door, *door);
                let bound = Some(bound).filter(|_| !self.args.quick);
                let name = format!("{}: {door:?}", scenario.name);
                let figure = Figure::RequestP99;
                for (beside, bound) in [(&of_door[2], bound), (&of_door[1], None)] {
                    let judged = Judgement::of(&name, figure, &of_door[0], Some(beside), bound);
                    judgements.extend(judged);
                }
            }
            scenarios.push(scenario);
        }
        Ok((scenarios, judgements))
    }

    /// Reads every web page beside a load, each judged beside a plain request; then what open pages
    /// cost that load.
    pub(super) fn paged(&self, suite: &Suite) -> Result<(Vec<Scenario>, Vec<Judgement>)> {
        ensure!(self.args.against.is_none(), "pages are measured of one program at a time");
        let jobs = suite.jobs / self.divisor;
        let cycles = jobs / pages::WAITING_PER_CYCLE;
        let life_cycles = cycles * u64::from(self.runs + 1) * 2;
        require_room(&self.args.dir, (jobs + life_cycles) * DISK_BYTES_PER_JOB, suite.name)?;
        let mut site = pages::Site::open(&self.spindle, &self.args.dir, jobs)?;
        let bound = |bound: f64| Some(Bound::AtMost(bound)).filter(|_| !self.args.quick);

        let mut read = self.scenario(suite, Some("each page"), &[]);
        for page in site.pages() {
            read.series.push(Series { server: page.to_owned(), runs: vec![] });
        }
        let mut open = self.scenario(suite, Some("open pages"), &[]);
        for viewers in pages::VIEWERS {
            open.series.push(Series { server: viewers.title(), runs: vec![] });
        }
        for round in 1..=self.runs {
            let requests = pages::REQUESTS / u32::try_from(self.divisor)?.min(pages::REQUESTS / 2);
            for (series, figures) in read.series.iter_mut().zip(site.read(requests, cycles)?) {
                self.progress(suite, round, &series.server, &figures);
                series.runs.push(figures);
            }
            for (series, viewers) in open.series.iter_mut().zip(pages::VIEWERS) {
                let figures = site.cycle(viewers, cycles).with_context(|| viewers.title())?;
                self.progress(suite, round, &series.server, &figures);
                series.runs.push(figures);
            }
        }

        let plain = &read.series[0];
        let p95_max = plain.median(Figure::RequestP95).map(pages::p95_us_max);
        let mut judgements = vec![];
        for series in &read.series[1..] {
            let name = format!("{}: {}", read.name, series.server);
            let (p95, bytes) = (Figure::RequestP95, Figure::AnswerBytes);
            judgements.extend(Judgement::of(&name, p95, series, None, p95_max.and_then(bound)));
            judgements.extend(Judgement::of(&name, bytes, series, None, bound(pages::BYTES_MAX)));
        }
        let nobody = &open.series[0];
        for (series, viewers) in open.series.iter().zip(pages::VIEWERS).skip(1) {
            let name = format!("{}: {}", open.name, series.server);
            let wanted = viewers.rate_min.map(Bound::AtLeast).filter(|_| !self.args.quick);
            judgements.extend(Judgement::of(&name, Figure::Rate, series, Some(nobody), wanted));
        }
        Ok((vec![read, open], judgements))
    }

    /// Each load beside a backup and without one, for as long, each round on a fresh server. Their
    /// order changes with the round, because the server's log grows meanwhile.
    pub(super) fn backed_up(&self, suite: &Suite) -> Result<(Vec<Scenario>, Vec<Judgement>)> {
        ensure!(self.args.against.is_none(), "backups are taken of one program at a time");
        let (dir, jobs) = (&self.args.dir, suite.jobs / self.divisor);
        require_room(dir, jobs * DISK_BYTES_PER_JOB * backups::COPIES, suite.name)?;
        let (mut scenarios, mut judgements) = (vec![], vec![]);
        for beside in Beside::ALL {
            let mut scenario = self.scenario(suite, Some(beside.title()), &[]);
            for server in ["a backup beside it", "no backup"] {
                scenario.series.push(Series { server: server.to_owned(), runs: vec![] });
            }
            let mut time = Duration::ZERO;
            for round in 1..=self.runs {
                let mut site = backups::Site::open(&self.spindle, dir, beside, jobs)?;
                let order = if round % 2 == 1 { [0, 1] } else { [1, 0] };
                for at in order {
                    if !self.args.quick {
                        self.machine.settle(dir)?;
                    }
                    let figures = if at == 0 { site.back_up()? } else { site.rest(time)? };
                    time = figures.backup_s.map_or(time, Duration::from_secs_f64);
                    let series = &mut scenario.series[at];
                    self.progress(suite, round, &series.server, &figures);
                    series.runs.push(figures);
                }
                if round == self.runs {
                    site.restore().context("the last backup")?;
                }
            }
            let (name, with, without) = (&scenario.name, &scenario.series[0], &scenario.series[1]);
            let bound = Some(backups::RATE_MIN).filter(|_| !self.args.quick);
            judgements.extend(Judgement::of(name, Figure::Rate, with, Some(without), bound));
            judgements.extend(Judgement::of(name, Figure::BackupTime, with, None, None));
            scenarios.push(scenario);
        }
        Ok((scenarios, judgements))
    }

    /// What schedules cost an idle server, and how late they fire, each round on a fresh server.
    pub(super) fn scheduled(&self, suite: &Suite) -> Result<(Vec<Scenario>, Vec<Judgement>)> {
        ensure!(self.args.against.is_none(), "schedules are measured of one program at a time");
        let divisor = u32::try_from(self.divisor)?;
        let count = u32::try_from(suite.jobs)? / divisor;
        let mut idle = self.scenario(suite, Some("idle"), &[]);
        for server in [format!("{count} schedules"), "no schedule".to_owned()] {
            idle.series.push(Series { server, runs: vec![] });
        }
        let mut due = self.scenario(suite, Some("due"), &[]);
        for spread in schedules::SPREADS {
            due.series.push(Series { server: spread.title(), runs: vec![] });
        }
        for round in 1..=self.runs {
            let mut site = schedules::Site::open(&self.spindle, &self.args.dir, count)?;
            let time = schedules::IDLE_TIME / divisor;
            let without = site.idle(time)?;
            site.put_far()?;
            for (series, figures) in idle.series.iter_mut().zip([site.idle(time)?, without]) {
                self.progress(suite, round, &series.server, &figures);
                series.runs.push(figures);
            }
            for (series, spread) in due.series.iter_mut().zip(schedules::SPREADS) {
                let seconds = (spread.seconds / divisor).max(1);
                let figures = site.fire(seconds).with_context(|| spread.title())?;
                self.progress(suite, round, &series.server, &figures);
                series.runs.push(figures);
            }
        }

        let bound = |bound: f64| Some(Bound::AtMost(bound)).filter(|_| !self.args.quick);
        let (with, without) = (&idle.series[0], &idle.series[1]);
        let idle_max = bound(schedules::IDLE_CPU_RATIO_MAX);
        let cost = Judgement::of(&idle.name, Figure::IdleCpu, with, Some(without), idle_max);
        let mut judgements = Vec::from_iter(cost);
        for (series, spread) in due.series.iter().zip(schedules::SPREADS) {
            let name = format!("{}: {}", due.name, series.server);
            let late_max = bound(schedules::LATENESS_US_MAX).filter(|_| spread.is_judged);
            let p99 = Judgement::of(&name, Figure::LatenessP99, series, None, late_max);
            let [p50, max] = [Figure::LatenessP50, Figure::LatenessMax]
                .map(|figure| Judgement::of(&name, figure, series, None, None));
            judgements.extend([p50, p99, max].into_iter().flatten());
        }
        Ok((vec![idle, due], judgements))
    }
}
