//! Constraints: their list, the page of one, and the forms that make, change and remove them.

use serde_json::{Value, json};
use spindle_core::seat::Seat;
use spindle_testkit::wait_until_async;
use spindle_web::Options;

use crate::harness::{Bench, Browser, Form, Html};

async fn shown(bench: &Bench, name: &str) -> Value {
    bench.api("", "GET", &format!("/api/v1/constraints/{name}"), None).await.json()
}

fn with(form: &Form, fields: &[(&str, &str)]) -> Form {
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    form.clone().into_iter().chain(fields).collect()
}

#[tokio::test]
async fn a_constraint_is_made_changed_and_removed_by_forms() {
    let bench = Bench::new();
    let mut browser = Browser::new(&bench);
    let page = browser.page("/constraints").await;
    assert!(page.links().contains(&"/constraint/edit"));
    let page = browser.page("/constraint/edit").await;
    page.is_sound("a new constraint");
    let new = with(
        &page.form("/constraint/edit"),
        &[
            ("name", "smtp"),
            ("queue_glob", "mail.*"),
            ("per", "/user"),
            ("running_max", "1,000"),
            ("count", "10"),
            ("per_time", "1 min"),
            ("pointer0", "/plan"),
            ("op0", "in"),
            ("value0", "free, \"7\", 7"),
            ("pointer1", "/to"),
            ("op1", "absent"),
        ],
    );
    let reply = browser.post("/constraint/edit", &new).await;
    assert_eq!(reply.header("location"), "/constraint?name=smtp", "{}", reply.text());
    let set = shown(&bench, "smtp").await;
    assert_eq!((&set["queue_glob"], &set["per"]), (&json!("mail.*"), &json!("/user")));
    assert_eq!(set["running_max"], 1_000);
    assert_eq!(set["rate"], json!({ "count": 10, "per_ms": 60_000, "burst": 10 }));
    let conditions = json!([
        { "pointer": "/plan", "op": "in", "values": ["free", "7", 7] },
        { "pointer": "/to", "op": "absent" },
    ]);
    assert_eq!(set["where"], conditions);
    // A second one of that name is none.
    let again = browser.post("/constraint/edit", &new).await;
    assert_eq!(again.status, 412);
    Html::of(&again).says("There is a constraint of this name already");
    // The form says what is set, and what it does not change stays.
    let at = "/constraint/edit?name=smtp";
    let page = browser.page(at).await;
    let form = page.form(at);
    let said =
        ["queue", "queue_glob", "per", "running_max", "count", "per_time", "burst", "value0"];
    let said = said.map(|field| form[field].as_str());
    assert_eq!(said, ["", "mail.*", "/user", "1000", "10", "1m", "", "[\"free\",\"7\",7]"]);
    let chosen = page.all("option").filter(|it| it.attributes.contains_key("selected"));
    let chosen: Vec<_> = chosen.map(|it| it.attributes["value"].as_str()).collect();
    assert_eq!(chosen, ["in", "absent"]);
    let form = with(&form, &[("op0", "in"), ("op1", "absent"), ("running_max", "5")]);
    assert_eq!(browser.post(at, &form).await.status, 303);
    let set = shown(&bench, "smtp").await;
    assert_eq!((&set["running_max"], &set["where"]), (&json!(5), &conditions));
    // Who began before that does not undo it unseen.
    let stale = browser.post(at, &with(&form, &[("running_max", "6")])).await;
    assert_eq!(stale.status, 412);
    let page = Html::of(&stale);
    page.says("the constraint is another one by now");
    assert_eq!(page.form(at)["running_max"], "6", "what was written is not lost");
    let remove = "/constraint/remove?name=smtp";
    let page = browser.page(remove).await;
    page.says("Remove the constraint smtp?");
    let mut form = page.form(remove);
    let tag = form.insert("tag".to_owned(), "\"1\"".to_owned()).unwrap();
    assert_eq!(browser.post(remove, &form).await.status, 412);
    form.insert("tag".to_owned(), tag);
    assert_eq!(browser.post(remove, &form).await.header("location"), "/constraints");
    assert_eq!(browser.get("/constraint?name=smtp").await.status, 404);
}

