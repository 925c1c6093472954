//! Access to routes, at each of their addresses: every route against every role, and against queues
//! of others.

use std::collections::BTreeSet;

use axum::http::Method;
use spindle_access::Role;
use spindle_core::audit::{Actor, ActorKind};
use spindle_core::job::Origin;
use spindle_jobq::Options;
use spindle_testkit::{Audited, TokensFile, is_enough};

use crate::harness::{Bench, Reply};

/// What a request is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum About {
    Queue,
    Job,
    All,
}

type Row = (Method, &'static str, Role, About, &'static str);

const TABLE: &[Row] = &[
    (Method::GET, "/job", Role::Inspect, About::All, ""),
    (Method::POST, "/job", Role::Inspect, About::All, "{}"),
    (Method::POST, "/job/create?queue={queue}", Role::Submit, About::Queue, "{}"),
    (
        Method::POST,
        "/job/poll",
        Role::Work,
        About::All,
        r#"{"query":[["=","id",0]],"state":["X"]}"#,
    ),
    (Method::GET, "/job/{id}", Role::Inspect, About::Job, ""),
    (Method::DELETE, "/job/{id}", Role::Manage, About::Job, ""),
    (Method::POST, "/job/{id}/state", Role::Work, About::Job, r#"["X"]"#),
    (Method::POST, "/job/{id}/event", Role::Work, About::Job, r#"["X"]"#),
];

const ADDRESSES: [&str; 3] = ["/api/v0", "/jobq/first/api/v0", "/jobq/newest/api/v0"];

fn guarded(is_required: bool) -> Bench {
    let access = TokensFile::of_all_roles().access(is_required);
    Bench::with(Options { access, ..Options::default() })
}

/// Makes the request of a row about a queue, or a job of it that is there for that.
async fn asked(bench: &Bench, token: Option<&str>, at: &str, row: &Row, queue: &str) -> Reply {
    let (method, path, _, about, body) = row;
    let mut job = String::new();
    if *about == About::Job {
        let path = format!("/api/v0/job/create?queue={queue}");
        let created = bench.send_as("admin", Method::POST, &path, "{}").await;
        job = created.json()["id"].to_string();
    }
    let path = format!("{at}{}", path.replace("{queue}", queue).replace("{id}", &job));
    match token {
        Some(token) => bench.send_as(token, method.clone(), &path, body).await,
        None => bench.send(method.clone(), &path, *body).await,
    }
}

/// The methods and paths that the door's own table of routes has.
fn routes() -> BTreeSet<(String, String)> {
    let source = include_str!("../../src/router.rs");
    let source = source.split(".method_not_allowed_fallback(").next().unwrap();
    let mut routes = BTreeSet::new();
    for route in source.split(".route(").skip(1) {
        let route = route.split(".layer(").next().unwrap();
        let path = route.split('"').nth(1).unwrap().trim_start_matches("/api/v0").to_owned();
        let handlers = route.split("(routes::").collect::<Vec<_>>();
        for pair in handlers.windows(2).filter(|pair| !pair[1].starts_with("nothing_here")) {
            let method = pair[0].rsplit(|letter: char| !letter.is_alphabetic()).next().unwrap();
            routes.insert((method.to_uppercase(), path.clone()));
        }
    }
    routes
}

#[test]
fn every_route_is_in_the_table() {
    let rows = TABLE.iter().map(|(method, path, ..)| {
        let path = path.split('?').next().unwrap();
        (method.to_string(), path.to_owned())
    });
    assert_eq!(rows.collect::<BTreeSet<_>>(), routes());
}

#[tokio::test]
async fn every_route_takes_the_roles_it_should_and_no_others() {
    let bench = guarded(true);
    for (at, row) in ADDRESSES.into_iter().flat_map(|at| TABLE.iter().map(move |row| (at, row))) {
        for had in Role::ALL {
            for token in [had.name().to_owned(), format!("mine.{had}")] {
                let reply = asked(&bench, Some(&token), at, row, "mine.a").await;
                let is_limited = token.starts_with("mine");
                let enough = is_enough(*had, row.2) && !(is_limited && row.3 == About::All);
                let status = reply.status.as_u16();
                assert_eq!(status != 403, enough, "{at} {row:?} as {token}: {reply:?}");
                assert!(status != 401 && status < 500, "{at} {row:?} as {token}: {reply:?}");
            }
        }
        for token in [None, Some(""), Some("wrong"), Some("expired")] {
            let reply = asked(&bench, token, at, row, "mine.a").await;
            assert_eq!(reply.status.as_u16(), 401, "{at} {row:?} {token:?}: {reply:?}");
            assert_eq!(reply.header("www-authenticate"), "Bearer realm=\"spindle\"");
        }
    }
    let refused = bench.get("/api/v0/job").await;
    refused.is_refused(401, "unauthorized");
    bench.send_as("work", Method::GET, "/api/v0/job", "").await.is_refused(403, "forbidden");
    // The original's errors are text.
    let text = bench.get("/jobq/newest/api/v0/job").await;
    assert_eq!(text.header("content-type"), "text/plain; charset=utf-8");
}

#[tokio::test]
async fn what_is_in_queues_of_others_is_refused_or_not_there() {
    let bench = guarded(false);
    for row in TABLE {
        let reply = asked(&bench, Some("mine.admin"), "/api/v0", row, "other").await;
        let expected = if row.3 == About::Job { 404 } else { 403 };
        assert_eq!(reply.status.as_u16(), expected, "{row:?}: {reply:?}");
        for token in [None, Some("admin")] {
            let reply = asked(&bench, token, "/api/v0", row, "other").await;
            assert_eq!(reply.status == 404, row.1 == "/job/poll", "{row:?}: {reply:?}");
            assert!(![401, 403].contains(&reply.status.as_u16()), "{row:?}: {reply:?}");
        }
    }
}

#[tokio::test]
async fn who_deletes_is_in_the_audit_log_and_no_other_request_is() {
    let bench = guarded(true);
    let admin = Actor::new(ActorKind::Token, "admin", "", Origin::Jobq);
    for (at, row) in ADDRESSES.into_iter().flat_map(|at| TABLE.iter().map(move |row| (at, row))) {
        for (token, is_allowed) in [("admin", true), ("inspect", false)] {
            let audited = Audited::from_now(&bench.engine);
            asked(&bench, Some(token), at, row, "mine.a").await;
            let manages = row.2 == Role::Manage && is_allowed;
            audited.expect(manages.then_some(&admin), &format!("{at} {row:?}"));
        }
    }
    // A job that is gone is deleted well enough, and nothing changes.
    let audited = Audited::from_now(&bench.engine);
    assert_eq!(bench.send_as("admin", Method::DELETE, "/api/v0/job/999", "").await.status, 200);
    audited.expect(None, "a job that is not there");
}

#[tokio::test]
async fn where_there_is_nothing_everybody_hears_so() {
    let bench = guarded(true);
    for path in ["/api/v0/none", "/api/v0/job/create"] {
        assert_eq!(bench.get(path).await.status, 404, "{path}");
    }
}
