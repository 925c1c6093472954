//! What each page says.

use serde_json::json;
use spindle_core::JobId;
use spindle_core::command::Claim;
use spindle_engine::News;
use spindle_web::{Options, SettingLine};

use crate::harness::{Bench, Browser, Html, request};

/// All pages that are opened by an address alone.
pub const PAGES: [&str; 14] = [
    "/",
    "/queues",
    "/jobs",
    "/dead",
    "/scheduled",
    "/workers",
    "/batches",
    "/constraints",
    "/constraint/edit",
    "/jobd",
    "/submit",
    "/audit",
    "/server",
    "/login",
];

#[tokio::test]
async fn every_page_is_whole_before_there_is_anything() {
    let bench = Bench::new();
    for path in PAGES {
        let page = bench.page(path).await;
        page.is_sound(path);
        for link in page.links().into_iter().filter(|link| *link != "#main") {
            let reply = bench.get(link).await;
            assert_eq!(reply.status, 200, "{path} links to {link}");
        }
    }
    bench.page("/jobs").await.says("spindle add mail");
    bench.page("/dead").await.says("No job is dead here.");
}

#[tokio::test]
async fn pages_may_load_and_run_nothing_but_their_own() {
    let bench = Bench::new();
    for path in ["/", "/nowhere", "/jobs/1"] {
        let reply = bench.get(path).await;
        let policy = reply.header("content-security-policy");
        assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"));
        assert!(
            policy.contains("frame-ancestors 'none'") && !policy.contains("unsafe"),
            "{policy}"
        );
        assert_eq!(reply.header("x-content-type-options"), "nosniff");
        assert_eq!(reply.header("referrer-policy"), "same-origin");
        assert_eq!(reply.header("x-frame-options"), "DENY");
        assert_eq!(reply.header("cache-control"), "no-store");
    }
}

#[tokio::test]
async fn files_are_named_by_their_content_and_kept() {
    let bench = Bench::new();
    let page = bench.page("/").await;
    let files = page.all("link").filter_map(|link| link.attributes.get("href"));
    let files: Vec<_> = files.chain(page.all("script").map(|it| &it.attributes["src"])).collect();
    assert_eq!(files.len(), 3, "{files:?}");
    for file in files {
        let reply = bench.get(file).await;
        assert_eq!(reply.status, 200);
        assert_eq!(reply.header("cache-control"), "public, max-age=31536000, immutable");
        let other = file.replacen('-', "-0", 1);
        assert_eq!(bench.get(&other).await.status, 404, "{other}");
    }
}

#[tokio::test]
async fn problems_are_pages_for_people_and_json_for_programs() {
    let bench = Bench::new();
    let page = Html::of(&bench.get("/nowhere").await);
    page.is_sound("/nowhere");
    page.says("404 There is nothing at this path");
    let gone = bench.get("/jobs/9").await;
    assert_eq!(gone.status, 404);
    Html::of(&gone).says("There is no such job");
    for (path, accept) in [
        ("/nowhere", "application/json"),
        ("/nowhere", "*/*"),
        ("/jobs/9", "application/json"),
        ("/api/v1/nowhere", "text/html,*/*;q=0.8"),
        ("/api/v1/jobs/9", "text/html,*/*;q=0.8"),
    ] {
        let asked = request("GET", path).header("accept", accept);
        let reply = bench.send(asked.body(Default::default()).unwrap()).await;
        assert_eq!(reply.status, 404, "{path}");
        assert_eq!(reply.header("content-type"), "application/problem+json", "{path} {accept}");
    }
    let long = format!("/jobs?text={}", "x".repeat(2_000));
    let refused = bench.get(&long).await;
    assert_eq!(refused.status, 400);
    Html::of(&refused).is_sound("a search that is too long");
}

