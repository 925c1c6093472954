//! Clients of Gearman, whose queues are on several shards.

mod client;

use std::io::{Read, Write};
use std::net::Shutdown;

use bytes::{Bytes, BytesMut};
use spindle_gearman::client::Encode;
use spindle_gearman::wire::{JobStatus, Request, Response};
use spindle_testkit::{TokensFile, wait_until};

use client::*;

// ---- jobs ----

#[test]
fn one_connection_has_jobs_on_all_shards_and_hears_of_each() {
    let sharded = start();
    let functions = functions(&sharded);
    let (mut client, mut worker) = (Client::of(&sharded), worker(&sharded, &functions));
    let mut handles = Vec::new();
    for (shard, function) in (0..).zip(&functions) {
        let handle = client.run(function, function);
        assert_eq!(shard_of(&handle), shard);
        assert_eq!(shard_of(&client.add(function, "", "background")), shard);
        handles.push(handle);
    }
    for _ in 0..2 * functions.len() {
        let job = worker.take();
        worker.complete(&job.handle, &format!("done: {}", job.payload.escape_ascii()));
    }
    assert_eq!(worker.grab(), None);
    let mut ended: Vec<(Bytes, Bytes)> = Vec::new();
    for _ in &functions {
        match client.hear() {
            Response::WorkComplete { handle, result } => ended.push((handle, result)),
            other => panic!("expected WORK_COMPLETE and got {other:?}"),
        }
    }
    for (handle, function) in handles.into_iter().zip(&functions) {
        assert!(ended.contains(&(handle, bytes(&format!("done: {function}")))), "{function}");
    }
}

#[test]
fn pipelined_submits_are_answered_in_their_order() {
    let sharded = start();
    let functions = functions(&sharded);
    let mut client = Client::of(&sharded);
    let order = [0, 2, 1, 1, 0, 2, 2, 2, 0, 1].repeat(300);
    let requests = order.iter().map(|shard| {
        let function = &functions[usize::from(*shard)];
        if *shard == 1 { foreground(function, "x") } else { background(function, "", "x") }
    });
    let requests: Vec<Request> = requests.collect();
    let mut sender = client.stream.try_clone().unwrap();
    let sends = std::thread::spawn(move || {
        let mut bytes = BytesMut::new();
        requests.iter().for_each(|request| request.encode(&mut bytes));
        sender.write_all(&bytes).unwrap();
    });
    for (number, shard) in order.iter().enumerate() {
        assert_eq!(shard_of(&client.created()), *shard, "{number}");
    }
    sends.join().unwrap();
}

#[test]
fn payloads_and_results_of_any_length_pass() {
    let sharded = start();
    let functions = functions(&sharded);
    let (mut client, mut worker) = (Client::of(&sharded), worker(&sharded, &functions));
    for (function, length) in functions.iter().zip([0, 70_000, 3_000_000]) {
        let payload = "x".repeat(length);
        let handle = client.run(function, &payload);
        assert_eq!(worker.take().payload, payload);
        worker.complete(&handle, &payload);
        let result = bytes(&payload);
        assert_eq!(client.hear(), Response::WorkComplete { handle, result });
    }
}

#[test]
fn who_sends_no_more_gets_all_answers_and_then_the_end() {
    let sharded = start();
    let mut client = Client::of(&sharded);
    let requests: Vec<Request> =
        functions(&sharded).iter().map(|function| background(function, "", "x")).collect();
    client.send_all(&requests);
    client.stream.shutdown(Shutdown::Write).unwrap();
    for shard in 0..SHARDS {
        assert_eq!(shard_of(&client.created()), shard);
    }
    client.hears_end();
}

// ---- workers ----

#[test]
fn a_sleeping_worker_is_woken_by_a_job_on_any_shard() {
    let sharded = start();
    let functions = functions(&sharded);
    let (mut client, mut worker) = (Client::of(&sharded), worker(&sharded, &functions));
    for function in functions.iter().chain(&functions) {
        assert_eq!(worker.grab(), None);
        worker.send(&Request::PreSleep);
        worker.settle();
        let handle = client.add(function, "", "x");
        assert_eq!(worker.hear(), Response::Noop);
        let job = worker.take();
        assert_eq!((&job.handle, job.function), (&handle, bytes(function)));
        worker.complete(&handle, "");
    }
}

#[test]
fn a_worker_that_sleeps_although_there_are_jobs_is_called_once() {
    let sharded = start();
    let functions = functions(&sharded);
    let (mut client, mut worker) = (Client::of(&sharded), worker(&sharded, &functions));
    for function in &functions {
        client.add(function, "", "x");
    }
    worker.send(&Request::PreSleep);
    assert_eq!(worker.hear(), Response::Noop);
    worker.settle();
    for _ in &functions {
        let handle = worker.take().handle;
        worker.complete(&handle, "");
    }
    assert_eq!(worker.grab(), None);
}

