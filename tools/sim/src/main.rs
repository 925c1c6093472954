//! Reruns and searches seeds of the simulation.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Parser;
use parking_lot::Mutex;
use spindle_sim::counts::Counts;
use spindle_sim::direct::Direct;
use spindle_sim::faults::{FaultName, Planted};
use spindle_sim::run::{COMMANDS_MIN, Run};
use spindle_sim::workload::Profile;

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
    /// What seeds do most.
    #[arg(long, value_enum, default_value_t, conflicts_with = "core")]
    profile: Profile,
    /// Asks the core alone, without engine, log and crashes.
    #[arg(long)]
    core: bool,
    /// Has several nodes share one log.
    #[arg(long, conflicts_with_all = ["core", "profile"])]
    nodes: bool,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (from, count) = match arguments.seed {
        Some(seed) => (seed, 1),
        None => (arguments.from, arguments.seeds),
    };
    match search(from, count, &arguments) {
        Ok(counts) => {
            let counted: Vec<String> = counts
                .named()
                .iter()
                .filter(|(_, count)| !(arguments.core || arguments.nodes) || *count > 0)
                .map(|(name, count)| format!("{count} {name}"))
                .collect();
            println!("sim: {count} seeds, {}: all hold", counted.join(", "));
            ExitCode::SUCCESS
        }
        Err((seed, why)) => {
            println!("sim: seed {seed} fails: {why}");
            println!("sim: rerun it with: {}", rerun(seed, &arguments));
            ExitCode::FAILURE
        }
    }
}

/// Runs seeds on all processors; each is deterministic, whatever runs beside it. Of several that
/// fail the smallest is reported.
fn search(from: u64, count: u64, arguments: &Arguments) -> Result<Counts, (u64, String)> {
    let next = AtomicU64::new(from);
    let end = from.saturating_add(count);
    let all = Mutex::new((Counts::default(), None));
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= end {
                        return;
                    }
                    let outcome = one(seed, arguments);
                    let (counts, failed) = &mut *all.lock();
                    match outcome {
                        Ok(more) => counts.add(more),
                        Err(why) => {
                            next.store(end, Ordering::Relaxed);
                            if failed.as_ref().is_none_or(|(other, _)| seed < *other) {
                                *failed = Some((seed, why));
                            }
                        }
                    }
                }
            });
        }
    });
    match all.into_inner() {
        (counts, None) => Ok(counts),
        (_, Some(failed)) => Err(failed),
    }
}

fn one(seed: u64, arguments: &Arguments) -> Result<Counts, String> {
    if arguments.core {
        let mut direct = Direct::new();
        direct.trace = arguments.trace;
        direct.run(seed, COMMANDS_MIN).map_err(|difference| difference.to_string())?;
        return Ok(Counts { commands: COMMANDS_MIN, ..Counts::default() });
    }
    let planted = arguments.fault.map(Planted::one).unwrap_or_default();
    if arguments.nodes {
        return spindle_sim::nodes::run(seed, planted, arguments.trace);
    }
    Run::seed_of(arguments.profile, seed, planted, arguments.trace)
        .map_err(|violation| violation.to_string())
}

fn rerun(seed: u64, arguments: &Arguments) -> String {
    use clap::ValueEnum;
    let is_other = arguments.profile != Profile::default();
    let mut command = format!("cargo xtask sim --seed {seed} --trace");
    if let Some(fault) = arguments.fault.and_then(|fault| fault.to_possible_value()) {
        command.push_str(&format!(" --fault {}", fault.get_name()));
    }
    if let Some(profile) = arguments.profile.to_possible_value().filter(|_| is_other) {
        command.push_str(&format!(" --profile {}", profile.get_name()));
    }
    if arguments.core {
        command.push_str(" --core");
    }
    if arguments.nodes {
        command.push_str(" --nodes");
    }
    command
}
