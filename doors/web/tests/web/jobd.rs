//! The page of the jobd master: its workers, what is wrong with them, and pausing their targets.

use serde_json::json;
use spindle_testkit::{JobdMaster, JobdWorker, TokensFile};
use spindle_web::Options;

use crate::harness::{Bench, Browser, Html};

fn bench(master: &JobdMaster) -> Bench {
    Bench::with_jobd(Options::default(), master.handle.clone())
}

#[tokio::test]
async fn without_a_master_or_workers_the_page_says_what_would_be_here() {
    let off = Bench::new().page("/jobd").await;
    off.is_sound("/jobd");
    off.says("This server runs no master for workers of jobd");
    off.says("spindle serve --jobd-master 127.0.0.1:7081");

    let master = JobdMaster::new();
    let bench = bench(&master);
    let empty = bench.page("/jobd").await;
    empty.is_sound("/jobd");
    let port = master.handle.address().port();
    empty.says(&format!("jobd -o master_host=127.0.0.1 -o master_port={port} -o launcher="));
    assert!(!empty.links().iter().any(|link| link.starts_with("/jobd/")), "{:?}", empty.links());
}

#[tokio::test]
async fn workers_and_targets_are_shown_with_what_is_wrong() {
    let master = JobdMaster::new();
    let bench = bench(&master);
    let one = JobdWorker::register(&master.address(), "srv-1", &[("mail", 5, 3), ("low", 1, 0)]);
    let two = JobdWorker::register(&master.address(), "srv-2", &[("mail", 10, 12)]);
    let page = bench.page("/jobd").await;
    page.is_sound("/jobd");
    page.says("Nothing is wrong: every worker answers, no target is paused.");
    page.says("2 workers, 2 targets, 13 of 16 slots used, 2 jobs waiting for one.");
    page.says("low running 1 0 of 1 Pause… mail running 2 13 of 15, 2 waiting Pause…");
    page.says("mail 10 of 10, 2 waiting pause");

    one.says("tableTrouble", json!("no such table: jobs"));
    two.says("unfinished", json!({ "7": { "target": "mail" } }));
    let mut browser = Browser::new(&bench);
    let form = browser.page("/jobd/pause?target=mail&worker=1").await.form("/jobd/pause");
    assert_eq!(browser.post("/jobd/pause", &form).await.header("location"), "/jobd");
    // The other one is asked again when its answer is a second old.
    let mut page = browser.page("/jobd").await;
    while !page.text.contains("1 row of its table") {
        page = browser.page("/jobd").await;
    }
    page.says("srv-1 Cannot use its job table, and tries again: no such table: jobs");
    page.says("srv-2 1 row of its table had begun when it was killed. jobctl status at it");
    page.says("mail Paused at 1 of 2 workers: none of its jobs is started there");
    page.says("mail paused at 1 of 2 workers 2");
    page.says("mail 3 of 5 paused continue");
    one.falls_silent();
    while !page.text.contains("does not answer") {
        page = browser.page("/jobd").await;
    }
    page.is_sound("/jobd");
    page.says("srv-1 Does not answer: no answer yet. What is shown of it is from");
}

#[tokio::test]
async fn targets_are_paused_and_continued_after_a_question() {
    let master = JobdMaster::new();
    let bench = bench(&master);
    let one = JobdWorker::register(&master.address(), "srv-1", &[("mail", 5, 3), ("low", 1, 0)]);
    let two = JobdWorker::register(&master.address(), "srv-2", &[("mail", 10, 0)]);
    let mut browser = Browser::new(&bench);
    for (at, title, button, paused) in [
        ("/jobd/pause?target=mail", "Pause mail at 2 workers?", "Pause mail", (1, 1)),
        ("/jobd/pause?worker=1", "Pause 2 targets at 1 worker?", "Pause 2 targets", (2, 1)),
        ("/jobd/continue?worker=2", "Continue 1 target at 1 worker?", "Continue 1 target", (2, 0)),
        (
            "/jobd/continue?all=yes",
            "Continue 3 targets at 2 workers?",
            "Continue 3 targets",
            (0, 0),
        ),
    ] {
        assert!(browser.page("/jobd").await.links().contains(&at), "{at}");
        let question = browser.page(at).await;
        question.is_sound(at);
        question.says(title);
        let is_it = |it: &crate::harness::Element| it.text == button;
        assert!(question.all("button").any(is_it), "{button}");
        let before = (one.paused().len(), two.paused().len());
        let (path, _) = at.split_once('?').unwrap();
        let form = question.form(path);
        assert_eq!((one.paused().len(), two.paused().len()), before, "asked only");
        let reply = browser.post(path, &form).await;
        assert_eq!(reply.header("location"), "/jobd", "{}", reply.text());
        assert_eq!((one.paused().len(), two.paused().len()), paused, "{at}");
    }
    let page = browser.page("/audit?action=pause_targets").await;
    page.says("pause targets mail of all workers that serve them");
    two.refuses("jobd is shutting down");
    let form = browser.page("/jobd/pause?target=mail").await.form("/jobd/pause");
    let reply = browser.post("/jobd/pause", &form).await;
    Html::of(&reply).says("1 of 2 workers did it");
    Html::of(&reply).says("srv-2: jobd is shutting down");
}

