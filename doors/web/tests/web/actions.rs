//! What people do from pages: asked first, done by a form, and in the audit log.

use serde_json::json;
use spindle_testkit::TokensFile;

use crate::harness::{Bench, Browser, Html};

/// Opens the question at an address, sends its form to `to`, and gives what comes.
async fn answer(browser: &mut Browser<'_>, at: &str, to: &str) -> spindle_testkit::Reply {
    let page = browser.page(at).await;
    page.is_sound(at);
    let form = page.form(to);
    browser.post(to, &form).await
}

#[tokio::test]
async fn a_job_is_parked_released_moved_cancelled_retried_and_deleted() {
    let bench = Bench::guarded(TokensFile::of_all_roles().access(false));
    let id = bench.submit(json!({ "queue": "mail" })).await;
    let mut browser = Browser::with_token(&bench, "manage").await;
    for (action, status) in
        [("park", "parked"), ("release", "ready"), ("cancel", "dead"), ("retry", "ready")]
    {
        let path = format!("/jobs/{id}/{action}");
        let reply = answer(&mut browser, &path, &path).await;
        assert_eq!(reply.header("location"), format!("/jobs/{id}"), "{action}: {}", reply.text());
        assert_eq!(bench.status_of(id).await, status);
    }
    let path = format!("/jobs/{id}/move");
    let mut form = browser.page(&path).await.form(&path);
    form.insert("queue".to_owned(), "<other>".to_owned());
    assert_eq!(browser.post(&path, &form).await.status, 303);
    browser.page(&format!("/jobs/{id}")).await.says("in <other>");
    form.insert("queue".to_owned(), "x".repeat(513));
    let refused = browser.post(&path, &form).await;
    assert_eq!(refused.status, 400);
    Html::of(&refused).says("a queue's name has 1 to 512 bytes");
    let path = format!("/jobs/{id}/delete");
    let reply = answer(&mut browser, &path, &path).await;
    Html::of(&reply).says(&format!("Job {id} is deleted"));
    assert_eq!(bench.status_of(id).await, "parked");
    bench.pass(60_000);
    assert_eq!(bench.status_of(id).await, "gone");
    assert_eq!(browser.get(&path).await.status, 404);
    assert_eq!(browser.post(&path, &form).await.status, 404);
    assert_eq!(browser.get("/jobs/1/explode").await.status, 404);
    let log = bench.api("", "GET", "/api/v1/audit", None).await.json();
    let entries = log["entries"].as_array().unwrap();
    let did: Vec<_> = entries.iter().map(|entry| entry["action"].as_str().unwrap()).collect();
    assert_eq!(did, ["delete", "move", "retry", "cancel", "release", "park"]);
    assert!(entries.iter().all(|entry| entry["who"]["name"] == "manage"), "{log}");
    let page = Browser::with_token(&bench, "admin").await.page("/audit?action=move").await;
    page.is_sound("/audit");
    page.says(&format!("manage · · web move job {id} in mail to <other>"));
}

#[tokio::test]
async fn a_deleted_job_is_brought_back_by_a_button() {
    let bench = Bench::new();
    let mut browser = Browser::new(&bench);
    let ready = bench.submit(json!({ "queue": "mail" })).await;
    let dead = bench.dead("import", "connection refused").await;
    for (id, status) in [(ready, "ready"), (dead, "dead")] {
        let (path, back) = (format!("/jobs/{id}/delete"), format!("/jobs/{id}/undo"));
        let done = Html::of(&answer(&mut browser, &path, &path).await);
        done.says("gone for good");
        let page = browser.page(&format!("/jobs/{id}")).await;
        page.is_sound("the page of a deleted job");
        assert!(!page.links().contains(&path.as_str()), "it is deleted already");
        // By the button of either page.
        let form = if status == "ready" { done.form(&back) } else { page.form(&back) };
        assert_eq!(browser.post(&back, &form).await.status, 303);
        assert_eq!(bench.status_of(id).await, status);
        let late = browser.post(&back, &form).await;
        assert_eq!(late.status, 409);
        Html::of(&late).says("there is nothing to undo");
    }
}

#[tokio::test]
async fn what_cannot_be_done_is_said() {
    let bench = Bench::new();
    let id = bench.submit(json!({ "queue": "mail" })).await;
    let mut browser = Browser::new(&bench);
    let path = format!("/jobs/{id}/retry");
    let reply = answer(&mut browser, &path, &path).await;
    assert_eq!(reply.status, 409);
    Html::of(&reply).says("only a done or dead job can be retried");
}