#[tokio::test]
async fn the_overview_says_what_needs_attention() {
    let bench = Bench::new();
    bench.page("/").await.says("Nothing: no queue waits for a worker");
    bench.submit(json!({ "queue": "resize" })).await;
    bench.dead("import", "connection refused to db-1").await;
    bench.submit(json!({ "queue": "mail" })).await;
    bench.api("", "POST", "/api/v1/queues/mail/pause", None).await.is(200);
    let limit = json!({ "queue": "smtp", "running_max": 0 });
    bench.api("", "PUT", "/api/v1/constraints/smtp-rate", Some(limit)).await.is(201);
    bench.submit(json!({ "queue": "smtp" })).await;
    bench.pass(14 * 60_000);
    let page = bench.page("/").await;
    page.is_sound("/");
    page.says("resize No worker since the server started. 1 job ready, the next waits 14 min.");
    page.says("mail Paused. 1 job ready.");
    page.says("import 1 job is dead.");
    page.says("Constraint smtp-rate is full: 1 job cannot start for now.");
    let place = |words: &str| page.text.find(words).unwrap();
    assert!(place("No worker ") < place("1 job is dead"), "in the order of the queues");
    assert!(place("1 job is dead") < place("is full:") && place("is full:") < place("Paused."));
    assert!(page.links().contains(&"/jobs/all/retry?queue=import&status=dead"));
}

#[tokio::test]
async fn the_overview_says_since_when_no_worker_asks() {
    let bench = Bench::new();
    bench.dead("mail", "no").await;
    bench.pass(6 * 60_000);
    bench.submit(json!({ "queue": "mail" })).await;
    let page = bench.page("/").await;
    page.says("mail No worker for 6 min. 1 job ready.");
    // Its row in the list says it too.
    page.says("asked 6 min ago");
}

#[tokio::test]
async fn the_overview_says_that_it_has_not_looked_at_all_queues() {
    let bench = Bench::new();
    let add = async |from: u32, to: u32| {
        let jobs = (from..to).map(|n| json!({ "queue": format!("q{n:04}"), "parked": true }));
        let jobs = json!({ "jobs": jobs.collect::<Vec<_>>() });
        bench.api("", "POST", "/api/v1/jobs/batch", Some(jobs)).await.is(200);
    };
    add(0, 512).await;
    let page = bench.page("/").await;
    assert!(!page.text.contains("were looked at"), "{}", page.text);
    page.says("Nothing: no queue waits for a worker");
    add(512, 513).await;
    let page = bench.page("/").await;
    page.is_sound("/");
    page.says("Nothing in the queues that were looked at.");
    page.says("Only the first 512 queues, by name, were looked at.");
}

#[tokio::test]
async fn the_overview_warns_before_a_limit_is_reached() {
    let defaults = spindle_core::Defaults { unfinished_max: 10, ..Default::default() };
    let options = spindle_engine::Options { defaults, ..Default::default() };
    let bench = Bench::over(options, Options::default());
    for _ in 0..8 {
        bench.submit(json!({ "queue": "mail" })).await;
    }
    let says = "Server Nearly as many jobs are unfinished as may be: 9 of 10.";
    assert!(!bench.page("/").await.text.contains("Nearly"));
    bench.submit(json!({ "queue": "mail" })).await;
    let page = bench.page("/").await;
    page.is_sound("/");
    page.says(says);
}

#[tokio::test]
async fn the_bar_says_how_fast_the_server_is() {
    let bench = Bench::new();
    assert!(!bench.page("/jobs").await.text.contains("done/min"), "nothing is known yet");
    bench.look();
    bench.submit(json!({ "queue": "mail" })).await;
    let lease = bench.lease("mail", "w").await;
    let path = format!("/api/v1/leases/{lease}/complete");
    bench.api("", "POST", &path, Some(json!({}))).await.is(204);
    bench.look();
    // One in the twenty seconds that were looked at, which count as a minute.
    bench.page("/jobs").await.says("1 done/min");
    bench.page("/jobs").await.says("p99 commit");
}

#[tokio::test]
async fn queues_with_long_names_stay_on_short_pages() {
    let bench = Bench::new();
    for number in 0..60 {
        let name = format!("{}{number:03}", "<".repeat(252));
        bench.dead(&name, "no").await;
    }
    let (mut at, mut seen) = ("/queues".to_owned(), 0);
    loop {
        let page = bench.page(&at).await;
        page.is_sound(&at);
        seen += page.all("tr").filter(|row| row.attributes.contains_key("data-key")).count();
        let Some(next) = page.all("a").find(|link| link.text == "Next page") else { break };
        at = next.attributes["href"].clone();
    }
    assert_eq!(seen, 60, "every queue is on some page");
}

