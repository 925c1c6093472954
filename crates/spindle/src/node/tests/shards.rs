//! Queues on several logs.

use std::collections::BTreeSet;

use bytes::Bytes;
use spindle_router::Placement;
use spindle_testkit::{Certificates, TokensFile};
use spindle_tls::ServerFiles;
use spindle_workq::client::Client;
use spindle_workq::wire::{NewJob, Uuid};

use super::*;

const SHARDS: u8 = 3;

fn logs() -> Vec<SharedMemoryLog> {
    (0..SHARDS).map(|_| SharedMemoryLog::new()).collect()
}

/// A queue on each shard, by shard.
fn queues() -> Vec<String> {
    let of = |shard| {
        let mut names = (0..).map(|number| format!("queue-{number}"));
        names.find(|name| Placement::over(SHARDS).of(name.as_bytes()).0 == shard).unwrap()
    };
    (0..SHARDS).map(of).collect()
}

fn are_ready(servers: &[&Server]) {
    for server in servers {
        wait_until("each shard has a leader", || server.is_ready_as("ok"));
    }
}

/// The shards that a server leads, by what it says itself.
fn led_by(server: &Server) -> BTreeSet<u64> {
    let (_, cluster) = server.answer("GET /api/v1/cluster", &Value::Null);
    let leads = |shard: &&Value| shard["leader"] == json!(server.name);
    let shards = cluster["shards"].as_array().unwrap().iter();
    shards.filter(leads).map(|shard| shard["shard"].as_u64().unwrap()).collect()
}

#[test]
fn clients_of_any_node_reach_queues_on_all_shards_whoever_leads_them() {
    reach_queues_on_all_shards(&[]);
}

#[test]
fn and_so_they_do_when_nodes_encrypt_what_they_hand_on() {
    let certificates = Certificates::new();
    let ServerFiles { certificate, key, .. } = certificates.server();
    let files =
        [("TLS_CERT", certificate), ("TLS_KEY", key), ("CLUSTER_CA_FILE", certificates.ca())];
    reach_queues_on_all_shards(&files.map(|(name, file)| (name, file.display().to_string())));
}

