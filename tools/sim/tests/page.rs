//! `docs/testing.md` names each planted fault, and no others.

use std::collections::BTreeSet;

use clap::ValueEnum;
use spindle_sim::faults::FaultName;

const PAGE: &str = include_str!("../../../docs/testing.md");

#[test]
fn the_page_of_tests_names_each_planted_fault() {
    let faults: BTreeSet<String> = FaultName::value_variants()
        .iter()
        .filter_map(|fault| Some(fault.to_possible_value()?.get_name().to_owned()))
        .collect();
    let section = PAGE.split("### Planted faults").nth(1).expect("the page has the section");
    let section = section.split("\n## ").next().expect("the next one begins somewhere");
    let rows = section.lines().filter(|line| line.starts_with("| `"));
    let named: BTreeSet<String> = rows
        .filter_map(|row| row.split('|').nth(1))
        .flat_map(|cell| cell.split(','))
        .map(|name| name.trim().trim_matches('`').to_owned())
        .collect();
    assert_eq!(faults, named);
}