#[tokio::test]
async fn a_job_names_those_that_are_related_to_it() {
    let bench = Bench::new();
    let failed = bench.dead("mail", "connection refused to db-1").await;
    bench.dead("mail", "connection refused to db-22").await;
    bench.dead("mail", "no such user").await;
    bench.look();
    let page = bench.page(&format!("/jobs/{failed}")).await;
    page.is_sound("a job that failed");
    page.says("Same error 2 attempts in the last day, see the jobs");
    let to = "/jobs?queue=mail&fingerprint=connection%20refused%20to%20db%2D%23";
    assert!(page.links().contains(&to), "{:?}", page.links());
    let keyed = json!({ "queue": "mail", "unique": { "key": "k" } });
    let first = bench.submit(keyed.clone()).await;
    let says = "Same key no other job of the queue, until this one has ended";
    bench.page(&format!("/jobs/{first}")).await.says(says);
    bench.api("", "POST", &format!("/api/v1/jobs/{first}/cancel"), None).await.is(200);
    bench.page(&format!("/jobs/{first}")).await.says("Same key no unfinished job has it now");
    let second = bench.submit(keyed).await;
    let page = bench.page(&format!("/jobs/{first}")).await;
    page.says(&format!("Same key job {second} has it now"));
}

#[tokio::test]
async fn a_job_that_runs_says_since_when_and_how_far_it_is() {
    let bench = Bench::new();
    let id = bench.submit(json!({ "queue": "mail" })).await;
    bench.lease("mail", "smtp-1").await;
    bench.pass(3_000);
    let at = format!("/jobs/{id}");
    bench.page(&at).await.says("1 smtp-1 3 s ago 3.0 s so far runs");
    let said = |numerator: &'static str, denominator: &'static str, remaining_s| {
        let (numerator, denominator) = (numerator.into(), denominator.into());
        let news = News::Progress { numerator, denominator, remaining_s };
        let reported = bench.engine.leases().report(Claim::Unfinished { id: JobId(id) }, news);
        reported.without_waiting("a test").unwrap();
    };
    said("3", "8", 90);
    bench.page(&at).await.says("runs · 3 of 8 · 38 % · 1 min left");
    said("<b>", "\u{202e}", 0);
    let page = bench.page(&at).await;
    page.is_sound("progress that is none");
    page.says("runs · <b> of \u{fffd}");
    assert!(!page.text.contains('%'), "{}", page.text);
}

#[tokio::test]
async fn a_dead_job_says_what_happened_and_what_to_do() {
    let bench = Bench::new();
    let id = bench.dead("mail", "550 mailbox unavailable").await;
    let page = bench.page(&format!("/jobs/{id}")).await;
    page.is_sound("a job");
    page.says(&format!("Job {id}"));
    page.says("dead in mail · 1 of 1 tries failed · came in by api");
    page.says(
        "Why it does not run: no try is left: try 1 of 1 failed: \"550 mailbox unavailable\"",
    );
    page.says("Retry it with all its tries.");
    page.says("Submitted 03:04:05 Try 1 ✗");
    page.says("smtp-1");
    page.says("Leases 1 of 25");
    let links = page.links();
    let retry = format!("/jobs/{id}/retry");
    assert_eq!(links.iter().filter(|link| **link == retry).count(), 2, "a button, and in Why");
    assert!(!links.contains(&format!("/jobs/{id}/park").as_str()));
    bench.page("/dead").await.says("550 mailbox unavailable");
    // By any of its names, from the search.
    let found = bench.get(&format!("/search?q=+{id}+")).await;
    assert_eq!(found.header("location"), format!("/jobs/{id}"));
    assert_eq!(bench.get("/search?q=mail").await.header("location"), "/queue?queue=mail");
    assert_eq!(bench.get("/search?q=a+b").await.header("location"), "/jobs?text=a%20b");
}

