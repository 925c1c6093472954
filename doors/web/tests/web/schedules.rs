//! Schedules: their list, the page of one, and the forms that make, change, run and remove them.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use spindle_testkit::TokensFile;

use crate::harness::{Bench, Browser, Form, Html};

const NEW: &str = "/schedule/edit";
const REPORT: &str = "/schedule?name=report";
const EDIT: &str = "/schedule/edit?name=report";

async fn shown(bench: &Bench, name: &str) -> Value {
    bench.api("", "GET", &format!("/api/v1/schedules/{name}"), None).await.json()
}

async fn put(bench: &Bench, name: &str, schedule: Value) {
    let path = format!("/api/v1/schedules/{name}");
    let reply = bench.api("", "PUT", &path, Some(schedule)).await;
    assert!(reply.status.is_success(), "{}", reply.text());
}

fn with(form: &Form, fields: &[(&str, &str)]) -> Form {
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    form.clone().into_iter().chain(fields).collect()
}

fn a_minute_later(bench: &Bench) {
    bench.pass(60_000);
    while bench.engine.fire_schedules(1) {}
}

/// Sends a form, and what its preview says to save it.
async fn saved(browser: &mut Browser<'_>, at: &str, form: &Form) -> spindle_testkit::Reply {
    let previewed = browser.post(at, &with(form, &[("do", "preview")])).await;
    assert_eq!(previewed.status, 200, "{}", previewed.text());
    let form = with(&Html::of(&previewed).form(at), &[("do", "save")]);
    browser.post(at, &form).await
}

#[tokio::test]
async fn a_schedule_is_made_by_a_form_after_a_look_at_its_times() {
    let bench = Bench::new();
    let mut browser = Browser::new(&bench);
    let page = browser.page("/schedules").await;
    page.is_sound("no schedules");
    page.says("A schedule submits a job whenever its time has come");
    assert!(page.links().contains(&NEW));
    let page = browser.page(NEW).await;
    page.is_sound(NEW);
    let form = with(
        &page.form(NEW),
        &[
            ("name", "report"),
            ("expression", "0 9 * * MON-FRI"),
            ("zone", "Europe/Berlin"),
            ("queue", "reports"),
            ("tags", "daily, eu"),
            ("priority", "-3"),
            ("payload", "{\r\n  \"kind\": \"daily\"\r\n}"),
            ("overlap", "queue_one"),
            ("missed", "all"),
            ("missed_max", "7"),
            ("spread", "2 min"),
            ("ttr", "5 min"),
            ("base", "10 s"),
        ],
    );
    // Who presses Save at once is shown the times all the same.
    for asked in ["preview", "save"] {
        let reply = browser.post(NEW, &with(&form, &[("do", asked)])).await;
        let page = Html::of(&reply);
        page.is_sound("a preview");
        page.says("Its next times would be");
        page.says("Fri 2026-01-02 09:00:00 CET Fri 2026-01-02 08:00:00 UTC in 4 h 55 min");
        page.says("Mon 2026-01-05 09:00:00 CET");
        assert_eq!(page.all("time").count(), 10);
        page.says("Nothing is saved yet.");
        assert_eq!(browser.get(REPORT).await.status, 404);
    }
    let reply = saved(&mut browser, NEW, &form).await;
    assert_eq!(reply.header("location"), REPORT, "{}", reply.text());
    let set = shown(&bench, "report").await;
    let job = json!({
        "queue": "reports", "payload": { "kind": "daily" }, "priority": -3, "ttr_ms": 300_000,
        "backoff": set["job"]["backoff"], "tags": ["daily", "eu"],
    });
    assert_eq!(set["job"], job);
    assert_eq!(set["job"]["backoff"]["base_ms"], 10_000);
    let times = [&set["expression"], &set["zone"], &set["overlap"], &set["missed"]];
    assert_eq!(times, ["0 9 * * MON-FRI", "Europe/Berlin", "queue_one", "all"]);
    assert_eq!((&set["missed_max"], &set["jitter_ms"]), (&json!(7), &json!(120_000)));
    // Another one of that name is none.
    let again = browser.post(NEW, &with(&form, &[("do", "preview")])).await;
    assert_eq!(again.status, 400);
    Html::of(&again).says("there is a schedule of this name already");
    let list = browser.page("/schedules").await;
    list.is_sound("/schedules");
    list.says("report 0 9 * * MON-FRI Europe/Berlin reports active none yet in 4 h");
    assert!(list.links().contains(&REPORT));
}

