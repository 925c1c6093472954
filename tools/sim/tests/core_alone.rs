//! The core against the model, without an engine.

use spindle_sim::direct::Direct;

#[test]
fn the_core_does_what_the_model_says() {
    for seed in 0..12 {
        let mut direct = Direct::new();
        if let Err(difference) = direct.run(seed, 1_000) {
            panic!("seed {seed}: {difference}");
        }
    }
}

#[test]
fn a_few_seeds_cause_every_kind_of_event() {
    let mut events = std::collections::BTreeMap::new();
    for seed in 100..112 {
        let mut direct = Direct::new();
        direct.run(seed, 1_000).unwrap_or_else(|difference| panic!("seed {seed}: {difference}"));
        for (name, count) in &direct.events {
            *events.entry(*name).or_insert(0) += count;
        }
    }
    assert_eq!(events.len(), usize::from(spindle_core::Event::KINDS), "{events:?}");
}
