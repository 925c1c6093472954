//! `docs/limits.md` says what the engine's fixed limits are.

use spindle_engine::Options;

const PAGE: &str = include_str!("../../../../docs/limits.md");

/// The default of a row: its third cell.
#[track_caller]
fn default_of(what: &str) -> &'static str {
    let begin = format!("| {what}");
    let row = PAGE.lines().find(|line| line.starts_with(&begin)).expect("the page has the row");
    row.split('|').nth(3).expect("a row has five cells").trim()
}

#[test]
fn the_page_of_limits_says_what_the_engine_allows() {
    let mib = |bytes: usize| format!("{} MiB", bytes >> 20);
    let options = Options::default();
    for (what, limit) in [
        ("payloads of foreground jobs", mib(options.foreground_bytes_max)),
        ("pieces of results of unfinished jobs", mib(options.streamed_bytes_max)),
        ("decided and not yet on disk", mib(options.undurable_bytes_max)),
        ("the same, before a request that brings", mib(options.undurable_bytes_max / 8)),
        ("output kept of a job", format!("256 KiB; {}", mib(options.output_bytes_max))),
        ("clients that wait", "100,000".to_owned()),
    ] {
        assert_eq!(default_of(what), limit, "{what}");
    }
    assert_eq!(options.waits_max, 100_000);
}