#[tokio::test]
async fn what_a_constraint_cannot_be_is_said() {
    let bench = Bench::new();
    let mut browser = Browser::new(&bench);
    let form = browser.page("/constraint/edit").await.form("/constraint/edit");
    for (fields, says) in [
        (&[("running_max", "1")][..], "the constraint needs a name"),
        (&[("name", "a")], "a constraint needs a rate, running_max, or both"),
        (&[("name", "a"), ("running_max", "many")], "at once is a whole number"),
        (&[("name", "a"), ("count", "1")], "in what time they start is not said"),
        (&[("name", "a"), ("per_time", "1 s")], "how many may start in that time is not said"),
        (&[("name", "a"), ("count", "1"), ("per_time", "soon")], "soon is no time"),
        (&[("name", "a"), ("running_max", "1"), ("queue", "q"), ("queue_glob", "q")], "not both"),
        (
            &[("name", "a"), ("running_max", "1"), ("pointer0", "plan"), ("op0", "exists")],
            "JSON Pointer",
        ),
    ] {
        let form = with(&form, fields);
        let refused = browser.post("/constraint/edit", &form).await;
        assert_eq!(refused.status, 400, "{fields:?}");
        let page = Html::of(&refused);
        page.is_sound("a constraint that was refused");
        page.says(says);
        let (field, value) = fields[fields.len() - 1];
        assert!(field == "op0" || page.form("/constraint/edit")[field] == value, "{fields:?}");
    }
    assert_eq!(browser.get("/constraint").await.status, 400);
    assert_eq!(browser.get("/constraint/edit?name=none").await.status, 404);
}

#[tokio::test]
async fn the_page_of_a_constraint_says_what_is_in_use_and_who_waits() {
    let bench = Bench::new();
    let limit = json!({ "queue_glob": "mail*", "running_max": 1 });
    bench.api("", "PUT", "/api/v1/constraints/smtp", Some(limit)).await.is(201);
    bench.page("/constraint?name=smtp").await.says("Nobody: it holds no ready job back.");
    for queue in ["mail", "mail", "mail-eu", "other"] {
        bench.submit(json!({ "queue": queue })).await;
    }
    bench.lease("mail", "w").await;
    let page = bench.page("/constraint?name=smtp").await;
    page.is_sound("a constraint");
    page.says("holds jobs back · At most 1 running at once. Jobs of queues like mail*.");
    page.says("In use Running Unfinished Now 1 of 1 3 full");
    assert!(page.links().contains(&"/jobs?queue=mail&status=ready"));
    assert!(page.links().contains(&"/jobs?queue=mail%2Deu&status=ready"));
    assert!(!page.text.contains("other"), "{}", page.text);
    let list = bench.page("/constraints").await;
    list.is_sound("/constraints");
    list.says("smtp At most 1 running at once. Jobs of queues like mail*. 1 of 1 holds back 2");
    let overview = bench.page("/").await;
    assert!(overview.links().contains(&"/constraint?name=smtp"));
}

#[tokio::test]
async fn a_queue_says_which_constraints_hold_its_jobs_back_whatever_names_it() {
    let bench = Bench::new();
    let put = async |name: &str, limit: Value| {
        let path = format!("/api/v1/constraints/{name}");
        bench.api("", "PUT", &path, Some(limit)).await.is(201);
        // Jobs that are there already are matched a little later.
        wait_until_async(|| bench.engine.constraints().relabelling().remaining == 0).await;
    };
    // More than the API gives without being asked for more.
    for number in 0..101 {
        put(&format!("a{number}"), json!({ "queue": format!("q{number}"), "running_max": 1 }))
            .await;
    }
    bench.submit(json!({ "queue": "q7" })).await;
    bench.page("/queue?queue=q7").await.says("Constraints a7 At most 1 running at once.");
    put("wide", json!({ "running_max": 1_000 })).await;
    put("media", json!({ "queue_glob": "resize*", "running_max": 1 })).await;
    put("other", json!({ "queue_glob": "mail*", "running_max": 1 })).await;
    for queue in ["resize", "resize", "resize", "resize-large", "mail"] {
        bench.submit(json!({ "queue": queue })).await;
    }
    bench.lease("resize", "w").await;
    let page = bench.page("/queue?queue=resize").await;
    page.is_sound("a queue with constraints");
    page.says(
        "Constraints media holds back 2 jobs At most 1 running at once. \
         wide At most 1,000 running at once.",
    );
    assert!(!page.text.contains("other"), "{}", page.text);
    bench.page("/queue?queue=resize%2Dlarge").await.says("media holds back 1 job ");
    bench.page("/queue?queue=mail").await.says("other At most 1 running at once.");
    let overview = bench.page("/").await;
    overview.says("resize Constraint media is full: 2 jobs cannot start for now.");
    overview.says("resize-large Constraint media is full: 1 job cannot start for now.");
    assert!(overview.links().contains(&"/constraint/edit?name=media"), "{:?}", overview.links());
    put("all", json!({ "running_max": 0 })).await;
    bench.page("/queue?queue=resize").await.says("all holds back 2 jobs None may run.");
}

