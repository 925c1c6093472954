//! Reruns and searches seeds of the simulation.

use spindle_sim::direct::Direct;

fn main() {
    let mut args = std::env::args().skip(1);
    let from: u64 = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(0);
    let count: u64 = args.next().and_then(|arg| arg.parse().ok()).unwrap_or(1);
    let trace = args.next().is_some();
    for seed in from..from + count {
        let mut direct = Direct::new();
        direct.trace = trace;
        if let Err(difference) = direct.run(seed, 2_000) {
            println!("seed {seed}: {difference}");
            std::process::exit(1);
        }
        if trace {
            println!("{:?}", direct.told);
        }
    }
    println!("{count} seeds hold");
}
