//! Who may see and do what: every page and action against every role, and against queues of others.

use std::collections::BTreeSet;

use spindle_access::Role;
use spindle_testkit::{TokensFile, is_enough};

use crate::harness::{Bench, Browser, Form};

/// What a page or an action is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum About {
    /// A queue, or a job of one.
    Queue,
    /// All queues.
    All,
    /// None.
    Nothing,
}

/// The same table as the door's, written by hand from docs/web.md.
const TABLE: &[(&str, &str, Option<Role>, About)] = &[
    ("GET", "/", Some(Role::Read), About::All),
    ("GET", "/queues", Some(Role::Read), About::All),
    ("GET", "/queue?queue={queue}", Some(Role::Read), About::Queue),
    ("GET", "/queue/settings?queue={queue}", Some(Role::Manage), About::Queue),
    ("POST", "/queue/settings", Some(Role::Manage), About::Queue),
    ("GET", "/queue/drain?queue={queue}", Some(Role::Manage), About::Queue),
    ("POST", "/queue/drain", Some(Role::Manage), About::Queue),
    ("GET", "/queue/pause?queue={queue}", Some(Role::Manage), About::Queue),
    ("POST", "/queue/pause", Some(Role::Manage), About::Queue),
    ("POST", "/queue/resume", Some(Role::Manage), About::Queue),
    ("GET", "/queue/purge?queue={queue}", Some(Role::Manage), About::Queue),
    ("POST", "/queue/purge", Some(Role::Manage), About::Queue),
    ("GET", "/jobs?queue={queue}", Some(Role::Read), About::Queue),
    ("GET", "/dead?queue={queue}", Some(Role::Read), About::Queue),
    ("GET", "/scheduled?queue={queue}", Some(Role::Read), About::Queue),
    ("GET", "/jobs", Some(Role::Read), About::All),
    ("GET", "/jobs?queue={queue}&text=x", Some(Role::Inspect), About::Queue),
    ("GET", "/search?q={queue}", Some(Role::Read), About::Nothing),
    ("GET", "/jobs/all/delete?queue={queue}", Some(Role::Manage), About::Queue),
    ("POST", "/jobs/all/delete", Some(Role::Manage), About::Queue),
    ("GET", "/jobs/{id}", Some(Role::Read), About::Queue),
    ("GET", "/jobs/{id}/bytes/payload", Some(Role::Inspect), About::Queue),
    ("GET", "/jobs/{id}/bytes/output", Some(Role::Inspect), About::Queue),
    ("GET", "/jobs/{id}/park", Some(Role::Manage), About::Queue),
    ("POST", "/jobs/{id}/park", Some(Role::Manage), About::Queue),
    ("POST", "/jobs/{id}/release", Some(Role::Manage), About::Queue),
    ("POST", "/jobs/{id}/move", Some(Role::Manage), About::Queue),
    ("POST", "/jobs/{id}/cancel", Some(Role::Manage), About::Queue),
    ("POST", "/jobs/{id}/retry", Some(Role::Manage), About::Queue),
    ("POST", "/jobs/{id}/undo", Some(Role::Manage), About::Queue),
    ("POST", "/jobs/all/undo", Some(Role::Manage), About::Queue),
    ("POST", "/jobs/{id}/delete", Some(Role::Manage), About::Queue),
    ("GET", "/workers", Some(Role::Read), About::All),
    ("GET", "/jobd", Some(Role::Read), About::All),
    ("GET", "/jobd/pause?all=yes", Some(Role::Manage), About::All),
    ("POST", "/jobd/pause", Some(Role::Manage), About::All),
    ("POST", "/jobd/continue", Some(Role::Manage), About::All),
    ("GET", "/schedules", Some(Role::Read), About::All),
    ("GET", "/schedule?name={schedule}", Some(Role::Read), About::Queue),
    ("GET", "/schedule/edit", Some(Role::Manage), About::Nothing),
    ("GET", "/schedule/edit?name={schedule}", Some(Role::Manage), About::Queue),
    ("POST", "/schedule/edit?name={schedule}", Some(Role::Manage), About::Queue),
    ("GET", "/schedule/run?name={schedule}", Some(Role::Manage), About::Queue),
    ("POST", "/schedule/run?name={schedule}", Some(Role::Manage), About::Queue),
    ("POST", "/schedule/pause?name={schedule}", Some(Role::Manage), About::Queue),
    ("POST", "/schedule/resume?name={schedule}", Some(Role::Manage), About::Queue),
    ("POST", "/schedule/remove?name={schedule}", Some(Role::Manage), About::Queue),
    ("GET", "/batches", Some(Role::Read), About::All),
    ("GET", "/batches/{batch}", Some(Role::Read), About::Queue),
    ("GET", "/batches/{batch}/seal", Some(Role::Submit), About::Queue),
    ("POST", "/batches/{batch}/seal", Some(Role::Submit), About::Queue),
    ("GET", "/batches/{batch}/cancel", Some(Role::Manage), About::Queue),
    ("POST", "/batches/{batch}/cancel", Some(Role::Manage), About::Queue),
    ("GET", "/constraints", Some(Role::Read), About::All),
    ("GET", "/constraint?name=none", Some(Role::Read), About::All),
    ("GET", "/constraint/edit", Some(Role::Manage), About::All),
    ("POST", "/constraint/edit", Some(Role::Manage), About::All),
    ("GET", "/constraint/remove?name=none", Some(Role::Manage), About::All),
    ("POST", "/constraint/remove?name=none", Some(Role::Manage), About::All),
    ("GET", "/audit", Some(Role::Admin), About::All),
    ("GET", "/server", Some(Role::Read), About::Nothing),
    ("GET", "/live", Some(Role::Read), About::Nothing),
    ("GET", "/live?job={id}", Some(Role::Read), About::Queue),
    ("GET", "/submit", Some(Role::Submit), About::Nothing),
    ("POST", "/submit", Some(Role::Submit), About::Queue),
    ("GET", "/login", None, About::Nothing),
    ("POST", "/login", None, About::Nothing),
    ("POST", "/logout", None, About::Nothing),
    ("GET", "/assets/{style}", None, About::Nothing),
    ("POST", "/theme", None, About::Nothing),
    ("POST", "/columns", None, About::Nothing),
];