fn reach_queues_on_all_shards(settings: &[(&'static str, String)]) {
    let logs = logs();
    let mut one = Server::start_with(&logs, "one", settings);
    are_ready(&[&one]);
    assert_eq!(led_by(&one).len(), usize::from(SHARDS));
    let mut two = Server::start_with(&logs, "two", settings);
    are_ready(&[&one, &two]);
    let mut ids = Vec::new();
    for (queue, shard) in queues().iter().zip(0_u64..) {
        let (status, job) = two.answer("POST /api/v1/jobs", &json!({ "queue": queue }));
        assert_eq!(status, 201, "{job}");
        let id = job["id"].as_u64().unwrap();
        assert_eq!(id >> 45, shard, "its id says where it is");
        ids.push(id);
    }
    for server in [&one, &two] {
        for id in &ids {
            let found = server.answer(&format!("GET /api/v1/jobs/{id}"), &Value::Null);
            assert_eq!(found.0, 200, "{}", found.1);
        }
        let (_, listed) = server.answer("GET /api/v1/jobs", &Value::Null);
        let listed = listed["jobs"].as_array().unwrap().iter();
        let listed: BTreeSet<u64> = listed.map(|job| job["id"].as_u64().unwrap()).collect();
        assert_eq!(listed, ids.iter().copied().collect());
    }
    // One that goes in order hands its shards over, with all that was acknowledged.
    assert_eq!(one.end(), Code::Ok);
    are_ready(&[&two]);
    assert_eq!(led_by(&two).len(), usize::from(SHARDS));
    for id in &ids {
        assert_eq!(two.answer(&format!("GET /api/v1/jobs/{id}"), &Value::Null).0, 200);
    }
    assert_eq!(two.end(), Code::Ok);
}

#[test]
fn jobqs_lists_and_polls_are_about_the_jobs_of_all_shards() {
    let logs = logs();
    let mut server = Server::start_on(&logs, "one");
    are_ready(&[&server]);
    let mut ids = Vec::new();
    for (number, queue) in queues().iter().rev().enumerate() {
        let create = format!("POST /api/v0/job/create?queue={queue}");
        let body = json!({ "payload": number, "state": ["NEW"] });
        let (status, job) = server.answer(&create, &body);
        assert_eq!(status, 200, "{job}");
        ids.push(job["id"].as_u64().unwrap());
    }
    // Jobs are listed in the order of their numbers.
    ids.reverse();
    let listed = |server: &Server, request: &str, body: &Value| {
        let (status, listed) = server.answer(request, body);
        assert_eq!(status, 200, "{listed}");
        let jobs = listed["jobs"].as_array().unwrap().iter();
        jobs.map(|job| job["id"].as_u64().unwrap()).collect::<Vec<u64>>()
    };
    assert_eq!(listed(&server, "GET /jobq/newest/api/v0/job", &Value::Null), ids);
    let of = |query: Value, limit: u64| json!({ "query": query, "limit": limit });
    let list = "POST /api/v0/job";
    assert_eq!(listed(&server, list, &of(json!([]), 2)), ids[..2]);
    assert_eq!(listed(&server, list, &of(json!([[">", "id", ids[1]]]), 2)), ids[2..]);
    assert_eq!(listed(&server, list, &of(json!([]), 0)), [0; 0]);
    let (status, refused) = server.answer(list, &json!({ "query": [["?", "id", 1]] }));
    assert_eq!((status, &refused["code"]), (400, &json!("bad_query")), "{refused}");

    // Each poll takes another one, on whichever shard it is.
    let poll = json!({ "query": [["IS", "state", ["NEW"]]], "state": ["TAKEN"] });
    let mut taken: Vec<u64> = Vec::new();
    for _ in &ids {
        let (status, job) = server.answer("POST /api/v0/job/poll", &poll);
        assert_eq!((status, &job["state"]), (200, &json!(["TAKEN"])), "{job}");
        taken.push(job["id"].as_u64().unwrap());
    }
    taken.sort_unstable();
    assert_eq!(taken, ids);
    let (status, none) = server.answer("POST /api/v0/job/poll", &poll);
    assert_eq!((status, &none["code"]), (404, &json!("no_match")));

    // LightJQ's clients look at jobs where they are, too.
    for id in &ids {
        let (status, job) = server.answer(&format!("GET /job/{id}"), &Value::Null);
        assert_eq!(status, 200, "{job}");
    }
    assert_eq!(server.answer(&format!("DELETE /job/{}", ids[2]), &Value::Null).0, 204);
    assert_eq!(server.answer(&format!("GET /api/v1/jobs/{}", ids[2]), &Value::Null).0, 404);
    assert_eq!(server.end(), Code::Ok);
}

fn job(id: Uuid, queue: &str) -> NewJob {
    NewJob {
        id,
        name: Bytes::copy_from_slice(queue.as_bytes()),
        ttr_ms: 60_000,
        ttl_ms: 60_000,
        priority: 0,
        attempts_max: 0,
        fails_max: 0,
        payload: Bytes::from_static(b"hello"),
    }
}

#[test]
fn a_worker_of_workq_waits_at_several_shards_through_any_node() {
    let logs = logs();
    let mut one = Server::start_on(&logs, "one");
    are_ready(&[&one]);
    let mut two = Server::start_on(&logs, "two");
    are_ready(&[&one, &two]);
    let queues = queues();
    let mut worker = Client::connect(&*two.workq, PATIENCE).unwrap();
    let mut client = Client::connect(&*one.workq, PATIENCE).unwrap();
    for (queue, number) in queues.iter().zip(1_u8..) {
        let id = Uuid::from_bytes([number; 16]);
        let leased = thread::scope(|scope| {
            let waits = scope.spawn(|| worker.lease(&queues, 60_000).unwrap());
            client.add(&job(id, queue)).unwrap();
            waits.join().unwrap()
        });
        assert_eq!((leased.id, &*leased.name), (id, queue.as_bytes()));
        worker.complete(id, Bytes::new()).unwrap();
    }
    drop((worker, client));
    assert_eq!((one.end(), two.end()), (Code::Ok, Code::Ok));
}

#[test]
fn a_server_that_means_another_number_of_shards_ends_and_says_why() {
    let logs = logs();
    let mut one = Server::start_on(&logs, "one");
    are_ready(&[&one]);
    for (meant, name) in [(&logs[..2], "fewer"), (&logs[..1], "none")] {
        let error = Server::start_on(meant, name).ended().unwrap_err();
        let said = exit::whole(&error);
        assert!(said.contains("it is shard 0 of 3, counted from 0"), "{said}");
    }
    are_ready(&[&one]);
    assert_eq!(one.end(), Code::Ok);
}

/// What the map says of a queue that was moved: its shard, and the one that drains.
fn moved(server: &Server, queue: &str) -> Option<(u64, Option<u64>)> {
    let (_, cluster) = server.answer("GET /api/v1/cluster", &Value::Null);
    let moved = cluster["moved"].as_array()?.iter().find(|it| it["name"] == queue)?;
    Some((moved["shard"].as_u64()?, moved["drains"].as_u64()))
}

#[test]
fn a_queue_moves_to_another_shard_while_jobs_come_and_are_worked() {
    let logs = logs();
    let mut one = Server::start_on(&logs, "one");
    are_ready(&[&one]);
    let mut two = Server::start_on(&logs, "two");
    are_ready(&[&one, &two]);
    let queue = queues().swap_remove(1);
    let mut client = Client::connect(&*one.workq, PATIENCE).unwrap();
    let mut worker = Client::connect(&*two.workq, PATIENCE).unwrap();
    let [held, waiting, later] = [1, 2, 3].map(|number| Uuid::from_bytes([number; 16]));
    client.add(&job(held, &queue)).unwrap();
    assert_eq!(worker.lease(&[&queue], 1_000).unwrap().id, held);
    client.add(&job(waiting, &queue)).unwrap();
    let settings = format!("/api/v1/queues/{queue}/settings");
    let set = one.answer(&format!("PUT {settings}"), &json!({ "ttr_default_ms": 77_000 }));
    assert_eq!(set.0, 200, "{}", set.1);

    let (status, said) =
        two.answer(&format!("POST /api/v1/queues/{queue}/move?to=2"), &Value::Null);
    assert_eq!((status, &said), (202, &json!({ "name": queue, "shard": 2, "drains": 1 })));
    let mut new = Vec::new();
    wait_until("new jobs come to the other shard", || {
        let (status, job) = one.answer("POST /api/v1/jobs", &json!({ "queue": queue }));
        assert_eq!(status, 201, "{job}");
        new.push(job["id"].as_u64().unwrap());
        new.last().unwrap() >> 45 == 2
    });
    for server in [&one, &two] {
        assert_eq!(moved(server, &queue), Some((2, Some(1))));
        let mut client = Client::connect(&*server.workq, PATIENCE).unwrap();
        for taken in [held, waiting] {
            let again = client.add(&job(taken, &queue)).unwrap_err();
            assert!(again.to_string().contains("uplicate"), "{again}");
        }
    }
    client.add(&job(later, &queue)).unwrap();
    assert_eq!(one.answer(&format!("GET {settings}"), &Value::Null).1["ttr_default_ms"], 77_000);
    let back = two.answer(&format!("POST /api/v1/queues/{queue}/move?to=0"), &Value::Null);
    assert_eq!((back.0, &back.1["code"]), (503, &json!("busy")));
    let (_, shown) = two.answer(&format!("GET /api/v1/queues/{queue}"), &Value::Null);
    let unfinished = (shown["jobs"]["ready"].as_u64(), shown["jobs"]["leased"].as_u64());
    assert_eq!(unfinished, (Some(new.len() as u64 + 2), Some(1)), "of both shards");

    // One worker gets the jobs of both, and what it has is where it was.
    let mut leased = BTreeSet::from([held]);
    for _ in 0..new.len() + 2 {
        leased.insert(worker.lease(&[&queue], 5_000).unwrap().id);
    }
    assert!(leased.contains(&waiting) && leased.contains(&later));
    for id in &leased {
        worker.complete(*id, Bytes::new()).unwrap();
        worker.delete(*id).unwrap();
    }
    wait_until("it has moved", || moved(&one, &queue) == Some((2, None)));
    client.add(&job(held, &queue)).unwrap();
    let (_, listed) = two.answer(&format!("GET /api/v1/jobs?queue={queue}"), &Value::Null);
    let on = |job: &Value| job["id"].as_u64().unwrap() >> 45;
    assert_eq!(listed["jobs"].as_array().unwrap().iter().map(on).collect::<Vec<_>>(), [2]);
    let (_, audit) = two.answer("GET /api/v1/audit?action=move_queue", &Value::Null);
    let entry = &audit["entries"][0];
    assert_eq!((&entry["queue"], &entry["detail"]), (&json!(queue), &json!("to shard 2")));

    // Home again, by another node, after a restart.
    drop((client, worker));
    assert_eq!(one.end(), Code::Ok);
    are_ready(&[&two]);
    let (status, said) =
        two.answer(&format!("POST /api/v1/queues/{queue}/move?to=1"), &Value::Null);
    assert_eq!((status, &said["drains"]), (202, &json!(2)));
    let ready = two.answer(&format!("POST /api/v1/queues/{queue}/purge"), &Value::Null);
    assert_eq!(ready.0, 200, "{}", ready.1);
    wait_until("it is where its name says", || moved(&two, &queue).is_none());
    let (_, job) = two.answer("POST /api/v1/jobs", &json!({ "queue": queue }));
    assert_eq!(on(&job), 1);
    assert_eq!(two.end(), Code::Ok);
}

/// An answer as it came, to a request with these lines.
fn browse(server: &Server, head: &str, lines: &str, body: &str) -> String {
    let mut answer = String::new();
    wait_until(head, || {
        answer.clear();
        let Ok(mut stream) = TcpStream::connect(&server.http) else { return false };
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let (host, length) = (&server.http, body.len());
        let sent = write!(
            stream,
            "{head} HTTP/1.1\r\nHost: {host}\r\n{lines}Accept: text/html, */*;q=0.1\r\nContent-Length: {length}\r\n\
             Connection: close\r\n\r\n{body}"
        );
        // Connections end when the lead changes.
        sent.is_ok() && stream.read_to_string(&mut answer).is_ok() && !answer.is_empty()
    });
    answer
}

/// What stands between two texts.
fn between<'a>(text: &'a str, before: &str, behind: &str) -> &'a str {
    let from = text.find(before).unwrap_or_else(|| panic!("no {before} in {text}")) + before.len();
    let to = text[from..].find(behind).unwrap_or_else(|| panic!("no {behind} in {text}"));
    &text[from..from + to]
}