#[test]
fn a_worker_takes_jobs_of_all_shards_in_turn() {
    let sharded = start();
    let functions = functions(&sharded);
    let (mut client, mut worker) = (Client::of(&sharded), worker(&sharded, &functions));
    for function in &functions {
        for _ in 0..4 {
            client.add(function, "", "x");
        }
    }
    let order: Vec<u8> = (0..12).map(|_| shard_of(&worker.take().handle)).collect();
    let expected = (0..SHARDS).collect::<Vec<_>>().repeat(4);
    assert_eq!(order, expected);
    assert_eq!(worker.grab(), None);
}

#[test]
fn a_worker_can_do_no_more_what_it_has_taken_back() {
    let sharded = start();
    let functions = functions(&sharded);
    let (mut client, mut worker) = (Client::of(&sharded), worker(&sharded, &functions));
    for function in &functions {
        client.add(function, "", "x");
    }
    worker.send(&Request::CantDo { function: bytes(&functions[1]) });
    let shards: Vec<u8> = (0..2).map(|_| shard_of(&worker.take().handle)).collect();
    assert_eq!((shards, worker.grab()), (vec![0, 2], None));
    worker.can_do(&functions[1]);
    worker.send(&Request::ResetAbilities);
    assert_eq!(worker.grab(), None);
    worker.can_do(&functions[1]);
    assert_eq!(shard_of(&worker.take().handle), 1);
}

#[test]
fn reports_go_to_the_shard_of_their_job() {
    let sharded = start();
    let functions = functions(&sharded);
    let (mut client, mut worker) = (Client::of(&sharded), worker(&sharded, &functions));
    let name = Bytes::from_static(b"exceptions");
    let option = Request::Option { name: name.clone() };
    assert_eq!(client.ask(&option), Response::Option { name });
    let handles: Vec<Bytes> = functions.iter().map(|function| client.run(function, "x")).collect();
    for handle in &handles {
        assert_eq!(worker.take().handle, handle);
    }
    for handle in &handles {
        let handle = handle.clone();
        let (numerator, denominator) = (bytes("1"), bytes("4"));
        let parts = (numerator.clone(), denominator.clone());
        worker.send(&Request::WorkStatus { handle: handle.clone(), numerator, denominator });
        let (numerator, denominator) = parts;
        let expected = Response::WorkStatus { handle: handle.clone(), numerator, denominator };
        assert_eq!(client.hear(), expected);
        let status = client.status(&handle);
        assert_eq!((status.is_running, status.denominator), (true, 4));
        worker.send(&Request::WorkData { handle: handle.clone(), data: bytes("part") });
        let expected = Response::WorkData { handle: handle.clone(), data: bytes("part") };
        assert_eq!(client.hear(), expected);
        worker.send(&Request::WorkWarning { handle: handle.clone(), data: bytes("careful") });
        let data = bytes("careful");
        assert_eq!(client.hear(), Response::WorkWarning { handle, data });
    }
    let [one, two, three] = handles.try_into().unwrap();
    worker.complete(&one, "");
    assert_eq!(client.hear(), Response::WorkComplete { handle: one.clone(), result: bytes("") });
    worker.send(&Request::WorkFail { handle: two.clone() });
    assert_eq!(client.hear(), Response::WorkFail { handle: two });
    worker.send(&Request::WorkException { handle: three.clone(), data: bytes("broken") });
    let expected = Response::WorkException { handle: three.clone(), data: bytes("broken") };
    assert_eq!(client.hear(), expected);
    // They are not the worker's any more, or never were.
    for handle in [three, bytes("H:localhost:1"), bytes("nonsense")] {
        worker.complete(&handle, "again");
        assert_eq!(worker.hear_code(), "JOB_NOT_FOUND");
    }
    assert!(!client.status(&one).is_known);
}

// ---- questions ----

#[test]
fn a_unique_is_known_wherever_its_function_is() {
    let sharded = start();
    let mut client = Client::of(&sharded);
    for function in functions(&sharded) {
        let handle = client.add(&function, &function, "x");
        assert_eq!(client.add(&function, &function, "y"), handle);
        let unique = bytes(&function);
        match client.ask(&Request::GetStatusUnique { unique: unique.clone() }) {
            Response::StatusUnique { unique: same, status, clients: 0 } if same == unique => {
                assert!(status.is_known && !status.is_running);
            }
            other => panic!("expected STATUS_RES_UNIQUE and got {other:?}"),
        }
    }
    let unique = bytes("other");
    let status = JobStatus::default();
    let expected = Response::StatusUnique { unique: unique.clone(), status, clients: 0 };
    assert_eq!(client.ask(&Request::GetStatusUnique { unique }), expected);
}

