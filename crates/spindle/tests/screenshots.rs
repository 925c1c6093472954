//! Writes pictures of the pages into docs/images. No test, but made of what the tests in a browser
//! are made of: `cargo xtask screenshots` runs it.

#[path = "browser/browser.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod browser;
#[path = "browser/data.rs"]
#[expect(dead_code, reason = "the tests use the rest")]
mod data;

use std::fs;
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::browser::{Browser, Screen};
use crate::data::Served;

/// Pictures show no more of a page.
const PICTURE_HEIGHT_MAX: u64 = 1_400;

fn main() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/images");
    fs::create_dir_all(&folder).unwrap();
    let served = Served::sample();
    let browser = Browser::of(&served.http);
    for (name, path) in pages(&served) {
        for screen in [Screen::Desk, Screen::Phone] {
            browser.screen(screen);
            for colours in ["light", "dark"] {
                // The viewer of the API has one set of colours.
                if name == "api" && colours == "dark" {
                    continue;
                }
                browser.prefer(colours);
                browser.open(&path);
                let file = format!("{name}-{colours}-{}.png", screen.width());
                fs::write(folder.join(file), picture(&browser)).unwrap();
            }
        }
    }
}

fn pages(served: &Served) -> Vec<(&'static str, String)> {
    let job = |query: &str| {
        let found = served.ask(&format!("GET /api/v1/jobs?limit=1&{query}"), &Value::Null);
        format!("/jobs/{}", found["jobs"][0]["id"])
    };
    let own = |path: &str| path.to_owned();
    vec![
        ("overview", own("/")),
        ("queues", own("/queues")),
        ("queue", own("/queue?queue=mail")),
        ("queue-settings", own("/queue/settings?queue=mail")),
        ("jobs", own("/jobs")),
        ("job", job("queue=import&status=dead")),
        ("delete-many", own("/jobs/all/delete?queue=import&status=dead")),
        ("dead", own("/dead")),
        ("scheduled", own("/scheduled")),
        ("workers", own("/workers")),
        ("constraints", own("/constraints")),
        ("submit", own("/submit?queue=mail")),
        ("audit", own("/audit")),
        ("server", own("/server")),
        ("api", own("/api/docs")),
    ]
}

/// A picture of the page, up to what a person sees of it who scrolls once, as PNG.
fn picture(browser: &Browser) -> Vec<u8> {
    let size = browser.run(
        "return [document.documentElement.clientWidth, document.documentElement.scrollHeight]",
    );
    let height = size[1].as_u64().unwrap_or_default().min(PICTURE_HEIGHT_MAX);
    let clip = json!({ "x": 0, "y": 0, "width": size[0], "height": height, "scale": 1 });
    let taken = browser.devtools(
        "Page.captureScreenshot",
        json!({ "format": "png", "captureBeyondViewport": true, "clip": clip }),
    );
    STANDARD.decode(taken["data"].as_str().unwrap()).unwrap()
}
