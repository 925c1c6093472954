//! Bad input, a log that is behind, clients that do not read, and connections that end.

use bytes::Bytes;
use spindle_core::Command;
use spindle_engine::{Flow, Options};
use spindle_gearman::wire::{GrabKind, Priority, Request, Response, SubmitKind};

use crate::harness::{Bench, Line, START_MS, submit};

fn packet(kind: u32, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    [&b"\0REQ"[..], &kind.to_be_bytes(), &length.to_be_bytes(), data].concat()
}

#[track_caller]
fn is_alive(line: &mut Line) {
    let data = Bytes::from_static(b"alive?");
    assert_eq!(line.ask(&Request::Echo { data: data.clone() }), Response::Echo { data });
}

/// A client that waits for news, or works, may send nothing for long; that does not count as idle.
#[test]
fn who_sleeps_works_or_waits_is_not_idle() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    assert!(!client.is_engaged() && !worker.is_engaged());
    worker.can_do("f");
    assert!(!worker.is_engaged());
    worker.send(&Request::PreSleep);
    assert!(worker.is_engaged());
    client.run("f", "", "x");
    assert!(client.is_engaged());
    worker.hear();
    let handle = worker.take();
    assert!(worker.is_engaged());
    worker.complete(&handle, "y");
    client.hears_complete(&handle, "y");
    assert!(!client.is_engaged() && !worker.is_engaged());
}

#[test]
fn packets_only_a_server_sends_are_refused_and_the_connection_goes_on() {
    let bench = Bench::new();
    let mut line = bench.open();
    for kind in [5, 6, 8, 10, 11, 17, 19, 20, 27, 31, 40, 42] {
        line.raw(packet(kind, b""));
        let refused = ("INVALID_COMMAND".to_owned(), "Command not expected".to_owned());
        assert_eq!(line.hear_error(), refused, "{kind}");
        is_alive(&mut line);
    }
    line.raw(b"\0RES\0\0\0\x10\0\0\0\x02hi");
    assert_eq!(line.hear_error().0, "INVALID_MAGIC");
    is_alive(&mut line);
}

#[test]
fn unknown_types_are_an_error_and_the_end_however_large() {
    for kind in [0, 43, 99, 0x7fff_ffff, 0x8000_0000, 4_000_000_000] {
        let bench = Bench::new();
        let mut line = bench.open();
        line.raw(packet(kind, b""));
        assert_eq!(line.hear_error().0, "INVALID_COMMAND", "{kind}");
        assert_eq!(line.flow, Flow::Close);
    }
}

#[test]
fn missing_arguments_are_an_error_and_nothing_is_waited_for() {
    let bench = Bench::new();
    let mut line = bench.open();
    for (kind, data) in [
        (7, &b"abc"[..]),
        (7, b""),
        (7, b"abc\0"),
        (13, b"H:localhost:1"),
        (37, b"red\0ru5\0reducer-fn\0data"),
        (35, b"f\0\0x"),
    ] {
        line.raw(packet(kind, data));
        assert_eq!(line.hear_error().0, "INVALID_PACKET", "{kind}");
        is_alive(&mut line);
    }
}

#[test]
fn names_that_are_empty_too_long_or_have_a_nul_are_refused() {
    let bench = Bench::new();
    let mut line = bench.open();
    let long = vec![b'f'; 513];
    for (kind, data, code) in [
        (1, &b""[..], "INVALID_FUNCTION_NAME"),
        (18, b"\0\0x", "INVALID_FUNCTION_NAME"),
        (1, b"a\0b", "INVALID_FUNCTION_NAME"),
        (1, &long, "ARGUMENT_TOO_LARGE"),
        (18, &[&long[..], b"\0\0x"].concat(), "ARGUMENT_TOO_LARGE"),
        (18, &[b"f\0", &[b'u'; 65][..], b"\0x"].concat(), "ARGUMENT_TOO_LARGE"),
        (15, &[b'h'; 100], "ARGUMENT_TOO_LARGE"),
        (14, &[b'h'; 100], "ARGUMENT_TOO_LARGE"),
    ] {
        line.raw(packet(kind, data));
        assert_eq!(line.hear_error().0, code, "{kind} {}", data.escape_ascii());
        is_alive(&mut line);
    }
    // Not text, but a name.
    line.raw(packet(18, b"\xff\xfe\0\x80\0x"));
    assert!(matches!(line.hear(), Response::JobCreated { .. }));
    line.raw(packet(1, b"\xff\xfe"));
    assert_eq!(line.grab(GrabKind::Uniq).map(|job| job.function), Some(b"\xff\xfe"[..].into()));
}

#[test]
fn what_is_no_gearman_client_is_cut_off_without_a_word() {
    for start in ["GET / HTTP/1.1\r\n", "POST /x HTTP/1.1\r\n", "\x16\x03\x01", "\0XXX\0\0\0\x10"] {
        let bench = Bench::new();
        let mut line = bench.open();
        line.raw(start);
        assert_eq!(line.flow, Flow::Abort, "{start:?}");
        line.hears_nothing();
    }
}

