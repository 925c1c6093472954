//! `docs/limits.md` says what the core's limits are.

use spindle_core::CONSTRAINTS_MAX;
use spindle_core::batch::{BATCH_DEPTH_MAX, BATCH_JOBS_MAX, BATCH_NAME_BYTES_MAX, BATCHES_MAX};
use spindle_core::consumer::CONSUMERS_MAX;
use spindle_core::job::AFTER_MAX;
use spindle_core::places::PLACED_MAX;
use spindle_core::queue::{FAIR_KEY_BYTES_MAX, FAIR_WEIGHTS_MAX, QUEUE_NAME_BYTES_MAX};
use spindle_core::schedule::{
    MADE_UP_MAX, SCHEDULE_NAME_BYTES_MAX, SCHEDULE_PAYLOAD_BYTES_MAX, SCHEDULES_BYTES_MAX,
    SCHEDULES_MAX,
};

const PAGE: &str = include_str!("../../../../docs/limits.md");

/// A number as the page writes it.
fn shown(number: usize) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
    groups.collect::<Vec<_>>().join(",")
}

#[test]
fn the_page_of_limits_says_what_the_core_allows() {
    let kib = |bytes: usize| format!("{} KiB", bytes >> 10);
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    for (what, limits) in [
        ("a queue's name", vec![format!("{QUEUE_NAME_BYTES_MAX} bytes")]),
        ("constraints;", vec![shown(CONSTRAINTS_MAX)]),
        ("jobs in `after`", vec![shown(AFTER_MAX)]),
        ("jobs of a [batch]", vec![shown(BATCH_JOBS_MAX as usize), shown(BATCH_DEPTH_MAX)]),
        ("batches that are kept", vec![shown(BATCHES_MAX), shown(BATCH_NAME_BYTES_MAX)]),
        ("schedules; the bytes", vec![shown(SCHEDULES_MAX), mib(SCHEDULES_BYTES_MAX)]),
        (
            "payload of a schedule's job",
            vec![kib(SCHEDULE_PAYLOAD_BYTES_MAX), format!("{SCHEDULE_NAME_BYTES_MAX} bytes")],
        ),
        ("queues that were [moved]", vec![shown(PLACED_MAX)]),
        ("webhooks, and other programs", vec![shown(CONSUMERS_MAX)]),
        ("weights of a queue's keys", {
            vec![shown(FAIR_WEIGHTS_MAX), format!("{FAIR_KEY_BYTES_MAX} bytes")]
        }),
    ] {
        let begin = format!("| {what}");
        let row = PAGE.lines().find(|line| line.starts_with(&begin)).expect("the page has the row");
        let said: Vec<&str> = row.split('|').nth(3).expect("a cell").split(';').collect();
        for (limit, said) in limits.iter().zip(said) {
            assert_eq!(limit, said.trim(), "{what}");
        }
    }
    assert!(PAGE.contains(&format!("up to {}", shown(MADE_UP_MAX as usize))));
}