#[tokio::test]
async fn of_a_stack_trace_only_the_page_of_the_job_has_more_than_its_first_line() {
    let bench = Bench::new();
    let id = bench.dead("mail", "550 unknown\n  at send (mailer.py:88)\n  at main").await;
    let page = bench.page(&format!("/jobs/{id}")).await;
    page.says("try 1 of 1 failed: \"550 unknown\" (code exit 69).");
    page.says("failed · exit 69 · 550 unknown …");
    assert_eq!(page.text.matches("at send").count(), 1, "{}", page.text);
}

#[tokio::test]
async fn what_can_be_done_about_a_job_is_a_link() {
    let bench = Bench::new();
    let first = bench.submit(json!({ "queue": "a" })).await;
    let batch = bench.open_batch(json!({ "queue": "b" })).await;
    bench.submit(json!({ "queue": "b", "batch": batch })).await;
    let after_both = bench.submit(json!({ "queue": "c", "after": [first, batch] })).await;
    let after_batch = bench.submit(json!({ "queue": "c", "after": [batch] })).await;
    bench.api("", "POST", "/api/v1/queues/a/pause", None).await.is(200);
    let parked = bench.submit(json!({ "queue": "a", "parked": true })).await;
    let (to_first, to_batch) = (format!("/jobs/{first}"), format!("/batches/{batch}"));
    let jobs_of_batch = format!("/jobs?batch={batch}");
    for (id, words, to) in [
        (after_both, format!("{first}"), to_first.as_str()),
        (after_both, format!("{batch}"), &to_batch),
        (after_both, "See why it is not done".to_owned(), &to_first),
        (after_batch, "See which jobs of the batch are not done".to_owned(), &jobs_of_batch),
        (first, "Resume its queue".to_owned(), "/queue/resume?queue=a"),
        (parked, "Release it".to_owned(), &format!("/jobs/{parked}/release")),
    ] {
        let page = bench.page(&format!("/jobs/{id}")).await;
        let begin = page.elements.iter().position(|it| it.name == "section").unwrap();
        let why = page.elements[begin..].iter().take_while(|it| it.name != "h2");
        let link = |it: &&crate::harness::Element| it.name == "a" && it.text.starts_with(&words);
        let found = why.filter(link).map(|it| it.attributes["href"].as_str());
        assert_eq!(found.collect::<Vec<_>>(), [to], "{words} in {}", page.source);
    }
}

#[tokio::test]
async fn a_list_says_when_a_job_runs_and_what_it_failed_with() {
    let bench = Bench::new();
    let retried = json!({ "queue": "mail", "fails_max": 3, "backoff": { "base_ms": 900_000 } });
    bench.submit(retried).await;
    let lease = bench.lease("mail", "w").await;
    let failed = json!({ "error": "connect ECONNREFUSED" });
    let path = format!("/api/v1/leases/{lease}/fail");
    bench.api("", "POST", &path, Some(failed)).await.is(204);
    bench.page("/jobs").await.says("runs in 15 min · connect ECONNREFUSED");
}

#[tokio::test]
async fn jobs_are_found_by_what_the_api_knows() {
    let bench = Bench::new();
    let tagged =
        json!({ "queue": "mail", "tags": ["eu"], "unique": { "key": "k-1" }, "payload": "xyz" });
    let id = bench.submit(tagged).await;
    let other = bench.submit(json!({ "queue": "other", "run_at": "2030-01-01T00:00:00Z" })).await;
    let free = bench.submit(json!({ "queue": "f", "payload": { "plan": "free" } })).await;
    let paid = bench.submit(json!({ "queue": "f", "payload": { "plan": "pro" } })).await;
    for (query, found, not) in [
        ("queue=mail", id, other),
        ("tag=eu", id, other),
        ("unique_key=k-1", id, other),
        ("text=xyz", id, other),
        ("field=%2Fplan%3Dfree", free, paid),
        ("field=%2Fplan%3Dpro", paid, free),
        ("status=scheduled", other, id),
        ("status=ready&door=api", id, other),
        ("queue=other&tag=&text=", other, id),
    ] {
        let page = bench.page(&format!("/jobs?{query}")).await;
        let links = page.links();
        assert!(links.contains(&format!("/jobs/{found}").as_str()), "{query}");
        assert!(!links.contains(&format!("/jobs/{not}").as_str()), "{query}");
    }
    bench.page("/jobs?queue=mail").await.says("1 job");
    let page = bench.page("/scheduled").await;
    assert!(page.links().contains(&format!("/jobs/{other}").as_str()));
    assert_eq!(bench.get("/jobs?status=nonsense").await.status, 400);
    assert_eq!(bench.get("/jobs?cursor=x").await.status, 400);
}

