//! Jobq's own clients, both generations of them: what they send, and how they read every answer.
//! Each reader here is as strict as the client's: it fails where the client would raise.

use axum::http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::harness::{Bench, Reply};

/// An address a client is given, behind the server's own.
#[derive(Clone, Copy)]
struct Client<'a> {
    bench: &'a Bench,
    base: &'static str,
}

/// What the first version makes of a job in a list, a poll or a create.
#[derive(Clone, PartialEq, Debug)]
struct Dehydrated {
    id: u64,
    state: Value,
}

/// What it makes of a job that it names: exactly these, or it fails.
#[derive(Clone, PartialEq, Debug)]
struct Hydrated {
    id: u64,
    state: Value,
    payload: Value,
    events: Value,
}

/// What the newest makes of every job. It passes over what it does not know.
#[derive(Clone, PartialEq, Debug)]
struct Job {
    id: u64,
    payload: Value,
    events: Value,
    state: Value,
    modified: u64,
}

/// A key of an object, as `obj["key"]` reads it.
fn key(job: &Value, name: &str) -> Value {
    job.get(name).unwrap_or_else(|| panic!("KeyError: {name}: {job}")).clone()
}

impl Dehydrated {
    fn read(job: &Value) -> Dehydrated {
        Dehydrated { id: key(job, "id").as_u64().unwrap(), state: key(job, "state") }
    }
}

impl Hydrated {
    /// As `HydratedJob(url=..., **job)` takes it.
    fn read(job: &Value) -> Hydrated {
        const FIELDS: [&str; 4] = ["events", "id", "payload", "state"];
        for name in job.as_object().unwrap().keys() {
            assert!(FIELDS.contains(&&**name), "TypeError: unexpected {name}: {job}");
        }
        Hydrated {
            id: key(job, "id").as_u64().unwrap(),
            state: key(job, "state"),
            payload: key(job, "payload"),
            events: key(job, "events"),
        }
    }
}

impl Job {
    fn read(job: &Value) -> Job {
        Job {
            id: key(job, "id").as_u64().unwrap(),
            payload: key(job, "payload"),
            events: key(job, "events"),
            state: key(job, "state"),
            modified: key(job, "modified").as_u64().expect("a time is a number"),
        }
    }
}

impl Client<'_> {
    async fn send(&self, method: Method, path: &str, body: &Value) -> Reply {
        // The library sends no body for None.
        let body = if body.is_null() { String::new() } else { body.to_string() };
        self.bench.send(method, &format!("{}/api/v0/job{path}", self.base), body).await
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        let reply = self.send(Method::POST, path, &body).await;
        assert_eq!(reply.status, StatusCode::OK, "{path} {body}: {}", reply.text());
        reply.json()
    }

    async fn jobs(&self, query: Value, limit: Value) -> Vec<Value> {
        let listed = self.post("", json!({"query": query, "limit": limit})).await;
        key(&listed, "jobs").as_array().unwrap().clone()
    }

    async fn poll(&self, query: Value, state: Value) -> Value {
        self.post("/poll", json!({"query": query, "state": state})).await
    }

    async fn delete(&self, id: u64) {
        let reply = self.send(Method::DELETE, &format!("/{id}"), &Value::Null).await;
        assert_eq!(reply.status, StatusCode::OK);
    }
}

fn created() -> Value {
    json!([["=", "json_extract(j.state, '$[0]')", "'CREATED'"]])
}

/// Every method of the first version, in the order its users call them.
async fn use_first_version(client: Client<'_>, create: impl Fn(Value) -> Value) {
    let payload = json!({"msg": "Hello", "n": [1, 2.5, null]});
    let job = Dehydrated::read(&client.post("/create", create(payload.clone())).await);
    assert_eq!(job.state, json!(["CREATED"]));
    for (query, limit) in [(json!([]), json!(10)), (created(), json!(10)), (json!([]), json!(null))]
    {
        let jobs: Vec<_> = client.jobs(query, limit).await.iter().map(Dehydrated::read).collect();
        assert_eq!(jobs, std::slice::from_ref(&job));
    }
    let node = json!(["ASSIGNED", {"node": 1}]);
    let polled = Dehydrated::read(&client.poll(created(), node.clone()).await);
    assert_eq!(polled, Dehydrated { id: job.id, state: node });
    let path = format!("/{}", job.id);
    let fetched = Hydrated::read(&client.send(Method::GET, &path, &Value::Null).await.json());
    assert_eq!((&fetched.payload, &fetched.state), (&payload, &polled.state));
    let state = json!({"old": polled.state, "new": ["DONE"]});
    let advanced = Hydrated::read(&client.post(&format!("{path}/state"), state).await);
    assert_eq!((advanced.id, &advanced.state), (job.id, &json!(["DONE"])));
    let noted = Hydrated::read(&client.post(&format!("{path}/event"), json!(["cool"])).await);
    assert_eq!(noted.events.as_array().unwrap().len(), 4);
    assert_eq!(noted.events[3][1]["event"], json!(["cool"]));
    client.delete(job.id).await;
}

