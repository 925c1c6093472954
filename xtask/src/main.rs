//! The project's chores, as `cargo xtask ...`.
//!
//! `test` is everything that has to pass. All of it is built once, for debugging: the tests, and the programs that
//! its other steps start. The chores that are called by themselves start release builds.

mod api_properties;
mod clients;
mod debian;
mod dependencies;
mod examples;
mod failures;
mod fuzz;
mod libraries;
mod nats;
mod packages;
mod process;
mod side_by_side;
mod steps;
mod torture;
mod workspace;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use clap::{Parser, Subcommand, ValueEnum};

use api_properties::Document;
use libraries::Language;
use side_by_side::Program;
use steps::Steps;
use torture::{LogKind, Mode, Options};
use workspace::{Build, call, cargo, cargo_path, root};

const SMOKE_CYCLES: u64 = 5;
const SMOKE_SECONDS: f64 = 0.8;
/// For a cluster, whose faults last several times as long.
const SMOKE_SECONDS_OF_CLUSTER: f64 = 0.3;
/// Of the cluster on PostgreSQL; the one on NATS has one log.
const SMOKE_SHARDS: u8 = 2;
const SMOKE_SEEDS: &str = "200";
/// The same, with several records on their way to the log.
const SMOKE_SEEDS_IN_FLIGHT: &str = "20";
const API_SEED: u64 = 1;
const FUZZ_SECONDS: u64 = 60;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "The project's chores")]
struct Cli {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Everything that has to pass, with a summary at the end
    Test {
        /// Fuzzes too, a minute for each target; needs a nightly compiler
        #[arg(long)]
        long: bool,
    },
    /// Measure Spindle and its peers; arguments go to the load generator
    #[command(disable_help_flag = true)]
    Bench {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Simulate: `--seeds N` searches, `--seed N` reruns one
    #[command(disable_help_flag = true)]
    Sim {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Check licences, sources and versions of what the lock file brings against deny.toml
    Dependencies,
    /// Put the NATS server that tests need into the target folder
    NatsServer,
    /// Write pictures of the web pages into docs/images; needs root once, to install a browser
    Screenshots,
    /// Build the Debian package from the release program, install and purge it in a folder
    Debian,
    /// Check and test one of the client libraries in `clients`
    ClientLibrary {
        /// Its language
        language: Language,
        /// With the program that `test` has built
        #[arg(long, hide = true)]
        built: bool,
    },
    /// Test the HTTP doors with requests made from their own OpenAPI documents
    ApiProperties {
        /// Seed of the requests: each seed makes others
        #[arg(long, default_value_t = API_SEED)]
        seed: u64,
        /// With the program that `test` has built
        #[arg(long, hide = true)]
        built: bool,
    },
    /// Run the fuzz targets one after the other; needs a nightly compiler
    Fuzz {
        /// One target only [default: all of them]
        target: Option<String>,
        /// How long each one runs
        #[arg(long, value_name = "S", default_value_t = FUZZ_SECONDS)]
        seconds: u64,
    },
    /// Kill the real server again and again under load and check what it acknowledged
    Torture(TortureArgs),
}

#[derive(clap::Args)]
struct TortureArgs {
    /// Kills under load in each mode
    #[arg(long, default_value_t = 20)]
    cycles: u64,
    /// One mode only [default: all of them]
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Longest load of a cycle, in seconds
    #[arg(long, value_name = "S", default_value_t = 2.0)]
    seconds: f64,
    /// Seed of the choices: the same seed repeats them, but not their timing
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// One log of the mode `cluster` only [default: all of them]
    #[arg(long, value_enum)]
    log: Option<LogKind>,
    /// How many shards the cluster of the mode `cluster` has, whose queues move then
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=8))]
    shards: u8,
    /// Program to start instead of the release build; it gets `serve` and its flags
    #[arg(long, value_name = "PROGRAM")]
    server_cmd: Option<PathBuf>,
    /// With the programs that `test` has built
    #[arg(long, hide = true, conflicts_with = "server_cmd")]
    built: bool,
}

