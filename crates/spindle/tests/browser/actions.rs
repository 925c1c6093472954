//! What a person does on pages, by clicks and keys.

use serde_json::{Value, json};
use spindle_testkit::{HttpRequest, wait_until};

use crate::browser::{Browser, Screen};
use crate::data::{HOSTILE, Served};
use crate::pages::encoded;

#[test]
fn queues_are_paused_and_resumed() {
    let served = Served::empty(&[]);
    served.submit(&json!({ "queue": "mail" }));
    pause_and_resume(&served, &Browser::of(&served.http));
}

#[test]
fn pages_work_without_scripts_and_on_a_phone() {
    let served = Served::filled();
    let browser = Browser::without_scripts(&served.http);
    browser.screen(Screen::Phone);
    pause_and_resume(&served, &browser);
    browser.open("/jobs");
    browser.type_into("main input[name=queue]", "import");
    browser.press("Search");
    browser.says("connection refused to db-5");
    let id = served.submit(&json!({ "queue": "lone", "unique": { "key": "k" } }));
    browser.type_into("header input[type=search]", &format!("{id}\n"));
    browser.says(&format!("Job {id}"));
    browser.press("Delete…");
    browser.press(&format!("Delete job {id}"));
    browser.says(&format!("Job {id} is deleted"));
    served.await_status(id, "parked");
    browser.press("Undo");
    served.await_status(id, "ready");
}

fn pause_and_resume(served: &Served, browser: &Browser) {
    browser.open("/queue?queue=mail");
    browser.press("Pause…");
    assert!(!served.is_paused("mail"), "asked only");
    browser.press("Pause the queue");
    browser.says("nothing is leased from it until it is resumed");
    served.await_paused("mail", true);
    browser.press("Resume…");
    browser.press("Resume the queue");
    served.await_paused("mail", false);
}

#[test]
fn jobs_are_retried_and_deleted_one_and_all() {
    let served = Served::empty(&[]);
    let dead: Vec<u64> = (0..4).map(|_| served.dead("import", "connection refused")).collect();
    let browser = Browser::of(&served.http);
    browser.open(&format!("/jobs/{}", dead[0]));
    browser.says("connection refused");
    browser.press("Retry…");
    browser.press(&format!("Retry job {}", dead[0]));
    served.await_status(dead[0], "ready");
    browser.open("/dead?queue=import");
    browser.press("Delete all 3…");
    browser.says("Delete 3 jobs?");
    browser.press("Delete 3 jobs");
    browser.says("3 jobs deleted");
    browser.press("Undo");
    browser.says("3 jobs brought back");
    for id in &dead[1..] {
        served.await_status(*id, "dead");
    }
    served.await_status(dead[0], "ready");
}

#[test]
fn what_is_deleted_is_offered_back_for_a_minute_and_no_longer() {
    let served = Served::empty(&[]);
    let id = served.submit(&json!({ "queue": "mail" }));
    let browser = Browser::of(&served.http);
    browser.open(&format!("/jobs/{id}/delete"));
    browser.press(&format!("Delete job {id}"));
    browser.says("gone for good in ");
    assert!(browser.has("main form[action$='/undo'] button"));
    // The page's clock a minute later.
    browser.run("const now = Date.now; Date.now = () => now() + 61000;");
    browser.says("it cannot be undone any more");
    assert!(!browser.has("main form[action$='/undo']"));
}

#[test]
fn hostile_queues_are_paused_and_their_jobs_deleted_like_others() {
    let served = Served::empty(&[]);
    let browser = Browser::of(&served.http);
    for name in HOSTILE {
        let id = served.submit(&json!({ "queue": name, "payload": name }));
        let queue = encoded(name);
        browser.open(&format!("/queue?queue={queue}"));
        browser.press("Pause…");
        browser.press("Pause the queue");
        served.await_paused(&queue, true);
        browser.press("Purge…");
        browser.press("Delete 1 job");
        browser.says("1 job deleted");
        served.await_status(id, "parked");
        browser.press("Undo");
        served.await_status(id, "ready");
        served.ask(&format!("POST /api/v1/queues/{queue}/resume"), &Value::Null);
    }
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
}

#[test]
fn pages_follow_what_happens() {
    let served = Served::empty(&[]);
    served.submit(&json!({ "queue": "mail" }));
    let browser = Browser::of(&served.http);
    browser.open_live("/queue?queue=mail");
    let id = served.submit(&json!({ "queue": "mail", "payload": "new" }));
    wait_until("the new job", || browser.has(&format!("main a[href='/jobs/{id}']")));
    assert!(browser.is_same_page());
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
}

#[test]
fn targets_of_jobd_are_paused_and_workers_that_come_are_seen() {
    let mut served = Served::empty(&[]);
    let browser = Browser::of(&served.http);
    browser.open_live("/jobd");
    browser.says("Workers of jobd are here once they register at the master");
    served.jobd_worker("srv-1", &[("mail", 5, 3)]);
    // The page is not loaded again, and the change is not in the server's log.
    browser.says("srv-1");
    assert!(browser.is_same_page());
    let paused = |served: &Served| served.jobd_workers[0].paused();
    browser.press("Pause…");
    browser.says("Pause mail at 1 worker?");
    assert!(paused(&served).is_empty(), "asked only");
    browser.press("Pause mail");
    browser.says("Paused: none of its jobs is started there until it is continued.");
    assert_eq!(paused(&served), ["mail"]);
    browser.press("Continue all…");
    browser.press("Continue 1 target");
    browser.says("Nothing is wrong");
    assert!(paused(&served).is_empty());
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
}