#[tokio::test]
async fn a_change_keeps_what_it_does_not_say_and_shows_other_times_first() {
    let bench = Bench::new();
    let mut browser = Browser::new(&bench);
    let job = json!({ "queue": "reports", "payload": "a\nb", "tags": ["x"], "priority": 3,
                      "fair_key": "acme", "ttr_ms": 5_000, "ttl_ms": 9_000, "keep_ms": 60_000,
                      "attempts_max": 7, "fails_max": 3,
                      "backoff": { "base_ms": 1_000, "factor": 3.0 } });
    let fields = job.as_object().unwrap().keys().cloned().collect::<BTreeSet<String>>();
    let before = json!({ "expression": "@daily", "zone": "UTC", "job": job, "paused": true,
                         "overlap": "allow", "start_at": "2026-02-01T00:00:00Z" });
    put(&bench, "report", before).await;
    let set = shown(&bench, "report").await;
    let known = bench.api("", "GET", "/api/openapi.json", None).await.json();
    let known = known["components"]["schemas"]["ScheduledJob"]["properties"].clone();
    let others = known.as_object().unwrap().keys().filter(|field| !fields.contains(*field));
    let others: Vec<&String> = others.collect();
    assert_eq!(others, ["payload_base64", "payload_type", "queue_base64"], "not tested here");
    let form = browser.page(EDIT).await.form(EDIT);
    let reply = saved(&mut browser, EDIT, &form).await;
    assert_eq!(reply.header("location"), REPORT, "{}", reply.text());
    assert_eq!(shown(&bench, "report").await, set, "nothing was changed");
    // Times that nobody has seen are not saved.
    let form = browser.page(EDIT).await.form(EDIT);
    let previewed = browser.post(EDIT, &with(&form, &[("do", "preview")])).await;
    let page = Html::of(&previewed);
    page.says("Sun 2026-02-01 00:00:00 UTC");
    let other = with(&page.form(EDIT), &[("expression", "@weekly"), ("do", "save")]);
    let reply = browser.post(EDIT, &other).await;
    assert_eq!(reply.status, 200);
    assert_eq!(shown(&bench, "report").await, set);
    let seen = with(&Html::of(&reply).form(EDIT), &[("do", "save")]);
    assert_eq!(browser.post(EDIT, &seen).await.status, 303);
    let changed = shown(&bench, "report").await;
    assert_eq!((&changed["expression"], &changed["paused"]), (&json!("@weekly"), &json!(true)));
    assert_eq!(changed["job"], set["job"]);
    // Who began before that does not undo it unseen.
    let stale = browser.post(EDIT, &seen).await;
    assert_eq!(stale.status, 412);
    let page = Html::of(&stale);
    page.says("the schedule is another one by now");
    assert_eq!(page.form(EDIT)["expression"], "@weekly", "what was written is not lost");
}

#[tokio::test]
async fn a_payload_that_no_form_can_have_stays_unless_another_is_written() {
    let bench = Bench::new();
    let mut browser = Browser::new(&bench);
    for payload in [
        json!({ "payload": "<".repeat(10_000) }),
        json!({ "payload_base64": "gaFh/w==", "payload_type": "bytes" }),
        json!({ "payload_base64": "DQo=", "payload_type": "bytes" }),
        // MessagePack that would be a text as well.
        json!({ "payload_base64": "QQ==", "payload_type": "msgpack" }),
    ] {
        let mut job = payload;
        job["queue"] = json!("reports");
        put(&bench, "report", json!({ "expression": "@daily", "job": job })).await;
        let set = shown(&bench, "report").await;
        let page = browser.page(EDIT).await;
        page.is_sound("a long payload");
        page.says("it stays, unless you write another one here");
        let form = page.form(EDIT);
        assert_eq!(form["payload"], "");
        saved(&mut browser, EDIT, &form).await;
        assert_eq!(shown(&bench, "report").await["job"], set["job"]);
        let other = with(&form, &[("payload", "a\r\nb"), ("payload_type", "text")]);
        // The form is of the revision that was just put in place of.
        let other = with(&other, &[("tag", &browser.page(EDIT).await.form(EDIT)["tag"])]);
        let reply = saved(&mut browser, EDIT, &other).await;
        assert_eq!(reply.status, 303, "{}", reply.text());
        assert_eq!(shown(&bench, "report").await["job"]["payload_base64"], "YQpi");
    }
}

