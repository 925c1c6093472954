//! What workers write, on the page of their job and as a file.

use bytes::Bytes;
use serde_json::json;
use spindle_core::JobId;
use spindle_core::command::Claim;
use spindle_testkit::TokensFile;

use crate::harness::{Bench, Browser};

fn write(bench: &Bench, id: u64, text: &[u8]) {
    let claim = Claim::Unfinished { id: JobId(id) };
    let written = bench.engine.leases().write(claim, Bytes::copy_from_slice(text));
    written.without_waiting("a test").unwrap();
}

/// A job that a worker has: its number and its page.
async fn leased(bench: &Bench) -> (u64, String) {
    let id = bench.submit(json!({ "queue": "mail" })).await;
    bench.lease("mail", "smtp-1").await;
    (id, format!("/jobs/{id}"))
}

#[tokio::test]
async fn what_a_worker_writes_is_shown_harmless_and_as_a_file_as_it_is() {
    let bench = Bench::new();
    let (id, at) = leased(&bench).await;
    let page = bench.page(&at).await;
    assert!(!page.text.contains("Output"), "it has none: {}", page.text);
    let file = format!("{at}/bytes/output");
    assert_eq!(bench.get(&file).await.status, 404);
    write(&bench, id, b"one\n<script>alert(1)</script>\n");
    write(&bench, id, b"\xff\x1b[31m\xe2\x80\xae\"&");
    let page = bench.page(&at).await;
    page.is_sound("output");
    page.says("Output · 41 bytes in all");
    page.says("one <script>alert(1)</script> \u{fffd}\u{241b}[31m\u{fffd}\"&");
    assert!(!page.text.contains("Only the end is shown."), "{}", page.text);
    assert!(page.links().contains(&file.as_str()), "{:?}", page.links());
    let reply = bench.get(&file).await;
    assert_eq!(reply.text(), "one\n<script>alert(1)</script>\n\u{fffd}\u{1b}[31m\u{202e}\"&");
    assert_eq!(reply.header("content-type"), "application/octet-stream");
    let name = format!("attachment; filename=\"job-{id}-output\"");
    assert_eq!(reply.header("content-disposition"), name);
}

#[tokio::test]
async fn of_long_output_the_end_is_shown_and_the_file_has_all_that_is_kept() {
    let bench = Bench::new();
    let (id, at) = leased(&bench).await;
    let lines = |from: usize| -> String {
        (from..from + 1_000).map(|number| format!("{number:06} \"{}\"\n", "&".repeat(40))).collect()
    };
    for from in [0, 1_000, 2_000] {
        write(&bench, id, lines(from).as_bytes());
    }
    let page = bench.page(&at).await;
    page.is_sound("long output");
    page.says("Output · 146.5 KiB in all");
    page.says("Only the end is shown.");
    assert!(page.text.contains("002999 \""), "the last line");
    let shown = page.all("code").find(|code| code.text.contains("002999 \"")).unwrap();
    let first = shown.text.lines().next().unwrap();
    assert_eq!(first.len(), 49, "it begins with a whole line: {first}");
    let reply = bench.get(&format!("{at}/bytes/output")).await;
    assert!(reply.text() == lines(0) + &lines(1_000) + &lines(2_000), "{}", reply.text().len());
}

#[tokio::test]
async fn output_of_several_tries_says_whose_it_is() {
    let bench = Bench::new();
    let id = bench.submit(json!({ "queue": "mail", "fails_max": 5 })).await;
    let (lease, at) = (bench.lease("mail", "smtp-1").await, format!("/jobs/{id}"));
    write(&bench, id, b"connecting");
    bench.page(&at).await.says("in all Download connecting");
    let fail = format!("/api/v1/leases/{lease}/fail");
    bench.api("", "POST", &fail, Some(json!({}))).await.is(204);
    bench.pass(3_600_000);
    bench.lease("mail", "smtp-2").await;
    write(&bench, id, b"once more");
    bench.page(&at).await.says("in all Download Try 1 connecting Try 2 once more");
    // Room is for the newest first.
    write(&bench, id, "x\n".repeat(20_000).as_bytes());
    let page = bench.page(&at).await;
    page.says("Only the end is shown.");
    assert!(!page.text.contains("connecting") && !page.text.contains("Try 2 x"));
}

#[tokio::test]
async fn output_is_for_those_who_may_see_payloads() {
    let bench = Bench::guarded(TokensFile::of_all_roles().access(true));
    let new = json!({ "queue": "mine.a" });
    bench.api("admin", "POST", "/api/v1/jobs", Some(new)).await.is(201);
    let wanted = json!({ "queues": ["mine.a"] });
    bench.api("admin", "POST", "/api/v1/lease", Some(wanted)).await.is(200);
    write(&bench, 1, b"secret");
    for (token, may_look) in [("read", false), ("mine.read", false), ("mine.inspect", true)] {
        let mut browser = Browser::with_token(&bench, token).await;
        let page = browser.page("/jobs/1").await;
        assert_eq!(page.text.contains("secret"), may_look, "{token}");
        assert_eq!(page.links().contains(&"/jobs/1/bytes/output"), may_look, "{token}");
        let status = browser.get("/jobs/1/bytes/output").await.status;
        assert_eq!(status, if may_look { 200 } else { 403 }, "{token}");
    }
}