#[test]
fn a_form_is_not_replaced_while_somebody_fills_it_in() {
    let served = Served::empty(&[]);
    let browser = Browser::of(&served.http);
    browser.open_live("/jobs");
    browser.type_into("main input[name=queue]", "ma");
    let id = served.submit(&json!({ "queue": "mail" }));
    // Once another feed of this browser has been notified, the page's feed has been, too.
    let heard = "const done = arguments[0];
        const feed = new EventSource('/live');
        feed.addEventListener('open', () => fetch('/api/v1/queues/other/pause', { method: 'POST' }));
        feed.addEventListener('moved', () => { feed.close(); setTimeout(done, 200); });";
    browser.run_async(heard);
    assert!(!browser.has(&format!("main a[href='/jobs/{id}']")));
    assert_eq!(browser.run("return document.activeElement.value"), "ma");
}

#[test]
fn marked_jobs_are_counted_and_acted_on() {
    let served = Served::empty(&[]);
    let ids: Vec<u64> = (0..3).map(|_| served.submit(&json!({ "queue": "mail" }))).collect();
    let browser = Browser::of(&served.http);
    browser.open("/jobs?queue=mail&status=ready");
    let bar = "return !document.querySelector('.marked').hidden";
    assert_eq!(browser.run(bar), false, "nothing is marked yet");
    browser.click("input[name=ids]");
    browser.says("1 marked");
    browser.click("th input");
    browser.says("3 marked");
    browser.click(&format!("input[name=ids][value='{}']", ids[1]));
    browser.press("Park…");
    browser.says("Park 2 jobs?");
    browser.press("Park 2 jobs");
    browser.says("2 jobs changed");
    assert_eq!(
        ids.iter().map(|id| served.status_of(*id)).collect::<Vec<_>>(),
        ["parked", "ready", "parked"]
    );
}

#[test]
fn columns_are_chosen_and_stay() {
    let served = Served::empty(&[]);
    served.submit(&json!({ "queue": "mail", "unique": { "key": "invoice-7" } }));
    let browser = Browser::of(&served.http);
    browser.open("/jobs");
    assert!(!browser.text().contains("invoice-7"));
    browser.click("details.columns summary");
    browser.click("input[name=column][value=key]");
    browser.press("Show these");
    browser.says("invoice-7");
    assert_eq!(browser.at(), "/jobs");
    browser.open("/dead");
    browser.open("/jobs");
    browser.says("invoice-7");
}

#[test]
fn a_payload_of_several_lines_reaches_the_job_as_it_was_typed() {
    let served = Served::empty(&[]);
    let browser = Browser::of(&served.http);
    browser.open("/submit");
    browser.fill_in(&[("queue", "mail"), ("payload", "one\n\ntwo\n")]);
    browser.click("input[value=text]");
    browser.press("Submit");
    browser.says("Job 1");
    let job = served.ask("GET /api/v1/jobs/1", &Value::Null);
    assert_eq!(job["payload_base64"], "b25lCgp0d28K", "{job}");
}

#[test]
fn a_schedule_is_previewed_saved_run_paused_and_removed() {
    let served = Served::empty(&[]);
    let browser = Browser::of(&served.http);
    browser.open("/schedules");
    browser.press("New schedule…");
    browser.fill_in(&[
        ("name", "report"),
        ("expression", "0 9 * * MON-FRI"),
        ("zone", "Europe/Berlin"),
        ("queue", "reports"),
        ("payload", "{\n  \"kind\": \"daily\"\n}"),
    ]);
    browser.press("Preview its times");
    browser.says("Its next times would be");
    assert_eq!(browser.run("return document.querySelectorAll('.times tbody tr').length"), 10);
    assert!(browser.faults().is_empty(), "{:?}", browser.faults());
    let (status, _) = HttpRequest::send(&served.http, "GET /api/v1/schedules/report", "").answer();
    assert_eq!(status, 404, "nothing is saved yet");
    browser.press("Save the schedule");
    browser.says("It has submitted none yet.");
    browser.press("Run now…");
    browser.press("Run the schedule");
    browser.says("Job 1");
    let job = served.ask("GET /api/v1/jobs/1", &Value::Null);
    assert_eq!(job["payload"], json!({ "kind": "daily" }));
    browser.open_live("/schedule?name=report");
    // The page follows what becomes of its job.
    let lease = served.lease("reports", "w");
    served.finish(&lease, &json!(null));
    wait_until("the end of its job", || browser.has("main p .st.done"));
    assert!(browser.is_same_page());
    browser.press("Pause…");
    browser.press("Pause the schedule");
    browser.says("It is paused");
    browser.press("Remove…");
    browser.press("Remove the schedule");
    browser.says("A schedule submits a job whenever its time has come");
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
}

