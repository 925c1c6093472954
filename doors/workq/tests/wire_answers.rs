//! What the server's answers look like.

use bytes::BytesMut;
use spindle_workq::wire::{ErrorText, JobInfo, JobState, QueueInfo, ServerInfo, Uuid, encode};

const ID: &str = "00000001-0000-4000-8000-000000000001";

fn id(text: &str) -> Uuid {
    Uuid::parse(text.as_bytes()).expect("test ids are ids")
}

fn encoded(write: impl FnOnce(&mut BytesMut)) -> String {
    let mut out = BytesMut::new();
    write(&mut out);
    String::from_utf8(out.to_vec()).expect("test answers are text")
}

#[test]
fn short_answers_are_one_line() {
    assert_eq!(encoded(encode::ok), "+OK\r\n");
    assert_eq!(encoded(encode::timeout), "-TIMEOUT\r\n");
    assert_eq!(encoded(encode::not_found), "-NOT-FOUND\r\n");
    let text = ErrorText::DuplicateJob.as_str();
    assert_eq!(encoded(|out| encode::client_error(out, text)), "-CLIENT-ERROR Duplicate job\r\n");
    let quoted = "no \"a\r\n+OK\"";
    assert_eq!(encoded(|out| encode::server_error(out, quoted)), "-SERVER-ERROR no \"a  +OK\"\r\n");
}

#[test]
fn jobs_and_results_come_with_their_size() {
    assert_eq!(
        encoded(|out| encode::lease(out, id(ID), b"ping", 1000, b"a\r\nb")),
        format!("+OK 1\r\n{ID} ping 1000 4\r\na\r\nb\r\n")
    );
    assert_eq!(
        encoded(|out| encode::result(out, id(ID), true, b"pong")),
        format!("+OK 1\r\n{ID} 1 4\r\npong\r\n")
    );
    assert_eq!(
        encoded(|out| encode::result(out, id(ID), false, b"")),
        format!("+OK 1\r\n{ID} 0 0\r\n\r\n")
    );
}

#[test]
fn an_inspected_job_has_12_keys_and_a_scheduled_one_13() {
    let mut job = JobInfo {
        id: id(ID),
        name: "ping".into(),
        ttr_ms: 1000,
        ttl_ms: u64::MAX,
        payload: "pong".into(),
        attempts_max: 3,
        attempts: 1,
        fails_max: 2,
        fails: 0,
        priority: 4_294_967_295,
        state: JobState::Leased,
        created_ms: 1_471_830_651_999,
        time_ms: None,
    };
    let keys = "name ping\r\nttr 1000\r\nttl 18446744073709551615\r\npayload-size 4\r\n\
                payload pong\r\nmax-attempts 3\r\nattempts 1\r\nmax-fails 2\r\nfails 0\r\n\
                priority 2147483647\r\nstate 4\r\ncreated 2016-08-22T01:50:51Z\r\n";
    assert_eq!(encoded(|out| encode::job(out, &job)), format!("{ID} 12\r\n{keys}"));
    job.time_ms = Some(1_472_752_800_000);
    assert_eq!(
        encoded(|out| encode::job(out, &job)),
        format!("{ID} 13\r\n{keys}time 2016-09-01T18:00:00Z\r\n")
    );
}

#[test]
fn queues_and_the_server_announce_as_many_keys_as_they_print() {
    let queue = QueueInfo { name: "ping".into(), ready: 3, scheduled: 1 };
    let text = encoded(|out| {
        encode::count(out, 1);
        encode::queue(out, &queue);
    });
    assert_eq!(text, "+OK 1\r\nping 2\r\nready-len 3\r\nscheduled-len 1\r\n");
    let server = ServerInfo { active_clients: 32, evicted_jobs: 5, started_ms: 1_451_747_045_000 };
    assert_eq!(
        encoded(|out| encode::server(out, &server)),
        "+OK 1\r\nserver 3\r\nactive-clients 32\r\nevicted-jobs 5\r\n\
         started 2016-01-02T15:04:05Z\r\n"
    );
}