#[tokio::test]
async fn all_that_a_search_means_are_counted_first_and_then_changed() {
    let bench = Bench::new();
    let dead = bench.dead("import", "connection refused").await;
    let jobs = json!({ "jobs": vec![json!({ "queue": "import", "tags": ["a"] }); 300] });
    bench.api("", "POST", "/api/v1/jobs/batch", Some(jobs)).await.is(200);
    let mut browser = Browser::new(&bench);
    let list = browser.page("/jobs?queue=import&status=dead").await;
    let at = "/jobs/all/retry?queue=import&status=dead";
    assert!(list.links().contains(&at));
    browser.page(at).await.says("Retry 1 job?");
    let reply = answer(&mut browser, at, "/jobs/all/retry").await;
    Html::of(&reply).says("Retry: 1 job changed");
    assert_eq!(bench.status_of(dead).await, "ready");
    // Those that cannot be changed are said before.
    let at = "/jobs/all/retry?queue=import";
    let page = browser.page(at).await;
    page.says("Retry 0 jobs?");
    page.says("301 of them cannot be changed: job not finished.");
    let at = "/jobs/all/delete?queue=import&tag=a";
    browser.page(at).await.says("Delete 300 jobs?");
    let reply = answer(&mut browser, at, "/jobs/all/delete").await;
    let page = Html::of(&reply);
    page.says("300 jobs deleted");
    browser.page("/jobs?queue=import").await.says("deleted");
    browser.page(at).await.says("300 of them cannot be changed: job deleted.");
    // Undone, and done again.
    let reply = browser.post("/jobs/all/undo", &page.form("/jobs/all/undo")).await;
    Html::of(&reply).says("300 jobs brought back");
    assert_eq!(bench.status_of(dead + 1).await, "ready");
    answer(&mut browser, at, "/jobs/all/delete").await;
    bench.pass(60_000);
    let reply = browser.post("/jobs/all/undo", &page.form("/jobs/all/undo")).await;
    Html::of(&reply).says("0 jobs brought back");
    browser.page("/jobs?queue=import").await.says("1 job");
    // Without anything that narrows it, it would mean everything.
    assert_eq!(browser.get("/jobs/all/delete").await.status, 400);
    assert_eq!(browser.get("/jobs/all/explode?queue=import").await.status, 404);
}

#[tokio::test]
async fn a_queue_is_paused_resumed_and_purged() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "a&b=<c>" })).await;
    let parked = bench.submit(json!({ "queue": "a&b=<c>", "parked": true })).await;
    let mut browser = Browser::new(&bench);
    let queue = "queue=a%26b%3D%3Cc%3E";
    for (action, says) in [("pause", "paused: nothing is leased"), ("resume", "running")] {
        let (at, to) = (format!("/queue/{action}?{queue}"), format!("/queue/{action}"));
        let reply = answer(&mut browser, &at, &to).await;
        let back = reply.header("location").to_owned();
        assert_eq!(back, format!("/queue?{queue}"), "{}", reply.text());
        browser.page(&back).await.says(says);
    }
    let at = format!("/queue/purge?{queue}");
    browser.page(&at).await.says("Its ready and scheduled jobs are deleted: 1 job.");
    let reply = answer(&mut browser, &at, "/queue/purge").await;
    let page = Html::of(&reply);
    page.says("1 job deleted");
    browser
        .page(&format!("/queue?{queue}"))
        .await
        .says("1 job of those parked, done and dead is deleted");
    let reply = browser.post("/jobs/all/undo", &page.form("/jobs/all/undo")).await;
    Html::of(&reply).says("1 job brought back");
    answer(&mut browser, &at, "/queue/purge").await;
    assert_eq!(bench.status_of(parked).await, "parked");
    assert_eq!(browser.get("/queue/explode?queue=a").await.status, 404);
    assert_eq!(browser.get("/queue/pause?queue=gone").await.status, 404);
}

#[tokio::test]
async fn a_queue_is_drained() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "mail" })).await;
    let lease = bench.lease("mail", "smtp-1").await;
    let mut browser = Browser::new(&bench);
    let at = "/queue/drain?queue=mail";
    assert!(browser.page("/queue?queue=mail").await.links().contains(&at));
    browser.page(at).await.says("its page says when the 1 job being worked on have ended");
    let reply = answer(&mut browser, at, "/queue/drain").await;
    assert_eq!(reply.header("location"), "/queue?queue=mail");
    browser.page("/queue?queue=mail").await.says("1 job of it is still being worked on.");
    let done = format!("/api/v1/leases/{lease}/complete");
    bench.api("", "POST", &done, Some(json!({}))).await.is(204);
    let page = browser.page("/queue?queue=mail").await;
    page.says("It is drained: no job of it is being worked on.");
    assert!(!page.links().contains(&at));
    browser.page("/audit?action=drain").await.says("web drain queue mail");
}