#[test]
fn output_is_followed_where_it_is_read() {
    let served = Served::empty(&[]);
    // The lease outlasts every wait below: its end would move the page too.
    let job = json!({ "queue": "mail", "payload": vec!["line"; 60], "ttr_ms": 3_600_000 });
    let id = served.submit(&job);
    served.lease("mail", "w");
    let write = |text: &str| {
        served.ask(&format!("POST /api/v1/jobs/{id}/output"), &json!({ "text": text }));
    };
    write(&"connecting\n".repeat(60));
    let browser = Browser::of(&served.http);
    browser.open_live(&format!("/jobs/{id}"));
    browser.run("document.querySelector('main h1').id = 'before'");
    write("250 ok\n");
    browser.says("250 ok");
    assert!(!browser.has("#before"), "the page was read anew");
    assert!(browser.faults().is_empty(), "{:?}", browser.faults());
    // Further down the output alone changes, and its end is in view.
    browser.run("scrollTo(0, 300); document.querySelector('main h1').id = 'before'");
    write("221 bye\n");
    browser.says("221 bye");
    assert!(browser.has("#before"), "the rest stays as it is");
    let end = browser.run("return document.querySelector('.tail').scrollTop");
    assert_eq!(end, 0, "0 is the end: it is scrolled from there");
    assert!(browser.is_same_page());
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
}

/// What axe-core finds wrong with the viewer itself, and why that stays.
const OF_THE_VIEWER: [(&str, &str); 1] = [(
    "nested-interactive",
    "the address of an operation, by which it is shared, is a link in the button that opens it",
)];

#[test]
fn the_page_of_the_api_can_be_read_by_everybody() {
    let served = Served::empty(&[]);
    let browser = Browser::of(&served.http);
    let both = |screen| [(screen, "light"), (screen, "dark")];
    for (screen, colours) in [Screen::Desk, Screen::Phone].into_iter().flat_map(both) {
        browser.screen(screen);
        browser.prefer(colours);
        browser.open("/api/docs");
        assert_eq!(browser.has("html.dark-mode"), colours == "dark");
        wait_until("the operations", || browser.has(".opblock"));
        browser.click("#operations-jobs-submit_job .opblock-summary-control");
        wait_until("the form", || browser.has("#operations-jobs-submit_job .execute"));
        let is_of_viewer =
            |fault: &&String| OF_THE_VIEWER.iter().any(|(rule, _)| fault.starts_with(rule));
        let found = browser.faults();
        let others: Vec<&String> = found.iter().filter(|fault| !is_of_viewer(fault)).collect();
        assert!(others.is_empty(), "{screen:?}, {colours}: {} {others:#?}", others.len());
        for (rule, _) in OF_THE_VIEWER {
            assert!(found.iter().any(|fault| fault.starts_with(rule)), "{rule} is mended");
        }
    }
}

#[test]
fn the_page_of_the_api_tries_requests() {
    let served = Served::empty(&[]);
    let browser = Browser::of(&served.http);
    browser.open("/api/docs");
    wait_until("the operations", || browser.has("#operations-jobs-submit_job, .opblock"));
    let first = browser.run("return document.querySelector('.opblock-tag').textContent");
    assert!(first.as_str().unwrap().starts_with("jobs"), "{first}");
    browser.click("#operations-queues-list_queues .opblock-summary-control");
    wait_until("the form", || browser.has("#operations-queues-list_queues .execute"));
    browser.click("#operations-queues-list_queues .execute");
    wait_until("the answer", || {
        browser.has("#operations-queues-list_queues .live-responses-table .response-col_status")
    });
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
}

#[test]
fn keys_lead_to_pages_and_to_the_search() {
    let served = Served::filled();
    let browser = Browser::of(&served.http);
    browser.open("/");
    browser.type_into("body", "?");
    assert!(browser.has("dialog[open]"));
    browser.click("dialog button");
    browser.type_into("body", "gq");
    wait_until("the queues", || browser.at() == "/queues");
    browser.type_into("body", "/");
    assert_eq!(browser.run("return document.activeElement.type"), "search");
    // The first stop of the tab key leads past the bar.
    browser.open("/");
    browser.type_into("body", "\u{e004}");
    assert_eq!(browser.run("return document.activeElement.className"), "skip");
}

#[test]
fn a_constraint_is_made_raised_and_removed() {
    let served = Served::empty(&[]);
    for _ in 0..3 {
        served.submit(&json!({ "queue": "mail" }));
    }
    let browser = Browser::of(&served.http);
    browser.open("/constraints");
    browser.press("New constraint…");
    browser.fill_in(&[("name", "smtp"), ("queue", "mail"), ("running_max", "0")]);
    browser.press("Save the constraint");
    browser.says("None may run");
    browser.says("See the ready jobs");
    browser.press("Change…");
    browser.type_into("input[name=running_max]", "\u{e003}7");
    browser.press("Save the constraint");
    browser.says("At most 7 running at once.");
    browser.press("Remove…");
    browser.press("Remove the constraint");
    browser.says("A constraint limits how many jobs run at once");
}
