//! Access to routes: every route against every role, and against job names of others.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};
use spindle_access::{Look, Role};
use spindle_core::audit::{Actor, ActorKind};
use spindle_core::job::Origin;
use spindle_engine::Peer;
use spindle_testkit::{Audited, TokensFile, is_enough};

use crate::harness::{Bench, Reply, ask, by, packed};

/// What a request is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum About {
    /// A job's name.
    Name,
    /// A job.
    Job,
    /// All.
    All,
    /// What its worker said when it was registered.
    Worker,
}

type Row = (&'static str, &'static str, Role, About);

const TABLE: &[Row] = &[
    ("POST", "/job", Role::Submit, About::Name),
    ("GET", "/job/{id}", Role::Inspect, About::Job),
    ("DELETE", "/job/{id}", Role::Manage, About::Job),
    ("GET", "/job/{id}/polling", Role::Inspect, About::Job),
    ("POST", "/worker", Role::Work, About::Name),
    ("DELETE", "/worker", Role::Work, About::Worker),
    ("GET", "/worker/job", Role::Work, About::Worker),
    ("POST", "/done", Role::Work, About::Job),
    ("PUT", "/constraint/{name}", Role::Manage, About::All),
    ("GET", "/constraint/{name}", Role::Read, About::All),
    ("DELETE", "/constraint/{name}", Role::Manage, About::All),
];

fn guarded(tokens: &TokensFile, is_required: bool) -> Bench {
    let access = tokens.access(is_required);
    Bench::with(|options| options.access = access)
}

/// A request of a route as a token, about a name or a job of it that is there for that.
async fn prepared(bench: &Bench, row: Row, token: &str, name: &str) -> Request<Body> {
    let (method, path, _, about) = row;
    let mut job = String::new();
    if about == About::Job {
        let new = packed("POST", "/job", None, &json!({ "name": name, "argument": {} }));
        job = bench.send_as("admin", new).await.body()["job_id"].as_str().unwrap().to_owned();
    }
    let mut worker = None;
    if about == About::Worker || path == "/done" {
        let new = json!({ "name": "w", "max_jobs": 1, "names": [name] });
        let registered = bench.send_as(token, packed("POST", "/worker", None, &new)).await.body();
        let nobody = "3b241101-e2bb-4255-8caf-4136c566a962";
        worker = Some(registered["worker_id"].as_str().unwrap_or(nobody).to_owned());
    }
    let path = path.replace("{id}", &job).replace("{name}", "c");
    let path = match row.1 {
        "/job/{id}/polling" | "/worker/job" => path + "?timeout=0",
        _ => path,
    };
    let body = match row.1 {
        "/job" => json!({ "name": name, "argument": {} }),
        "/worker" if method == "POST" => {
            json!({ "name": "w", "max_jobs": 1, "names": [name] })
        }
        "/done" => json!({ "job_id": job, "status": "success", "result": null,
            "finished_at": "2026-01-02T03:04:05Z" }),
        "/constraint/{name}" if method == "PUT" => json!({ "running_max": 1 }),
        _ => {
            let request = ask(method, &path);
            return if let Some(worker) = worker { by(request, &worker) } else { request };
        }
    };
    packed(method, &path, worker.as_deref(), &body)
}

#[test]
fn every_route_is_in_the_table() {
    let document: Value = serde_json::from_str(Bench::new().door.openapi()).unwrap();
    let mut described = BTreeSet::new();
    for (path, operations) in document["paths"].as_object().unwrap() {
        let methods = operations.as_object().unwrap().keys();
        described.extend(methods.map(|method| (method.to_uppercase(), path.clone())));
    }
    let rows = TABLE.iter().map(|(method, path, ..)| ((*method).to_owned(), (*path).to_owned()));
    assert_eq!(rows.collect::<BTreeSet<_>>(), described);
}

#[tokio::test]
async fn what_people_change_is_in_the_audit_log_and_nothing_else_is() {
    let bench = guarded(&TokensFile::of_all_roles(), true);
    let admin = Actor::new(ActorKind::Token, "admin", "192.0.2.7", Origin::Lightjq);
    for row in TABLE {
        for (token, is_allowed) in [("work", false), ("admin", true)] {
            let mut request = prepared(&bench, *row, token, "mine.a").await;
            let peer = Peer::plain(([192, 0, 2, 7], 4711).into());
            request.extensions_mut().insert(peer);
            let audited = Audited::from_now(&bench.engine);
            bench.send_as(token, request).await;
            let manages = row.2 == Role::Manage && is_allowed;
            audited.expect(manages.then_some(&admin), &format!("{row:?}"));
        }
    }
}