#[tokio::test]
async fn a_form_that_names_nothing_pauses_nothing() {
    let master = JobdMaster::new();
    let bench = bench(&master);
    let worker = JobdWorker::register(&master.address(), "w", &[("mail", 5, 0)]);
    let mut browser = Browser::new(&bench);
    let form = browser.page("/jobd/pause?target=mail").await.form("/jobd/pause");
    for (field, value, status) in [
        ("target", "", 400),
        ("target", "sms", 404),
        ("worker", "9", 404),
        ("worker", "x", 400),
        ("form_token", "", 403),
    ] {
        let mut form = form.clone();
        form.insert(field.to_owned(), value.to_owned());
        assert_eq!(browser.post("/jobd/pause", &form).await.status, status, "{field}={value}");
    }
    assert_eq!(browser.get("/jobd/pause").await.status, 400);
    assert_eq!(browser.get("/jobd/explode?all=yes").await.status, 404);
    assert_eq!(browser.post("/jobd/explode", &form).await.status, 404);
    browser.page("/jobd/pause?target=sms").await.says("No worker serves it now.");
    assert!(worker.asked().is_empty());
}

#[tokio::test]
async fn who_may_only_read_is_offered_nothing() {
    let master = JobdMaster::new();
    let _worker = JobdWorker::register(&master.address(), "w", &[("mail", 5, 0)]);
    let access = TokensFile::of_all_roles().access(true);
    let options = Options { access, has_tokens: true, ..Options::default() };
    let bench = Bench::with_jobd(options, master.handle.clone());
    for (token, may_change) in [("read", false), ("manage", true)] {
        let mut browser = Browser::with_token(&bench, token).await;
        let page = browser.page("/jobd").await;
        let links = page.links();
        assert!(links.contains(&"/jobd"), "{links:?}");
        let offers = links.iter().any(|link| link.starts_with("/jobd/"));
        assert_eq!(offers, may_change, "{token}: {links:?}");
    }
}

#[tokio::test]
async fn hostile_names_stay_names_and_the_page_stays_short() {
    let master = JobdMaster::new();
    let bench = bench(&master);
    let names: Vec<String> =
        (0..60).map(|at| format!("<script>alert({at})</script>{}", "<é&\"".repeat(40))).collect();
    let hostile = ["", "a\nb", "../..", "%00", "\u{202e}gnp.exe"];
    let long = "<".repeat(10_000);
    let all = names.iter().map(String::as_str).chain(hostile).chain([long.as_str()]);
    let targets: Vec<(&str, u32, u32)> = all.map(|name| (name, 5, 9)).collect();
    let workers: Vec<JobdWorker> =
        names.iter().map(|name| JobdWorker::register(&master.address(), name, &targets)).collect();
    let page = bench.page("/jobd").await;
    page.is_sound("/jobd");
    page.says("<script>alert(7)</script>");
    page.says("more are not shown");
    assert!(page.links().contains(&"/jobd?cursor=50"), "{:?}", page.links());
    // What a form cannot say is not offered.
    assert!(!page.links().iter().any(|link| link.contains("%0A") || link.contains("target=&")));
    let mut browser = Browser::new(&bench);
    for link in page.links().iter().filter(|link| link.starts_with("/jobd/")).take(20) {
        browser.page(link).await.is_sound(link);
    }
    drop(workers);
}
