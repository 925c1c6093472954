//! Two servers in one process, with all their doors, on logs in memory that both share.

mod shards;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::thread::{self, JoinHandle};

use serde_json::{Value, json};
use spindle_log::SharedLog;
use spindle_testkit::shared_log::{SharedLogHandle, SharedMemoryLog};
use spindle_testkit::{PATIENCE, free_address, wait_until};

use super::*;
use crate::config::{SettingFlags, resolve};
use crate::signals::Ending;

struct Server {
    name: &'static str,
    http: String,
    workq: String,
    events: Sender<Event>,
    /// The log, or the first of them, as it is open.
    log: Arc<parking_lot::Mutex<Option<Arc<SharedLogHandle>>>>,
    thread: Option<JoinHandle<anyhow::Result<Code>>>,
    _folder: tempfile::TempDir,
}

impl Server {
    fn start(shared: &SharedMemoryLog, name: &'static str) -> Server {
        Server::start_on(std::slice::from_ref(shared), name)
    }

    /// A server on so many logs.
    fn start_on(shared: &[SharedMemoryLog], name: &'static str) -> Server {
        Server::start_with(shared, name, &[])
    }

    /// The same with further settings.
    fn start_with(
        shared: &[SharedMemoryLog],
        name: &'static str,
        more: &[(&'static str, String)],
    ) -> Server {
        let folder = tempfile::tempdir().unwrap();
        let (http, workq) = (free_address(), free_address());
        let data = folder.path().join("own");
        let settings = [
            ("LOG", "nats://shared/in-memory".to_owned()),
            ("NODE", name.to_owned()),
            ("CLUSTER_LISTEN", free_address()),
            ("HTTP", http.clone()),
            ("WORKQ", workq.clone()),
            ("GEARMAN", "off".to_owned()),
            ("JOBD_MASTER", free_address()),
            ("DATA", data.to_str().unwrap().to_owned()),
            ("SHARDS", shared.len().to_string()),
        ];
        let is_given = |(setting, _): &(&str, String)| more.iter().any(|(it, _)| it == setting);
        let environment = settings
            .into_iter()
            .filter(|usual| !is_given(usual))
            .chain(more.iter().cloned())
            .map(|(setting, value)| (format!("SPINDLE_SERVE_{setting}").into(), value.into()));
        let resolved = resolve(&SettingFlags::default(), environment).unwrap();
        let log = Arc::<parking_lot::Mutex<Option<Arc<SharedLogHandle>>>>::default();
        let opener = |(at, shared): (usize, &SharedMemoryLog)| -> OpenLog {
            let (shared, opened) = (shared.clone(), Arc::clone(&log));
            Box::new(move || {
                let handle = shared.open();
                if at == 0 {
                    *opened.lock() = Some(Arc::clone(&handle));
                }
                Ok(handle as Arc<dyn SharedLog>)
            })
        };
        let opens = shared.iter().enumerate().map(opener).collect();
        let (events, inbox) = channel();
        let own = events.clone();
        let body = move || {
            let ended = serve(&resolved, opens, own, &inbox);
            if let Err(error) = &ended {
                // Otherwise the test would wait in vain without saying why.
                eprintln!("{name}: {}", exit::whole(error));
            }
            ended
        };
        let thread = Some(thread::spawn(body));
        Server { name, http, workq, events, log, thread, _folder: folder }
    }

    /// A request of HTTP; none if its connection is closed unanswered.
    fn ask(&self, head: &str, body: &Value) -> Option<(u16, Value)> {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(&self.http).ok()?;
        stream.set_read_timeout(Some(PATIENCE)).ok()?;
        let request = format!(
            "{head} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            self.http,
            body.len()
        );
        stream.write_all(request.as_bytes()).ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some((status, serde_json::from_str(body).unwrap_or_default()))
    }

    /// Asks until there is an answer: connections end when the lead changes.
    fn answer(&self, head: &str, body: &Value) -> (u16, Value) {
        let mut answer = None;
        wait_until(head, || {
            answer = self.ask(head, body);
            answer.is_some()
        });
        answer.unwrap()
    }

    fn get(&self, path: &str) -> Option<(u16, Value)> {
        self.ask(&format!("GET {path}"), &Value::Null)
    }

    fn is_ready_as(&self, status: &str) -> bool {
        self.get("/readyz") == Some((200, json!({ "status": status })))
    }

    /// Ends it as a signal does.
    fn end(&mut self) -> Code {
        self.events.send(Event::Signal(Ending::OF_TEST)).unwrap();
        self.ended().unwrap()
    }

    /// Waits until it ends by itself.
    fn ended(&mut self) -> anyhow::Result<Code> {
        self.thread.take().unwrap().join().unwrap()
    }
}

/// Waits until one leads and the other one says so; the leader comes first.
fn sorted<'a>(one: &'a Server, two: &'a Server) -> (&'a Server, &'a Server) {
    let leads = |it: &Server, other: &Server| {
        it.is_ready_as("ok") && other.is_ready_as(&format!("follower of {}", it.name))
    };
    let mut leader = None;
    wait_until("one leads and one follows", || {
        leader = [(one, two), (two, one)].into_iter().find(|(it, other)| leads(it, other));
        leader.is_some()
    });
    leader.unwrap()
}

#[test]
fn clients_of_both_nodes_reach_the_leader_and_it_changes_hands() {
    let shared = SharedMemoryLog::new();
    let (mut one, mut two) = (Server::start(&shared, "one"), Server::start(&shared, "two"));
    let (_, follower) = sorted(&one, &two);
    let (status, job) = follower.answer("POST /api/v1/jobs", &json!({ "queue": "q" }));
    assert_eq!(status, 201, "{job}");
    let path = format!("/api/v1/jobs/{}", job["id"]);
    // On a busy machine the lead may have changed.
    let (leader, follower) = sorted(&one, &two);
    assert_eq!(leader.answer(&format!("GET {path}"), &Value::Null).0, 200);
    let (_, cluster) = follower.answer("GET /api/v1/cluster", &Value::Null);
    let said = ["shared", "node", "role", "leader"].map(|field| cluster[field].clone());
    assert_eq!(said, [json!(true), json!(follower.name), json!("follower"), json!(leader.name)]);
    assert_eq!(cluster["nodes"].as_array().unwrap().len(), 2);
    let log = &cluster["log"];
    assert_eq!(
        (&log["servers"][0]["state"], &log["error"]),
        (&json!("current"), &Value::Null),
        "{log}"
    );

    // Any node may be asked, and the leader steps down. Asked only once: a second request would be for the next leader.
    let (before, stepped_down) = (cluster["epoch"].as_u64().unwrap(), leader.name);
    let answered = follower.ask("POST /api/v1/cluster/step-down", &Value::Null);
    assert_eq!(answered.unwrap().0, 202);
    let epoch = || follower.get("/api/v1/cluster").and_then(|(_, now)| now["epoch"].as_u64());
    wait_until("the lead changes hands", || epoch().is_some_and(|now| now > before));
    let (leader, follower) = sorted(&one, &two);
    // On a busy machine it may have changed once more.
    assert!(leader.name != stepped_down || epoch() > Some(before + 1));
    for server in [leader, follower] {
        let (status, _) = server.answer(&format!("GET {path}"), &Value::Null);
        assert_eq!(status, 200, "what was acknowledged is there");
    }
    let (_, audit) = follower.answer("GET /api/v1/audit?action=step_down", &Value::Null);
    assert_eq!(audit["entries"].as_array().unwrap().len(), 1, "{audit}");

    // The leader ends, and the other one leads again.
    let last = if leader.name == "one" { &mut one } else { &mut two };
    assert_eq!(last.end(), Code::Ok);
    let mut last = if last.name == "one" { two } else { one };
    wait_until("the one that is left leads", || last.is_ready_as("ok"));
    assert_eq!(last.answer(&format!("GET {path}"), &Value::Null).0, 200);
    assert_eq!(last.end(), Code::Ok);
}

#[test]
fn a_leader_that_was_cut_off_follows_in_the_same_process() {
    let shared = SharedMemoryLog::new();
    let (mut one, mut two) = (Server::start(&shared, "one"), Server::start(&shared, "two"));
    let (old, new) = sorted(&one, &two);
    let log = old.log.lock().clone().unwrap();
    log.cut_off(true);
    wait_until("it says that it is not certain any more", || {
        old.get("/readyz") == Some((503, json!({ "status": "taking_over" })))
    });
    wait_until("the other one leads", || new.is_ready_as("ok"));
    let (status, job) = new.answer("POST /api/v1/jobs", &json!({ "queue": "q" }));
    assert_eq!(status, 201, "{job}");
    log.cut_off(false);
    let follows = format!("follower of {}", new.name);
    wait_until("it follows", || old.is_ready_as(&follows));
    let path = format!("/api/v1/jobs/{}", job["id"]);
    let (status, _) = old.answer(&format!("GET {path}"), &Value::Null);
    assert_eq!(status, 200, "its clients reach the new leader");
    drop(log);
    assert_eq!((one.end(), two.end()), (Code::Ok, Code::Ok));
}
