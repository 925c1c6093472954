//! Jobs that wait for others: on their pages, in lists, and submitted by a form.

use serde_json::{Value, json};
use spindle_testkit::TokensFile;

use crate::harness::{Bench, Browser, Html};

/// Submits jobs in one request, and gives their numbers.
async fn submit_all(bench: &Bench, jobs: Vec<Value>) -> Vec<u64> {
    let reply = bench.api("", "POST", "/api/v1/jobs/batch", Some(json!({ "jobs": jobs }))).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    let answers = reply.json();
    answers["answers"].as_array().unwrap().iter().map(|it| it["id"].as_u64().unwrap()).collect()
}

async fn finish(bench: &Bench, queue: &str, result: Value) {
    let lease = bench.lease(queue, "w").await;
    let path = format!("/api/v1/leases/{lease}/complete");
    bench.api("", "POST", &path, Some(json!({ "result": result }))).await.is(204);
}

/// What is drawn: the words of each node.
fn drawn(page: &Html) -> Vec<&str> {
    page.all("title").skip(1).map(|title| title.text.as_str()).collect()
}

#[tokio::test]
async fn a_job_shows_the_flow_that_it_is_in() {
    let bench = Bench::new();
    let jobs = vec![
        json!({ "queue": "resize", "ref": "one", "keep_ms": 60_000 }),
        json!({ "queue": "resize", "ref": "two" }),
        json!({ "queue": "album", "ref": "album", "after": ["one", "two"], "on_dead": "wait" }),
        json!({ "queue": "mail", "after": ["album"], "fair_key": "acme" }),
    ];
    let [one, two, album, mail] = submit_all(&bench, jobs).await[..] else { panic!() };
    let alone = bench.submit(json!({ "queue": "mail" })).await;
    finish(&bench, "resize", json!({ "width": 640 })).await;
    let page = bench.page(&format!("/jobs/{album}")).await;
    page.is_sound("a flow");
    page.says("Flow · 4 jobs: 1 ready, 2 blocked, 1 done");
    let expected = [
        format!("Job {one}, done, in resize"),
        format!("Job {two}, ready, in resize"),
        format!("Job {album}, this one, blocked, in album"),
        format!("Job {mail}, blocked, in mail"),
    ];
    assert_eq!(drawn(&page), expected);
    for id in [one, two, mail] {
        let links = page.links().into_iter().filter(|link| *link == format!("/jobs/{id}"));
        assert!(links.count() >= 2, "in the drawing and in the list: {id}");
    }
    page.says(&format!("Waits for {two} ready {one} done result"));
    assert!(page.links().contains(&format!("/jobs/{one}#result").as_str()));
    page.says("When one of them dies, this job goes on waiting");
    page.says(&format!("{album} (this job) blocked album after {one}, {two}"));
    let before = bench.page(&format!("/jobs/{one}")).await;
    assert!(
        before.elements.iter().any(|it| it.attributes.get("id").is_some_and(|it| it == "result"))
    );
    let last = bench.page(&format!("/jobs/{mail}")).await;
    last.says("Fair key acme");
    last.says("When one of them dies, this job is cancelled.");
    let alone = bench.page(&format!("/jobs/{alone}")).await;
    assert!(!alone.text.contains("Flow") && !alone.text.contains("Waits for"), "{}", alone.text);
}

#[tokio::test]
async fn names_of_queues_stay_names_in_a_flow() {
    let bench = Bench::new();
    let names = [
        "<script>alert(1)</script>".to_owned(),
        "\"><img src=x onerror=alert(1)>".to_owned(),
        "</title></svg><script>alert(1)</script>".to_owned(),
        "]]>\u{202e}\u{0}\u{1b}[31m".to_owned(),
        "\"".repeat(512),
    ];
    let mut jobs: Vec<Value> = Vec::new();
    for (number, name) in names.iter().cycle().take(1_000).enumerate() {
        let after: Vec<String> =
            (number.saturating_sub(2)..number).map(|it| it.to_string()).collect();
        let after: Vec<String> = after.iter().map(|it| format!("r{it}")).collect();
        jobs.push(json!({ "queue": name, "ref": format!("r{number}"), "after": after }));
    }
    let ids = submit_all(&bench, jobs).await;
    for id in [ids[0], ids[500], ids[999]] {
        let page = bench.page(&format!("/jobs/{id}")).await;
        page.is_sound("a hostile flow");
        assert!(drawn(&page).len() > 5, "{}", page.text);
        page.says("more jobs not drawn");
        for odd in ['\u{0}', '\u{1b}', '\u{202e}'] {
            assert!(!page.source.contains(odd), "{odd:?}");
        }
    }
}

