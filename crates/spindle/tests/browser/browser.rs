//! A browser: Chromium without a screen, behind a chromedriver of its own. WebDriver (W3C) is JSON over
//! HTTP, of which the tests need nine requests. The libraries for it make serde_json keep the order of
//! fields, in all that is built with them: then other code would be tested than is shipped.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use spindle_testkit::{Program, Said, wait_until};
use tempfile::TempDir;
use ureq::Agent;
use ureq::http::Request;

/// Flags that keep it from doing anything on its own, and let it run as any user, in any container.
const FLAGS: [&str; 12] = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--lang=en",
];

/// How wide a screen is, in CSS pixels.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Screen {
    Desk,
    Phone,
}

impl Screen {
    pub fn width(self) -> u32 {
        match self {
            Screen::Desk => 1280,
            Screen::Phone => 390,
        }
    }
}

/// How often chromedriver is started before it is given up.
const STARTS_MAX: usize = 10;

/// Starts chromedriver on a free port, and returns the port. It takes one that is free in IPv6, and
/// ends if the same one is taken in IPv4, as it often is by other tests at the same time.
fn chromedriver() -> (Program, String) {
    let mut all_said = String::new();
    for _ in 0..STARTS_MAX {
        let mut command = Command::new("chromedriver");
        command.arg("--port=0").stdout(Stdio::piped()).stderr(Stdio::null());
        let mut program = Program::start(&mut command);
        let said = Said::by(program.stdout.take().unwrap());
        match said.await_line_or_end("started successfully on port ") {
            Ok(line) => {
                let port = line.rsplit(' ').next().unwrap().trim_end_matches('.').to_owned();
                return (program, port);
            }
            Err(text) => all_said += &text,
        }
    }
    panic!("chromedriver did not start {STARTS_MAX} times:\n{all_said}");
}

/// How WebDriver names an element's number.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A running browser with a profile of its own; dropping it ends it.
pub struct Browser {
    /// Where chromedriver listens.
    address: String,
    /// The path of the session.
    session: String,
    /// The server's address, as in `http://127.0.0.1:1234`.
    server: String,
    _chromedriver: Program,
    _profile: TempDir,
}

impl Browser {
    /// One that looks at the server at this address.
    pub fn of(server: &str) -> Browser {
        Browser::start(server, true)
    }

    /// One that runs no scripts of pages.
    pub fn without_scripts(server: &str) -> Browser {
        Browser::start(server, false)
    }

    fn start(server: &str, scripts: bool) -> Browser {
        let (chromedriver, port) = chromedriver();
        let profile = TempDir::new().unwrap();
        let mut flags = FLAGS.map(str::to_owned).to_vec();
        flags.push(format!("--user-data-dir={}", profile.path().display()));
        let blocked = json!({ "profile.managed_default_content_settings.javascript": 2 });
        let prefs = if scripts { json!({}) } else { blocked };
        let wanted = json!({
            "browserName": "chrome",
            "goog:chromeOptions": { "args": flags, "prefs": prefs },
            "goog:loggingPrefs": { "browser": "ALL", "performance": "ALL" },
        });
        let mut browser = Browser {
            address: format!("127.0.0.1:{port}"),
            session: "/session".to_owned(),
            server: format!("http://{server}"),
            _chromedriver: chromedriver,
            _profile: profile,
        };
        let wanted = json!({ "capabilities": { "alwaysMatch": wanted } });
        let begun = browser.ask("POST", "", &wanted).unwrap();
        browser.session = format!("/session/{}", begun["sessionId"].as_str().unwrap());
        browser.screen(Screen::Desk);
        browser
    }

