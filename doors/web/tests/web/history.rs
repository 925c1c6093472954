//! Charts, sparklines and failures.

use serde_json::json;

use crate::harness::{Bench, Html};

/// The names that charts have for who does not see them.
fn charts(page: &Html) -> Vec<String> {
    let charts = page.all("svg").filter(|it| !it.attributes.contains_key("class"));
    charts.map(|it| it.attributes["aria-label"].clone()).collect()
}

#[tokio::test]
async fn charts_say_what_the_server_did() {
    let bench = Bench::new();
    let empty = bench.page("/").await;
    empty.says("Submitted –");
    bench.dead("import", "connection refused to db-1").await;
    bench.submit(json!({ "queue": "import" })).await;
    bench.look();
    let page = bench.page("/").await;
    page.is_sound("/");
    let said = charts(&page);
    assert_eq!(said.len(), 4);
    assert_eq!(said[0], "Submitted, last hour: latest 2, at most 2");
    assert_eq!(said[1], "Done, last hour: latest 0, at most 0");
    assert_eq!(said[2], "Failed attempts, last hour: latest 1, at most 1");
    assert!(said[3].starts_with("Commit, last hour: p50 latest"), "{}", said[3]);
    assert!(page.all("title").any(|it| it.text == "03:04 UTC: 2"), "{}", page.source);
    assert!(page.links().contains(&"/?range=day"));
    let day = bench.page("/?range=day").await;
    day.is_sound("/?range=day");
    assert!(charts(&day)[0].starts_with("Submitted, last day: latest"));
    assert!(day.links().contains(&"/"));
}

#[tokio::test]
async fn queues_have_sparklines_and_a_queue_has_charts() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "mail" })).await;
    bench.look();
    for path in ["/", "/queues"] {
        let page = bench.page(path).await;
        let spark = page.all("svg").find(|it| it.attributes.contains_key("class"));
        let label = spark.map(|it| it.attributes["aria-label"].as_str());
        assert_eq!(label, Some("Ready in the last hour: at most 1"), "{path}");
    }
    let page = bench.page("/queue?queue=mail").await;
    page.is_sound("/queue");
    let said = charts(&page);
    assert_eq!(said[0], "Ready jobs, last hour: latest 1, at most 1");
    assert_eq!(said.len(), 4);
    assert!(page.links().contains(&"/queue?queue=mail&range=day"));
    bench.page("/queue?queue=mail&range=day").await.is_sound("a queue's day");
}

#[tokio::test]
async fn failures_lead_to_their_jobs() {
    let bench = Bench::new();
    let hostile = "<script>alert(1)</script>\u{202e} at 0x7f";
    let other = bench.dead("export", hostile).await;
    for n in 0..3 {
        bench.dead("import", &format!("connection refused to db-{n}")).await;
    }
    bench.look();
    let page = bench.page("/").await;
    page.is_sound("/");
    page.says("connection refused to db-# 3");
    page.says("3 jobs died in the last hour. The latest: connection refused to db-2");
    page.says("export 1 job died in the last hour. The latest: <script>alert(1)</script>");
    assert!(page.links().contains(&"/jobs/4"), "{:?}", page.links());
    page.says("<script>alert(#)</script>\u{fffd} at #");
    let link = "/jobs?fingerprint=connection%20refused%20to%20db%2D%23";
    assert!(page.links().contains(&link), "{:?}", page.links());
    let jobs = bench.page(link).await;
    let rows =
        jobs.links().into_iter().filter(|it| it.starts_with("/jobs/") && !it.contains("all"));
    let rows: Vec<&str> = rows.collect();
    assert_eq!(rows, ["/jobs/4", "/jobs/3", "/jobs/2"]);
    assert!(!rows.contains(&format!("/jobs/{other}").as_str()));
    let retry = "/jobs/all/delete?fingerprint=connection%20refused%20to%20db%2D%23";
    assert!(jobs.links().contains(&retry), "{:?}", jobs.links());
    bench.page(retry).await.says("3 jobs");
}

#[tokio::test]
async fn a_constraint_that_holds_a_queue_back_is_named_in_its_row() {
    let bench = Bench::new();
    let limit = json!({ "queue": "mail", "running_max": 0 });
    bench.api("", "PUT", "/api/v1/constraints/smtp", Some(limit)).await.is(201);
    bench.submit(json!({ "queue": "mail" })).await;
    bench.pass(6 * 60_000);
    let page = bench.page("/").await;
    page.says("mail The next ready job waits 6 min. Constraint smtp is full: 1 job cannot start");
    assert!(!page.text.contains("No worker"), "a constraint holds it back, whoever comes");
}

#[tokio::test]
async fn a_full_overview_is_short_enough() {
    let bench = Bench::new();
    for n in 0..40_u32 {
        let word: String = n.to_string().chars().map(|c| char::from(c as u8 + 49)).collect();
        let queue = format!("{word}{}", "<\u{e9}>".repeat(n as usize % 2 * 60 + 30));
        bench.dead(&queue, &format!("{word} {}", "\u{e9}\"<".repeat(50))).await;
        bench.submit(json!({ "queue": queue })).await;
    }
    for _ in 0..400 {
        bench.look();
    }
    for path in ["/", "/?range=day"] {
        let page = bench.page(path).await;
        page.is_sound(path);
    }
}
