//! One session: the suites, their servers in turn, round by round, and whether the gates are met.

mod beside;

use crate::cli::SuiteArgs;
use crate::figures::{Figure, Figures};
use crate::load::Plan;
use crate::machine::{Machine, require_disk, require_room};
use crate::nodes::{self, Keeper};
use crate::report::{Judgement, Report, Scenario, Series};
use crate::run::{self, DISK_BYTES_PER_JOB, Site};
use crate::server::{Server, free_address};
use crate::suite::{AGAINST, Bound, Door, FEW, Gate, Load, Order, Peer, SUITES, Security, Suite};
use crate::workers::{self, Feed, Language};
use anyhow::{Context, Result, bail, ensure};
use std::path::{Path, PathBuf};

/// With `--quick` the number of jobs is divided by this.
const QUICK_DIVISOR: u64 = 100;
const RUNS: u32 = 5;

/// `suite`.
pub(crate) fn run(args: &SuiteArgs) -> Result<()> {
    require_disk(&args.dir)?;
    let machine = Machine::inspect(&args.dir)?;
    eprintln!("{}", machine.describe());
    let session = Session {
        args,
        machine: &machine,
        spindle: spindle(args)?,
        divisor: if args.quick { QUICK_DIVISOR } else { 1 },
        runs: args.runs.unwrap_or(if args.quick { 1 } else { RUNS }),
    };
    let (mut scenarios, mut gates) = (vec![], vec![]);
    let mut failures = vec![];
    for suite in SUITES.iter().filter(|suite| session.is_chosen(suite)) {
        // A suite that cannot be measured must not cost the figures of the others.
        match session.measure(suite) {
            Ok((measured, judged)) => {
                scenarios.extend(measured);
                gates.extend(judged);
            }
            Err(error) => {
                eprintln!("{}: not measured", suite.name);
                failures.push(format!("{}: {error:#}", suite.name));
            }
        }
    }
    let report = Report { machine, scenarios, gates };
    report.publish(args.json.as_deref())?;
    if !failures.is_empty() {
        bail!("not all suites could be measured:\n{}", failures.join("\n"));
    }
    let missed = report.gates.iter().filter(|gate| gate.met == Some(false)).count();
    ensure!(missed == 0, "{missed} of {} gates are not met", report.gates.len());
    Ok(())
}

/// The program to measure.
fn spindle(args: &SuiteArgs) -> Result<PathBuf> {
    let program = match &args.spindle {
        Some(program) => program.clone(),
        None => std::env::current_exe()?.with_file_name("spindle"),
    };
    ensure!(
        program.is_file(),
        "there is no program {}: build it, or name one with --spindle PROGRAM",
        program.display()
    );
    Ok(program)
}

/// Where `cargo xtask bench` installs libraries: this program is in `TARGET/release`.
fn libraries() -> Result<PathBuf> {
    let program = std::env::current_exe()?;
    let target = program.parent().and_then(Path::parent);
    Ok(target.context("this program is in no target folder: name one with --libraries")?.to_owned())
}

/// What the suites of a session share.
struct Session<'a> {
    args: &'a SuiteArgs,
    machine: &'a Machine,
    spindle: PathBuf,
    divisor: u64,
    runs: u32,
}

/// One of the servers that take turns.
struct Contestant {
    server: Server,
    name: String,
    load: Load,
    jobs: u64,
}