#[test]
fn a_packet_may_come_byte_by_byte() {
    let bench = Bench::new();
    let mut line = bench.open();
    for byte in packet(16, b"pieces") {
        line.hears_nothing();
        line.raw([byte]);
    }
    assert_eq!(line.hear(), Response::Echo { data: Bytes::from_static(b"pieces") });
}

#[test]
fn a_worker_can_do_a_thousand_functions_and_not_many_more() {
    let bench = Bench::new();
    let mut worker = bench.open();
    for function in 0..1024 {
        worker.can_do(&format!("f{function}"));
    }
    worker.hears_nothing();
    worker.can_do("one too many");
    assert_eq!(worker.hear_error().0, "QUEUE_ERROR");
    worker.can_do("f7");
    assert_eq!(worker.grab(GrabKind::Plain), None);
}

#[test]
fn their_names_have_64_kib_and_not_a_byte_more() {
    let bench = Bench::new();
    let mut worker = bench.open();
    let long = |number: usize| format!("{number:0512}");
    for function in 0..128 {
        worker.can_do(&long(function));
    }
    worker.hears_nothing();
    worker.can_do("f");
    assert_eq!(worker.hear_error(), ("QUEUE_ERROR".into(), "Too many of these at once".into()));
    worker.send(&Request::CantDo { function: long(0).into() });
    worker.can_do("f");
    worker.hears_nothing();
    worker.can_do(&long(0));
    assert_eq!(worker.hear_error().0, "QUEUE_ERROR");
}

#[test]
fn a_log_that_is_behind_holds_a_connection_back_and_loses_nothing() {
    let options = Options { undurable_bytes_max: 4096, ..Options::default() };
    let bench = Bench::with(options);
    let (mut client, mut worker) = (bench.open(), bench.open());
    let payload = "x".repeat(500);
    for _ in 0..40 {
        client.send(&submit(SubmitKind::Background(Priority::Normal), "f", "", &payload));
    }
    assert_eq!(client.flow, Flow::Wait);
    for _ in 0..40 {
        assert!(matches!(client.hear(), Response::JobCreated { .. }));
    }
    worker.can_do("f");
    let handles: Vec<Bytes> = (0..40).map(|_| worker.take()).collect();
    for handle in &handles {
        worker.complete(handle, &payload);
    }
    worker.hears_nothing();
    assert!(handles.iter().all(|handle| bench.kept_result(handle).unwrap().len() == 500));
}

#[test]
fn lists_longer_than_an_outbox_come_whole_and_in_steps() {
    let bench = Bench::new();
    let (mut client, mut admin) = (bench.open(), bench.open());
    for job in 0..5000 {
        let function = format!("function{:04}", job % 3000);
        client.send(&submit(SubmitKind::Background(Priority::Normal), &function, "", "x"));
        client.hear();
    }
    admin.raw("show jobs\nstatus\nversion\n");
    // What the reader has not read yet is little.
    assert!(admin.out.pending_bytes() < 128 * 1024, "{}", admin.out.pending_bytes());
    let all = admin.text("prioritystatus");
    let lists: Vec<&str> = all.split(".\n").collect();
    assert_eq!(lists[0].lines().count(), 5000);
    let functions: Vec<&str> = lists[1].lines().collect();
    assert_eq!(functions.len(), 3000);
    assert!(functions.is_sorted());
    assert_eq!((functions[0], functions[2999]), ("function0000\t2\t0\t0", "function2999\t1\t0\t0"));
    assert!(all.contains(".\nOK 2.0.0-spindle-"));
    assert!(lists.last().unwrap().is_empty());
}

#[test]
fn a_long_list_of_workers_comes_whole_and_in_steps() {
    let bench = Bench::new();
    let mut admin = bench.open();
    let names: Vec<String> = (0..1024).map(|name| format!("{name:0>64}")).collect();
    let mut workers: Vec<Line> = (0..6).map(|_| bench.open()).collect();
    let all = &names[..];
    for (worker, names) in workers.iter_mut().zip([all, &all[..300], &[], all, all, all]) {
        names.iter().for_each(|name| worker.can_do(name));
    }
    admin.raw("workers\nversion\n");
    assert!(admin.out.pending_bytes() < 128 * 1024, "{}", admin.out.pending_bytes());
    // One that goes meanwhile ends its line and no other.
    workers.remove(1).close();
    let all = admin.text("prioritystatus");
    let (lines, rest) = all.split_once(".\nOK 2.0.0-spindle-").expect("the list ends");
    let lines: Vec<&str> = lines.lines().collect();
    assert_eq!((lines[0], lines[2]), ("1 127.0.0.1 - :", "4 127.0.0.1 - :"));
    let (start, functions) = lines[1].split_once(" : ").expect("it can do something");
    assert_eq!(start, "2 127.0.0.1 -");
    let newest_first: Vec<&str> = names.iter().rev().map(String::as_str).collect();
    assert_eq!(functions.split(' ').collect::<Vec<_>>(), newest_first);
    assert_eq!((lines.len(), rest.lines().count()), (6, 1 + 1024 + 1));
}