#[tokio::test]
async fn lists_are_paged_and_stay_short() {
    let bench = Bench::new();
    let text = "a longer error \"than\" most <are>; ".repeat(10);
    for batch in 0..10 {
        let job =
            json!({ "queue": format!("queue-{batch}"), "payload": text, "tags": [text[..100]] });
        let jobs = json!({ "jobs": vec![job; 1_000] });
        bench.api("", "POST", "/api/v1/jobs/batch", Some(jobs)).await.is(200);
    }
    for path in PAGES {
        bench.page(path).await.is_sound(path);
    }
    let first = bench.page("/jobs?queue=queue-9").await;
    first.says("1,000 jobs");
    let next = first.all("a").find(|link| link.text == "Next page").unwrap();
    let second = bench.page(&next.attributes["href"]).await;
    second.is_sound("the second page");
    let jobs = |page: &Html| -> Vec<String> {
        let rows = page.all("tr").filter_map(|row| row.attributes.get("data-key"));
        rows.cloned().collect()
    };
    assert_eq!((jobs(&first).len(), jobs(&second).len()), (50, 50));
    assert!(jobs(&first).iter().all(|id| !jobs(&second).contains(id)));
    bench.page("/queue?queue=queue-9").await.is_sound("a queue");
}

#[tokio::test]
async fn a_queue_says_what_is_in_it_and_who_works() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "mail" })).await;
    let leased = bench.submit(json!({ "queue": "mail", "priority": 5 })).await;
    bench.lease("mail", "worker-7").await;
    let backoff = json!({ "base_ms": 30_000, "factor": 2, "cap_ms": 3_600_000 });
    let settings = json!({ "keep_ms": 86_400_000, "jobs_max": 5_000, "backoff": backoff });
    bench.api("", "PUT", "/api/v1/queues/mail/settings", Some(settings)).await.is(200);
    let page = bench.page("/queue?queue=mail").await;
    page.is_sound("a queue");
    page.says("ready 1 leased 1");
    page.says("worker-7");
    page.says("Keep done jobs for 1 day");
    page.says("Backoff 30 s, times 2, at most 1 h");
    page.says("Unfinished jobs at most; more are refused 5,000");
    page.says("Died 0 Facts Done since start 0");
    let workers = bench.page("/workers").await;
    workers.is_sound("/workers");
    bench.pass(20_000);
    let workers = bench.page("/workers").await;
    workers.says(&format!("worker-7 api {leased} of mail for 20 s, lease ends in"));
    assert_eq!(bench.get("/queue?queue=gone").await.status, 404);
    assert_eq!(bench.get("/queue").await.status, 400);
}

#[tokio::test]
async fn the_server_shows_its_settings() {
    let line = SettingLine {
        name: "log-bytes-max",
        value: "64 GiB".to_owned(),
        from: "flag (--log-bytes-max)".to_owned(),
    };
    let bench = Bench::with(Options { settings: vec![line], ..Options::default() });
    let page = bench.page("/server").await;
    page.is_sound("/server");
    page.says("log-bytes-max 64 GiB flag (--log-bytes-max)");
    page.says(&format!("Spindle {}", env!("CARGO_PKG_VERSION")));
    page.says("of 64 GiB");
    page.says("New jobs taken Commit, last minute none");
    bench.look();
    bench.submit(json!({ "queue": "mail" })).await;
    bench.look();
    let page = bench.page("/server").await;
    page.says("Commit, last minute p50 ");
    page.says(", p99 ");
}