#[tokio::test]
async fn starts_are_counted_only_of_a_constraint_with_a_rate() {
    let bench = Bench::new();
    let limit = json!({ "queue": "mail", "rate": { "count": 5, "per_ms": 60_000 } });
    bench.api("", "PUT", "/api/v1/constraints/smtp", Some(limit)).await.is(201);
    bench.submit(json!({ "queue": "mail" })).await;
    let page = bench.page("/constraint?name=smtp").await;
    page.says("Running Unfinished Starts left Now 0 1 5 has room");
}

#[tokio::test]
async fn a_full_constraint_that_no_queue_names_has_a_row_of_its_own() {
    let bench = Bench::new();
    let limit = json!({ "queue": "mail", "running_max": 0 });
    bench.api("", "PUT", "/api/v1/constraints/smtp", Some(limit)).await.is(201);
    bench.submit(json!({ "queue": "mail" })).await;
    bench.api("", "POST", "/api/v1/queues/mail/pause", None).await.is(200);
    let overview = bench.page("/").await;
    overview
        .says("Constraint smtp Full: 1 job cannot start for now. See who waitsChange the limit");
}

#[tokio::test]
async fn a_constraint_may_have_any_name() {
    let bench = Bench::new();
    let mut browser = Browser::new(&bench);
    for name in
        ["<script>alert(1)</script>", "../..", "a\r\nb", "%00", "\u{202e}x", &"<".repeat(255)]
    {
        let form = browser.page("/constraint/edit").await.form("/constraint/edit");
        let form = with(&form, &[("name", name), ("running_max", "1")]);
        let reply = browser.post("/constraint/edit", &form).await;
        assert_eq!(reply.status, 303, "{name:?}: {}", reply.text());
        let at = reply.header("location").to_owned();
        browser.page(&at).await.is_sound(name);
        let edit = at.replace("/constraint?", "/constraint/edit?");
        let form = browser.page(&edit).await.form(&edit);
        assert_eq!(browser.post(&edit, &form).await.header("location"), at, "{name:?}");
        let remove = at.replace("/constraint?", "/constraint/remove?");
        let form = browser.page(&remove).await.form(&remove);
        browser.page("/constraints").await.is_sound(name);
        assert_eq!(browser.post(&remove, &form).await.status, 303, "{name:?}");
    }
}

#[tokio::test]
async fn each_shard_limits_its_own_jobs_only_if_somebody_says_so() {
    let seat = Seat { shard: 0, shards: 2 };
    let engine = spindle_engine::Options { seat, ..Default::default() };
    let bench = Bench::over(engine, Options::default());
    let mut browser = Browser::new(&bench);
    let edit = "/constraint/edit";
    let page = browser.page(edit).await;
    assert!(!page.form(edit).contains_key("per_shard"));
    let new =
        with(&page.form(edit), &[("name", "smtp"), ("queue_glob", "mail.*"), ("running_max", "2")]);
    let refused = browser.post(edit, &new).await;
    assert_eq!(refused.status, 422);
    let page = Html::of(&refused);
    page.says("Its queues may be on several shards");
    page.says("Each shard limits its own jobs");
    page.is_sound("a limit of several shards");
    let new = with(&page.form(edit), &[("per_shard", "yes")]);
    assert_eq!(browser.post(edit, &new).await.status, 303);
    assert_eq!(shown(&bench, "smtp").await["per_shard"], true);
    browser.page("/constraint?name=smtp").await.says("At most 2 running at once, on each shard.");
    // The form of one that is there says so, too.
    let at = "/constraint/edit?name=smtp";
    let form = browser.page(at).await.form(at);
    let form = with(&form, &[("running_max", "5")]);
    assert_eq!(browser.post(at, &form).await.status, 303, "{form:?}");
    let set = shown(&bench, "smtp").await;
    assert_eq!((&set["running_max"], &set["per_shard"]), (&json!(5), &json!(true)));
}