impl Session<'_> {
    fn is_chosen(&self, suite: &Suite) -> bool {
        let only = &self.args.only;
        match (only.is_empty(), &self.args.against) {
            (true, Some(_)) => AGAINST.contains(&suite.name),
            (true, None) => true,
            (false, _) => only.iter().any(|name| name == suite.name),
        }
    }

    fn measure(&self, suite: &Suite) -> Result<(Vec<Scenario>, Vec<Judgement>)> {
        match suite.load {
            Load::Floods => return self.flooded(suite),
            Load::Pages => return self.paged(suite),
            Load::Backups => return self.backed_up(suite),
            Load::Schedules => return self.scheduled(suite),
            Load::Nodes(keeper) => return self.shared(suite, keeper),
            Load::Shards => return self.sharded(suite),
            Load::Workers(language) => return self.worked(suite, language),
            _ => {}
        }
        let contestants = self.contestants(suite)?;
        let jobs: u64 = contestants.iter().map(|contestant| contestant.jobs).sum();
        require_room(&self.args.dir, jobs * DISK_BYTES_PER_JOB, suite.name)?;
        let scenarios = match suite.load {
            Load::WaitingBesideFew => self.take_turns_waiting(suite, &contestants)?,
            Load::LifeCyclesInTurns { connections } => {
                vec![self.take_short_turns(suite, &contestants, connections)?]
            }
            _ => vec![self.take_turns(suite, &contestants)?],
        };
        let mut judgements = vec![];
        for (figure, beside, bound) in self.gates(suite) {
            let before = judgements.len();
            judgements.extend(scenarios.iter().filter_map(|scenario| {
                let theirs = beside.map(|place| &scenario.series[place]);
                Judgement::of(&scenario.name, figure, &scenario.series[0], theirs, bound)
            }));
            ensure!(judgements.len() > before, "no run has the figure {figure:?}");
        }
        Ok((scenarios, judgements))
    }

    /// Spindle, followed by its peers in this suite or by the other program.
    fn contestants(&self, suite: &Suite) -> Result<Vec<Contestant>> {
        let (door, jobs) = (suite.door, suite.jobs / self.divisor);
        let (security, flags) = (suite.security, suite.flags);
        let (load, with_http) = (suite.load, matches!(suite.load, Load::Drains { .. }));
        let of_ours = |program: &Path| {
            let program = program.to_owned();
            Ok::<_, anyhow::Error>(if with_http {
                Server::SpindleDoors { program, gearman: free_address()?, http: free_address()? }
            } else {
                Server::Spindle { program, door, security, flags }
            })
        };
        let ours = of_ours(&self.spindle)?;
        let mut contestants = vec![Contestant { name: ours.name(), server: ours, load, jobs }];
        if let Some(program) = &self.args.against {
            let name = format!("against: {}", program.display());
            contestants.push(Contestant { name, server: of_ours(program)?, load, jobs });
            return Ok(contestants);
        }
        for peer in suite.peers {
            contestants.push(match (self.peer(*peer)?, load) {
                (Some(server), _) => Contestant { name: server.name(), server, load, jobs },
                (None, Load::Drains { connections, .. }) => Contestant {
                    name: "spindle, the oldest is next".to_owned(),
                    server: of_ours(&self.spindle)?,
                    load: Load::Drains { connections, order: Order::Age },
                    jobs,
                },
                (None, _) => Contestant {
                    name: format!("spindle, {FEW} waiting"),
                    server: of_ours(&self.spindle)?,
                    load,
                    jobs: FEW,
                },
            });
        }
        Ok(contestants)
    }

    /// What to start as a peer, unless that is Spindle itself.
    fn peer(&self, peer: Peer) -> Result<Option<Server>> {
        let programs = self.args.programs.clone();
        Ok(Some(match peer {
            Peer::Beanstalkd => Server::Beanstalkd { program: programs.beanstalkd, synced: false },
            Peer::BeanstalkdSynced => {
                Server::Beanstalkd { program: programs.beanstalkd, synced: true }
            }
            Peer::Gearmand => Server::Gearmand { program: programs.gearmand },
            Peer::PlainSpindle => Server::Spindle {
                program: self.spindle.clone(),
                door: Door::Workq,
                security: Security::Offered,
                flags: &[],
            },
            Peer::OpenSpindle | Peer::EarlyLeases => Server::Spindle {
                program: self.spindle.clone(),
                door: Door::Workq,
                security: Security::Plain,
                flags: &[],
            },
            Peer::EchoSynced => Server::EchoSynced,
            Peer::BareAxum => Server::BareAxum { threads: self.http_threads()? },
            Peer::PythonSqlite => Server::PythonSqlite { python: programs.python },
            Peer::FewWaiting | Peer::ByAge => return Ok(None),
        }))
    }

    /// How many threads of Spindle serve HTTP.
    fn http_threads(&self) -> Result<usize> {
        let server = Server::Spindle {
            program: self.spindle.clone(),
            door: Door::Api,
            security: Security::Plain,
            flags: &[],
        };
        let mut site = Site::open(&server, &self.args.dir)?;
        // Once requests of several connections are answered, all threads are there.
        site.play(Plan::submits(200, 8, 1))?;
        let threads = site.threads_named("spindle-http")?;
        ensure!(threads > 0, "no thread of {} is named spindle-http", self.spindle.display());
        Ok(threads)
    }

    /// The suite's gates: a figure, the place of the contestant it is beside, and the bound. Runs
    /// of --quick are too small to judge by. Beside another program each figure is listed once, and
    /// there is no bound to reach.
    fn gates(&self, suite: &Suite) -> Vec<(Figure, Option<usize>, Option<Bound>)> {
        if self.args.against.is_none() {
            let place =
                |peer| suite.peers.iter().position(|other| *other == peer).map(|place| place + 1);
            let bound = |gate: &Gate| gate.bound.filter(|_| !self.args.quick);
            let gates = suite.gates.iter();
            return gates
                .map(|gate| (gate.figure, gate.beside.and_then(place), bound(gate)))
                .collect();
        }
        let mut figures: Vec<Figure> = vec![];
        for gate in suite.gates {
            if !figures.contains(&gate.figure) {
                figures.push(gate.figure);
            }
        }
        figures.into_iter().map(|figure| (figure, Some(1), None)).collect()
    }

    /// Measures every contestant once per round, each time on a fresh server, so that whatever
    /// drifts hits all of them alike.
    fn take_turns(&self, suite: &Suite, contestants: &[Contestant]) -> Result<Scenario> {
        let mut scenario = self.scenario(suite, None, contestants);
        for round in 1..=self.runs {
            let mut half_load = None;
            for (contestant, series) in contestants.iter().zip(&mut scenario.series) {
                let Contestant { server, name, load, jobs } = contestant;
                let figures = run::once(server, *load, *jobs, &mut half_load, &self.args.dir)
                    .with_context(|| name.clone())?;
                self.progress(suite, round, name, &figures);
                series.runs.push(figures);
            }
        }
        Ok(scenario)
    }

    /// Starts all contestants in every round, and has them take short turns: disturbances of the
    /// machine hit both sides of a turn alike, and each side is first equally often.
    fn take_short_turns(
        &self,
        suite: &Suite,
        contestants: &[Contestant],
        connections: usize,
    ) -> Result<Scenario> {
        let mut scenario = self.scenario(suite, None, contestants);
        for round in 1..=self.runs {
            let mut sites = vec![];
            for Contestant { server, name, jobs, .. } in contestants {
                let mut site = Site::open(server, &self.args.dir)?;
                site.play(Plan::life_cycles(run::warm_up(*jobs), connections))
                    .with_context(|| name.clone())?;
                sites.push(site);
            }
            for turn in 0..run::TURNS {
                let mut order: Vec<usize> = (0..contestants.len()).collect();
                if turn % 2 == 1 {
                    order.reverse();
                }
                for at in order {
                    let Contestant { name, jobs, .. } = &contestants[at];
                    let plan = Plan::life_cycles((jobs / run::TURNS).max(1), connections);
                    let figures = sites[at].play(plan).with_context(|| name.clone())?;
                    self.progress(suite, round, name, &figures);
                    scenario.series[at].runs.push(figures);
                }
            }
        }
        Ok(scenario)
    }

    /// Fills every contestant once, has them take turns with all that waits, and starts them again.
    fn take_turns_waiting(
        &self,
        suite: &Suite,
        contestants: &[Contestant],
    ) -> Result<Vec<Scenario>> {
        let mut starts = self.scenario(suite, None, contestants);
        let mut sites = vec![];
        for (contestant, series) in contestants.iter().zip(&mut starts.series) {
            let mut site = Site::open(&contestant.server, &self.args.dir)?;
            let filled = site.fill(contestant.jobs).with_context(|| contestant.name.clone())?;
            self.progress(suite, 0, &contestant.name, &filled);
            // The rate of the fill is dropped, because it is not the rate with jobs waiting.
            series.runs.push(Figures { rate_per_s: None, ..filled });
            sites.push(site);
        }
        let kinds = run::among_waiting(suite.jobs / self.divisor);
        let mut scenarios = kinds.map(|(kind, _)| self.scenario(suite, Some(kind), contestants));
        // The first round warms up and is not counted.
        for round in 0..=self.runs {
            for (scenario, (_, plan)) in scenarios.iter_mut().zip(kinds) {
                for (series, site) in scenario.series.iter_mut().zip(&mut sites) {
                    let figures = site.play(plan).with_context(|| series.server.clone())?;
                    self.progress(suite, round, &series.server, &figures);
                    if round > 0 {
                        // The peak of memory is known from the fill.
                        series.runs.push(Figures { resident_peak_mib: None, ..figures });
                    }
                }
            }
        }
        for round in 1..=self.runs {
            for (series, site) in starts.series.iter_mut().zip(&mut sites) {
                let figures = site.restart().with_context(|| series.server.clone())?;
                self.progress(suite, round, &series.server, &figures);
                series.runs.push(figures);
            }
        }
        Ok(std::iter::once(starts).chain(scenarios).collect())
    }

    /// Life cycles on nodes and on one server in turn; then leaders are killed, and nodes are new.
    fn shared(&self, suite: &Suite, keeper: Keeper) -> Result<(Vec<Scenario>, Vec<Judgement>)> {
        ensure!(self.args.against.is_none(), "nodes are measured of one program at a time");
        let (program, dir) = (&self.spindle, &self.args.dir);
        let (jobs, divisor) = (suite.jobs / self.divisor, u32::try_from(self.divisor)?);
        // The log servers have their folders there.
        require_disk(&std::env::temp_dir())?;
        let all = jobs * (nodes::WAITING_PER_CYCLE + u64::from(self.runs) * 4);
        require_room(dir, all * DISK_BYTES_PER_JOB, suite.name)?;
        let scenario = |kind: &str, series: &[&str]| {
            let mut scenario = self.scenario(suite, Some(kind), &[]);
            let empty = |name: &&str| Series { server: (*name).to_owned(), runs: vec![] };
            scenario.series = series.iter().map(empty).collect();
            scenario
        };
        let mut cycles = scenario("life cycles", &["three nodes", "one server", "watched"]);
        let mut kills = scenario("killed", &["leader of the nodes", "leader of the log"]);
        let mut fresh = scenario("a new node", &["three nodes"]);
        let note = |series: &mut Series, round: u32, figures: Figures| {
            self.progress(suite, round, &series.server, &figures);
            series.runs.push(figures);
        };
        let mut site = nodes::Site::open(program, dir, keeper)?;
        site.cycle(jobs / 20)?;
        for round in 1..=self.runs {
            note(&mut cycles.series[0], round, site.cycle(jobs)?);
            note(&mut cycles.series[1], round, nodes::cycle_alone(program, dir, jobs)?);
            note(&mut cycles.series[2], round, site.cycle_watched(jobs)?);
        }
        let times = |times: u32| (times / divisor).max(1);
        note(&mut kills.series[0], 1, site.kill_leaders(times(nodes::KILLS))?);
        if let Some(figures) = site.kill_leaders_of_log(times(nodes::LOG_KILLS))? {
            note(&mut kills.series[1], 1, figures);
        }
        site.fill(jobs * nodes::WAITING_PER_CYCLE)?;
        for round in 1..=self.runs {
            note(&mut fresh.series[0], round, site.catch_up()?);
        }
        let [three, one, watched] = &cycles.series[..] else { bail!("there are three") };
        let mut judgements = vec![];
        let mut judge = |name: &str, figure, ours, theirs, bound: Option<Bound>| {
            let bound = bound.filter(|_| !self.args.quick);
            judgements.extend(Judgement::of(name, figure, ours, theirs, bound));
        };
        judge(&cycles.name, Figure::Rate, three, Some(one), Some(keeper.rate_min()));
        judge(&cycles.name, Figure::LagP99, watched, None, Some(nodes::LAG_US_MAX));
        for (series, bound) in
            kills.series.iter().zip([nodes::OUTAGE_S_MAX, nodes::LOG_OUTAGE_S_MAX])
        {
            let name = format!("{}: {}", kills.name, series.server);
            judge(&name, Figure::OutageP50, series, None, None);
            judge(&name, Figure::OutageP95, series, None, Some(bound));
            judge(&name, Figure::OutageMax, series, None, None);
        }
        let new = &fresh.series[0];
        judge(&fresh.name, Figure::CatchUpTime, new, None, Some(nodes::CATCH_UP_S_MAX));
        Ok((vec![cycles, kills, fresh], judgements))
    }

    /// Life cycles on one log and on several in turn, on fresh servers each time.
    fn sharded(&self, suite: &Suite) -> Result<(Vec<Scenario>, Vec<Judgement>)> {
        ensure!(self.args.against.is_none(), "shards are measured of one program at a time");
        let (program, dir, jobs) = (&self.spindle, &self.args.dir, suite.jobs / self.divisor);
        require_disk(&std::env::temp_dir())?;
        let mut scenario = self.scenario(suite, None, &[]);
        let several = format!("{} shards", nodes::SHARDS);
        let empty = |name: &str| Series { server: name.to_owned(), runs: vec![] };
        scenario.series = vec![empty(&several), empty("one log")];
        for round in 1..=self.runs {
            for (at, shards) in [(0, nodes::SHARDS), (1, 1)] {
                // With `--quick` there are too few jobs to show more than that it works, and it
                // works without control groups, too.
                let is_slow = !self.args.quick;
                let mut spread = nodes::Spread::open(program, dir, shards, is_slow)?;
                spread.cycle(jobs / 10)?;
                let figures = spread.cycle(jobs)?;
                self.progress(suite, round, &scenario.series[at].server, &figures);
                scenario.series[at].runs.push(figures);
            }
        }
        let [ours, theirs] = &scenario.series[..] else { bail!("there are two") };
        let bound = Some(nodes::RATE_MIN).filter(|_| !self.args.quick);
        let judged = Judgement::of(&scenario.name, Figure::Rate, ours, Some(theirs), bound);
        Ok((vec![scenario], judged.into_iter().collect()))
    }

    /// A worker of each library in turn, with jobs that wait and with jobs that come meanwhile.
    fn worked(&self, suite: &Suite, language: Language) -> Result<(Vec<Scenario>, Vec<Judgement>)> {
        ensure!(self.args.against.is_none(), "workers are measured of one program at a time");
        let programs = &self.args.programs;
        let libraries = programs.libraries.clone().map_or_else(libraries, Ok)?;
        let site = workers::Site::new(
            &self.spindle,
            &programs.redis,
            &libraries,
            &self.args.dir,
            language,
        )?;
        let (contestants, jobs) = (language.contestants(), suite.jobs / self.divisor);
        let (mut scenarios, mut judgements) = (vec![], vec![]);
        for feed in Feed::ALL {
            let mut scenario = self.scenario(suite, Some(feed.title()), &[]);
            for one in contestants {
                scenario.series.push(Series { server: one.name.to_owned(), runs: vec![] });
            }
            for round in 1..=self.runs {
                for (series, one) in scenario.series.iter_mut().zip(contestants) {
                    let figures = site.measure(one, feed, jobs).with_context(|| one.name)?;
                    self.progress(suite, round, one.name, &figures);
                    series.runs.push(figures);
                }
            }
            for (ours, theirs, bound) in language.pairs() {
                let (ours, theirs) = (&scenario.series[*ours], &scenario.series[*theirs]);
                let name = format!("{}: {}", scenario.name, ours.server);
                // The submitter may be slower than the worker.
                let bound = bound.filter(|_| feed == Feed::Before && !self.args.quick);
                judgements.extend(Judgement::of(&name, Figure::Rate, ours, Some(theirs), bound));
            }
            scenarios.push(scenario);
        }
        Ok((scenarios, judgements))
    }

    fn progress(&self, suite: &Suite, round: u32, name: &str, figures: &Figures) {
        eprintln!("{}: {round}/{} {name}: {}", suite.name, self.runs, figures.brief());
    }

    /// What is to be measured of a suite, or of one kind of load in it.
    fn scenario(&self, suite: &Suite, kind: Option<&str>, contestants: &[Contestant]) -> Scenario {
        let with = |text: String| kind.map_or(text.clone(), |kind| format!("{text}, {kind}"));
        let server =
            |contestant: &Contestant| Series { server: contestant.name.clone(), runs: vec![] };
        Scenario {
            name: with(suite.name.to_owned()),
            title: with(suite.title(self.divisor)),
            series: contestants.iter().map(server).collect(),
        }
    }
}