#[test]
fn pages_show_the_queues_of_all_shards_to_whoever_has_logged_in() {
    let logs = logs();
    let tokens = TokensFile::of_all_roles();
    let path = tokens.path().to_str().unwrap().to_owned();
    let (is_required, off) = ("true".to_owned(), "off".to_owned());
    let more = [("TOKENS", path), ("REQUIRE_AUTH", is_required), ("JOBD_MASTER", off)];
    let mut one = Server::start_with(&logs, "one", &more);
    are_ready(&[&one]);
    let mut two = Server::start_with(&logs, "two", &more);
    are_ready(&[&one, &two]);
    let json = "Content-Type: application/json\r\nAuthorization: Bearer submit\r\n";
    for queue in queues() {
        let body = format!(r#"{{"queue":"{queue}"}}"#);
        let answer = browse(&two, "POST /api/v1/jobs", json, &body);
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    }
    let refused = browse(&two, "GET /queues", "", "");
    assert!(refused.starts_with("HTTP/1.1 303") && refused.contains("/login"), "{refused}");
    let log_in = |server: &Server, token: &str| {
        let page = browse(server, "GET /login", "", "");
        let visit = between(&page, "spindle_visit=", ";");
        let seal = between(&page, "name=\"form_token\" value=\"", "\"");
        let lines = format!(
            "Cookie: spindle_visit={visit}\r\nContent-Type: application/x-www-form-urlencoded\r\n\
             Sec-Fetch-Site: same-origin\r\n"
        );
        let begun =
            browse(server, "POST /login", &lines, &format!("form_token={seal}&token={token}"));
        format!("Cookie: spindle_session={}\r\n", between(&begun, "spindle_session=", ";"))
    };
    for server in [&one, &two] {
        let session = log_in(server, "read");
        let page = browse(server, "GET /queues", &session, "");
        for queue in queues() {
            assert!(page.contains(&queue), "{queue} in {page}");
        }
        let one_of_many = format!("GET /queue?queue={}", queues()[2]);
        let page = browse(server, &one_of_many, &session, "");
        assert!(page.starts_with("HTTP/1.1 200"), "{page}");
        // What its token may not do, a shard refuses, and says so on a page.
        let refused = browse(server, "GET /audit", &session, "");
        assert!(refused.starts_with("HTTP/1.1 403"), "{refused}");
    }
    assert_eq!((one.end(), two.end()), (Code::Ok, Code::Ok));
}

#[test]
fn what_a_router_refuses_itself_counts_for_whoever_asked() {
    let logs = logs();
    let tokens = TokensFile::of_all_roles();
    let path = tokens.path().to_str().unwrap().to_owned();
    let mut one =
        Server::start_with(&logs, "one", &[("TOKENS", path), ("TOKEN_REQUESTS_MAX", "1".into())]);
    are_ready(&[&one]);
    let lines = "Authorization: Bearer submit\r\nOrigin: https://evil.example\r\n";
    let mut answers = (0..50).map(|_| browse(&one, "POST /api/v1/jobs", lines, "{}"));
    assert!(answers.next().unwrap().starts_with("HTTP/1.1 403"));
    assert!(answers.any(|answer| answer.starts_with("HTTP/1.1 429")));
    assert_eq!(one.end(), Code::Ok);
}