#[test]
fn lists_of_all_shards_are_one() {
    let sharded = start();
    let functions = functions(&sharded);
    let (mut client, mut worker) = (Client::of(&sharded), worker(&sharded, &functions));
    worker.send(&Request::SetClientId { id: bytes("crew") });
    let mut handles = Vec::new();
    for function in &functions {
        handles.push(client.add(function, &format!("unique of {function}"), "x"));
        handles.push(client.add(function, "", "x"));
    }
    handles.remove(0);
    worker.take();
    let status = |running: [u8; 3]| -> Vec<String> {
        let lines = functions.iter().zip(running);
        lines.map(|(function, running)| format!("{function}\t2\t{running}\t1")).collect()
    };
    assert_eq!(client.list("status"), status([1, 0, 0]));
    let expected: Vec<String> = functions
        .iter()
        .zip([1, 2, 2])
        .map(|(function, waiting)| format!("{function}\t0\t{waiting}\t0\t1"))
        .collect();
    assert_eq!(client.list("prioritystatus"), expected);
    let jobs = client.list("show jobs");
    assert_eq!(jobs.len(), 6);
    for handle in &handles {
        let handle = String::from_utf8(handle.to_vec()).unwrap();
        assert!(jobs.iter().any(|line| line.starts_with(&format!("{handle}\t0"))), "{jobs:?}");
    }
    let mut uniques = client.list("show unique jobs");
    uniques.retain(|unique| !unique.is_empty());
    let expected: Vec<String> =
        functions.iter().map(|function| format!("unique of {function}")).collect();
    assert_eq!(uniques, expected);
    // A worker has a line for each shard that it can do something of.
    let mut workers = client.list("workers");
    workers.retain(|line| line.contains(" crew :"));
    assert_eq!(workers.len(), 3);
    for (line, function) in workers.iter().zip(&functions) {
        assert!(line.ends_with(&format!(" 127.0.0.1 crew : {function}")), "{line}");
    }
    // And what comes next is answered as ever.
    assert!(client.status(&handles[0]).is_known);
}

#[test]
fn a_list_is_longer_than_what_waits_for_a_client() {
    let sharded = start();
    let functions = functions(&sharded);
    let mut client = Client::of(&sharded);
    let unique = "u".repeat(50);
    for shard in 0..6000 {
        let function = &functions[shard % 3];
        client.send(&background(function, &format!("{unique}{shard:06}"), ""));
    }
    (0..6000).for_each(|_| drop(client.created()));
    for _ in 0..3 {
        client.stream.write_all(b"show unique jobs\n").unwrap();
    }
    for _ in 0..3 {
        let mut lines = std::iter::from_fn(|| Some(client.hear_line()).filter(|it| it != ".\n"));
        let mut uniques: Vec<String> = lines.by_ref().collect();
        uniques.sort();
        uniques.dedup();
        assert_eq!(uniques.len(), 6000);
    }
}

#[test]
fn commands_about_a_function_or_a_job_go_where_it_is() {
    let sharded = start();
    let mut client = Client::of(&sharded);
    for shard in 0..SHARDS {
        let [limited, created] = [0, 1].map(|number| sharded.queue_on(shard, number));
        assert_eq!(client.command(&format!("maxqueue {limited} 1")), "OK\r\n");
        let handle = client.add(&limited, "", "x");
        client.send(&background(&limited, "", "x"));
        assert_eq!(client.hear_code(), "QUEUE_ERROR");
        let cancel = format!("cancel job {}", handle.escape_ascii());
        assert_eq!(client.command(&cancel), "OK\r\n");
        assert_eq!(client.command(&cancel), "ERR UNKNOWN_JOB\r\n");
        assert_eq!(client.command(&format!("create function {created}")), "OK\r\n");
        assert!(client.list("status").contains(&format!("{created}\t0\t0\t0")));
        let drop = format!("drop function {created}");
        assert_eq!(client.command(&drop), "OK\r\n");
        assert_eq!(client.command(&drop), "ERR function not found\r\n");
    }
    assert_eq!(client.command("cancel job nonsense"), "ERR UNKNOWN_JOB\r\n");
    assert!(client.command("version").starts_with("OK 2.0.0-spindle-"));
    assert_eq!(client.command("getpid"), format!("OK {}\n", std::process::id()));
    assert_eq!(client.command("verbose"), "OK ERROR\n");
    assert!(client.command("shutdown").starts_with("ERR UNKNOWN_COMMAND"));
}

