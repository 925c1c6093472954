//! What the log says of the commands of every door, and what it never says.

use std::{
    io::{Read, Write},
    net::TcpStream,
};

use serde_json::{Value, json};
use spindle_access::Digest;
use spindle_testkit::{HttpRequest, PATIENCE, TokensFile};

use crate::{logging::json_server, serve::Served};

/// It is in every token, password, payload and result here, and must be in no line of the log.
const MARK: &str = "hushed";

/// A conversation with a door, byte by byte.
pub struct Talk(TcpStream);

impl Talk {
    pub fn with(served: &Served, door: &str) -> Talk {
        let stream = TcpStream::connect(served.address_of(door)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Talk(stream)
    }

    /// Sends a request that has no answer.
    fn say(&mut self, request: impl AsRef<[u8]>) {
        self.0.write_all(request.as_ref()).unwrap();
    }

    /// Sends this, and reads until the answer has a part.
    #[track_caller]
    pub fn ask(&mut self, request: impl AsRef<[u8]>, part: &str) -> Vec<u8> {
        self.say(request);
        let (mut heard, mut bytes) = (Vec::new(), [0; 4096]);
        while !heard.windows(part.len()).any(|window| window == part.as_bytes()) {
            let count = self.0.read(&mut bytes).unwrap();
            assert!(count > 0, "{part:?} did not come behind {}", heard.escape_ascii());
            heard.extend_from_slice(&bytes[..count]);
        }
        heard
    }

    /// What comes until the server closes the connection.
    fn rest(mut self) {
        let _ = self.0.read_to_end(&mut Vec::new());
    }
}

/// A packet of Gearman, or one of its draft.
pub fn packet(head: &[u8], data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).unwrap().to_be_bytes();
    [head, &length, data].concat()
}

fn uses_workq(served: &Served) {
    let mut talk = Talk::with(served, "workq");
    talk.ask("auth hushed-wrong\r\n", "-CLIENT-ERROR");
    talk.ask("auth hushed-token\r\n", "+OK\r\n");
    let id = "61a444a0-6128-41c0-8078-cc757d3bd2d8";
    talk.ask(format!("add {id} mail 60000 3600000 14\r\nhushed payload\r\n"), "+OK\r\n");
    talk.ask("lease mail 1000\r\n", "hushed payload\r\n");
    talk.ask(format!("complete {id} 13\r\nhushed result\r\n"), "+OK\r\n");
    talk.ask(format!("result {id} 1000\r\n"), "hushed result\r\n");
    talk.ask("hushed hushed\r\n", "-CLIENT-ERROR");
}

fn uses_gearman(served: &Served) {
    let mut talk = Talk::with(served, "gearman");
    talk.ask("auth hushed-wrong\n", "ERR ");
    talk.ask("auth hushed-token\n", "OK");
    let submit = packet(b"\0REQ\0\0\0\x12", b"mail\0\0hushed payload");
    let created = talk.ask(submit, ":2");
    talk.say(packet(b"\0REQ\0\0\0\x01", b"mail"));
    talk.ask(packet(b"\0REQ\0\0\0\x09", b""), "hushed payload");
    let handle = [&created[12..], b"\0"].concat();
    let said = |text: &[u8]| [&handle, text].concat();
    talk.say(packet(b"\0REQ\0\0\0\x1c", &said(b"hushed data")));
    talk.say(packet(b"\0REQ\0\0\0\x0d", &said(b"hushed result")));
    talk.ask(packet(b"\0REQ\0\0\0\x10", b"hushed echo"), "hushed echo");
    talk.ask("hushed line\n", "ERR ");
}

fn uses_the_draft(served: &Served) {
    let mut talk = Talk::with(served, "gearman");
    talk.ask("auth hushed-token\n", "OK");
    let packet = |kind: u8, data: &[u8]| packet(&[b"\x01SPD", &[kind][..]].concat(), data);
    talk.say(packet(0x01, b"thumb"));
    let created = talk.ask(packet(0x04, b"thumb\0\0\0\x01hushed payload"), ":3");
    talk.ask(packet(0x06, b""), "hushed payload");
    talk.say(packet(0x0b, b"\0hushed result"));
    talk.ask(packet(0x0c, &created[9..]), "hushed result");
    talk.ask(packet(0x63, b"hushed junk"), "unknown packet type");
}