#[tokio::test]
async fn jobs_of_queues_that_one_may_not_see_are_not_drawn() {
    let bench = Bench::guarded(TokensFile::of_all_roles().access(true));
    let jobs = json!({ "jobs": [
        { "queue": "mine.a", "ref": "a" },
        { "queue": "secret", "ref": "b" },
        { "queue": "mine.b", "after": ["a", "b"] },
    ] });
    bench.api("admin", "POST", "/api/v1/jobs/batch", Some(jobs)).await.is(200);
    let page = Browser::with_token(&bench, "mine.read").await.page("/jobs/3").await;
    assert_eq!(drawn(&page), ["Job 1, ready, in mine.a", "Job 3, this one, blocked, in mine.b"]);
    page.says("There are more jobs than these, or some in queues that you may not see.");
    assert!(!page.text.contains("secret"), "{}", page.text);
}

#[tokio::test]
async fn blocked_jobs_are_counted_and_parked_like_waiting_ones() {
    let bench = Bench::new();
    let first = bench.submit(json!({ "queue": "mail" })).await;
    bench.submit(json!({ "queue": "mail", "after": [first] })).await;
    for path in ["/", "/queues"] {
        let page = bench.page(path).await;
        page.says("Scheduled Blocked Leased");
        page.says("mail 1 0 1 0 0");
    }
    let page = bench.page("/jobs?queue=mail&status=blocked").await;
    let to = "/jobs/all/park?queue=mail&status=blocked";
    assert!(page.links().contains(&to), "{:?}", page.links());
}

#[tokio::test]
async fn a_form_submits_a_job_that_waits() {
    let bench = Bench::new();
    let first = bench.submit(json!({ "queue": "mail" })).await;
    let second = bench.submit(json!({ "queue": "mail" })).await;
    let mut browser = Browser::new(&bench);
    let mut form = browser.page("/submit?queue=mail").await.form("/submit");
    form.insert("after".to_owned(), format!(" {first}, {second},"));
    form.insert("on_dead".to_owned(), "run".to_owned());
    form.insert("fair_key".to_owned(), "acme".to_owned());
    let reply = browser.post("/submit", &form).await;
    assert_eq!(reply.status, 303, "{}", reply.text());
    let job = bench.api("", "GET", "/api/v1/jobs/3", None).await.json();
    let status = |id: u64| json!({ "id": id, "status": "ready" });
    assert_eq!(job["after"], json!([status(first), status(second)]));
    assert_eq!((&job["on_dead"], &job["fair_key"]), (&json!("run"), &json!("acme")));
    for (field, wrong, says) in [
        ("after", "one", "After the jobs or batches: one is not whole numbers, parted by commas"),
        ("after", "77", "there is no job 77 to wait for"),
        ("priority", "high", "Priority: high is no whole number"),
        ("run_at", "tomorrow", "run_at must be a time such as"),
        ("fair_key", &*"x".repeat(300), "fair_key has 1 to 256 bytes"),
    ] {
        let mut form = form.clone();
        form.insert(field.to_owned(), wrong.to_owned());
        let page = Html::of(&browser.post("/submit", &form).await);
        page.is_sound("a form that was refused");
        page.says(says);
        assert_eq!(page.wrong_field(), field, "it stands behind its field");
        assert_eq!(page.form("/submit")[field], wrong, "it is not lost");
    }
}
