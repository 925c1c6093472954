//! Batches: their list, their pages, in flows and at their jobs, and what can be done to them.

use serde_json::{Value, json};
use spindle_testkit::TokensFile;

use crate::harness::{Bench, Browser, Html};

/// Ends the next job of a queue: `complete`, or `fail` for good.
async fn end(bench: &Bench, queue: &str, how: &str) {
    let lease = bench.lease(queue, "w").await;
    let body = if how == "fail" { json!({ "retry": false }) } else { json!({}) };
    bench.api("", "POST", &format!("/api/v1/leases/{lease}/{how}"), Some(body)).await.is(204);
}

async fn shown(bench: &Bench, id: u64) -> Value {
    bench.api("", "GET", &format!("/api/v1/batches/{id}"), None).await.json()
}

fn has_link(page: &Html, to: &str) -> bool {
    page.links().contains(&to)
}

/// A batch of three jobs, one done and one dead.
async fn sample(bench: &Bench) -> u64 {
    let batch = bench.open_batch(json!({ "queue": "photos", "name": "holidays" })).await;
    for _ in 0..3 {
        bench.submit(json!({ "queue": "resize", "batch": batch })).await;
    }
    end(bench, "resize", "complete").await;
    end(bench, "resize", "fail").await;
    batch
}

#[tokio::test]
async fn the_list_has_the_newest_first_and_goes_on() {
    let bench = Bench::new();
    bench.page("/batches").await.says("A batch counts jobs that belong together");
    let batch = sample(&bench).await;
    let nameless = bench.open_batch(json!({ "queue": "photos" })).await;
    let page = bench.page("/batches").await;
    page.is_sound("/batches");
    page.says(&format!("holidays {batch} open photos 1 1 1 0 now"));
    page.says(&format!("batch {nameless} open photos 0 0 0 0 now"));
    let at = |id: u64| page.links().iter().position(|link| *link == format!("/batches/{id}"));
    assert!(at(nameless).unwrap() < at(batch).unwrap());
    for _ in 0..25 {
        bench.open_batch(json!({ "queue": "photos" })).await;
    }
    let first = bench.page("/batches").await;
    assert!(!has_link(&first, &format!("/batches/{nameless}")));
    let next = first.links().into_iter().find(|link| link.starts_with("/batches?cursor="));
    let second = bench.page(next.unwrap()).await;
    assert!(has_link(&second, &format!("/batches/{nameless}")));
    assert!(has_link(&second, &format!("/batches/{batch}")));
}

#[tokio::test]
async fn a_batch_shows_how_its_jobs_stand_and_where_they_are() {
    let bench = Bench::new();
    let outer = bench.open_batch(json!({ "queue": "photos", "key": "nightly" })).await;
    let inner = json!({ "queue": "photos", "name": "holidays", "parent": outer });
    let batch = bench.open_batch(inner).await;
    let job = bench.submit(json!({ "queue": "resize", "batch": batch })).await;
    let album = bench.submit(json!({ "queue": "album", "after": [batch] })).await;
    let page = bench.page(&format!("/batches/{batch}")).await;
    page.is_sound("a batch");
    page.says(&format!("Batch {batch} holidays open · 0 of 1 job ended · in photos"));
    page.says("unfinished 1 done 0 dead 0 gone 0");
    page.says("Flow · 2 jobs: 1 ready, 1 blocked; 2 batches: 2 open");
    page.says(&format!("Belongs to batch {outer}"));
    for to in [
        format!("/batches/{outer}"),
        format!("/jobs?batch={batch}"),
        format!("/jobs?batch={batch}&status=dead"),
        format!("/jobs/{album}"),
        format!("/submit?queue=photos&batch={batch}"),
    ] {
        assert!(has_link(&page, &to), "{to} in {:?}", page.links());
        bench.page(&to).await.is_sound(&to);
    }
    bench.page(&format!("/batches/{outer}")).await.says("Key nightly");
    // Of its jobs, and of no others.
    let jobs = bench.page(&format!("/jobs?batch={batch}")).await;
    assert!(has_link(&jobs, &format!("/jobs/{job}")));
    assert!(!has_link(&jobs, &format!("/jobs/{album}")));
    assert_eq!(jobs.form("/jobs")["batch"], batch.to_string());
    end(&bench, "resize", "complete").await;
    let seal = format!("/api/v1/batches/{batch}/seal");
    bench.api("", "POST", &seal, None).await.is(200);
    let page = bench.page(&format!("/batches/{batch}")).await;
    page.says("done · 1 of 1 job ended");
    page.says("Sealed now Ended now Removed in 1 day");
}