/// A request with a token, and the status of its answer.
#[track_caller]
fn asks(served: &Served, token: &str, head: &str, headers: &str, body: &str, status: u16) -> Value {
    let address = served.address_of("http");
    let headers = format!(
        "Host: {address}\r\nContent-Type: application/json\r\nAccept: application/json\r\n\
         Authorization: Bearer {token}\r\n{headers}"
    );
    let (is, text) = HttpRequest::send_with(&address, head, &headers, body).answer();
    assert_eq!(is, status, "{head}: {text}");
    serde_json::from_str(&text).unwrap_or_default()
}

fn uses_the_api(served: &Served) {
    let ask = |head: &str, body: &str, status| {
        asks(served, "hushed-token", head, "Cookie: hushed=hushed\r\n", body, status)
    };
    asks(served, "hushed-wrong", "GET /api/v1/queues", "", "", 401);
    ask("GET /nowhere?token=hushed", "", 404);
    ask("POST /api/v1/jobs", "{\"queue\":\"bill\",\"payload\":hushed}", 400);
    ask("POST /api/v1/jobs", "{\"queue\":\"bill\",\"priority\":\"hushed\"}", 400);
    ask("POST /api/v1/jobs", "{\"queue\":\"bill\",\"payload\":\"hushed payload\"}", 201);
    let lease = ask("POST /api/v1/lease", "{\"queues\":[\"bill\"],\"worker\":\"w\"}", 200);
    let at = |what: &str| {
        let token = lease["lease_token"].as_str().unwrap();
        format!("POST /api/v1/leases/{token}/{what}")
    };
    ask(&at("output"), "{\"text\":\"hushed output\"}", 204);
    ask(&at("complete"), "{\"result\":\"hushed result\"}", 204);
    ask("GET /metrics", "", 200);
}

fn uses_lightjq(served: &Served) {
    let ask = |head: &str, headers: &str, body: &str, status| {
        asks(served, "hushed-token", head, headers, body, status)
    };
    ask("POST /job", "", "{\"name\":\"resize\",\"argument\":hushed}", 400);
    let job = ask("POST /job", "", "{\"name\":\"resize\",\"argument\":{\"a\":\"hushed\"}}", 201);
    let worker = ask("POST /worker", "", "{\"name\":\"w\",\"max_jobs\":1}", 201);
    let worker = format!("worker-id: {}\r\n", worker["worker_id"].as_str().unwrap());
    ask("GET /worker/job?timeout=30", &worker, "", 200);
    let done = json!({
        "job_id": job["job_id"], "type": "failure", "reason": "other", "should_retry": false,
        "message": "hushed", "error": "hushed", "finished_at": "2026-01-02T03:04:06Z",
    });
    ask("POST /done", &worker, &done.to_string(), 204);
}

fn uses_jobq(served: &Served) {
    let ask = |head: &str, body: &str, status| asks(served, "hushed-token", head, "", body, status);
    ask("POST /api/v0/job/create", "hushed", 400);
    let job = ask("POST /api/v0/job/create", "{\"msg\":\"hushed\"}", 200);
    let id = &job["id"];
    ask(&format!("POST /api/v0/job/{id}/state"), "[\"hushed\"]", 200);
    ask("POST /api/v0/job", "[\"hushed\"]", 400);
}

fn uses_the_jobd_master(served: &Served) {
    let message = |request: Value| format!("{request}\x04");
    let mut stranger = Talk::with(served, "jobd-master");
    let wrong = json!([0, { "no": 1, "type": "status", "password": "hushed-wrong" }]);
    stranger.ask(message(wrong), "invalid password");
    stranger.rest();
    let mut worker = Talk::with(served, "jobd-master");
    let data = json!({ "name": "w", "targets": ["low"] });
    let register = json!([0, { "no": 2, "type": "register-worker", "password": "hushed-password", "data": data }]);
    worker.ask(message(register), "\"ok\"");
    worker.ask("hushed junk\x04{\"hushed\":1}\x04", "array expected");
    worker.ask("[1,{\"no\":5,\"data\":\"hushed\"}]\x04[2]\x04", "[3]");
    let mut client = Talk::with(served, "jobd-master");
    let data = json!({ "jobs": [{ "id": 7, "target": "low" }] });
    let run =
        json!([0, { "no": 3, "type": "run-manual", "password": "hushed-password", "data": data }]);
    client.say(message(run));
    let asked = worker.ask("", "\x04");
    let asked: Value = serde_json::from_slice(asked.strip_suffix(b"\x04").unwrap()).unwrap();
    let ran = json!({ "jobs": { "7": { "result": "ok", "stdout": "hushed" } } });
    worker.say(message(json!([1, { "no": asked[1]["no"], "data": ran }])));
    client.ask("", "hushed");
    client.ask(message(json!([0, { "no": 4, "type": "poke", "data": "hushed" }])), "missing");
}

