//! Names, payloads and words of workers that try to be something else.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;

use crate::harness::{Bench, Browser};
use crate::pages::PAGES;

const SCRIPT: &str = "<script>alert(1)</script>";

/// Names that are markup, paths, escapes, or turn what stands behind them around.
fn names() -> Vec<String> {
    let plain = [
        SCRIPT,
        "\"><img src=x onerror=alert(1)>",
        "' onmouseover='alert(1)",
        "../..",
        "..",
        ".",
        "/",
        "a/b?c#d&e=f",
        "%00",
        "%2e%2e%2f",
        "\u{0}",
        "\u{1b}]0;owned\u{7}\u{1b}[31m",
        "javascript:alert(1)",
        "\u{202e}gnp.exe",
        "&lt;b&gt;",
        " ",
    ];
    let long = "<".repeat(512);
    plain.into_iter().map(str::to_owned).chain([long]).collect()
}

#[tokio::test]
async fn hostile_names_stay_names_on_every_page() {
    let bench = Bench::new();
    for name in names() {
        let dead = bench.dead(&name, &name).await;
        let tag: String = name.chars().take(128).collect();
        let new =
            json!({ "queue": name, "payload": name, "tags": [tag], "unique": { "key": tag } });
        let id = bench.submit(new).await;
        bench.lease(&name, &tag).await;
        let mut browser = Browser::new(&bench);
        for id in [dead, id] {
            let page = browser.page(&format!("/jobs/{id}")).await;
            page.is_sound(&name);
            // The way from a job to its queue and back.
            let is_queue = |link: &&str| link.starts_with("/queue?");
            let link = page.links().into_iter().find(is_queue).unwrap().to_owned();
            let queue = browser.page(&link).await;
            queue.is_sound(&name);
            assert!(queue.links().contains(&format!("/jobs/{id}").as_str()), "{name:?}");
            for link in queue.links().into_iter().filter(|link| *link != "#main") {
                let reply = browser.get(link).await;
                assert_eq!(reply.status, 200, "{name:?}: {link}");
            }
        }
    }
    for path in PAGES {
        bench.page(path).await.is_sound(path);
    }
}

#[tokio::test]
async fn queues_whose_names_are_no_text_have_pages() {
    let bench = Bench::new();
    let name = STANDARD.encode(b"\xff\xfe<b>");
    let new = bench.submit(json!({ "queue_base64": name })).await;
    let mut browser = Browser::new(&bench);
    let page = browser.page("/queues").await;
    let is_queue = |link: &&str| link.starts_with("/queue?queue_base64=");
    let link = page.links().into_iter().find(is_queue).unwrap().to_owned();
    let queue = browser.page(&link).await;
    queue.is_sound("a queue");
    assert!(queue.links().contains(&format!("/jobs/{new}").as_str()));
    let at = link.replace("/queue?", "/queue/pause?");
    let form = browser.page(&at).await.form("/queue/pause");
    assert_eq!(form["queue_base64"], name);
    assert_eq!(browser.post("/queue/pause", &form).await.header("location"), link);
    browser.page(&link).await.says("paused");
    assert_eq!(browser.get("/queue?queue_base64=%21").await.status, 400);
}

#[tokio::test]
async fn payloads_are_shown_as_what_they_are_and_never_run() {
    let bench = Bench::new();
    let large = format!("[{}0]", "\"<script>\",".repeat(200_000));
    let bodies: [(&[u8], &str, &str); 8] = [
        (SCRIPT.as_bytes(), "bytes", "text"),
        (b"{\"html\":\"<script>alert(1)</script></pre>\"}", "json", "JSON"),
        (b"\xff\xfe<script>", "bytes", "bytes"),
        (b"\x1b[2J\x1b]0;x\x07<script>", "bytes", "text"),
        (b"\x81\xa3key\xa8<script>", "msgpack", "MessagePack"),
        (b"\xc1\xc1", "msgpack", "MessagePack"),
        (large.as_bytes(), "json", "JSON"),
        ("\u{202e}\u{0}".as_bytes(), "bytes", "text"),
    ];
    for (bytes, kind, shown) in bodies {
        let payload = STANDARD.encode(bytes);
        let new = json!({ "queue": "q", "payload_base64": payload, "payload_type": kind });
        let id = bench.submit(new).await;
        let lease = bench.lease("q", "w").await;
        let done = json!({ "result_base64": payload, "result_type": kind });
        bench
            .api("", "POST", &format!("/api/v1/leases/{lease}/complete"), Some(done))
            .await
            .is(204);
        for view in ["", "?view=raw", "?view=hex", "?view=nonsense"] {
            let page = bench.page(&format!("/jobs/{id}{view}")).await;
            page.is_sound(&format!("{kind} {view}"));
            page.says(&format!("Payload · {shown}"));
            assert!(!page.source.contains('\u{1b}') && !page.source.contains('\0'));
        }
        for which in ["payload", "result"] {
            let file = bench.get(&format!("/jobs/{id}/bytes/{which}")).await;
            assert_eq!(file.status, 200, "{kind} {which}");
            assert_eq!(&file.body[..], bytes, "{kind} {which}");
            assert_eq!(file.header("x-content-type-options"), "nosniff");
        }
        assert_eq!(bench.get(&format!("/jobs/{id}/bytes/other")).await.status, 404);
    }
}

#[tokio::test]
async fn addresses_that_are_nonsense_are_refused() {
    let bench = Bench::new();
    for path in [
        "/jobs/0",
        "/jobs/-1",
        "/jobs/99999999999999999999",
        "/jobs/%00",
        "/jobs/..%2f..",
        "/jobs/%ff",
        "/jobs/<script>alert(1)<%2Fscript>",
        "/queue?queue=%ff",
        "/audit?job=x",
        "/audit?cursor=-1",
        "/workers?cursor=x",
        "/constraints?cursor=gone",
        "/queues?cursor=x",
        "/jobs?created_from=yesterday",
        "/assets/..%2f..%2fetc%2fpasswd",
        "/%00",
    ] {
        let path = path.replace('<', "%3C").replace('>', "%3E");
        let reply = bench.get(&path).await;
        let status = reply.status.as_u16();
        let is_fine = matches!(status, 400 | 404) || path.contains("constraints");
        assert!(is_fine, "{path}: {status}");
        assert!(!reply.text().contains("<script>alert"), "{path}");
    }
}