/// The status of what a browser gets that asks for one of them, with a form of its own.
async fn ask(browser: &mut Browser<'_>, bench: &Bench, row: (&str, &str), queue: &str) -> u16 {
    let new = serde_json::json!({ "queue": queue, "payload": "x" });
    let new = bench.api("admin", "POST", "/api/v1/jobs", Some(new)).await;
    let id = new.json()["id"].to_string();
    let (method, path) = row;
    if path.contains("{schedule}") {
        let daily = serde_json::json!({ "expression": "@daily", "job": { "queue": queue } });
        bench.api("admin", "PUT", &format!("/api/v1/schedules/{queue}"), Some(daily)).await;
    }
    let mut batch = String::new();
    if path.contains("{batch}") {
        let new = serde_json::json!({ "queue": queue });
        let new = bench.api("admin", "POST", "/api/v1/batches", Some(new)).await;
        batch = new.json()["id"].to_string();
    }
    let mut style = String::new();
    if path.contains("{style}") {
        let login = browser.get("/login").await;
        let named = login.text().split("/assets/").nth(1).unwrap();
        style = named.split('"').next().unwrap().to_owned();
    }
    let path = path
        .replace("{style}", &style)
        .replace("{batch}", &batch)
        .replace("{queue}", queue)
        .replace("{id}", &id)
        .replace("{schedule}", queue);
    if method == "GET" {
        let request = crate::harness::request("GET", &path).body(Default::default()).unwrap();
        return browser.head(request).await;
    }
    // Every page has a form that is sealed for this browser.
    let login = browser.page("/login").await;
    let seal = login.form("/theme")["form_token"].clone();
    let fields =
        [("form_token", seal.as_str()), ("queue", queue), ("payload", "1"), ("token", "read")];
    let form: Form = fields.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
    browser.post(&path, &form).await.status.as_u16()
}

/// The methods and paths that the router has.
fn routes() -> BTreeSet<(String, String)> {
    let source = include_str!("../../src/router.rs");
    let source = source.split(".with_state(").next().unwrap();
    let mut routes = BTreeSet::new();
    for route in source.split(".route(").skip(1) {
        let path = route.split('"').nth(1).unwrap();
        for (at, _) in route.match_indices('(') {
            let method = route[..at].rsplit(|letter: char| !letter.is_alphabetic()).next().unwrap();
            routes.insert((method.to_uppercase(), path.to_owned()));
        }
    }
    routes
}

/// Whether a route is for a path of the table.
fn is_for(route: &str, path: &str) -> bool {
    let (route, path): (Vec<_>, Vec<_>) = (route.split('/').collect(), path.split('/').collect());
    let mut pairs = route.iter().zip(&path);
    route.len() == path.len() && pairs.all(|(one, other)| one.starts_with('{') || one == other)
}

#[test]
fn every_route_is_in_the_table() {
    let routes = routes();
    let of_row = |(method, path, ..): &(&str, &str, _, _)| {
        let path = path.split('?').next().unwrap();
        let mut fitting: Vec<_> =
            routes.iter().filter(|(asks, route)| asks == method && is_for(route, path)).collect();
        // A path's own route goes before one for any name.
        fitting.sort_by_key(|(_, route)| route.matches('{').count());
        (*fitting.first().unwrap_or_else(|| panic!("{method} {path} has no route"))).clone()
    };
    assert_eq!(TABLE.iter().map(of_row).collect::<BTreeSet<_>>(), routes);
}