#[tokio::test]
async fn a_job_leads_to_its_batch_and_to_those_that_it_waits_for() {
    let bench = Bench::new();
    let batch = bench.open_batch(json!({ "queue": "photos" })).await;
    let job = bench.submit(json!({ "queue": "resize", "batch": batch })).await;
    let album = bench.submit(json!({ "queue": "album", "after": [batch] })).await;
    let page = bench.page(&format!("/jobs/{job}")).await;
    page.says(&format!("Belongs to batch {batch}"));
    assert!(has_link(&page, &format!("/batches/{batch}")));
    let page = bench.page(&format!("/jobs/{album}")).await;
    page.is_sound("a job that waits for a batch");
    page.says(&format!("Waits for batch {batch} open"));
    page.says("or is a batch and ends without all of its jobs being done, this job is cancelled.");
    assert!(!has_link(&page, &format!("/jobs/{batch}")));
    let titles: Vec<&str> = page.all("title").map(|title| title.text.as_str()).collect();
    assert!(titles.contains(&format!("Batch {batch}, open, in photos").as_str()), "{titles:?}");
    let found = bench.get(&format!("/search?q={batch}")).await;
    assert_eq!(found.header("location"), format!("/batches/{batch}"));
}

#[tokio::test]
async fn a_form_adds_a_job_to_a_batch() {
    let bench = Bench::new();
    let batch = bench.open_batch(json!({ "queue": "photos" })).await;
    let mut browser = Browser::new(&bench);
    let mut form = browser.page(&format!("/submit?queue=q&batch={batch}")).await.form("/submit");
    assert_eq!(form["batch"], batch.to_string());
    let reply = browser.post("/submit", &form).await;
    assert_eq!(reply.status, 303, "{}", reply.text());
    assert_eq!(shown(&bench, batch).await["jobs"]["total"], 1);
    bench.api("", "POST", &format!("/api/v1/batches/{batch}/seal"), None).await.is(200);
    for wrong in [batch.to_string(), "99".to_owned(), "x".to_owned()] {
        form.insert("batch".to_owned(), wrong.clone());
        let page = Html::of(&browser.post("/submit", &form).await);
        assert_eq!(page.wrong_field(), "batch", "{wrong}: it stands behind its field");
    }
}

#[tokio::test]
async fn a_batch_is_sealed_after_a_question() {
    let bench = Bench::new();
    let batch = sample(&bench).await;
    let (at, to) = (format!("/batches/{batch}"), format!("/batches/{batch}/seal"));
    let mut browser = Browser::new(&bench);
    assert!(has_link(&browser.page(&at).await, &to));
    let page = browser.page(&to).await;
    page.is_sound("a question");
    page.says(&format!("Seal batch {batch} with 3 jobs?"));
    assert_eq!(shown(&bench, batch).await["status"], "open");
    let form = page.form(&to);
    assert_eq!(browser.post(&to, &form).await.header("location"), at);
    assert_eq!(shown(&bench, batch).await["status"], "sealed");
    assert!(!has_link(&browser.page(&at).await, &to), "it is sealed once");
    let again = browser.post(&to, &form).await;
    assert_eq!(again.status, 409);
    Html::of(&again).is_sound("a batch that is sealed");
}

