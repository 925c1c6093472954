//! `docs/limits.md` says what a master's fixed limits are.

use crate::{link, report, requests, server};

const PAGE: &str = include_str!("../../../docs/limits.md");

/// The default of a row: its third cell.
fn default_of(what: &str) -> &'static str {
    let begin = format!("| {what} |");
    let row = PAGE.lines().find(|line| line.starts_with(&begin)).expect("the page has the row");
    row.split('|').nth(3).expect("a row has five cells").trim()
}

#[test]
fn the_page_of_limits_says_what_a_master_allows() {
    let whole = |bytes: usize, unit: usize| {
        assert_eq!(bytes % unit, 0, "{bytes}");
        bytes / unit
    };
    let (mib, gib) = (|bytes| whole(bytes, 1 << 20), |bytes| whole(bytes, 1 << 30));
    let stall = link::STALL.as_secs();
    let of_client = server::Limits::default().message_bytes_max;
    for (what, limit) in [
        ("time without a byte in the middle of a request or message", format!("{stall} s")),
        ("time to log in", format!("`{}m`", server::Limits::default().login_time.as_secs() / 60)),
        ("time for a TLS handshake", format!("{} s", server::HANDSHAKE_TIME.as_secs())),
        ("time without taking a byte of an answer", format!("30 s; H and J {stall} s")),
        (
            "answers that a client has not read",
            format!("4 MiB; J {} MiB", mib(link::UNSENT_BYTES_MAX)),
        ),
        (
            "a message of a client or worker; a worker's answer",
            format!("{} MiB; {} GiB", mib(of_client), gib(requests::WORKER_ANSWER_BYTES_MAX)),
        ),
        ("a jobd worker's status", format!("{} MiB", mib(report::ANSWER_BYTES_MAX))),
        ("the name of a jobd worker", "1,024 bytes".to_owned()),
        ("requests of one connection without an answer", "1,024".to_owned()),
    ] {
        assert_eq!(default_of(what), limit, "{what}");
    }
    assert_eq!((link::REQUESTS_MAX, requests::WORKER_NAME_BYTES_MAX), (1024, 1024));
}
