//! Reruns and searches seeds of the simulation.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::{Args, Parser, Subcommand};
use parking_lot::Mutex;
use spindle_sim::counts::Counts;
use spindle_sim::direct::Direct;
use spindle_sim::faults::{FaultName, Planted};
use spindle_sim::placement::failover::TakingOver;
use spindle_sim::placement::report::{Report, Size};
use spindle_sim::run::{COMMANDS_MIN, Run};
use spindle_sim::workload::Profile;

/// Simulates the server: core, engine and log, with crashes, judged by a model.
#[derive(Parser)]
#[command(name = "spindle-sim", args_conflicts_with_subcommands = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
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

#[derive(Subcommand)]
enum Command {
    /// Reckons how shards, which are not built, would spread over nodes, and what follows when one dies.
    Placement(Placement),
}

#[derive(Args)]
struct Placement {
    /// How many shards.
    #[arg(long, default_value_t = 4_096, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    shards: u64,
    /// How many nodes.
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u64).range(2..=10_000))]
    nodes: u64,
    /// How many nodes have each shard in memory, its leader among them.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(2..=9))]
    replicas: u32,
    /// How many waiting jobs there are in all.
    #[arg(long, default_value_t = 1_000_000_000)]
    jobs: u64,
    /// What a waiting job takes in memory: docs/benchmarks.md has it for ten million.
    #[arg(long, default_value_t = 119)]
    job_bytes: u32,
    /// How long the append of an epoch record takes.
    #[arg(long, default_value_t = 10)]
    append_ms: u32,
    /// How many shards a node takes over at a time.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..))]
    at_a_time: u32,
    /// How many placements to look at.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
}

impl Placement {
    fn size(&self) -> Size {
        Size {
            shards: self.shards,
            nodes: self.nodes,
            replicas: self.replicas as usize,
            jobs: self.jobs,
            job_bytes: self.job_bytes.into(),
            taking_over: TakingOver {
                append_ms: self.append_ms.into(),
                at_a_time: self.at_a_time as usize,
            },
            seeds: self.seeds,
        }
    }
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    if let Some(Command::Placement(placement)) = &arguments.command {
        print!("{}", Report::of(placement.size()));
        return ExitCode::SUCCESS;
    }
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
