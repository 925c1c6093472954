//! Seeds do all that the simulator counts: what it does no more, it checks no more.

use spindle_sim::counts::Counts;
use spindle_sim::faults::Planted;
use spindle_sim::run::Run;

const SEEDS: u64 = 16;

#[test]
fn a_few_seeds_do_all_that_is_counted() {
    let mut all = Counts::default();
    let halves = [0..SEEDS / 2, SEEDS / 2..SEEDS];
    std::thread::scope(|scope| {
        let runs = halves.map(|seeds| {
            scope.spawn(move || {
                let mut counts = Counts::default();
                for seed in seeds {
                    match Run::seed(seed, Planted::default(), false) {
                        Ok(more) => counts.add(more),
                        Err(violation) => panic!("seed {seed}: {violation}"),
                    }
                }
                counts
            })
        });
        for run in runs {
            all.add(run.join().expect("each seed holds"));
        }
    });
    let missing: Vec<_> = all.named().into_iter().filter(|(_, count)| *count == 0).collect();
    assert!(missing.is_empty(), "{missing:?} of {all:?}");
}
