//! Every page, as a browser shows it.

use percent_encoding::{NON_ALPHANUMERIC, percent_encode};
use serde_json::Value;

use crate::browser::{Browser, Screen};
use crate::data::{HOSTILE, Served};

/// The pages that have addresses of their own.
pub const PAGES: [&str; 34] = [
    "/",
    "/queues",
    "/queue?queue=mail",
    "/queue?queue=thumbnails",
    "/queue/purge?queue=mail",
    "/queue/pause?queue=mail",
    "/queue/settings?queue=mail",
    "/jobs",
    "/jobs?queue=mail&status=ready",
    "/jobs/all/delete?queue=mail&status=ready",
    "/dead",
    "/scheduled",
    "/workers",
    "/schedules",
    "/schedule?name=nightly",
    "/schedule?name=later",
    "/schedule/edit",
    "/schedule/edit?name=nightly",
    "/schedule/run?name=nightly",
    "/schedule/remove?name=nightly",
    "/constraints",
    "/constraint?name=one-webhook",
    "/constraint/edit",
    "/constraint/edit?name=one-webhook",
    "/constraint/remove?name=one-webhook",
    "/jobd",
    "/jobd/pause?target=mail",
    "/submit",
    "/submit?queue=mail",
    "/audit",
    "/server",
    "/login",
    "/nowhere",
    "/jobs?text=nothing-is-like-that",
];

/// A name as it stands in an address.
pub fn encoded(name: &str) -> String {
    percent_encode(name.as_bytes(), NON_ALPHANUMERIC).to_string()
}

/// The addresses of all pages of a server, with those of jobs and queues that are hostile.
fn all_pages(served: &Served) -> Vec<String> {
    let mut pages: Vec<String> = PAGES.iter().map(|page| (*page).to_owned()).collect();
    let job = |queue: &str, status: &str| {
        let queue = encoded(queue);
        let found =
            served.ask(&format!("GET /api/v1/jobs?queue={queue}&status={status}"), &Value::Null);
        found["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|job| format!("/jobs/{}", job["id"]))
            .collect::<Vec<_>>()
    };
    pages.extend(job("odd", "ready"));
    let asked = job("mail", "ready").remove(0);
    pages.extend(["delete", "move"].map(|action| format!("{asked}/{action}")));
    for (queue, status) in [
        ("mail", "done"),
        ("mail", "ready"),
        ("mail", "leased"),
        ("import", "dead"),
        ("reports", "scheduled"),
        ("close-books", "done"),
        ("invoices", "blocked"),
        ("report", "blocked"),
    ] {
        pages.push(job(queue, status).remove(0));
    }
    for name in HOSTILE {
        pages.extend(job(name, "dead"));
        pages.extend(job(name, "blocked").into_iter().take(1));
        pages.push(format!("/queue?queue={}", encoded(name)));
        pages.push(format!("/schedule?name={}", encoded(name)));
    }
    pages
}

#[test]
fn every_page_is_quiet_fits_the_screen_and_can_be_read() {
    let served = Served::filled();
    let browser = Browser::of(&served.http);
    let mut faults = Vec::new();
    for path in all_pages(&served) {
        browser.screen(Screen::Desk);
        browser.prefer("light");
        browser.open(&path);
        let mut found = |what: &str, list: Vec<String>| {
            faults.extend(list.into_iter().map(|it| format!("{path}, {what}: {it}")));
        };
        // The page that is not there says so with its status, which the console repeats.
        let complaints =
            browser.complaints().into_iter().filter(|it| path != "/nowhere" || !it.contains("404"));
        found("console", complaints.collect());
        found("light, 1280", browser.faults());
        found("1280", browser.too_wide());
        browser.prefer("dark");
        browser.screen(Screen::Phone);
        found("390", browser.too_wide());
        found("dark, 390", browser.faults());
    }
    faults.sort();
    faults.dedup();
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn on_a_phone_a_search_is_one_field_until_more_is_opened() {
    let served = Served::sample();
    let browser = Browser::of(&served.http);
    browser.screen(Screen::Phone);
    let shown = "return [...document.querySelectorAll('.filter > label')]\
                 .filter(it => it.offsetHeight > 0).length";
    for (path, fields) in [("/jobs", 1), ("/dead", 1), ("/jobs?tag=eu", 2)] {
        browser.open(path);
        assert_eq!(browser.run(shown), fields, "{path}");
        browser.run("document.querySelector('.more').open = true");
        assert_eq!(browser.run(shown), 5, "{path} with more");
    }
    browser.open("/jobs");
    let top = browser.run(
        "return Math.round(document.querySelector('.list tbody tr').getBoundingClientRect().top)",
    );
    assert!(top.as_u64().is_some_and(|top| top < 520), "the first job stands at {top}");
}