/// The log of a server that requires authentication and logs everything, after it was used through
/// every door.
fn said_at_every_door() -> String {
    let digest = Digest::of(b"hushed-token").unwrap();
    let tokens = TokensFile::of(&format!(
        "[[token]]\nname = 'operator'\nsha256 = '{digest}'\nroles = ['admin']\nqueues = ['*']\n"
    ));
    let password = TokensFile::of("hushed-password\n");
    let (tokens, password) = (tokens.path(), password.path());
    let (tokens, password) = (tokens.to_str().unwrap(), password.to_str().unwrap());
    let doors = ["--gearman", "127.0.0.1:0", "--jobd-master", "127.0.0.1:0", "--require-auth"];
    let files = ["--tokens", tokens, "--jobd-master-password-file", password];
    let served = json_server(&[&doors[..], &files, &["--log-level", "trace"]].concat());
    uses_workq(&served);
    uses_gearman(&served);
    uses_the_draft(&served);
    uses_the_api(&served);
    uses_lightjq(&served);
    uses_jobq(&served);
    uses_the_jobd_master(&served);
    served.ask_to_end();
    served.said.await_end()
}

#[test]
fn no_line_of_any_level_has_a_token_a_password_a_payload_or_a_result() {
    let said = said_at_every_door();
    for door in ["workq", "gearman", "gearman_draft", "api", "lightjq", "jobq", "jobd-master"] {
        assert!(said.contains(&format!("\"door\":\"{door}\"")), "nothing of {door} in\n{said}");
    }
    assert!(said.contains("\"level\":\"TRACE\""), "{said}");
    let shown: Vec<&str> = said.lines().filter(|line| line.contains(MARK)).collect();
    assert_eq!(shown, [""; 0]);
}

/// The fields `command`, `queue` and `outcome` of the lines of a door; the rest of each is looked at.
fn commands_of(said: &str, door: &str) -> Vec<String> {
    let lines = said.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let is_of_door = |line: &Value| {
        line["target"] == "spindle::commands" && line["fields"]["door"].as_str() == Some(door)
    };
    let shown = |line: Value| {
        let fields = &line["fields"];
        assert_eq!((&line["level"], &fields["message"]), (&json!("DEBUG"), &json!("command")));
        assert!(fields["connection"].as_u64() > Some(0) && fields["us"].is_u64(), "{line}");
        assert!(!fields["request"].is_null(), "{line}");
        let text = |name: &str| match &fields[name] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        format!("{}; {}; {}", text("command"), text("queue"), text("outcome"))
    };
    lines.filter(is_of_door).map(shown).collect()
}

#[test]
fn every_door_says_of_its_commands_what_came_and_what_became_of_it() {
    let said = said_at_every_door();
    for (door, expected) in [
        (
            "gearman_draft",
            &[
                "worker_connect; thumb; none",
                "job_create; thumb; job_created",
                "job_assign; ; job_assigned",
                "job_complete_announce; ; none",
                "job_complete; ; answered",
            ][..],
        ),
        (
            "lightjq",
            &[
                "POST /job; ; 400",
                "POST /job; resize; 201",
                "POST /worker; ; 201",
                "GET /worker/job; ; 200",
                "POST /done; ; 204",
            ],
        ),
        (
            "jobq",
            &[
                "POST /api/v0/job/create; jobq; 400",
                "POST /api/v0/job/create; jobq; 200",
                "POST /api/v0/job/{id}/state; ; 200",
                "POST /api/v0/job; ; 400",
            ],
        ),
        (
            "jobd-master",
            &[
                "status; ; error",
                "register-worker; low; ok",
                "run-manual; low; ok",
                "poke; ; error",
            ],
        ),
    ] {
        assert_eq!(commands_of(&said, door), expected, "{door}");
    }
}
