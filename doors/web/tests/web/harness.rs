//! The pages on a test bench: requests as a browser makes them, and HTML taken apart.

use std::collections::BTreeMap;
use std::ops::Deref;
use std::sync::Arc;

use axum::body::Body;
use axum::http::request::Builder;
use axum::http::{Request, header};
use html5gum::{EndTag, StartTag, Token, Tokenizer};
use serde_json::{Value, json};
use spindle_access::Access;
use spindle_api::Api;
use spindle_history::History;
use spindle_jobd_master::MasterHandle;
use spindle_testkit::{HttpDoor, Reply};
use spindle_web::{Options, Web};

/// What a browser says that it takes.
const BROWSER: &str = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
/// Elements between whose words there is no space.
const INLINE: [&[u8]; 6] = [b"a", b"b", b"code", b"kbd", b"span", b"time"];
/// The name that the server is called by.
const HOST: &str = "localhost:7420";

pub struct Bench {
    http: HttpDoor,
    history: History,
}

impl Deref for Bench {
    type Target = HttpDoor;

    fn deref(&self) -> &HttpDoor {
        &self.http
    }
}

impl Bench {
    pub fn new() -> Bench {
        Bench::with(Options::default())
    }

    /// A server that asks everybody who they are, or nobody.
    pub fn guarded(access: Access) -> Bench {
        Bench::with(Options { access, has_tokens: true, ..Options::default() })
    }

    pub fn with(options: Options) -> Bench {
        Bench::of(spindle_engine::Options::default(), options, None)
    }

    /// A server with a jobd master.
    pub fn with_jobd(options: Options, master: MasterHandle) -> Bench {
        Bench::of(spindle_engine::Options::default(), options, Some(master))
    }

    /// The pages of an engine with these settings.
    pub fn over(engine: spindle_engine::Options, options: Options) -> Bench {
        Bench::of(engine, options, None)
    }

    fn of(
        engine: spindle_engine::Options,
        options: Options,
        jobd_master: Option<MasterHandle>,
    ) -> Bench {
        let history = History::default();
        let open = |engine: spindle_engine::Engine| {
            let (access, history) = (options.access.clone(), history.clone());
            let api = spindle_api::Options { access, history, jobd_master, ..Default::default() };
            let api = Api::new(engine.clone(), api);
            let web = Web::new(engine, api.router(), options);
            (web.clone(), api.router().merge(web.router()))
        };
        let (mut http, web) = HttpDoor::open(Arc::default(), HttpDoor::START_MS, engine, open);
        http.site = http.site.clone().with_fallback(web.lost());
        Bench { http, history }
    }

    /// Lets ten seconds pass, and the server's history see what happened.
    pub fn look(&self) {
        self.pass(10_000);
        self.history.look(&self.engine);
    }

    /// A page as a browser without cookies gets it.
    pub async fn get(&self, path: &str) -> Reply {
        Browser::new(self).get(path).await
    }

    /// A page that is there.
    pub async fn page(&self, path: &str) -> Html {
        let reply = self.get(path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        Html::of(&reply)
    }

    /// Asks the API as a program does; `token` may be empty.
    pub async fn api(&self, token: &str, method: &str, path: &str, body: Option<Value>) -> Reply {
        let mut request = request(method, path);
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = body.map_or_else(Body::empty, |body| Body::from(body.to_string()));
        let request = request.body(body).unwrap();
        match token {
            "" => self.http.send(request).await,
            token => self.http.send_as(token, request).await,
        }
    }

    /// Submits a job, and gives its number.
    pub async fn submit(&self, body: Value) -> u64 {
        let reply = self.api("", "POST", "/api/v1/jobs", Some(body)).await;
        assert_eq!(reply.status, 201, "{}", reply.text());
        reply.json()["id"].as_u64().unwrap()
    }

    /// Opens a batch, and gives its number.
    pub async fn open_batch(&self, body: Value) -> u64 {
        let reply = self.api("", "POST", "/api/v1/batches", Some(body)).await;
        assert_eq!(reply.status, 201, "{}", reply.text());
        reply.json()["id"].as_u64().unwrap()
    }

    /// Leases the next job of a queue, and gives the lease's token.
    pub async fn lease(&self, queue: &str, worker: &str) -> String {
        let wanted = json!({ "queues": [queue], "worker": worker });
        let reply = self.api("", "POST", "/api/v1/lease", Some(wanted)).await;
        reply.json()["lease_token"].as_str().unwrap_or_else(|| panic!("{reply:?}")).to_owned()
    }

    /// A job whose only try failed like this.
    pub async fn dead(&self, queue: &str, error: &str) -> u64 {
        let id = self.submit(json!({ "queue": queue, "fails_max": 1 })).await;
        let lease = self.lease(queue, "smtp-1").await;
        let failed = json!({ "error": error, "message": error, "code": "exit 69" });
        let path = format!("/api/v1/leases/{lease}/fail");
        self.api("", "POST", &path, Some(failed)).await.is(204);
        id
    }

    /// The status of a job.
    pub async fn status_of(&self, id: u64) -> String {
        let job = self.api("", "GET", &format!("/api/v1/jobs/{id}"), None).await;
        job.json()["status"].as_str().unwrap_or("gone").to_owned()
    }
}

pub fn request(method: &str, path: &str) -> Builder {
    Request::builder().method(method).uri(path).header(header::HOST, HOST)
}

/// A browser: it keeps cookies, and sends forms as they stand in pages.
pub struct Browser<'a> {
    bench: &'a Bench,
    cookies: BTreeMap<String, String>,
}