    /// A request in the session; an error is a text.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let url = format!("http://{}{}{path}", self.address, self.session);
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let request = Request::builder().method(method).uri(url).body(body);
        let agent = Agent::config_builder().http_status_as_error(false).build().new_agent();
        let answer = agent.run(request.unwrap()).map_err(|error| error.to_string())?;
        let status = answer.status();
        // The log of what a browser requested is long.
        let answer = answer.into_body().with_config().limit(1 << 30).read_to_string();
        let answer = answer.map_err(|error| error.to_string())?;
        let mut answer: Value = serde_json::from_str(&answer).map_err(|error| error.to_string())?;
        let value = answer["value"].take();
        if status == 200 { Ok(value) } else { Err(format!("{path}: {}", value["message"])) }
    }

    fn post(&self, path: &str, body: &Value) -> Result<Value, String> {
        self.ask("POST", path, body)
    }

    /// Sends a command of Chrome's own protocol.
    pub fn devtools(&self, command: &str, arguments: Value) -> Value {
        self.post("/goog/cdp/execute", &json!({ "cmd": command, "params": arguments })).unwrap()
    }

    /// Makes the screen this wide.
    pub fn screen(&self, screen: Screen) {
        let is_phone = screen == Screen::Phone;
        let height = if is_phone { 844 } else { 800 };
        self.devtools(
            "Emulation.setDeviceMetricsOverride",
            json!({ "width": screen.width(), "height": height, "deviceScaleFactor": 1,
                    "mobile": is_phone }),
        );
    }

    /// Has the system prefer dark colours, or light ones, and no motion.
    pub fn prefer(&self, colours: &str) {
        self.devtools(
            "Emulation.setEmulatedMedia",
            json!({ "features": [
                { "name": "prefers-color-scheme", "value": colours },
                { "name": "prefers-reduced-motion", "value": "reduce" },
            ] }),
        );
    }

    /// Opens a page, and waits until it is there.
    #[track_caller]
    pub fn open(&self, path: &str) {
        self.open_url(&format!("{}{path}", self.server));
    }

    #[track_caller]
    pub fn open_url(&self, url: &str) {
        self.post("/url", &json!({ "url": url })).unwrap();
    }

    /// The path of the page that it shows, with its query.
    pub fn at(&self) -> String {
        let url = self.ask("GET", "/url", &Value::Null).unwrap();
        url.as_str().unwrap().trim_start_matches(&self.server).to_owned()
    }

    /// Runs a script in the page, and gives what it returns.
    #[track_caller]
    pub fn run(&self, script: &str) -> Value {
        self.post("/execute/sync", &json!({ "script": script, "args": [] })).unwrap()
    }

    /// The same of a script that calls its last argument with what it found.
    #[track_caller]
    pub fn run_async(&self, script: &str) -> Value {
        self.post("/execute/async", &json!({ "script": script, "args": [] })).unwrap()
    }

    /// The path of the first such element.
    fn find(&self, using: &str, value: &str) -> Result<String, String> {
        let found = self.post("/element", &json!({ "using": using, "value": value }))?;
        Ok(format!("/element/{}", found[ELEMENT].as_str().unwrap()))
    }

    #[track_caller]
    fn element(&self, css: &str) -> String {
        let found = self.find("css selector", css);
        found.unwrap_or_else(|_| panic!("no {css} at {}:\n{}", self.at(), self.text()))
    }

    /// Whether the page has such an element.
    pub fn has(&self, css: &str) -> bool {
        self.find("css selector", css).is_ok()
    }

    /// Clicks on what a person sees there: it fails on what is hidden or covered.
    #[track_caller]
    pub fn click(&self, css: &str) {
        let element = self.element(css);
        self.post(&format!("{element}/click"), &json!({})).unwrap();
    }

    /// Clicks on the link or button with these words: on the new one, if the page reads itself anew
    /// meanwhile.
    #[track_caller]
    pub fn press(&self, words: &str) {
        let path = format!("//main//*[self::a or self::button][normalize-space()='{words}']");
        wait_until(&format!("{words:?} to press"), || {
            let element = self.find("xpath", &path);
            element.is_ok_and(|it| self.post(&format!("{it}/click"), &json!({})).is_ok())
        });
    }

    /// Types into a field, or at the page.
    #[track_caller]
    pub fn type_into(&self, css: &str, text: &str) {
        let element = self.element(css);
        self.post(&format!("{element}/value"), &json!({ "text": text })).unwrap();
    }

    /// Types into fields, by their names.
    #[track_caller]
    pub fn fill_in(&self, fields: &[(&str, &str)]) {
        for (name, text) in fields {
            self.type_into(&format!("main [name={name}]"), text);
        }
    }

    /// Opens a page, and waits until it hears what happens.
    #[track_caller]
    pub fn open_live(&self, path: &str) {
        self.open(path);
        self.run("window.isSame = true");
        wait_until("the live feed", || {
            self.run("return !document.getElementById('live').hidden") == true
        });
    }

    /// Whether the page was not loaded again since [`Browser::open_live`]: it changes by itself.
    pub fn is_same_page(&self) -> bool {
        self.run("return window.isSame") == true
    }

    /// What the page says, as it is shown; nothing while another comes.
    pub fn text(&self) -> String {
        let body = self.find("css selector", "body");
        let text = body.and_then(|body| self.ask("GET", &format!("{body}/text"), &Value::Null));
        text.ok().and_then(|text| text.as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// Waits until the page says this: what was pressed may take a moment.
    #[track_caller]
    pub fn says(&self, words: &str) {
        wait_until(&format!("{words:?} at {}", self.at()), || self.text().contains(words));
    }

    /// What stands in the console, and which requests went to others than the server, since the last
    /// question.
    pub fn complaints(&self) -> Vec<String> {
        let log = |name: &str| {
            let entries = self.post("/se/log", &json!({ "type": name })).unwrap();
            let said = entries.as_array().unwrap().iter().map(|it| it["message"].as_str().unwrap());
            said.map(str::to_owned).collect::<Vec<String>>()
        };
        let mut found = log("browser");
        for entry in log("performance") {
            let event: Value = serde_json::from_str(&entry).unwrap();
            let event = &event["message"];
            if event["method"] != "Network.requestWillBeSent" {
                continue;
            }
            let url = event["params"]["request"]["url"].as_str().unwrap_or_default();
            let is_own = url.starts_with(&format!("{}/", self.server));
            // Pictures of a style sheet, and the page that a browser begins with.
            let is_own = is_own || url.starts_with("data:") || url.starts_with("chrome://");
            if !is_own {
                found.push(format!("a request to {url}"));
            }
        }
        found
    }

    /// What axe-core finds wrong with the page, contrast of less than 4.5:1 among it.
    pub fn faults(&self) -> Vec<String> {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
        let path = path.join("browser-clients/node_modules/axe-core/axe.min.js");
        let axe = std::fs::read_to_string(&path).unwrap_or_else(|error| {
            panic!("{}: {error}; `cargo xtask test` installs it", path.display())
        });
        if self.run("return typeof axe") == "undefined" {
            self.run(&axe);
        }
        let found = self.run_async(
            "const done = arguments[0];
             axe.run(document, { resultTypes: ['violations'] }).then((found) => done(
               found.violations.flatMap((it) => it.nodes.map((node) =>
                 `${it.id}: ${node.target}: ${node.html.slice(0, 200)}: ${node.failureSummary}`))
             ));",
        );
        serde_json::from_value(found).unwrap()
    }

    /// What makes the page wider than the screen: nothing, if it is not.
    pub fn too_wide(&self) -> Vec<String> {
        let found = self.run(
            "const width = document.documentElement.clientWidth;
             const isWide = document.documentElement.scrollWidth > width;
             const wide = [...document.querySelectorAll('body *')].filter((it) => {
               const place = it.getBoundingClientRect();
               return place.width && (place.right > width + 1 || place.left < -1)
                 && !it.closest('.skip, .tabs, thead');
             });
             const named = wide.map((it) => it.outerHTML.slice(0, 120));
             return isWide ? [`${document.documentElement.scrollWidth} px`, ...named] : [];",
        );
        serde_json::from_value(found).unwrap()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // Killing chromedriver alone would leave the browser. A browser that has crashed is gone.
        let _ = self.ask("DELETE", "", &Value::Null);
    }
}