#[tokio::test]
async fn a_queues_settings_are_set_unless_they_changed_meanwhile() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "mail" })).await;
    let mut browser = Browser::new(&bench);
    let at = "/queue/settings?queue=mail";
    assert!(browser.page("/queue?queue=mail").await.links().contains(&at));
    let page = browser.page(at).await;
    page.is_sound(at);
    let mut form = page.form("/queue/settings");
    for (field, value) in [
        ("fails_max", "5"),
        ("base", "10 s"),
        ("factor", "1.5"),
        ("cap", "1h 30m"),
        ("keep", "7 days"),
        ("jobs_max", "1,000"),
        ("bytes_type", "json"),
    ] {
        form.insert(field.to_owned(), value.to_owned());
    }
    let reply = browser.post("/queue/settings", &form).await;
    assert_eq!(reply.header("location"), "/queue?queue=mail", "{}", reply.text());
    let set = bench.api("", "GET", "/api/v1/queues/mail/settings", None).await.json();
    let backoff = &set["backoff"];
    let waits = [&backoff["base_ms"], &backoff["factor"], &backoff["cap_ms"]];
    assert_eq!(waits, [&json!(10_000), &json!(1.5), &json!(5_400_000)]);
    let rest = [&set["fails_max"], &set["keep_ms"], &set["jobs_max"], &set["bytes_type"]];
    assert_eq!(rest, [&json!(5), &json!(604_800_000), &json!(1_000), &json!("json")]);
    assert_eq!(set["attempts_max"], json!(null));
    // The form is of the settings as they were before.
    let stale = browser.post("/queue/settings", &form).await;
    assert_eq!(stale.status, 412);
    Html::of(&stale).says("the settings changed since they were read");
    let form = browser.page(at).await.form("/queue/settings");
    let shown = ["base", "factor", "cap", "keep", "ttr_default"].map(|name| form[name].as_str());
    assert_eq!(shown, ["10s", "1.5", "1h 30m", "168h", ""]);
    for (field, wrong, says) in [
        ("base", "soon", "Wait after the first failure: soon is no time"),
        ("fails_max", "-1", "-1 is no whole number"),
        ("factor", "two", "two is no number"),
        ("factor", "0.5", "factor"),
        ("base", "", "base_ms"),
        ("ttr_default", "0 s", "ttr_default_ms is at least 1"),
    ] {
        let mut form = form.clone();
        form.insert(field.to_owned(), wrong.to_owned());
        let refused = browser.post("/queue/settings", &form).await;
        assert_eq!(refused.status, 400, "{field} {wrong}");
        let page = Html::of(&refused);
        page.is_sound("settings that were refused");
        page.says(says);
        assert_eq!(page.form("/queue/settings"), form, "what was written is not lost");
    }
    // A queue that has nothing but settings goes with them.
    bench.api("", "POST", "/api/v1/queues/mail/purge", None).await.is(200);
    let mut form = form;
    form.values_mut().filter(|value| value.len() < 10).for_each(String::clear);
    form.insert("queue".to_owned(), "mail".to_owned());
    let reply = browser.post("/queue/settings", &form).await;
    assert_eq!(reply.header("location"), "/queues", "{}", reply.text());
    assert_eq!(browser.get(at).await.status, 404);
}

#[tokio::test]
async fn a_form_of_settings_keeps_the_turns_of_keys_that_it_does_not_show() {
    let bench = Bench::new();
    let path = "/api/v1/queues/mail/settings";
    let fair = json!({ "field": "/tenant", "weights": { "acme": 5 } });
    bench.api("", "PUT", path, Some(json!({ "fair": fair }))).await;
    let mut browser = Browser::new(&bench);
    let page = browser.page("/queue/settings?queue=mail").await;
    page.is_sound("settings of a fair queue");
    page.says("Its keys take turns");
    let mut form = page.form("/queue/settings");
    form.insert("aging".to_owned(), "10 min".to_owned());
    browser.post("/queue/settings", &form).await;
    let set = bench.api("", "GET", path, None).await.json();
    assert_eq!((&set["fair"], &set["aging_ms"]), (&fair, &json!(600_000)));
}

#[tokio::test]
async fn what_is_done_to_marked_jobs_is_done_to_no_others() {
    let bench = Bench::new();
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.push(bench.submit(json!({ "queue": "mail" })).await);
    }
    let mut browser = Browser::new(&bench);
    let page = browser.page("/jobs?queue=mail").await;
    let boxes =
        page.all("input").filter(|it| it.attributes.get("name").is_some_and(|it| it == "ids"));
    assert_eq!(boxes.count(), 3);
    let at = format!("/jobs/all/park?queue=mail&ids={}&ids={}", ids[0], ids[2]);
    browser.page(&at).await.says("Park 2 jobs?");
    let reply = answer(&mut browser, &at, "/jobs/all/park").await;
    Html::of(&reply).says("Park: 2 jobs changed");
    for (id, status) in ids.iter().zip(["parked", "ready", "parked"]) {
        assert_eq!(bench.status_of(*id).await, status);
    }
    for path in ["/jobs/all/park", "/jobs/all/park?ids=", "/jobs/all/park?ids=x"] {
        assert_eq!(browser.get(path).await.status, 400, "{path}");
    }
}