impl<'a> Browser<'a> {
    pub fn new(bench: &'a Bench) -> Browser<'a> {
        Browser { bench, cookies: BTreeMap::new() }
    }

    /// One that has logged in.
    pub async fn with_token(bench: &'a Bench, token: &str) -> Browser<'a> {
        let mut browser = Browser::new(bench);
        let page = Html::of(&browser.get("/login").await);
        let mut form = page.form("/login");
        form.insert("token".to_owned(), token.to_owned());
        let reply = browser.post("/login", &form).await;
        assert_eq!(reply.status, 303, "{token}: {}", reply.text());
        browser
    }

    pub fn cookie(&self, name: &str) -> Option<&str> {
        self.cookies.get(name).map(String::as_str)
    }

    pub fn set_cookie(&mut self, name: &str, value: &str) {
        self.cookies.insert(name.to_owned(), value.to_owned());
    }

    pub async fn get(&mut self, path: &str) -> Reply {
        self.send(request("GET", path).body(Body::empty()).unwrap()).await
    }

    pub async fn page(&mut self, path: &str) -> Html {
        let reply = self.get(path).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        Html::of(&reply)
    }

    /// Sends a form of an own page.
    pub async fn post(&mut self, path: &str, form: &Form) -> Reply {
        self.send(form_request(path, form).body(encoded(form)).unwrap()).await
    }

    pub async fn send(&mut self, request: Request<Body>) -> Reply {
        let request = self.dressed(request);
        let reply = self.bench.http.send(request).await;
        for cookie in reply.headers.get_all(header::SET_COOKIE) {
            let (pair, _) = cookie.to_str().unwrap().split_once(';').unwrap();
            let (name, value) = pair.split_once('=').unwrap();
            self.cookies.insert(name.to_owned(), value.to_owned());
        }
        reply
    }

    /// The status of an answer whose body may have no end.
    pub async fn head(&mut self, request: Request<Body>) -> u16 {
        let request = self.dressed(request);
        self.bench.http.begin(request).await.status().as_u16()
    }

    fn dressed(&self, mut request: Request<Body>) -> Request<Body> {
        let headers = request.headers_mut();
        headers.entry(header::ACCEPT).or_insert(BROWSER.parse().unwrap());
        if !self.cookies.is_empty() {
            let pairs = self.cookies.iter().map(|(name, value)| format!("{name}={value}"));
            let cookies = pairs.collect::<Vec<_>>().join("; ");
            headers.insert(header::COOKIE, cookies.parse().unwrap());
        }
        request
    }
}

/// The fields of a form.
pub type Form = BTreeMap<String, String>;

pub fn form_request(path: &str, _: &Form) -> Builder {
    request("POST", path)
        .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
        .header(header::ORIGIN, format!("http://{HOST}"))
        .header("sec-fetch-site", "same-origin")
}

pub fn encoded(form: &Form) -> Body {
    let mut text = form_urlencoded::Serializer::new(String::new());
    text.extend_pairs(form);
    Body::from(text.finish())
}

/// An element of a page, in the order of the source.
#[derive(Debug)]
pub struct Element {
    pub name: String,
    pub attributes: BTreeMap<String, String>,
    /// The text up to the next tag.
    pub text: String,
}

/// A page, taken apart as browsers do.
pub struct Html {
    pub source: String,
    pub elements: Vec<Element>,
    /// All text that is shown.
    pub text: String,
}

impl Html {
    pub fn of(reply: &Reply) -> Html {
        assert_eq!(reply.header("content-type"), "text/html; charset=utf-8", "{}", reply.text());
        let source = String::from_utf8(reply.body.to_vec()).unwrap();
        let (mut elements, mut text) = (Vec::<Element>::new(), String::new());
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        for token in Tokenizer::new(source.as_str()) {
            let token = token.unwrap();
            if let Token::StartTag(StartTag { name, .. }) | Token::EndTag(EndTag { name, .. }) =
                &token
                && !INLINE.contains(&name.as_slice())
            {
                text.push(' ');
            }
            match token {
                Token::StartTag(tag) => {
                    let attributes = tag.attributes.iter();
                    let attributes = attributes.map(|(name, value)| (lossy(name), lossy(value)));
                    let attributes = attributes.collect();
                    elements.push(Element {
                        name: lossy(&tag.name),
                        attributes,
                        text: String::new(),
                    });
                }
                Token::String(part) => {
                    let part = lossy(&part);
                    text.push_str(&part);
                    if let Some(last) = elements.last_mut() {
                        last.text.push_str(&part);
                    }
                }
                Token::Error(error) => panic!("{error:?} in {source}"),
                _ => {}
            }
        }
        Html { source, elements, text }
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.elements.iter().filter(move |element| element.name == name)
    }

    /// The fields of the form that goes there, as a browser would send them untouched.
    #[track_caller]
    pub fn form(&self, action: &str) -> Form {
        let is_it = |element: &Element| {
            element.name == "form"
                && element.attributes.get("action").is_some_and(|it| it == action)
        };
        let begin = self.elements.iter().position(is_it);
        let begin = begin.unwrap_or_else(|| panic!("no form to {action}: {}", self.source));
        let inside = self.elements[begin + 1..].iter().take_while(|element| element.name != "form");
        let (mut form, mut select) = (Form::new(), String::new());
        for element in inside {
            let of = |name: &str| element.attributes.get(name).cloned().unwrap_or_default();
            let is = |name: &str| element.attributes.contains_key(name);
            match element.name.as_str() {
                "input" => {
                    let is_choice = ["radio", "checkbox"].contains(&of("type").as_str());
                    if !is_choice || is("checked") {
                        form.insert(of("name"), of("value"));
                    }
                }
                "textarea" => {
                    let text = element.text.strip_prefix('\n').unwrap_or(&element.text);
                    form.insert(of("name"), text.replace('\n', "\r\n"));
                }
                "select" => select = of("name"),
                // The first one, unless another is selected.
                "option" if is("selected") || !form.contains_key(&select) => {
                    form.insert(select.clone(), of("value"));
                }
                _ => {}
            }
        }
        form
    }

    /// The field of a form behind which it is said what is wrong.
    #[track_caller]
    pub fn wrong_field(&self) -> &str {
        let is_said = |it: &Element| it.attributes.get("role").is_some_and(|it| it == "alert");
        let at = self.elements.iter().position(is_said).unwrap();
        let before = self.elements[..at].iter().rev();
        before.filter_map(|it| it.attributes.get("name")).next().unwrap()
    }

    /// Where its links go.
    pub fn links(&self) -> Vec<&str> {
        let links = self.all("a").filter_map(|link| link.attributes.get("href"));
        links.map(String::as_str).collect()
    }

    #[track_caller]
    pub fn says(&self, text: &str) {
        let plain = self.text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(plain.contains(text), "no {text:?} in {plain}");
    }

    /// What is on every page: nothing inline, nothing from elsewhere, no more than 100 kB.
    #[track_caller]
    pub fn is_sound(&self, at: &str) {
        assert!(self.source.len() < 100_000, "{at}: {} bytes", self.source.len());
        for element in &self.elements {
            let Element { name, attributes, text } = element;
            assert!(!attributes.contains_key("style"), "{at}: {element:?}");
            assert!(!attributes.keys().any(|name| name.starts_with("on")), "{at}: {element:?}");
            assert!(!["style", "iframe", "object", "base", "img"].contains(&name.as_str()), "{at}");
            if name == "script" {
                assert!(text.trim().is_empty(), "{at}: {element:?}");
                assert!(attributes["src"].starts_with("/assets/live-"), "{at}: {element:?}");
            }
            for place in ["href", "src", "action"] {
                let to = attributes.get(place).map_or("/", String::as_str);
                let is_own = to.starts_with('/') && !to.starts_with("//") || to.starts_with('#');
                assert!(is_own, "{at}: {element:?}");
            }
        }
        assert_eq!(self.all("h1").count(), 1, "{at}");
    }
}