#[tokio::test]
async fn every_page_and_action_takes_the_roles_it_should_and_no_others() {
    let bench = Bench::guarded(TokensFile::of_all_roles().access(true));
    for (method, path, needed, about) in TABLE {
        for had in Role::ALL {
            for token in [had.name().to_owned(), format!("mine.{had}")] {
                let mut browser = Browser::with_token(&bench, &token).await;
                let status = ask(&mut browser, &bench, (method, path), "mine.a").await;
                let is_limited = token.starts_with("mine");
                let enough = needed.is_none_or(|needed| is_enough(*had, needed))
                    && (*about != About::All || !is_limited);
                assert_eq!(status != 403, enough, "{method} {path} as {token}: {status}");
                assert!(status < 500 && status != 401, "{method} {path} as {token}: {status}");
            }
        }
    }
}

#[tokio::test]
async fn queues_of_others_are_refused_and_their_jobs_are_not_there() {
    let bench = Bench::guarded(TokensFile::of_all_roles().access(true));
    for (method, path, _, about) in TABLE {
        let mut browser = Browser::with_token(&bench, "mine.admin").await;
        let status = ask(&mut browser, &bench, (method, path), "other").await;
        match about {
            About::Queue
                if ["{id}", "{schedule}", "{batch}"].iter().any(|it| path.contains(it)) =>
            {
                assert_eq!(status, 404, "{method} {path}");
            }
            About::Queue | About::All => assert_eq!(status, 403, "{method} {path}"),
            About::Nothing => assert!([200, 303].contains(&status), "{method} {path}: {status}"),
        }
    }
}

#[tokio::test]
async fn who_has_not_logged_in_is_sent_to_the_login() {
    let bench = Bench::guarded(TokensFile::of_all_roles().access(true));
    for (method, path, needed, _) in TABLE {
        for cookie in ["", "a1", &"f".repeat(64), "no name of ours"] {
            let mut browser = Browser::new(&bench);
            if !cookie.is_empty() {
                browser.set_cookie("spindle_session", cookie);
            }
            let expected = match (*method, needed) {
                (_, None) => [200, 303],
                ("GET", Some(_)) => [303, 303],
                _ => [401, 401],
            };
            let status = ask(&mut browser, &bench, (method, path), "mine.a").await;
            assert!(expected.contains(&status), "{method} {path} {cookie}: {status}");
        }
    }
    let reply = bench.get("/jobs?queue=a%20b").await;
    assert_eq!(reply.header("location"), "/login?next=%2Fjobs%3Fqueue%3Da%2520b");
    // A token in a header is for the API: pages know sessions only, and the API knows no session.
    let asked = crate::harness::request("GET", "/jobs").header("authorization", "Bearer admin");
    assert_eq!(bench.send(asked.body(Default::default()).unwrap()).await.status, 401);
    let mut browser = Browser::with_token(&bench, "admin").await;
    assert_eq!(browser.get("/api/v1/jobs").await.status, 401);
}

#[tokio::test]
async fn a_page_offers_only_what_one_may() {
    let bench = Bench::guarded(TokensFile::of_all_roles().access(true));
    let new = serde_json::json!({ "queue": "mine.a", "payload": "secret" });
    bench.api("admin", "POST", "/api/v1/jobs", Some(new)).await.is(201);
    for (token, sees, not) in [
        ("read", "/queues", "/audit"),
        ("submit", "/submit", "/queues"),
        ("admin", "/audit", ""),
        ("mine.read", "/jobs", "/queues"),
    ] {
        let page = Browser::with_token(&bench, token).await.page("/login").await;
        let links = page.links();
        assert!(links.contains(&sees) && !links.contains(&not), "{token}: {links:?}");
        page.says(token);
    }
    for (token, may_change, may_look) in [
        ("read", false, false),
        ("inspect", false, true),
        ("mine.manage", true, true),
        ("admin", true, true),
    ] {
        let mut browser = Browser::with_token(&bench, token).await;
        let page = browser.page("/jobs/1").await;
        let is_there = |link: &str| page.links().contains(&link);
        assert_eq!(is_there("/jobs/1/park"), may_change, "{token}");
        assert_eq!(page.text.contains("secret"), may_look, "{token}");
        assert_eq!(is_there("/jobs/1/bytes/payload"), may_look, "{token}");
        assert_eq!(is_there("/audit?job=1"), token == "admin", "{token}");
        let page = browser.page("/queue?queue=mine.a").await;
        assert_eq!(page.links().contains(&"/queue/purge?queue=mine%2Ea"), may_change, "{token}");
    }
    let settings = |page: &crate::harness::Html| page.text.contains("Settings");
    assert!(!settings(&Browser::with_token(&bench, "manage").await.page("/server").await));
}
