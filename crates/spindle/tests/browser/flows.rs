//! The drawing of the flow that a job is in.

use serde_json::{Value, json};
use spindle_testkit::wait_until;

use crate::browser::{Browser, Screen};
use crate::data::Served;

/// The number of the blocked job of a queue.
fn blocked(served: &Served, queue: &str) -> u64 {
    let found = served.ask(&format!("GET /api/v1/jobs?queue={queue}&status=blocked"), &Value::Null);
    found["jobs"][0]["id"].as_u64().unwrap()
}

/// The least contrast of a text of the drawing with the box that it is in: axe-core looks at none in
/// SVG. Colours are read as the browser computes them.
const CONTRAST: &str = "
    const numbers = (colour) => colour.match(/[0-9.]+/g).map(Number);
    const light = (colour) => numbers(colour).slice(0, 3).map((part) => {
      const share = part / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    }).reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
    const contrasts = [...document.querySelectorAll('.flow text, .flow tspan')].map((text) => {
      const box = text.closest('a, g').querySelector('rect');
      const [one, other] = [text, box].map((it) => light(getComputedStyle(it).fill));
      return (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    });
    return [contrasts.length, Math.min(...contrasts)];";

#[test]
fn a_flow_can_be_read_in_all_colours_and_widths() {
    let served = Served::sample();
    let browser = Browser::of(&served.http);
    let id = blocked(&served, "invoices");
    for screen in [Screen::Desk, Screen::Phone] {
        for colours in ["light", "dark"] {
            browser.screen(screen);
            browser.prefer(colours);
            browser.open(&format!("/jobs/{id}"));
            let found = browser.run(CONTRAST);
            let (texts, least) = (found[0].as_u64().unwrap(), found[1].as_f64().unwrap());
            assert!(texts > 16 && least >= 4.5, "{screen:?} {colours}: {found}");
            assert!(browser.too_wide().is_empty(), "{screen:?}: {:?}", browser.too_wide());
            // What is wider than its box is scrolled to the job itself.
            let is_seen = "const box = document.querySelector('.flow').getBoundingClientRect();
                const own = document.querySelector('.flow .own rect').getBoundingClientRect();
                return box.left <= own.left && own.right <= box.right;";
            assert_eq!(browser.run(is_seen), true, "{screen:?}");
        }
    }
}

#[test]
fn a_flow_leads_to_its_jobs_and_follows_them() {
    let served = Served::empty(&[]);
    let jobs = [
        json!({ "queue": "resize", "ref": "one", "ttr_ms": 3_600_000 }),
        json!({ "queue": "album", "ref": "album", "after": ["one"] }),
        json!({ "queue": "mail", "after": ["album"] }),
    ];
    let [one, album, mail] = served.submit_all(&jobs)[..] else { panic!("{jobs:?}") };
    let browser = Browser::of(&served.http);
    browser.screen(Screen::Phone);
    browser.open_live(&format!("/jobs/{mail}"));
    // What a person has opened and scrolled stays so while the page changes.
    browser.click("#flow-list summary");
    browser.run("document.querySelector('.flow').scrollLeft = 7");
    browser.run("document.querySelector('.flow svg').id = 'before'");
    served.finish(&served.lease("resize", "w"), &json!(null));
    wait_until("the end of the first", || {
        browser.run("return document.querySelector('.flow a title').textContent")
            == format!("Job {one}, done, in resize")
    });
    assert!(!browser.has("#before") && browser.is_same_page());
    assert!(browser.has("#flow-list[open]"));
    assert_eq!(browser.run("return document.querySelector('.flow').scrollLeft"), 7);
    assert!(browser.faults().is_empty(), "{:?}", browser.faults());
    browser.run("document.querySelector('.flow').scrollLeft = 200");
    browser.click(&format!(".flow a[href='/jobs/{album}'] text"));
    browser.says(&format!("Job {album}"));
    assert_eq!(browser.at(), format!("/jobs/{album}"));
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
}

/// Batches of all statuses that a job waits for, and the number of that job.
fn batches(served: &Served) -> ([u64; 4], u64) {
    let batches = ["open", "sealed", "done", "ended"].map(|queue| {
        let new = json!({ "queue": queue, "name": format!("All that is {queue}") });
        let id = served.ask("POST /api/v1/batches", &new)["id"].as_u64().unwrap();
        served.submit(&json!({ "queue": queue, "batch": id, "fails_max": 1 }));
        id
    });
    let new = json!({ "queue": "album", "after": batches, "on_dead": "wait" });
    let waits = served.submit(&new);
    served.finish(&served.lease("done", "w"), &Value::Null);
    served.fail(&served.lease("ended", "w"), "it fails");
    for id in &batches[1..] {
        served.ask(&format!("POST /api/v1/batches/{id}/seal"), &Value::Null);
    }
    (batches, waits)
}

#[test]
fn batches_can_be_read_in_all_colours_and_widths() {
    let served = Served::empty(&[]);
    let browser = Browser::of(&served.http);
    let (ids, waits) = batches(&served);
    let open = ids[0];
    for (screen, colours) in [(Screen::Desk, "light"), (Screen::Phone, "dark")] {
        browser.screen(screen);
        browser.prefer(colours);
        for path in [
            "/batches".to_owned(),
            format!("/batches/{open}"),
            format!("/batches/{open}/cancel"),
            format!("/jobs/{waits}"),
        ] {
            browser.open(&path);
            assert!(browser.too_wide().is_empty(), "{path}: {:?}", browser.too_wide());
            assert!(browser.faults().is_empty(), "{path}: {:?}", browser.faults());
        }
        let statuses = "return [...document.querySelectorAll('.flow .batch ~ svg > [class]')]
            .map((it) => it.getAttribute('class'))";
        assert_eq!(browser.run(statuses), json!(["open", "sealed", "done", "ended"]));
        let found = browser.run(CONTRAST);
        assert!(found[1].as_f64().unwrap() >= 4.5, "{colours}: {found}");
    }
}

#[test]
fn a_batch_is_followed_and_sealed() {
    let served = Served::empty(&[]);
    let new = json!({ "queue": "photos", "name": "holidays" });
    let batch = served.ask("POST /api/v1/batches", &new)["id"].as_u64().unwrap();
    for _ in 0..2 {
        served.submit(&json!({ "queue": "resize", "batch": batch }));
    }
    let browser = Browser::of(&served.http);
    browser.open_live(&format!("/batches/{batch}"));
    browser.says("0 of 2 jobs ended");
    served.finish(&served.lease("resize", "w"), &Value::Null);
    wait_until("the end of the first", || browser.text().contains("1 of 2 jobs ended"));
    assert!(browser.is_same_page());
    browser.press("Seal…");
    browser.says(&format!("Seal batch {batch} with 2 jobs?"));
    browser.press(&format!("Seal batch {batch}"));
    wait_until("the batch's page", || browser.at() == format!("/batches/{batch}"));
    let sealed = served.ask(&format!("GET /api/v1/batches/{batch}"), &Value::Null);
    assert_eq!(sealed["status"], "sealed");
    assert!(!browser.has(&format!("a[href='/batches/{batch}/seal']")));
    let complaints = browser.complaints();
    assert!(complaints.is_empty(), "{complaints:?}");
}
