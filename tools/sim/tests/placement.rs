//! The figures in docs/cluster.md are those of the model.

use std::fs;
use std::path::Path;

use spindle_sim::placement::failover::TakingOver;
use spindle_sim::placement::report::{Report, Size};

/// Of each column of the page's table, the report.
fn reports() -> Vec<String> {
    let size = |nodes| Size {
        shards: 4_096,
        nodes,
        replicas: 3,
        jobs: 1_000_000_000,
        job_bytes: 119.0,
        taking_over: TakingOver { append_ms: 10.0, at_a_time: 16 },
        seeds: 20,
    };
    [3, 24, 100].map(|nodes| Report::of(size(nodes)).to_string()).into()
}

#[test]
fn the_page_of_clusters_has_the_figures_of_the_model() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cluster.md");
    let page = fs::read_to_string(page).unwrap();
    let cells = |row: &str| -> Vec<String> {
        let found = page.lines().find(|line| line.starts_with(&format!("| {row}")));
        let found = found.unwrap_or_else(|| panic!("no row {row}"));
        let cells = found.trim_matches('|').split('|').skip(1);
        cells.map(|cell| cell.replace(',', "").trim().to_owned()).collect()
    };
    let median_and_most = |row: &str, report: &str| {
        let line = report.lines().find(|line| line.starts_with(row)).unwrap();
        let numbers: Vec<&str> = line.split_whitespace().rev().take(2).collect();
        (numbers[1].to_owned(), numbers[0].to_owned())
    };
    for (column, report) in reports().iter().enumerate() {
        for (row, reported, unit) in [
            ("shards led by a node", "shards led, by who", ""),
            ("the same by score", "shards led, by the highest", ""),
            ("shards in a node's memory", "shards in memory", ""),
            ("a node dies: a shard is led", "a node dies: a shard is led", " ms"),
            ("a node dies: a shard answers", "a node dies: a shard answers", " ms"),
        ] {
            let (median, most) = median_and_most(reported, report);
            // In the page without their commas, which stand between the two and in them.
            assert_eq!(cells(row)[column], format!("{median} {most}{unit}"), "{row}");
        }
        for (row, reported) in [
            ("a node goes", "a node goes: shards folded"),
            ("the most shards", "a node dies: most shards"),
        ] {
            let median = median_and_most(reported, report).0;
            let shown = if median == "0" { "none".to_owned() } else { median };
            assert_eq!(cells(row)[column], shown, "{row}");
        }
        let comes = ["folded there", "led elsewhere"]
            .map(|what| median_and_most(&format!("a node comes: shards {what}"), report).0);
        assert_eq!(cells("a node comes")[column], comes.join(" "));
        let memory = median_and_most("memory of waiting jobs", report);
        let rounded = |text: &str| {
            let gib: f64 = text.parse().unwrap();
            if gib > 100.0 { format!("{gib:.0}") } else { format!("{gib:.1}") }
        };
        let memory = format!("{} {} GiB", rounded(&memory.0), rounded(&memory.1));
        assert_eq!(cells("memory of waiting jobs")[column], memory);
    }
}