#[test]
fn what_is_malformed_is_answered_as_by_one_server() {
    let sharded = start();
    let mut client = Client::of(&sharded);
    let function = sharded.queue_on(1, 0);
    client.can_do("");
    client.send(&background(&function, &"u".repeat(65), ""));
    client.send(&background(&function, "", ""));
    client.stream.write_all(b"nonsense\n").unwrap();
    client.stream.write_all(b"\0REQ\0\0\0\x63\0\0\0\0").unwrap();
    assert_eq!(client.hear_code(), "INVALID_FUNCTION_NAME");
    assert_eq!(client.hear_code(), "ARGUMENT_TOO_LARGE");
    client.created();
    assert!(client.hear_line().starts_with("ERR UNKNOWN_COMMAND"));
    assert_eq!(client.hear_code(), "INVALID_COMMAND");
    client.hears_end();
    for stranger in ["GET / HTTP/1.1\r\n\r\n", "\x16\x03\x01"] {
        let mut client = Client::of(&sharded);
        client.stream.write_all(stranger.as_bytes()).unwrap();
        client.hears_end();
    }
}

#[test]
fn a_client_of_the_draft_reads_why_it_is_refused() {
    let sharded = start();
    let mut client = Client::of(&sharded);
    client.stream.write_all(b"\x01SPD\x06\0\0\0\0").unwrap();
    let mut answer = Vec::new();
    client.input.read_to_end(&mut answer).unwrap();
    assert!(answer.starts_with(b"\x01SPD\x7f") && answer.ends_with(b"published protocol"));
}

// ---- lost shards ----

#[test]
fn a_client_with_nothing_on_a_lost_shard_goes_on_with_the_others() {
    let sharded = start();
    let functions = functions(&sharded);
    let mut client = Client::of(&sharded);
    functions.iter().for_each(|function| drop(client.add(function, "", "x")));
    sharded.lose(1);
    for shard in [0, 2, 0, 2] {
        assert_eq!(shard_of(&client.add(&functions[shard], "", "x")), shard as u8);
    }
    // What is owed before the answer that never comes still leaves, and nothing behind it.
    client.send_all(&[0, 1, 2].map(|shard| background(&functions[shard], "", "x")));
    assert_eq!(shard_of(&client.created()), 0);
    client.hears_end();
}

#[test]
fn a_client_that_waits_for_a_job_on_a_lost_shard_is_closed() {
    let sharded = start();
    let functions = functions(&sharded);
    let (mut client, mut other) = (Client::of(&sharded), Client::of(&sharded));
    client.run(&functions[1], "x");
    other.run(&functions[2], "x");
    sharded.lose(1);
    client.hears_end();
    other.add(&functions[0], "", "x");
}

#[test]
fn a_worker_with_a_job_of_a_lost_shard_is_closed_and_its_others_are_given_back() {
    let sharded = start();
    let functions = functions(&sharded);
    let (mut client, mut worker) = (Client::of(&sharded), worker(&sharded, &functions));
    let handles = [&functions[1], &functions[2]].map(|function| client.add(function, "", "x"));
    handles.iter().for_each(|handle| assert_eq!(worker.take().handle, handle));
    assert!(client.status(&handles[1]).is_running);
    sharded.lose(1);
    worker.hears_end();
    wait_until("the other job is given back", || {
        !Client::of(&sharded).status(&handles[1]).is_running
    });
}

#[test]
fn a_worker_that_sleeps_is_called_when_a_shard_is_lost() {
    let sharded = start();
    let functions = functions(&sharded);
    let mut worker = worker(&sharded, &functions);
    worker.send(&Request::PreSleep);
    worker.settle();
    sharded.lose(1);
    assert_eq!(worker.hear(), Response::Noop);
}

// ---- tokens ----

#[test]
fn a_token_counts_at_all_shards() {
    let tokens = TokensFile::of_all_roles();
    let sharded = start_with(tokens.access(true));
    let functions = functions(&sharded);
    let mut client = Client::of(&sharded);
    for function in &functions {
        client.send(&background(function, "", "x"));
        assert_eq!(client.hear_code(), "AUTHENTICATION_REQUIRED");
    }
    assert!(client.command("auth nobody").starts_with("ERR AUTHENTICATION_REQUIRED"));
    assert_eq!(client.command("auth submit"), "OK\r\n");
    functions.iter().for_each(|function| drop(client.add(function, "", "x")));
    assert!(client.command("status").starts_with("ERR PERMISSION_DENIED"));
    // Before there is any way.
    let mut worker = Client::of(&sharded);
    assert_eq!(worker.command("auth work"), "OK\r\n");
    functions.iter().for_each(|function| worker.can_do(function));
    for _ in &functions {
        let handle = worker.take().handle;
        worker.complete(&handle, "");
    }
    for function in &functions {
        worker.send(&background(function, "", "x"));
        assert_eq!(worker.hear_code(), "PERMISSION_DENIED");
    }
    // In place of the one before.
    assert_eq!(worker.command("auth submit"), "OK\r\n");
    functions.iter().for_each(|function| drop(worker.add(function, "", "x")));
    worker.can_do(&functions[2]);
    assert_eq!(worker.hear_code(), "PERMISSION_DENIED");
}
