//! Jobs of other doors, seen through this one.

use bytes::Bytes;
use spindle_core::address::foreign_uuid;
use spindle_core::command::Submit;
use spindle_core::job::Origin;
use spindle_core::{BytesRef, JobId, Status, Type};
use spindle_engine::{Engine, JobRef, NewJob, Payload};
use spindle_testkit::opened;
use spindle_workq::wire::Uuid;

use crate::harness::{START, TestServer};

/// Submits a job as another door would. Returns its number and the UUID that names it here.
fn submit(
    engine: &Engine,
    queue: impl Into<Bytes>,
    payload: Bytes,
    origin: Origin,
) -> (JobId, Uuid) {
    let empty = BytesRef::empty(Type::Json);
    let submit = Submit::new(JobId(0), queue.into(), origin, empty);
    let job = NewJob { submit, payload: Payload::new(payload, Type::Json) };
    let id = opened(engine.jobs().submit(job)).expect("taken");
    drop(engine.turn());
    (id, Uuid::from_bytes(foreign_uuid(id)))
}

#[test]
fn a_foreign_job_is_leased_inspected_and_completed_by_its_foreign_uuid() {
    let server = TestServer::new();
    let mut client = server.client();
    let (id, uuid) = submit(&server.engine, "mail", Bytes::from_static(b"{}"), Origin::Jobq);
    assert!(uuid.to_string().starts_with("7370696e-646c-8000-8"), "{uuid}");
    assert!(uuid.to_string().replace('-', "").ends_with(&format!("8{:015x}", id.0)), "{uuid}");
    let shown = |attempts: u32, state: u32| {
        format!(
            "+OK 1\r\n{uuid} 12\r\nname mail\r\nttr 0\r\nttl 0\r\npayload-size 2\r\n\
             payload {{}}\r\nmax-attempts 0\r\nattempts {attempts}\r\nmax-fails 0\r\n\
             fails 0\r\npriority 0\r\nstate {state}\r\ncreated {START}\r\n"
        )
    };
    client.ask(format!("inspect job {uuid}\r\n"), shown(0, 0));
    client.ask("inspect jobs mail 0 10\r\n", shown(0, 0));
    // It has no TTR: an unbound holder gets the server's, and is told so.
    client.ask("lease mail 0\r\n", format!("+OK 1\r\n{uuid} mail 60000 2\r\n{{}}\r\n"));
    client.ask(format!("inspect job {uuid}\r\n"), shown(1, 4));
    client.ask(format!("extend {uuid} 1000\r\n"), "+OK\r\n");
    client.ask(format!("result {uuid} 0\r\n"), "-TIMEOUT\r\n");
    client.ask(format!("complete {uuid} 2\r\nok\r\n"), "+OK\r\n");
    client.ask(format!("result {uuid} 0\r\n"), format!("+OK 1\r\n{uuid} 1 2\r\nok\r\n"));
    client.ask(format!("complete {uuid} 2\r\nok\r\n"), "-CLIENT-ERROR Duplicate result\r\n");
    assert_eq!(opened(server.engine.jobs().find(JobRef::Id(id))), Some((id, Status::Done)));
    client.ask(format!("delete {uuid}\r\n"), "+OK\r\n");
    client.ask(format!("delete {uuid}\r\n"), "-NOT-FOUND\r\n");
    client.finish();
}

#[test]
fn a_waiting_result_of_a_foreign_job_is_answered() {
    let server = TestServer::new();
    let (mut client, mut other) = (server.client(), server.client());
    let (_, uuid) = submit(&server.engine, "mail", Bytes::new(), Origin::Jobq);
    client.begin(&format!("> result {uuid} 60000"));
    other.ask(format!("fail {uuid} 3\r\nbad\r\n"), "+OK\r\n");
    client.expect(format!("+OK 1\r\n{uuid} 0 3\r\nbad\r\n"));
    client.finish();
    other.finish();
}

#[test]
fn a_job_of_this_door_has_only_the_name_it_was_given() {
    let server = TestServer::new();
    let mut client = server.client();
    client.talk(
        "> add #1 q 1000 60000 1
         > a
         < +OK",
    );
    let which = JobRef::Uuid(crate::harness::id_bytes(1));
    let (id, _) = opened(server.engine.jobs().find(which)).expect("it is there");
    let other_name = Uuid::from_bytes(foreign_uuid(id));
    for request in ["inspect job ID", "result ID 0", "delete ID", "extend ID 10"] {
        client.ask(request.replace("ID", &other_name.to_string()) + "\r\n", "-NOT-FOUND\r\n");
    }
    client.ask(format!("complete {other_name} 0\r\n\r\n"), "-NOT-FOUND\r\n");
    // Names in that range that can name no job.
    for uuid in ["7370696e-646c-8000-8000-000000000000", "7370696e-646c-8000-8fff-ffffffffffff"] {
        for request in ["inspect job ID", "result ID 0", "delete ID", "extend ID 10"] {
            client.ask(request.replace("ID", uuid) + "\r\n", "-NOT-FOUND\r\n");
        }
        client.ask(format!("fail {uuid} 0\r\n\r\n"), "-NOT-FOUND\r\n");
    }
    client.finish();
}

#[test]
fn payloads_this_door_cannot_carry_are_passed_over() {
    const MIB: usize = 1024 * 1024;
    let server = TestServer::new();
    let (mut client, mut waiting) = (server.client(), server.client());
    waiting.begin("> lease mail 60000");
    let (large, _) = submit(&server.engine, "mail", vec![b'x'; MIB + 1].into(), Origin::Api);
    let (fits, uuid) = submit(&server.engine, "mail", vec![b'y'; MIB].into(), Origin::Api);
    assert!(large < fits);
    let payload = "y".repeat(MIB);
    waiting.expect(format!("+OK 1\r\n{uuid} mail 60000 {MIB}\r\n{payload}\r\n"));
    client.ask("lease mail 0\r\n", "-TIMEOUT\r\n");
    assert_eq!(opened(server.engine.jobs().find(JobRef::Id(large))), Some((large, Status::Ready)));
    client.finish();
    waiting.finish();
}

#[test]
fn queues_whose_names_cannot_be_spelled_here_are_not_listed() {
    let server = TestServer::new();
    let mut client = server.client();
    static TOO_LONG: [u8; 256] = [b'n'; 256];
    for name in [&b"a b"[..], b"line\r\nend", b"caf\xe9", b"a*b", &TOO_LONG, b"good", b"other"] {
        submit(&server.engine, name, Bytes::new(), Origin::Gearman);
    }
    // Far more than the door looks at in one go.
    for number in 0..2_500 {
        submit(&server.engine, format!("a {number}"), Bytes::new(), Origin::Gearman);
    }
    client.talk(
        "> inspect queues 0 100
         < +OK 2
         < good 2
         < ready-len 1
         < scheduled-len 0
         < other 2
         < ready-len 1
         < scheduled-len 0
         > inspect queues 1 1
         < +OK 1
         < other 2
         < ready-len 1
         < scheduled-len 0
         > inspect queues 2 100
         < +OK 0",
    );
    client.finish();
}