#[test]
fn a_walk_that_finds_nothing_to_write_lets_others_have_their_turn() {
    let bench = Bench::new();
    let mut admin = bench.open();
    // Dead jobs, which `show jobs` passes over.
    for _ in 0..10_000 {
        let id = bench.add_foreign("f", "x");
        bench.execute(Command::Cancel { id });
        bench.commit();
    }
    admin.raw("show jobs\n");
    assert_eq!(admin.flow, Flow::Wait, "it is not done, and waits until others had theirs");
    assert!(admin.text("version").starts_with(".\nOK "));
}

#[test]
fn a_client_that_does_not_read_loses_progress_first_and_then_its_connection() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    let handle = client.run("f", "", "x");
    worker.can_do("f");
    worker.take();
    let chunk = "x".repeat(1024 * 1024);
    worker.data(&handle, &chunk);
    worker.data(&handle, &chunk);
    worker.progress(&handle, "1", "2");
    client.hand_over();
    let unread = client.out.pending_bytes();
    assert!(unread < 2 * chunk.len() + 100, "{unread}");
    for _ in 0..80 {
        worker.data(&handle, &chunk);
        client.hand_over();
    }
    assert_eq!(client.flow, Flow::Abort);
    assert!(client.out.pending_bytes() < 70 * chunk.len());
}

#[test]
fn a_client_may_leave_64_mib_of_news_unread_and_no_byte_more() {
    const UNREAD_BYTES_MAX: usize = 64 * 1024 * 1024;
    for (unread, flow) in [(UNREAD_BYTES_MAX, Flow::Continue), (UNREAD_BYTES_MAX + 1, Flow::Abort)]
    {
        let bench = Bench::new();
        let (mut client, mut worker) = (bench.open(), bench.open());
        let handle = client.run("f", "", "x");
        worker.can_do("f");
        worker.take();
        worker.data(&handle, "x");
        client.hand_over();
        let around = client.out.pending_bytes() - 1;
        let mut left = unread - client.out.pending_bytes();
        while left > 0 {
            let longest = (1 << 20).min(left - around);
            // What is left for the last one must have room for what is around it.
            let len = if left - around - longest > around { longest } else { left - around };
            let len = if len > 1 << 20 { len / 2 } else { len };
            worker.data(&handle, &"x".repeat(len));
            client.hand_over();
            left = unread - client.out.pending_bytes();
        }
        assert_eq!((client.out.pending_bytes(), client.flow), (unread, Flow::Continue));
        worker.data(&handle, "one more");
        client.hand_over();
        assert_eq!(client.flow, flow, "{unread}");
    }
}

#[test]
fn who_sends_no_more_still_gets_its_answers_and_waits_for_nothing() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    client.send(&submit(SubmitKind::Foreground(Priority::Normal), "f", "", "x"));
    client.raw("version\n");
    assert_eq!(client.end_sending(), Flow::Continue);
    assert!(matches!(client.hear(), Response::JobCreated { .. }));
    client.close();
    worker.can_do("f");
    assert_eq!(worker.grab(GrabKind::Plain), None);
}

#[test]
fn a_server_that_stops_gives_out_nothing_takes_what_is_kept_and_ends_its_connections() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    client.add("f", "", "x");
    worker.can_do("f");
    worker.send(&Request::Grab(GrabKind::Plain));
    worker.hear();
    client.add("f", "", "y");
    bench.engine.stop_leasing();
    assert_eq!(worker.grab(GrabKind::Plain), None);
    // Jobs that outlast the server's end are accepted, and others are refused.
    client.add("f", "", "z");
    client.send(&submit(SubmitKind::Foreground(Priority::Normal), "f", "", "z"));
    assert_eq!(client.hear_error().0, "SERVER_ERROR");
    assert_eq!((client.shut_down(false), worker.shut_down(false)), (Flow::Close, Flow::Close));
}

#[test]
fn a_restart_keeps_background_jobs_and_gives_foreground_handles_to_nobody_else() {
    let log = std::sync::Arc::new(spindle_log::MemoryLog::new());
    let start = || {
        let options = spindle_gearman::Options::default();
        Bench::on(log.clone(), Options::default(), options)
    };
    let bench = start();
    let mut client = bench.open();
    let (added, run) = (client.add("f", "k", "kept"), client.run("f", "", "lost"));
    drop(client);
    drop(bench);
    let bench = start();
    assert!(bench.engine.now_ms() >= START_MS);
    let (mut client, mut worker) = (bench.open(), bench.open());
    assert!(!client.status(&run).is_known);
    // Still the same work.
    assert_eq!(client.add("f", "k", "again"), added);
    assert_ne!(client.run("f", "", "new"), run);
    worker.can_do("f");
    assert_eq!(worker.take_payload(), "kept");
}
