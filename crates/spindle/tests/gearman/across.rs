//! Jobs that come through one door and are worked through the other.

use bytes::Bytes;
use spindle_gearman::wire::{JobStatus, Priority, Request, Response, Submit, SubmitKind};
use spindle_workq::client::Client;
use spindle_workq::wire::{NewJob, Uuid};

use spindle_testkit::PATIENCE;

use crate::server::{Peer, Served};

/// How long a wait may take that ends when the other side acts.
const WAIT_MS: u32 = 60_000;

fn submit(peer: &mut Peer, kind: SubmitKind, function: &'static str) -> Bytes {
    let [function, payload] = [function.as_bytes(), b"payload"].map(Bytes::from_static);
    peer.send(&Request::Submit(Submit { kind, function, unique: Bytes::new(), payload }));
    match peer.hear() {
        Response::JobCreated { handle } => handle,
        other => panic!("expected JOB_CREATED and got {other:?}"),
    }
}

fn status(peer: &mut Peer, handle: &Bytes) -> JobStatus {
    peer.send(&Request::GetStatus { handle: handle.clone() });
    match peer.hear() {
        Response::Status { status, .. } => status,
        other => panic!("expected STATUS_RES and got {other:?}"),
    }
}

fn workq(served: &Served) -> Client {
    Client::connect(&served.workq, PATIENCE).unwrap()
}

/// The number of the job a handle names.
fn number(handle: &Bytes) -> u64 {
    let text = std::str::from_utf8(handle).unwrap();
    text.rsplit(':').next().unwrap().parse().unwrap()
}

/// The name by which Workq shows a job of another door.
fn foreign(handle: &Bytes) -> Uuid {
    let text = format!("7370696e-646c-8000-8{:015x}", number(handle));
    let text = format!("{}-{}", &text[..23], &text[23..]);
    Uuid::parse(text.as_bytes()).unwrap()
}

#[test]
fn a_workq_worker_ends_a_gearman_job_and_its_client_hears_it() {
    let served = Served::new();
    let (mut client, mut worker) = (served.connect(), workq(&served));
    for (success, background) in [(true, false), (false, false), (true, true)] {
        let kind = match background {
            true => SubmitKind::Background(Priority::Normal),
            false => SubmitKind::Foreground(Priority::Normal),
        };
        let handle = submit(&mut client, kind, "q");
        let job = worker.lease(&["q"], WAIT_MS).unwrap();
        assert_eq!((job.id, &job.payload[..]), (foreign(&handle), &b"payload"[..]));
        assert!(status(&mut client, &handle).is_running);
        let result = Bytes::from_static(b"from workq");
        match success {
            true => worker.complete(job.id, result.clone()).unwrap(),
            false => worker.fail(job.id, result.clone()).unwrap(),
        }
        match (success, background) {
            (true, false) => {
                assert_eq!(client.hear(), Response::WorkComplete { handle, result });
            }
            (false, false) => assert_eq!(client.hear(), Response::WorkFail { handle }),
            // Its result is kept for later requests.
            (_, true) => {
                assert!(!status(&mut client, &handle).is_known);
                let answer = worker.result(foreign(&handle), 0).unwrap();
                assert_eq!((answer.success, answer.result), (true, result));
            }
        }
    }
}

#[test]
fn a_gearman_worker_ends_a_workq_job_and_whoever_waits_has_the_whole_result() {
    let served = Served::new();
    let (mut client, mut worker) = (workq(&served), served.connect());
    let id = Uuid::parse(b"6ba7b810-9dad-41d1-80b4-00c04fd430c4").unwrap();
    client
        .add(&NewJob {
            id,
            name: Bytes::from_static(b"q"),
            ttr_ms: 60_000,
            ttl_ms: 600_000,
            payload: Bytes::from_static(b"from workq"),
            attempts_max: 0,
            fails_max: 0,
            priority: 0,
        })
        .unwrap();
    worker.can_do("q");
    let (handle, payload) = worker.take();
    assert_eq!(payload, "from workq");
    let [numerator, denominator] = [b"1", b"4"].map(|text| Bytes::from_static(text));
    worker.send(&Request::WorkStatus { handle: handle.clone(), numerator, denominator });
    let mut other = served.connect();
    let answer = status(&mut worker, &handle);
    assert_eq!((answer.numerator, answer.denominator), (1, 4));
    assert_eq!(status(&mut other, &handle), answer);
    let waiting = std::thread::spawn(move || client.result(id, WAIT_MS).unwrap());
    worker.send(&Request::WorkData { handle: handle.clone(), data: Bytes::from_static(b"one ") });
    worker.complete(&handle, "two");
    let answer = waiting.join().unwrap();
    assert_eq!((answer.success, &answer.result[..]), (true, &b"one two"[..]));
    assert!(!status(&mut other, &handle).is_known);
}

#[test]
fn a_web_page_cannot_talk_to_the_port() {
    use std::io::{Read, Write};
    let served = Served::new();
    let mut stream = std::net::TcpStream::connect(&served.gearman).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\nversion\n").unwrap();
    let mut answer = Vec::new();
    // The system decides whether the end comes as such or as a reset.
    stream.read_to_end(&mut answer).ok();
    assert!(answer.is_empty(), "{}", answer.escape_ascii());
}