#[tokio::test]
async fn what_a_schedule_cannot_be_is_said() {
    let bench = Bench::new();
    let mut browser = Browser::new(&bench);
    let form = with(
        &browser.page(NEW).await.form(NEW),
        &[("name", "a"), ("expression", "@daily"), ("queue", "q"), ("do", "preview")],
    );
    for (field, wrong, says) in [
        ("name", "", "the schedule needs a name"),
        ("name", &"x".repeat(101)[..], "a schedule's name is 1 to 100 bytes"),
        ("expression", "every day", "every day"),
        ("expression", "0 0 30 2 *", "never"),
        ("zone", "Atlantis", "Atlantis"),
        ("end_at", "soon", "end_at"),
        ("spread", "later", "Later by chance, up to: later is no time"),
        ("missed_max", "5", "missed_max goes with missed: all"),
        ("queue", "", "queue is missing"),
        ("priority", "high", "Priority: high is no whole number"),
        ("payload", "{\"a\":", "is not JSON"),
        ("fails_max", "-1", "-1 is no whole number"),
    ] {
        let refused = browser.post(NEW, &with(&form, &[(field, wrong)])).await;
        assert_eq!(refused.status, 400, "{field} {wrong}: {}", refused.text());
        let page = Html::of(&refused);
        page.is_sound("a schedule that was refused");
        page.says(says);
        assert_eq!(page.form(NEW)[field], wrong, "what was written is not lost");
    }
    for (path, status) in [
        ("/schedule", 400),
        ("/schedule?name=none", 404),
        ("/schedule/edit?name=none", 404),
        ("/schedule/run?name=none", 404),
        ("/schedule/explode?name=none", 404),
    ] {
        assert_eq!(browser.get(path).await.status, status, "{path}");
    }
}

#[tokio::test]
async fn a_schedule_is_paused_resumed_run_and_removed_after_a_question() {
    let bench = Bench::guarded(TokensFile::of_all_roles().access(false));
    put(&bench, "report", json!({ "expression": "@hourly", "job": { "queue": "reports" } })).await;
    let mut browser = Browser::with_token(&bench, "manage").await;
    let question = async |browser: &mut Browser<'_>, action: &str, says: &str| {
        let at = format!("/schedule/{action}?name=report");
        assert!(browser.page(REPORT).await.links().contains(&at.as_str()), "{action}");
        let before = shown(&bench, "report").await;
        let page = browser.page(&at).await;
        page.is_sound(&at);
        page.says(says);
        assert_eq!(shown(&bench, "report").await, before, "asked only");
        let form = page.form(&at);
        (browser.post(&at, &form).await, at, form)
    };
    question(&mut browser, "pause", "Times that come until it is resumed are passed over").await;
    assert_eq!(shown(&bench, "report").await["paused"], true);
    let page = browser.page(REPORT).await;
    page.says("It is paused: times that come until it is resumed are passed over.");
    page.says("None while it is paused.");
    let says = "to reports at once. Its times stay as they are, and it stays paused.";
    let (reply, ..) = question(&mut browser, "run", says).await;
    assert_eq!(reply.header("location"), "/jobs/1", "{}", reply.text());
    browser.page("/jobs/1").await.says("schedule:report");
    let (reply, ..) = question(&mut browser, "resume", "with its first time from now").await;
    assert_eq!(reply.header("location"), REPORT);
    assert_eq!(shown(&bench, "report").await["paused"], false);
    let page = browser.page("/schedule/run?name=report").await;
    page.says("Its last job, 1, is unfinished");
    // What is removed is what was looked at.
    let at = "/schedule/remove?name=report";
    let form = browser.page(at).await.form(at);
    put(&bench, "report", json!({ "expression": "@daily", "job": { "queue": "reports" } })).await;
    assert_eq!(browser.post(at, &form).await.status, 412);
    let (reply, at, form) = question(&mut browser, "remove", "No more jobs come of it.").await;
    assert_eq!(reply.header("location"), "/schedules");
    assert_eq!(browser.post(&at, &form).await.status, 404);
    assert_eq!(bench.status_of(1).await, "ready", "its jobs stay");
    let audit = Browser::with_token(&bench, "admin").await.page("/audit").await;
    audit.is_sound("/audit");
    for did in ["remove schedule", "resume schedule", "run schedule", "pause schedule"] {
        audit.says(&format!("web {did} schedule report"));
    }
}

#[tokio::test]
async fn the_page_says_what_came_of_its_times() {
    let bench = Bench::new();
    let schedule = json!({ "expression": "every 60s", "job": { "queue": "q", "payload": [1] } });
    put(&bench, "minute", schedule).await;
    let at = "/schedule?name=minute";
    bench.page(at).await.says("It has submitted none yet.");
    a_minute_later(&bench);
    let page = bench.page(at).await;
    page.is_sound(at);
    page.says("active job unfinished · every 60s UTC · a job in q");
    page.says("The last one is 1, ready, submitted");
    page.says("1 job submitted so far.");
    assert!(page.links().contains(&"/jobs?queue=q&tag=schedule%3Aminute"), "{:?}", page.links());
    a_minute_later(&bench);
    bench.page(at).await.says("passed over");
    bench.page("/schedules").await.says("active job unfinished passed over");
    bench.api("", "DELETE", "/api/v1/jobs/1", None).await;
    bench.page(at).await.says("The last one was 1; it is not kept any more.");
    let full = json!({ "jobs_max": 1 });
    bench.api("", "PUT", "/api/v1/queues/q/settings", Some(full)).await;
    bench.submit(json!({ "queue": "q" })).await;
    a_minute_later(&bench);
    let page = bench.page(at).await;
    page.says("The job of its last time was refused:");
    page.says("It does not come later; the next time is as it would be.");
}