#[tokio::test]
async fn every_route_takes_the_roles_it_should_and_no_others() {
    let bench = guarded(&TokensFile::of_all_roles(), true);
    for row in TABLE {
        for had in Role::ALL {
            for token in [had.name().to_owned(), format!("mine.{had}")] {
                let request = prepared(&bench, *row, &token, "mine.a").await;
                let reply = bench.send_as(&token, request).await;
                let is_limited = token.starts_with("mine");
                let enough = is_enough(*had, row.2) && !(is_limited && row.3 == About::All);
                let status = reply.status.as_u16();
                assert_eq!(status != 403, enough, "{row:?} as {token}: {reply:?}");
                assert!(status != 401 && status < 500, "{row:?} as {token}: {reply:?}");
            }
        }
        for token in ["", "expired", "wrong"] {
            let request = prepared(&bench, *row, token, "mine.a").await;
            let reply = bench.send_as(token, request).await;
            reply_is_a_problem(&reply, 401, "unauthorized");
        }
        let request = prepared(&bench, *row, "admin", "mine.a").await;
        reply_is_a_problem(&bench.send(request).await, 401, "unauthorized");
    }
    bench.get("/lightjq/openapi.json").await.is(200);
}

#[track_caller]
fn reply_is_a_problem(reply: &Reply, status: u16, code: &str) {
    reply.is_problem(status, code);
    assert_eq!(reply.header("www-authenticate"), "Bearer realm=\"spindle\"");
}

#[tokio::test]
async fn what_others_have_is_refused_or_not_there() {
    let bench = guarded(&TokensFile::of_all_roles(), true);
    for row in TABLE {
        let reply =
            bench.send_as("mine.admin", prepared(&bench, *row, "admin", "other").await).await;
        let expected = match row.3 {
            About::Name | About::All => 403,
            // The worker belongs to another client.
            About::Job | About::Worker => 404,
        };
        assert_eq!(reply.status.as_u16(), expected, "{row:?}: {reply:?}");
    }
    // A worker that takes all names there are needs all of them.
    let all = packed("POST", "/worker", None, &json!({ "name": "w", "max_jobs": 1 }));
    bench.send_as("mine.work", all).await.is_problem(403, "forbidden");
}

#[tokio::test]
async fn a_worker_is_only_spoken_for_by_who_registered_it() {
    let tokens = TokensFile::of_all_roles();
    let access = tokens.access(true);
    let given = access.clone();
    let bench = Bench::with(|options| options.access = given);
    let new = json!({ "name": "w", "max_jobs": 1, "names": ["mine.a"] });
    let registered = bench.send_as("work", packed("POST", "/worker", None, &new)).await.body();
    let worker = registered["worker_id"].as_str().unwrap();
    let asked = || by(ask("GET", "/worker/job?timeout=0"), worker);
    bench.send_as("work", asked()).await.is(204);
    bench.send_as("admin", asked()).await.is_problem(404, "worker_not_found");
    let again = packed("POST", "/worker", Some(worker), &new);
    bench.send_as("mine.work", again).await.is_problem(404, "worker_not_found");
    // Its token was replaced by another.
    tokens.write(&TokensFile::entry("new", "work", "mine.*", ""));
    assert!(matches!(access.look_again(), Look::Read(1)));
    bench.send_as("new", packed("POST", "/worker", Some(worker), &new)).await.is(201);
    bench.send_as("new", asked()).await.is(204);
}

#[tokio::test]
async fn a_job_that_was_waited_for_goes_back_when_the_token_is_gone() {
    let tokens = TokensFile::of_all_roles();
    let access = tokens.access(false);
    let given = access.clone();
    let bench = Bench::with(|options| {
        options.access = given;
        options.sweep_every = Duration::from_secs(3600);
    });
    let new = json!({ "name": "w", "max_jobs": 1, "names": ["mine.a"] });
    let registered = bench.send_as("mine.work", packed("POST", "/worker", None, &new)).await.body();
    let worker = registered["worker_id"].as_str().unwrap();
    let next = bench.send_as("mine.work", by(ask("GET", "/worker/job?timeout=60"), worker));
    let change = async {
        bench.waits(1).await;
        tokens.write(&TokensFile::entry("other", "admin", "*", ""));
        assert!(matches!(access.look_again(), Look::Read(1)));
        bench.submit_plain("mine.a").await
    };
    let (refused, id) = tokio::join!(next, change);
    refused.is_problem(401, "unauthorized");
    bench.ready(id.parse().unwrap()).await;
}