#[tokio::test]
async fn lists_of_dead_and_scheduled_jobs_have_the_time_that_matters() {
    let bench = Bench::new();
    bench.dead("mail", "no").await;
    bench.submit(json!({ "queue": "mail", "run_at": "2030-01-01T00:00:00Z" })).await;
    let heads = |page: &Html| page.all("th").last().map(|it| it.text.clone());
    for (path, head) in [
        ("/dead", "Finished"),
        ("/scheduled", "Runs"),
        ("/jobs", "Submitted"),
        ("/jobs?status=dead", "Finished"),
    ] {
        assert_eq!(heads(&bench.page(path).await).as_deref(), Some(head), "{path}");
    }
    let mut browser = Browser::new(&bench);
    let mut form = browser.page("/dead").await.form("/columns");
    form.insert("column".to_owned(), "status,submitted".to_owned());
    browser.post("/columns", &form).await;
    assert_eq!(heads(&browser.page("/dead").await).as_deref(), Some("Submitted"), "as chosen");
}

#[tokio::test]
async fn buttons_for_all_jobs_of_a_list_say_how_many_those_are() {
    let bench = Bench::new();
    for _ in 0..3 {
        bench.dead("mail", "no").await;
    }
    bench.submit(json!({ "queue": "mail", "tags": ["eu"] })).await;
    bench.page("/dead").await.says("Retry all 3…Delete all 3…");
    bench.page("/jobs?queue=mail").await.says("Delete all 4…");
    bench.page("/jobs?tag=eu").await.says("Delete all…");
}

#[tokio::test]
async fn what_people_did_to_a_job_is_a_link_and_its_times_are_in_words() {
    let bench = Bench::new();
    let id = bench.submit(json!({ "queue": "mail" })).await;
    let park = format!("/api/v1/jobs/{id}/park");
    bench.api("", "POST", &park, None).await.is(200);
    let to = format!("/audit?job={id}");
    assert!(bench.page(&format!("/jobs/{id}")).await.links().contains(&to.as_str()));
    bench.page(&to).await.says("park job");
    let settings = json!({ "keep_ms": 3_600_000 });
    bench.api("", "PUT", "/api/v1/queues/mail/settings", Some(settings)).await.is(200);
    let limit = json!({ "queue": "mail", "rate": { "count": 120, "per_ms": 60_000 } });
    bench.api("", "PUT", "/api/v1/constraints/smtp", Some(limit)).await.is(201);
    let page = bench.page("/audit").await;
    page.is_sound("/audit");
    page.says("120 per 1 min");
    page.says("keep 1 h");
}

#[tokio::test]
async fn colours_are_chosen_without_a_script() {
    let bench = Bench::new();
    let mut browser = Browser::new(&bench);
    let page = browser.page("/jobs?queue=a").await;
    assert_eq!(page.elements[0].attributes["data-theme"], "auto");
    let reply = browser.post("/theme", &page.form("/theme")).await;
    assert_eq!((reply.status.as_u16(), reply.header("location")), (303, "/jobs?queue=a"));
    assert_eq!(browser.page("/").await.elements[0].attributes["data-theme"], "dark");
}

#[tokio::test]
async fn lists_have_the_columns_that_were_chosen() {
    let bench = Bench::new();
    bench.submit(json!({ "queue": "mail", "unique": { "key": "k-1" }, "priority": 7 })).await;
    let mut browser = Browser::new(&bench);
    let heads = |page: &Html| page.all("th").map(|it| it.text.clone()).collect::<Vec<_>>();
    let page = browser.page("/jobs").await;
    assert_eq!(heads(&page)[1..], ["Job", "Status", "Queue", "Tries", "What", "Submitted"]);
    let mut form = page.form("/columns");
    form.insert("column".to_owned(), "priority,key,nonsense".to_owned());
    assert_eq!(browser.post("/columns", &form).await.header("location"), "/jobs");
    assert_eq!(browser.cookie("spindle_columns"), Some("key.priority"));
    let page = browser.page("/jobs").await;
    assert_eq!(heads(&page)[1..], ["Job", "Unique key", "Priority"]);
    page.says("k-1");
    page.is_sound("/jobs");
    form.remove("column");
    browser.post("/columns", &form).await;
    assert_eq!(heads(&browser.page("/jobs").await).len(), 7, "none chosen: the usual ones");
}