fn main() -> ExitCode {
    match run(Cli::parse().chore) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(chore: Chore) -> Result<()> {
    match chore {
        Chore::Test { long } => test(long),
        Chore::Bench { args } => {
            Build::Release.make(&["spindle", "spindle-bench"])?;
            if measures_workers(&args) {
                clients::install_worker_peers()?;
                for language in Language::value_variants() {
                    language.install()?;
                }
            }
            call(Build::Release.path("spindle-bench")?, &args)
        }
        Chore::Sim { args } => {
            Build::Release.make(&["spindle-sim"])?;
            call(Build::Release.path("spindle-sim")?, &args)
        }
        Chore::Dependencies => dependencies::check(),
        Chore::NatsServer => nats::install_missing(),
        Chore::Screenshots => {
            packages::install_missing()?;
            // For the whole workspace, because that is what is built for its tests.
            cargo(&["test", "--workspace", "--test", "screenshots"])
        }
        Chore::Debian => {
            Build::Release.make(&["spindle"])?;
            debian::check(Build::Release)
        }
        Chore::ClientLibrary { language, built } => language.test(&server(built)?),
        Chore::ApiProperties { seed, built } => {
            clients::install_schemathesis()?;
            api_properties(seed, &server(built)?)
        }
        Chore::Fuzz { target, seconds } => {
            fuzz::install()?;
            for name in target.map_or_else(fuzz::targets, |name| Ok(vec![name]))? {
                fuzz::run(&name, seconds)?;
            }
            Ok(())
        }
        Chore::Torture(args) => torture(&args),
    }
}

fn test(long: bool) -> Result<()> {
    let mut steps = Steps::default();
    steps.run("dependencies", dependencies::check);
    steps.run("examples", || examples::all_are_run(&dependencies::metadata()?));
    steps.run("Debian packages", packages::install_missing);
    steps.run("NATS server", nats::install_missing);
    steps.run("client libraries", clients::install_missing);
    steps.run("alert rules", alert_rules);
    let mut programs = Vec::new();
    // Cargo builds a package's programs with its tests, but not this library.
    let built = steps.run("tests and programs are built", || {
        programs = side_by_side::test_programs()?;
        Build::Debug.make(&["spindle-powercut"])
    });
    if built {
        match debian::impossible_here() {
            Some(reason) => steps.skip("Debian package", reason),
            None => drop(steps.run("Debian package", || debian::check(Build::Debug))),
        }
    }
    run_tests(&mut steps, programs, built);
    if built {
        run_loads(&mut steps);
    }
    if long && steps.run("cargo-fuzz", fuzz::install) {
        for name in fuzz::targets()? {
            steps.run(format!("fuzz: {name}"), || fuzz::run(&name, FUZZ_SECONDS));
        }
    }
    steps.finish()
}

/// Runs all tests and the other steps that mostly wait, side by side; with built programs also the
/// steps that need them.
fn run_tests(steps: &mut Steps, programs: Vec<Program>, built: bool) {
    let tests: Vec<String> = programs.iter().map(|program| program.name.clone()).collect();
    let mut all = Vec::new();
    if built {
        match with_programs() {
            Ok(others) => all.extend(others),
            Err(error) => {
                steps.note("what else is run".to_owned(), Duration::ZERO, Err(error));
            }
        }
    }
    all.extend(programs);
    eprintln!("==> {} programs side by side", all.len());
    let began = Instant::now();
    // One more than there are processors, because most of them mostly wait.
    let ended = side_by_side::run(all, side_by_side::processors() + 1);
    let (of_tests, others): (Vec<_>, Vec<_>) =
        ended.into_iter().partition(|ended| tests.contains(&ended.name));
    let failures = of_tests.iter().filter_map(|ended| {
        let error = ended.outcome.as_ref().err()?;
        Some(format!("{}:\n{error:#}", ended.name))
    });
    let failures: Vec<String> = failures.collect();
    let outcome = if failures.is_empty() { Ok(()) } else { Err(anyhow!(failures.join("\n"))) };
    steps.note(format!("{} programs of tests", of_tests.len()), began.elapsed(), outcome);
    for ended in others {
        steps.note(ended.name, ended.took, ended.outcome);
    }
}

/// Runs the benchmark suites and the torture of each mode, with the programs that were built. They put servers under
/// load, so there are no more of them at a time than processors.
fn run_loads(steps: &mut Steps) {
    let mut possible = Vec::new();
    for mode in Mode::value_variants().iter().copied() {
        match mode.impossible_here() {
            Some(reason) => steps.skip(format!("torture: {}", mode.name()), reason),
            None => possible.push(mode),
        }
    }
    match loads(&possible) {
        Ok(programs) => {
            eprintln!("==> {} programs with load, side by side", programs.len());
            for ended in side_by_side::run(programs, side_by_side::processors()) {
                steps.note(ended.name, ended.took, ended.outcome);
            }
        }
        Err(error) => {
            steps.note("benchmark suites and torture".to_owned(), Duration::ZERO, Err(error));
        }
    }
}

/// The benchmark suites and the torture of these modes; those that take longest first.
fn loads(modes: &[Mode]) -> Result<Vec<Program>> {
    // Each suite runs with a few jobs, against the real peers; nothing is judged.
    let target = root().join("target");
    let suites = ["suite", "--quick", "--dir", &target.to_string_lossy()];
    let mut all = vec![program("benchmark suites", Build::Debug.path("spindle-bench")?, &suites)];
    let cycles = SMOKE_CYCLES.to_string();
    for mode in modes.iter().rev() {
        let mut add = |name: &str, seconds: f64, others: &[&str]| -> Result<()> {
            let (mode, seconds) = (mode.name(), seconds.to_string());
            let mut arguments = vec!["torture", "--built", "--mode", &mode];
            arguments.extend(["--cycles", &cycles, "--seconds", &seconds]);
            arguments.extend(others);
            all.push(program(&format!("torture: {name}"), workspace::itself()?, &arguments));
            Ok(())
        };
        if *mode == Mode::Cluster {
            let shards = SMOKE_SHARDS.to_string();
            add("cluster on NATS", SMOKE_SECONDS_OF_CLUSTER, &["--log", "nats"])?;
            let of_shards = ["--log", "pgsql", "--shards", &shards];
            add("cluster on PostgreSQL", SMOKE_SECONDS_OF_CLUSTER, &of_shards)?;
        } else {
            add(&mode.name(), SMOKE_SECONDS, &[])?;
        }
    }
    Ok(all)
}

fn program(name: &str, path: PathBuf, arguments: &[&str]) -> Program {
    let mut command = Command::new(path);
    command.args(arguments).current_dir(root());
    Program { name: name.to_owned(), command }
}

/// The steps that run beside the tests, with the programs that were built; the longest ones first.
fn with_programs() -> Result<Vec<Program>> {
    let mut all = Vec::new();
    let mut add = |name: &str, path: PathBuf, arguments: &[&str]| {
        all.push(program(name, path, arguments));
    };
    for language in Language::value_variants() {
        let known = language.to_possible_value().context("it has a name")?;
        let arguments = ["client-library", known.get_name(), "--built"];
        add(language.step(), workspace::itself()?, &arguments);
    }
    add("API properties", workspace::itself()?, &["api-properties", "--built"]);
    let examples = ["test", "--doc", "--workspace"];
    add("examples in the documentation of code", cargo_path(), &examples);
    let simulator = Build::Debug.path("spindle-sim")?;
    add("simulation", simulator.clone(), &["--seeds", SMOKE_SEEDS]);
    let in_flight = ["--profile", "in-flight", "--seeds", SMOKE_SEEDS_IN_FLIGHT];
    add("simulation in flight", simulator.clone(), &in_flight);
    add("simulation of nodes", simulator, &["--nodes", "--seeds", SMOKE_SEEDS]);
    Ok(all)
}

/// The server to test with: one that is there already, or a release build.
fn server(built: bool) -> Result<PathBuf> {
    if built {
        return Build::Debug.path("spindle");
    }
    Build::Release.make(&["spindle"])?;
    Build::Release.path("spindle")
}

/// Whether suites of the load generator start workers of client libraries: those named accordingly
/// do, and without a name all suites run.
fn measures_workers(args: &[String]) -> bool {
    let of_one = |arg: &String| arg == "--only" || arg.starts_with("--only=");
    let asks = args.iter().any(|arg| arg == "--help" || arg == "--against");
    let names_workers = args.iter().any(|arg| arg.contains("-worker"));
    names_workers || !(asks || args.iter().any(of_one))
}

/// Tests what raises the alerts that come with the server, and what does not.
fn alert_rules() -> Result<()> {
    let folder = root().join("deploy/prometheus");
    for (verb, file) in [("check", "alerts.yml"), ("test", "alerts_test.yml")] {
        call("promtool", &[verb, "rules", &folder.join(file).to_string_lossy()])?;
    }
    Ok(())
}

fn api_properties(seed: u64, server: &Path) -> Result<()> {
    for document in Document::ALL {
        let cases = api_properties::run(document, seed, server)?;
        println!("{cases} cases made from {}", document.path());
    }
    Ok(())
}

fn torture(args: &TortureArgs) -> Result<()> {
    let build = if args.built { Build::Debug } else { Build::Release };
    let program = match &args.server_cmd {
        Some(program) => {
            build.make(&["spindle-powercut"])?;
            program.canonicalize().with_context(|| format!("{}", program.display()))?
        }
        None => {
            if !args.built {
                build.make(&["spindle", "spindle-powercut"])?;
            }
            build.path("spindle")?
        }
    };
    let options = Options {
        cycles: args.cycles,
        seconds: args.seconds,
        seed: args.seed,
        program,
        library: build.path("libspindle_powercut.so")?,
        logs: args.log.map_or_else(|| LogKind::value_variants().to_vec(), |log| vec![log]),
        shards: args.shards,
    };
    let modes = args.mode.as_ref().map_or(Mode::value_variants(), std::slice::from_ref);
    for mode in modes.iter().copied() {
        if let Some(reason) = mode.impossible_here() {
            ensure!(args.mode.is_none(), "{}: {reason}", mode.name());
            println!("torture {}: skipped: {reason}", mode.name());
            continue;
        }
        if mode == Mode::Cluster {
            nats::install_missing()?;
            packages::install(&["postgresql", "iproute2"])?;
        }
        println!("{}", torture::run(mode, &options)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_behind_bench_and_sim_are_passed_on() {
        let parsed = |line: &str| Cli::try_parse_from(line.split(' ')).map(|cli| cli.chore);
        let Ok(Chore::Bench { args }) = parsed("xtask bench --help -c 8") else {
            panic!("bench takes any arguments")
        };
        assert_eq!(args, ["--help", "-c", "8"]);
        let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert!(measures_workers(&words("suite --runs 5")));
        assert!(measures_workers(&words("suite --only fair-100k,node-worker")));
        assert!(!measures_workers(&words("suite --only=fair-100k")));
        assert!(!measures_workers(&words("suite --help")));
        let Ok(Chore::Sim { args }) = parsed("xtask sim --seeds 200") else {
            panic!("sim takes any arguments")
        };
        assert_eq!(args, ["--seeds", "200"]);
        assert!(parsed("xtask torture --mode power-os --cycles 1").is_ok());
        assert!(parsed("xtask torture --mode cluster --log pgsql").is_ok());
        assert!(parsed("xtask torture --mode gently").is_err());
    }

    #[test]
    fn all_modes_are_tortured_by_commands_that_are_understood() {
        let programs = loads(Mode::value_variants()).unwrap();
        let names: Vec<&str> = programs.iter().map(|program| program.name.as_str()).collect();
        for mode in Mode::value_variants() {
            let step = format!("torture: {}", mode.name());
            let on_a_log = format!("{step} on ");
            let is_one = |name: &&&str| **name == step || name.starts_with(&on_a_log);
            let wanted = if *mode == Mode::Cluster { 2 } else { 1 };
            assert_eq!(names.iter().filter(is_one).count(), wanted, "{step} of {names:?}");
        }
        for torture in &programs[1..] {
            let arguments = torture.command.get_args().map(|argument| argument.to_string_lossy());
            let line = std::iter::once("xtask".into()).chain(arguments);
            let chore = Cli::try_parse_from(line.map(|word| word.into_owned())).unwrap().chore;
            let Chore::Torture(args) = chore else { panic!("{} is a torture", torture.name) };
            assert!(args.built && args.mode.is_some() && args.cycles == SMOKE_CYCLES);
        }
    }
}
