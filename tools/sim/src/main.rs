//! Reruns and searches seeds of the simulation.

use std::process::ExitCode;

use clap::Parser;
use spindle_sim::direct::Direct;
use spindle_sim::run::{COMMANDS_MIN, Counts, FaultName, Planted, Run};

/// Simulates the server: core, engine and log, with crashes, judged by a model.
#[derive(Parser)]
#[command(name = "spindle-sim")]
struct Arguments {
    /// Runs this seed only.
    #[arg(long, conflicts_with = "seeds")]
    seed: Option<u64>,
    /// Runs this many seeds.
    #[arg(long, default_value_t = 20)]
    seeds: u64,
    /// The first of them.
    #[arg(long, default_value_t = 0)]
    from: u64,
    /// Prints every step, and compares everything after each.
    #[arg(long)]
    trace: bool,
    /// Plants a fault that has to be found.
    #[arg(long, value_enum)]
    fault: Option<FaultName>,
    /// Asks the core alone, without engine, log and crashes.
    #[arg(long)]
    core: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (from, count) = match arguments.seed {
        Some(seed) => (seed, 1),
        None => (arguments.from, arguments.seeds),
    };
    let mut all = Counts::default();
    for seed in from..from.saturating_add(count) {
        match one(seed, &arguments) {
            Ok(counts) => all.add(counts),
            Err(why) => {
                println!("sim: seed {seed} fails: {why}");
                println!("sim: rerun it with: {}", rerun(seed, &arguments));
                return ExitCode::FAILURE;
            }
        }
    }
    let Counts { commands, crashes, trims } = all;
    println!("sim: {count} seeds, {commands} commands, {crashes} crashes, {trims} trims: all hold");
    ExitCode::SUCCESS
}

fn one(seed: u64, arguments: &Arguments) -> Result<Counts, String> {
    if arguments.core {
        let mut direct = Direct::new();
        direct.trace = arguments.trace;
        direct.run(seed, COMMANDS_MIN).map_err(|difference| difference.to_string())?;
        return Ok(Counts { commands: COMMANDS_MIN, ..Counts::default() });
    }
    let planted = arguments.fault.map(Planted::one).unwrap_or_default();
    Run::seed(seed, planted, arguments.trace).map_err(|violation| violation.to_string())
}

fn rerun(seed: u64, arguments: &Arguments) -> String {
    use clap::ValueEnum;
    let mut command = format!("cargo xtask sim --seed {seed} --trace");
    if let Some(fault) = arguments.fault.and_then(|fault| fault.to_possible_value()) {
        command.push_str(&format!(" --fault {}", fault.get_name()));
    }
    if arguments.core {
        command.push_str(" --core");
    }
    command
}