/// Every method of the newest one that makes a request of the jobs it was given.
async fn use_newest(client: Client<'_>) {
    let payload = json!({"msg": "Hello", "n": [1, 2.5, null]});
    // It sends a state always.
    let body = json!({"payload": payload, "state": null});
    let job = Job::read(&client.post("/create", body).await);
    assert_eq!((&job.payload, &job.state), (&payload, &Value::Null));
    let body = json!({"payload": payload, "state": ["CREATED"]});
    let other = Job::read(&client.post("/create", body).await);
    let jobs: Vec<_> = client.jobs(json!([]), json!(10)).await.iter().map(Job::read).collect();
    assert_eq!(jobs, [job.clone(), other.clone()]);
    let polled = Job::read(&client.poll(created(), json!(["ASSIGNED"])).await);
    assert_eq!(
        (polled.id, &polled.state, &polled.payload),
        (other.id, &json!(["ASSIGNED"]), &payload)
    );
    assert_eq!(polled.events.as_array().unwrap().len(), 2);
    for id in [job.id, other.id] {
        let noted = Job::read(&client.post(&format!("/{id}/event"), json!(["cool"])).await);
        assert_eq!((noted.id, &noted.payload), (id, &payload));
        assert!(noted.modified >= job.modified);
        client.delete(id).await;
    }
}

#[tokio::test]
async fn every_method_of_the_first_version_reads_its_answer() {
    let bench = Bench::new();
    for base in ["", "/jobq/first"] {
        use_first_version(Client { bench: &bench, base }, |payload| payload).await;
    }
    assert_eq!(bench.matches("[]").await, [0; 0]);
}

/// Its later versions create as the newest does, and read as the first. At the address of all, an
/// event tells them from nobody.
#[tokio::test]
async fn every_method_of_the_last_of_the_first_generation_reads_its_answer_at_its_own_address() {
    let bench = Bench::new();
    let create = |payload| json!({"payload": payload, "state": ["CREATED"]});
    use_first_version(Client { bench: &bench, base: "/jobq/first" }, create).await;
}

#[tokio::test]
async fn every_method_of_the_newest_reads_its_answer() {
    let bench = Bench::new();
    for base in ["", "/jobq/newest"] {
        use_newest(Client { bench: &bench, base }).await;
    }
    assert_eq!(bench.matches("[]").await, [0; 0]);
}

/// Two methods of the newest fail before they send anything, unless they are handed something else
/// than its own jobs. At its own address those read their answers too.
#[tokio::test]
async fn at_the_address_of_the_newest_every_answer_has_all_it_reads() {
    let bench = Bench::new();
    let id = bench.create("{\"bare\": 1}").await;
    let client = Client { bench: &bench, base: "/jobq/newest" };
    let path = format!("/{id}");
    let fetched = Job::read(&client.send(Method::GET, &path, &Value::Null).await.json());
    let state = json!({"old": ["CREATED"], "new": ["DONE"]});
    let advanced = Job::read(&client.post(&format!("{path}/state"), state).await);
    let noted = Job::read(&client.post(&format!("{path}/event"), json!(1)).await);
    assert_eq!([fetched.id, advanced.id, noted.id], [id; 3]);
}

#[tokio::test]
async fn how_a_job_was_created_tells_the_clients_apart_also_after_a_restart_and_many_events() {
    let bench = Bench::new();
    let bare = bench.create("{\"msg\": 1}").await;
    let newest = bench.create("{\"payload\": 1, \"state\": null}").await;
    let half = bench.create("{\"payload\": 1}").await;
    for id in [bare, newest] {
        for _ in 0..3 {
            let event = format!("\"{}\"", "x".repeat(200 * 1024));
            bench.ok(&format!("/api/v0/job/{id}/event"), &event).await;
        }
    }
    let bench = bench.restarted();
    let note = async |id: u64| bench.ok(&format!("/api/v0/job/{id}/event"), "1").await;
    Hydrated::read(&note(bare).await);
    Hydrated::read(&note(half).await);
    let job = Job::read(&note(newest).await);
    assert_eq!(job.events.as_array().unwrap().len(), 5);
    assert_eq!(job.events[0][0], "job_created");
}

/// The clients read errors as JSON too. Where the address says whose they are, that fails as it did
/// with the original's errors, which its users catch; `KeyError` they do not.
#[tokio::test]
async fn errors_are_no_json_at_the_clients_own_addresses() {
    let bench = Bench::new();
    bench.create("1").await;
    for base in ["/jobq/first", "/jobq/newest"] {
        let client = Client { bench: &bench, base };
        let none = json!({"query": [["=", "id", 0]], "state": 1});
        for (method, path, body, status) in [
            (Method::POST, "/poll", none, 404),
            (Method::GET, "/99", Value::Null, 404),
            (Method::POST, "/1/state", json!({"old": 1, "new": 2}), 409),
            (Method::POST, "/99/event", json!(1), 404),
            (Method::POST, "/1/event", Value::Null, 400),
            (Method::POST, "/create", Value::Null, 400),
            (Method::POST, "", json!({"query": 5}), 400),
            (Method::PUT, "", json!({}), 405),
            (Method::GET, "/1/2/3", Value::Null, 404),
        ] {
            let reply = client.send(method, path, &body).await;
            assert_eq!(reply.status, status, "{path} {}", reply.text());
            assert_eq!(reply.headers["content-type"], "text/plain; charset=utf-8", "{path}");
            assert!(
                reply.text().len() > 10 && serde_json::from_str::<Value>(reply.text()).is_err()
            );
        }
    }
}
