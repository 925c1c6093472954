//! Writes pictures of the pages into docs/images, of what `spindle demo` leaves to be looked at. No
//! test, but made of what the tests in a browser are made of: `cargo xtask screenshots` runs it.

#[path = "browser/browser.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod browser;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use spindle_testkit::{HttpRequest, Program, Said, wait_until};

use crate::browser::{Browser, Screen};

/// The part of a page that pictures show, and the smaller part of a long list, whose rows are alike. So
/// files are small.
const PICTURE_HEIGHT_MAX: u64 = 1_300;
const LIST_HEIGHT_MAX: u64 = 900;
const LISTS: [&str; 3] = ["dead", "jobs", "scheduled"];

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
    fs::create_dir_all(&folder).unwrap();
    let demo = Demo::start();
    let browser = Browser::of(&demo.http);
    for (name, path) in pages(&demo) {
        if name == "schedules" {
            // Only after the other pages, because their charts would show a minute without work.
            demo.await_schedule();
        }
        for screen in [Screen::Desk, Screen::Phone] {
            browser.screen(screen);
            for colours in ["light", "dark"] {
                browser.prefer(colours);
                browser.open(&path);
                let file = format!("{name}-{colours}-{}.png", screen.width());
                let is_list = LISTS.contains(&name);
                let height_max = if is_list { LIST_HEIGHT_MAX } else { PICTURE_HEIGHT_MAX };
                fs::write(folder.join(file), picture(&browser, height_max)).unwrap();
            }
        }
    }
}

/// A demo that waits for Enter. Dropping it gives it that, so that it ends its servers, too.
struct Demo {
    http: String,
    program: Program,
}

impl Drop for Demo {
    fn drop(&mut self) {
        drop(self.program.stdin.take());
        // Whether it has ended well is not what pictures are about.
        let _ = self.program.wait();
    }
}

impl Demo {
    fn start() -> Demo {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spindle"));
        command.args(["demo", "--jobs", "60"]);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut program = Program::start(&mut command);
        let said = Said::by(program.stderr.take().unwrap());
        let line = said.await_line("The web page: ");
        let http = line.split_once("http://").unwrap().1.trim_end_matches('/').to_owned();
        let demo = Demo { http, program };
        // The history is made every ten seconds: then the last failures are in the charts, too.
        wait_until("the last failures in the history", || {
            let failures = demo.ask("/api/v1/failures?queue=webhooks");
            failures["failures"].as_array().is_some_and(|found| !found.is_empty())
        });
        demo
    }

    /// Waits until a schedule has come to a time.
    fn await_schedule(&self) {
        wait_until("the schedule of every minute", || {
            self.ask("/api/v1/schedules/search-refresh")["last"].is_object()
        });
    }

    fn ask(&self, path: &str) -> Value {
        let (status, answer) = HttpRequest::send(&self.http, &format!("GET {path}"), "").answer();
        assert_eq!(status, 200, "{path}: {answer}");
        serde_json::from_str(&answer).unwrap()
    }
}

fn pages(demo: &Demo) -> Vec<(&'static str, String)> {
    let job = |query: &str| {
        let found = demo.ask(&format!("/api/v1/jobs?limit=1&{query}"));
        format!("/jobs/{}", found["jobs"][0]["id"])
    };
    let own = |path: &str| path.to_owned();
    vec![
        ("overview", own("/")),
        ("queues", own("/queues")),
        ("queue", own("/queue?queue=mail")),
        ("queue-settings", own("/queue/settings?queue=mail")),
        ("jobs", own("/jobs")),
        ("job", job("queue=mail&status=dead")),
        ("flow", job("queue=invoices&status=blocked")),
        ("delete-many", own("/jobs/all/delete?queue=webhooks&status=dead")),
        ("dead", own("/dead")),
        ("scheduled", own("/scheduled")),
        ("workers", own("/workers")),
        ("schedules", own("/schedules")),
        ("schedule", own("/schedule?name=search-refresh")),
        ("schedule-edit", own("/schedule/edit?name=nightly-report")),
        ("batches", own("/batches")),
        ("batch", format!("/batches/{}", demo.ask("/api/v1/batches")["batches"][0]["id"])),
        ("constraints", own("/constraints")),
        ("jobd", own("/jobd")),
        ("constraint", own("/constraint?name=one-import-per-customer")),
        ("submit", own("/submit?queue=mail")),
        ("audit", own("/audit")),
        ("server", own("/server")),
        ("login", own("/login")),
        ("api", own("/api/docs")),
    ]
}

/// A picture of the page as PNG, down to what a person sees after scrolling once.
fn picture(browser: &Browser, height_max: u64) -> Vec<u8> {
    let size = browser.run(
        "return [document.documentElement.clientWidth, document.documentElement.scrollHeight]",
    );
    let height = size[1].as_u64().unwrap_or_default().min(height_max);
    let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": height, "scale": 1 });
    let taken = browser.devtools(
        "Page.captureScreenshot",
        json!({ "format": "png", "captureBeyondViewport": true, "clip": clip }),
    );
    STANDARD.decode(taken["data"].as_str().unwrap()).unwrap()
}
