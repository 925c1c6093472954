//! What a backup copies: the list of segments, and their bytes.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{Method, header};
use serde_json::{Value, json};
use spindle_api::Api;
use spindle_http::{Names, Site};
use spindle_log::{FileLog, FileLogOptions, Log};
use spindle_testkit::{HttpDoor, ManualEngine, spawn};
use tempfile::TempDir;
use tower::ServiceExt;

use crate::harness::{Bench, Reply, json as with_json, request};

/// An API whose log is in short files.
struct OnDisk {
    _folder: TempDir,
    log: Arc<FileLog>,
    manual: ManualEngine,
    site: Site,
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        self.manual.engine.stop();
    }
}

impl OnDisk {
    fn new() -> OnDisk {
        let folder = tempfile::tempdir().unwrap();
        let options = FileLogOptions { segment_bytes: 64 * 1024, ..FileLogOptions::default() };
        let log = Arc::new(FileLog::open_dir(folder.path().join("data"), options).unwrap());
        let manual = ManualEngine::open(log.clone(), HttpDoor::START_MS, Default::default());
        spawn(&manual.engine);
        let api = Api::new(manual.engine.clone(), Default::default());
        let site = Site::new(api.router(), Names::new("127.0.0.1".parse().unwrap()));
        OnDisk { _folder: folder, log, manual, site }
    }

    async fn send(&self, request: axum::http::Request<Body>) -> Reply {
        Reply::of(self.site.clone().oneshot(request).await.unwrap()).await
    }

    async fn get(&self, path: &str, range: Option<&str>) -> Reply {
        let mut asked = request(Method::GET, path);
        if let Some(range) = range {
            asked = asked.header(header::RANGE, range);
        }
        self.send(asked.body(Body::empty()).unwrap()).await
    }

    async fn list(&self) -> Value {
        let reply = self.get("/api/v1/backup", None).await;
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()
    }

    /// Jobs that fill more than one segment.
    async fn fill(&self) {
        for _ in 0..4 {
            let job = json!({ "queue": "q", "payload": "x".repeat(20_000) });
            let reply = self.send(with_json(Method::POST, "/api/v1/jobs", &job)).await;
            assert_eq!(reply.status, 201, "{}", reply.text());
        }
    }
}

#[tokio::test]
async fn the_list_is_the_log_up_to_what_is_durable() {
    let server = OnDisk::new();
    server.fill().await;
    let list = server.list().await;
    assert_eq!((&list["format"], &list["first"]), (&json!(1), &json!(0)));
    let segments = list["segments"].as_array().unwrap();
    assert!(segments.len() > 1, "{list}");
    for pair in segments.windows(2) {
        assert_eq!(pair[0]["next"], pair[1]["first"], "{list}");
    }
    let end = segments.last().unwrap()["next"].as_u64().unwrap();
    // Who takes it is in the audit log, behind what is listed, before the list is answered.
    assert_eq!((list["end"].as_u64().unwrap(), end), (server.log.next().0 - 1, end));
    let entries = server.get("/api/v1/audit", None).await.json()["entries"].clone();
    let detail = format!("records 0 to {end}, {} segments", segments.len());
    assert_eq!((&entries[0]["action"], &entries[0]["detail"]), (&json!("backup"), &json!(detail)));
}

#[tokio::test]
async fn a_segment_comes_whole_or_in_ranges() {
    let server = OnDisk::new();
    server.fill().await;
    let list = server.list().await;
    let bytes = list["segments"][0]["bytes"].as_u64().unwrap();
    let path = "/api/v1/backup/segments/0";
    let whole = server.get(path, None).await;
    assert_eq!((whole.status.as_u16(), whole.body.len() as u64), (200, bytes));
    assert_eq!(whole.header("content-type"), "application/octet-stream");
    let part = server.get(path, Some("bytes=10-19")).await;
    assert_eq!((part.status.as_u16(), &part.body[..]), (206, &whole.body[10..20]));
    assert_eq!(part.header("content-range"), format!("bytes 10-19/{bytes}"));
    let rest = server.get(path, Some(&format!("bytes={}-", bytes - 1))).await;
    assert_eq!((rest.status.as_u16(), &rest.body[..]), (206, &whole.body[bytes as usize - 1..]));
    let behind = server.get(path, Some(&format!("bytes={bytes}-"))).await;
    assert_eq!(behind.header("content-range"), format!("bytes */{bytes}"));
    behind.is_problem(416, "range_not_satisfiable");
    // A malformed range is ignored.
    assert_eq!(server.get(path, Some("bytes=-5")).await.body, whole.body);
}

#[tokio::test]
async fn a_segment_that_was_dropped_or_never_was_is_gone() {
    let server = OnDisk::new();
    server.fill().await;
    let list = server.list().await;
    let second = list["segments"][1]["first"].as_u64().unwrap();
    server.log.trim_before(spindle_log::Position(second)).unwrap();
    for first in ["0", "1", "18446744073709551615"] {
        let reply = server.get(&format!("/api/v1/backup/segments/{first}"), None).await;
        reply.is_problem(410, "segment_gone");
    }
    for first in ["x", "-1", "18446744073709551616"] {
        let reply = server.get(&format!("/api/v1/backup/segments/{first}"), None).await;
        reply.is_problem(400, "out_of_range");
    }
    assert_eq!(server.list().await["first"], second);
}

#[tokio::test]
async fn a_log_in_memory_has_no_files() {
    let bench = Bench::new();
    bench.get("/api/v1/backup").await.is_problem(409, "no_files");
    bench.get("/api/v1/backup/segments/0").await.is_problem(410, "segment_gone");
}
