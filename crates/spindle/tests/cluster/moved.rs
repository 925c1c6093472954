//! From a single server to a cluster and back: nothing is lost, and ids and leases keep their meaning.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};
use spindle_engine::record::beat;
use spindle_log::{Ack, FileLog, FileLogOptions, Log, Record};
use spindle_testkit::SpindleServer;

use crate::accountant::Load;
use crate::harness::{Cluster, SPINDLE, ask};
use crate::kinds::{Servers, object};

/// Makes a log that does not begin at 0, because its first records were dropped.
fn begin_far_behind_zero(data: &str) -> u64 {
    let short = FileLogOptions { segment_bytes: 4096, ..FileLogOptions::default() };
    let log = FileLog::open_dir(data, short).unwrap();
    for _ in 0..200 {
        let at = log.next();
        log.submit(at, &Record { epoch: 1, bytes: beat(1, 1) }).unwrap();
        assert!(matches!(log.next_ack(), Ack::Committed(_)));
    }
    log.trim_before(log.next()).unwrap();
    assert!(log.first().0 > 0);
    log.first().0
}

/// A server of its own log.
struct Single {
    server: SpindleServer,
    http: String,
}

impl Single {
    fn start(data: &str) -> Single {
        let doors = ["--workq", "off", "--gearman", "off", "--jobd-master", "off"];
        let arguments = [&["--data", data, "--http", "127.0.0.1:0"], &doors[..]].concat();
        let server = SpindleServer::start(SPINDLE, &arguments, "http");
        let http = server.address_of("http");
        Single { server, http }
    }

    fn end(mut self) {
        self.server.ask_to_end();
        assert!(self.server.await_end().success());
    }
}

#[track_caller]
fn answer(http: &str, head: &str, body: &Value, status: u16) -> Value {
    let (found, answer) = ask(http, head, body).unwrap();
    assert_eq!(found, status, "{head}: {answer}");
    answer
}

/// All jobs by their ids, with what a move must not change.
fn jobs(http: &str, folder: &Path) -> BTreeMap<u64, [Value; 5]> {
    let file = tempfile::NamedTempFile::new_in(folder).unwrap().into_temp_path();
    std::fs::remove_file(&file).unwrap();
    let (file, url) = (file.to_str().unwrap().to_owned(), format!("http://{http}"));
    let (code, said) = crate::kinds::ended(&["export", "--all", &file, "--url", &url]);
    assert_eq!(code, Some(0), "{said}");
    let text = std::fs::read_to_string(&file).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let jobs = lines.filter(|line| line["type"] == "job");
    let kept = ["payload", "status", "queue", "attempt", "created_ms"];
    let kept = |job: &Value| kept.map(|name| job[name].clone());
    jobs.map(|job| (job["id"].as_u64().unwrap(), kept(&job))).collect()
}

fn goes_there_and_back(servers: Servers) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let [data, backup, cluster_backup, back] = ["data", "backup", "cluster", "back"].map(path);
    let first = begin_far_behind_zero(&data);

    let single = Single::start(&data);
    let added = |n: u64| json!({ "queue": "mail", "payload": { "n": n }, "ttr_ms": 600_000 });
    let ids: Vec<u64> = (0..20)
        .map(|n| answer(&single.http, "POST /api/v1/jobs", &added(n), 201)["id"].as_u64().unwrap())
        .collect();
    let lease = || answer(&single.http, "POST /api/v1/lease", &json!({ "queues": ["mail"] }), 200);
    let (done, held) = (lease(), lease());
    let complete = |lease: &Value| {
        format!("POST /api/v1/leases/{}/complete", lease["lease_token"].as_str().unwrap())
    };
    answer(&single.http, &complete(&done), &json!({ "result": "yes" }), 204);
    let before = jobs(&single.http, folder.path());
    single.end();

    let found = object(0, &["verify", &data]);
    let taken = object(0, &["backup", &data, &backup]);
    assert_eq!(taken["first"], first);
    let url = servers.url("jobs");
    let filled = object(0, &["restore", &backup, "--log", &url]);
    assert_eq!((&filled["first"], &filled["next"]), (&taken["first"], &taken["next"]));
    let verified = object(0, &["verify", "--log", &url]);
    for name in ["contents", "first", "next", "records"] {
        assert_eq!(verified[name], found[name], "{name}");
    }

    let mut cluster = Cluster::start_on(servers, &url, &["one", "two"]);
    let leader = cluster.leader();
    let mut after = jobs(&cluster.nodes[1 - leader].http, folder.path());
    assert_eq!(after, before);
    // The worker that had a job still has it.
    let (status, _) = cluster.nodes[leader].answer(&complete(&held), &json!({}));
    assert_eq!(status, 204);
    // Repeated backups while jobs go on.
    let load = Load::start(&cluster);
    load.await_more();
    let taken = object(0, &["backup", "--log", &url, &cluster_backup]);
    cluster.nodes[leader].kill();
    load.await_more();
    let again = object(0, &["backup", "--log", &url, &cluster_backup]);
    assert!(again["next"].as_u64() > taken["next"].as_u64(), "{again}");
    assert_eq!(object(0, &["verify", &cluster_backup])["verdict"], "sound");
    assert_eq!(object(0, &["verify", "--log", &url])["verdict"], "sound");
    cluster.nodes[leader].start();
    load.settle(&cluster);
    after = jobs(&cluster.nodes[cluster.leader()].http, folder.path());
    cluster.nodes.iter_mut().for_each(|node| assert_eq!(node.end(), Some(0)));

    let last = object(0, &["backup", "--log", &url, &cluster_backup]);
    assert!(last["copied_bytes"].as_u64() > Some(0) && last["first"] == first, "{last}");
    let found = object(0, &["verify", "--log", &url]);
    object(0, &["restore", &cluster_backup, &back]);
    let verified = object(0, &["verify", &back]);
    for name in ["contents", "next"] {
        assert_eq!(verified[name], found[name], "{name}");
    }
    let single = Single::start(&back);
    assert_eq!(jobs(&single.http, folder.path()), after);
    let next = answer(&single.http, "POST /api/v1/jobs", &added(20), 201)["id"].as_u64().unwrap();
    assert!(ids.iter().chain(after.keys()).all(|id| next > *id), "{next}");
    single.end();
}

#[test]
fn a_server_becomes_a_cluster_in_postgresql_and_a_server_again() {
    goes_there_and_back(Servers::Postgres(crate::harness::database()));
}

#[test]
fn a_server_becomes_a_cluster_on_nats_and_a_server_again() {
    goes_there_and_back(Servers::Nats(spindle_testkit::NatsServers::one()));
}