#[tokio::test]
async fn a_job_is_submitted_as_it_is_written() {
    let bench = Bench::new();
    let mut browser = Browser::new(&bench);
    let page = browser.page("/submit?queue=mail").await;
    let mut form = page.form("/submit");
    assert_eq!(form["queue"], "mail");
    let json = "{\"b\": 1.500, \"a\": 12345678901234567890}";
    // Browsers send the ends of lines as CR LF: LF is what was typed.
    for (kind, written, payload) in
        [("json", json, json), ("text", "<b>\r\n\r\n&\r\n", "<b>\n\n&\n")]
    {
        form.insert("payload_type".to_owned(), kind.to_owned());
        form.insert("payload".to_owned(), written.to_owned());
        form.insert("tags".to_owned(), "eu, invoice".to_owned());
        form.insert("priority".to_owned(), "7".to_owned());
        let reply = browser.post("/submit", &form).await;
        assert_eq!(reply.status, 303, "{}", reply.text());
        let at = reply.header("location").to_owned();
        let kept = browser.get(&format!("{at}/bytes/payload")).await;
        assert_eq!(kept.text(), payload);
        assert_eq!(kept.header("content-type"), "application/octet-stream");
        assert!(kept.header("content-disposition").starts_with("attachment;"));
        let page = browser.page(&at).await;
        page.says("Priority 7");
        page.says("eu invoice");
    }
    for (field, wrong, says) in [
        ("payload", "{\"a\":", "is not JSON"),
        ("priority", "high", "Priority: high is no whole number"),
        ("run_at", "tomorrow", "run_at"),
        ("queue", "", "queue is missing"),
    ] {
        let mut form = form.clone();
        form.insert("payload_type".to_owned(), "json".to_owned());
        form.insert("payload".to_owned(), "[\"kept\"]".to_owned());
        form.insert(field.to_owned(), wrong.to_owned());
        let reply = browser.post("/submit", &form).await;
        assert_eq!(reply.status, 400, "{field}");
        let page = Html::of(&reply);
        page.is_sound("a form that was refused");
        page.says(says);
        assert!(field == "payload" || page.text.contains("[\"kept\"]"), "{field}");
    }
}

#[tokio::test]
async fn a_job_is_submitted_like_one_before() {
    let bench = Bench::guarded(TokensFile::of_all_roles().access(true));
    let submit = async |job| bench.api("admin", "POST", "/api/v1/jobs", Some(job)).await.is(201);
    let like = json!({ "queue": "mine.a", "payload": { "to": "<b>" }, "tags": ["eu", "x"],
                       "priority": 7, "fair_key": "acme" });
    submit(like).await;
    submit(json!({ "queue": "mine.a", "payload": "x".repeat(20_000) })).await;
    // CR LF, which a form would change.
    submit(json!({ "queue": "mine.a", "payload_base64": "YQ0KYg0=" })).await;
    submit(json!({ "queue": "other", "payload": "secret" })).await;
    let mut browser = Browser::with_token(&bench, "mine.admin").await;
    let page = browser.page("/submit?queue=mine.a").await;
    page.is_sound("/submit");
    page.says("Start from a job of mine.a");
    page.says("19.5 KiB, too long or no text for a form");
    page.says("5 bytes, too long or no text for a form");
    let to = "/submit?queue=mine%2Ea&like=1";
    assert!(page.links().contains(&to), "{:?}", page.links());
    assert!(!page.links().contains(&"/submit?queue=mine%2Ea&like=2"));
    let page = browser.page(to).await;
    page.is_sound(to);
    let form = page.form("/submit");
    let said = ["queue", "payload_type", "priority", "tags", "fair_key"];
    let said = said.map(|field| form[field].as_str());
    assert_eq!(said, ["mine.a", "json", "7", "eu, x", "acme"]);
    let written = page.all("textarea").next().unwrap();
    assert_eq!(written.text.trim(), "{\"to\":\"<b>\"}");
    // Of what one may not see, nothing is filled in.
    for (token, at) in [
        ("mine.admin", "/submit?queue=other&like=3"),
        ("submit", "/submit?queue=mine.a&like=1"),
        ("mine.admin", "/submit?queue=mine.a&like=nonsense"),
    ] {
        let page = Browser::with_token(&bench, token).await.page(at).await;
        assert_eq!(page.all("textarea").next().unwrap().text.trim(), "", "{token} {at}");
        assert!(!page.text.contains("secret"), "{token} {at}");
    }
    let page = Browser::with_token(&bench, "submit").await.page("/submit?queue=mine.a").await;
    assert!(!page.text.contains("Start from"), "{}", page.text);
}