#[tokio::test]
async fn a_batch_is_cancelled_after_a_question_that_names_the_count() {
    let bench = Bench::new();
    let batch = sample(&bench).await;
    let (at, to) = (format!("/batches/{batch}"), format!("/batches/{batch}/cancel"));
    let mut browser = Browser::new(&bench);
    let page = browser.page(&to).await;
    page.is_sound("a question");
    page.says(&format!("Cancel batch {batch} with 1 unfinished job?"));
    page.says("Cancel 1 unfinished job Back");
    let mut form = page.form(&to);
    let token = form.insert("form_token".to_owned(), "0".repeat(64)).unwrap();
    assert_eq!(browser.post(&to, &form).await.status, 403, "the form is of no page of ours");
    assert_eq!(shown(&bench, batch).await["cancelled"], false);
    form.insert("form_token".to_owned(), token);
    assert_eq!(browser.post(&to, &form).await.header("location"), at);
    let page = browser.page(&at).await;
    page.says("ended cancelled · 3 of 3 jobs ended");
    page.says("unfinished 0 done 1 dead 2 gone 0");
    assert!(!has_link(&page, &to), "there is nothing to cancel any more");
}

#[tokio::test]
async fn a_batch_offers_only_what_one_may() {
    let bench = Bench::guarded(TokensFile::of_all_roles().access(true));
    let new = json!({ "queue": "mine.a" });
    let batch = bench.api("admin", "POST", "/api/v1/batches", Some(new)).await.json();
    let at = format!("/batches/{}", batch["id"]);
    for (token, may_seal, may_cancel, sees_jobs) in [
        ("read", false, false, true),
        ("manage", false, true, true),
        ("admin", true, true, true),
        ("mine.manage", false, true, false),
    ] {
        let page = Browser::with_token(&bench, token).await.page(&at).await;
        assert_eq!(has_link(&page, &format!("{at}/seal")), may_seal, "{token}");
        assert_eq!(has_link(&page, &format!("{at}/cancel")), may_cancel, "{token}");
        let jobs = format!("/jobs?batch={}", batch["id"]);
        assert_eq!(has_link(&page, &jobs), sees_jobs, "{token}");
    }
    // Who only submits may seal it, and sees nothing of it.
    let mut browser = Browser::with_token(&bench, "mine.submit").await;
    let to = format!("{at}/seal");
    let page = browser.page(&to).await;
    page.says(&format!("Seal batch {}?", batch["id"]));
    assert!(!page.text.contains("mine.a"), "{}", page.text);
    let reply = browser.post(&to, &page.form(&to)).await;
    assert_eq!(reply.status, 200, "{}", reply.text());
    Html::of(&reply).says("is sealed No job is added any more.");
}

#[tokio::test]
async fn names_of_batches_stay_names() {
    let bench = Bench::new();
    for name in ["<script>alert(1)</script>", "\"><img src=x onerror=alert(1)>", "\u{202e}\u{1b}"]
        .map(str::to_owned)
        .into_iter()
        .chain(["<".repeat(256), "\"".repeat(256)])
    {
        for number in 0..6 {
            let key = format!("{}{number}", &name[..name.len().min(64)]);
            let new = json!({ "queue": name, "name": name, "key": key });
            let batch = bench.open_batch(new).await;
            for page in ["", "/seal", "/cancel"] {
                let page = bench.page(&format!("/batches/{batch}{page}")).await;
                page.is_sound(&name);
                for odd in ['\u{1b}', '\u{202e}'] {
                    assert!(!page.source.contains(odd), "{odd:?}");
                }
            }
        }
    }
    let list = bench.page("/batches").await;
    list.is_sound("/batches");
    assert!(!list.source.contains('\u{1b}') && !list.source.contains('\u{202e}'));
}

#[tokio::test]
async fn a_batch_that_is_gone_is_a_page_that_says_so() {
    let bench = Bench::new();
    let job = bench.submit(json!({ "queue": "q" })).await;
    let gone = bench.open_batch(json!({ "queue": "q", "keep_ms": 1000 })).await;
    bench.api("", "POST", &format!("/api/v1/batches/{gone}/seal"), None).await.is(200);
    bench.pass(10_000);
    for (path, status) in [
        (format!("/batches/{gone}"), 404),
        (format!("/batches/{gone}/cancel"), 404),
        (format!("/batches/{job}"), 404),
        ("/batches/99".to_owned(), 404),
        ("/batches/0".to_owned(), 400),
        ("/batches/%3Cscript%3E".to_owned(), 400),
        ("/batches/x/seal".to_owned(), 400),
    ] {
        let reply = bench.get(&path).await;
        assert_eq!(reply.status, status, "{path}");
        Html::of(&reply).is_sound(&path);
    }
}