#[tokio::test]
async fn the_overview_names_schedules_whose_newest_time_came_to_no_job() {
    let bench = Bench::new();
    for (name, queue) in [("held", "q"), ("refused", "full"), ("well", "other")] {
        let overlap = if name == "well" { "allow" } else { "skip" };
        let schedule = json!({ "expression": "every 60s", "overlap": overlap,
                               "job": { "queue": queue } });
        put(&bench, name, schedule).await;
    }
    let full = json!({ "jobs_max": 1 });
    bench.api("", "PUT", "/api/v1/queues/full/settings", Some(full)).await;
    bench.submit(json!({ "queue": "full" })).await;
    a_minute_later(&bench);
    let page = bench.page("/").await;
    page.is_sound("a refused schedule");
    page.says("refused The job of its newest time was refused: the queue");
    assert!(page.links().contains(&"/schedule?name=refused"), "{:?}", page.links());
    assert!(!page.links().contains(&"/schedule?name=held"), "its first job came");
    a_minute_later(&bench);
    let page = bench.page("/").await;
    let job = shown(&bench, "held").await["last_job"].to_string();
    page.says(&format!(
        "held Held up: its last job, {job}, was unfinished when its newest time came."
    ));
    assert!(page.links().contains(&"/schedule?name=held"), "{:?}", page.links());
    assert!(!page.links().contains(&"/schedule?name=well"), "{:?}", page.links());
    // Once its job has ended, and once somebody has paused it, there is nothing to do.
    bench.api("", "DELETE", &format!("/api/v1/jobs/{job}"), None).await;
    bench.api("", "POST", "/api/v1/schedules/refused/pause", None).await;
    let page = bench.page("/").await;
    assert!(!page.links().iter().any(|link| link.starts_with("/schedule?")), "{:?}", page.links());
}

#[tokio::test]
async fn a_schedule_may_have_any_name_and_many_make_pages() {
    let bench = Bench::new();
    let mut browser = Browser::new(&bench);
    for name in ["<script>alert(1)</script>", "../..", "%00", "\u{202e}x", &"<".repeat(100)] {
        let form = browser.page(NEW).await.form(NEW);
        let form = with(&form, &[("name", name), ("expression", "@daily"), ("queue", name)]);
        let reply = saved(&mut browser, NEW, &form).await;
        assert_eq!(reply.status, 303, "{name:?}: {}", reply.text());
        let at = reply.header("location").to_owned();
        let page = browser.page(&at).await;
        page.is_sound(name);
        for link in page.links().into_iter().filter(|link| link.starts_with("/schedule/")) {
            browser.page(link).await.is_sound(link);
        }
    }
    for number in 0..60 {
        let job = json!({ "queue": "<".repeat(512) });
        let schedule = json!({ "expression": "0 9 1-31 * MON,TUE,WED,THU,FRI", "job": job });
        put(&bench, &format!("{}{number}", "%3C".repeat(60)), schedule).await;
    }
    let page = browser.page("/schedules").await;
    page.is_sound("many schedules");
    let next =
        page.links().into_iter().find(|link| link.starts_with("/schedules?cursor=")).unwrap();
    browser.page(next).await.is_sound("the next page");
}

#[tokio::test]
async fn who_may_only_read_is_offered_nothing_and_sees_no_payload() {
    let bench = Bench::guarded(TokensFile::of_all_roles().access(true));
    let job = json!({ "queue": "mine.a", "payload": "secret" });
    let schedule = json!({ "expression": "@daily", "job": job });
    bench.api("admin", "PUT", "/api/v1/schedules/report", Some(schedule)).await.is(201);
    for (token, may_change, may_look) in
        [("read", false, false), ("inspect", false, true), ("mine.manage", true, true)]
    {
        let page = Browser::with_token(&bench, token).await.page(REPORT).await;
        let offers = page.links().iter().any(|link| link.starts_with("/schedule/"));
        assert_eq!((offers, page.text.contains("secret")), (may_change, may_look), "{token}");
    }
}
