//! Questions about jobs, and the text commands line by line.

use bytes::Bytes;
use spindle_core::command::{Command, Edit};
use spindle_gearman::wire::{GrabKind, JobStatus, Priority, Request, SubmitKind};

use crate::harness::{Bench, START_MS, id_of, known};

#[test]
fn unknown_jobs_are_unknown() {
    let bench = Bench::new();
    let mut client = bench.open();
    for handle in ["nonsense", "", "H:localhost:77", "H:localhost:0", "H::"] {
        let handle = Bytes::copy_from_slice(handle.as_bytes());
        assert_eq!(client.status(&handle), JobStatus::default());
    }
    assert_eq!(client.status_unique("nonsense"), (JobStatus::default(), 0));
}

#[test]
fn a_handle_is_known_under_whatever_name_the_machine_had() {
    let bench = Bench::new();
    let mut client = bench.open();
    let handle = client.add("f", "", "x");
    let renamed = Bytes::from(format!("H:elsewhere:{}", id_of(&handle)));
    assert_eq!(client.status(&renamed), known(false));
}

#[test]
fn scheduled_ready_and_leased_jobs_are_known_and_parked_ones_are_not() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    let at_s = START_MS / 1000 + 60;
    let scheduled = client.submit(SubmitKind::Epoch { at_s }, "f", "", "x");
    let leased = client.add("f", "", "x");
    let parked = client.add("f", "", "x");
    worker.can_do("f");
    worker.take();
    let id = id_of(&parked);
    bench.execute(Command::Edit(Box::new(Edit { id, parked: Some(true), ..Edit::default() })));
    assert_eq!(client.status(&scheduled), known(false));
    assert_eq!(client.status(&leased), known(true));
    assert_eq!(client.status(&parked), JobStatus::default());
    assert_eq!(worker.text("status"), "f\t2\t1\t1\n.\n");
}

#[test]
fn progress_is_read_as_a_number_and_told_as_text() {
    let bench = Bench::new();
    let (mut client, mut worker) = (bench.open(), bench.open());
    let handle = client.add("f", "bu", "x");
    worker.can_do("f");
    worker.take();
    worker.progress(&handle, "3", "7");
    let (status, clients) = client.status_unique("bu");
    assert_eq!((status.numerator, status.denominator, clients), (3, 7, 0));
    worker.progress(&handle, "abc", "12x");
    let status = client.status(&handle);
    assert_eq!((status.numerator, status.denominator), (0, 12));
}

#[test]
fn commands_on_an_empty_server_answer_as_recorded() {
    let bench = Bench::new();
    let mut admin = bench.open();
    let incomplete = |command| {
        format!(
            "ERR INVALID_ARGUMENTS \
             An+incomplete+set+of+arguments+was+sent+to+this+command+{command}\r\n"
        )
    };
    let unknown = |command| format!("ERR UNKNOWN_COMMAND Unknown+server+command{command}\r\n");
    let conversation = [
        ("status", ".\n".to_owned()),
        ("prioritystatus", ".\n".to_owned()),
        ("show jobs", ".\n".to_owned()),
        ("show unique jobs", ".\n".to_owned()),
        ("workers", "1 127.0.0.1 - :\n.\n".to_owned()),
        ("show", unknown("show")),
        ("show x", "ERR UNKNOWN_SHOW_ARGUMENTS\r\n".to_owned()),
        ("verbose", "OK ERROR\n".to_owned()),
        ("maxqueue", incomplete("maxqueue")),
        ("cancel", unknown("cancel")),
        ("cancel job H:x:1", "ERR UNKNOWN_JOB\r\n".to_owned()),
        ("cancel foo bar", "ERR UNKNOWN_ERROR\r\n".to_owned()),
        ("create function", incomplete("create")),
        ("drop function nosuch", "ERR function not found\r\n".to_owned()),
        ("shutdown", unknown("shutdown")),
        ("", unknown("")),
        ("getpid", format!("OK {}\n", std::process::id())),
    ];
    for (line, answer) in conversation {
        assert_eq!(admin.text(line), answer, "{line}");
    }
    assert!(admin.text("version").starts_with("OK 2.0.0-spindle-"));
}

#[test]
fn lines_may_end_in_cr_lf_come_together_and_stand_between_packets() {
    let bench = Bench::new();
    let mut admin = bench.open();
    assert_eq!(admin.text("status\r"), ".\n");
    assert_eq!(admin.text("status\nSTATUS"), ".\n.\n");
    let data = Bytes::from_static(b"hi");
    let echo = Request::Echo { data: data.clone() };
    assert_eq!(admin.ask(&echo), spindle_gearman::wire::Response::Echo { data });
    assert_eq!(admin.text("status"), ".\n");
}

#[test]
fn create_function_creates_what_it_says_and_drop_drops_it() {
    let bench = Bench::new();
    let mut admin = bench.open();
    assert_eq!(admin.text("create function abcdef"), "OK\r\n");
    assert_eq!(admin.text("create function a\r"), "OK\r\n");
    assert_eq!(admin.text("status"), "a\t0\t0\t0\nabcdef\t0\t0\t0\n.\n");
    assert_eq!(admin.text("drop function ABCDEF"), "ERR function not found\r\n");
    assert_eq!(admin.text("drop function abcdef"), "OK\r\n");
    assert_eq!(admin.text("status"), "a\t0\t0\t0\n.\n");
}

#[test]
fn a_function_with_workers_or_running_jobs_is_not_dropped_and_waiting_jobs_go_with_it() {
    let bench = Bench::new();
    let (mut admin, mut client, mut worker) = (bench.open(), bench.open(), bench.open());
    let in_use = "ERR there are still connected workers or executing clients\r\n";
    worker.can_do("f");
    assert_eq!(admin.text("drop function f"), in_use);
    let running = client.add("f", "", "running");
    worker.take();
    worker.cant_do("f");
    assert_eq!(admin.text("drop function f"), in_use);
    worker.complete(&running, "");
    let waiting = client.run("f", "", "waiting");
    for _ in 0..1000 {
        client.add("f", "", "waiting");
    }
    assert_eq!(admin.text("maxqueue f 5"), "OK\r\n");
    assert_eq!(admin.text("drop function f"), "OK\r\n");
    client.hears_fail(&waiting);
    assert_eq!(admin.text("status"), ".\n");
    assert_eq!(admin.text("show jobs"), ".\n");
    // Its limit is gone as well.
    for _ in 0..6 {
        client.add("f", "", "again");
    }
}

#[test]
fn a_known_function_stays_listed_when_its_jobs_and_workers_have_gone() {
    let bench = Bench::new();
    let (mut admin, mut client, mut worker) = (bench.open(), bench.open(), bench.open());
    worker.can_do("watched");
    worker.close();
    let handle = client.run("run", "", "x");
    client.close();
    assert!(!handle.is_empty());
    assert_eq!(admin.text("status"), "run\t0\t0\t0\nwatched\t0\t0\t0\n.\n");
}

#[test]
fn queues_of_other_doors_are_listed_while_they_have_jobs() {
    let bench = Bench::new();
    let mut admin = bench.open();
    admin.text("create function mine");
    let id = bench.add_foreign("theirs", "x");
    bench.add_foreign("mine", "x");
    assert_eq!(admin.text("status"), "mine\t1\t0\t0\ntheirs\t1\t0\t0\n.\n");
    bench.finish_foreign(id, true, "");
    assert_eq!(admin.text("status"), "mine\t1\t0\t0\n.\n");
}

#[test]
fn prioritystatus_counts_what_waits_above_at_and_below_normal() {
    let bench = Bench::new();
    let (mut admin, mut client, mut worker) = (bench.open(), bench.open(), bench.open());
    worker.can_do("f");
    for (count, priority) in [(3, Priority::High), (2, Priority::Normal), (1, Priority::Low)] {
        for _ in 0..count {
            client.submit(SubmitKind::Background(priority), "f", "", "x");
        }
    }
    client.submit(SubmitKind::Epoch { at_s: START_MS / 1000 + 60 }, "f", "", "x");
    assert_eq!(admin.text("prioritystatus"), "f\t3\t3\t1\t1\n.\n");
    worker.take();
    assert_eq!(admin.text("prioritystatus"), "f\t2\t3\t1\t1\n.\n");
    assert_eq!(admin.text("status"), "f\t7\t1\t1\n.\n");
}

#[test]
fn workers_are_listed_with_their_names_and_functions_the_newest_first() {
    let bench = Bench::new();
    let (mut admin, mut worker) = (bench.open(), bench.open());
    worker.send(&Request::SetClientId { id: Bytes::from_static(b"my id\twith spaces") });
    for function in ["one", "two", "three", "two"] {
        worker.can_do(function);
    }
    worker.cant_do("nosuch");
    let listed = "1 127.0.0.1 - :\n2 127.0.0.1 my id\\x09with spaces : three two one\n.\n";
    assert_eq!(admin.text("workers"), listed);
    assert_eq!(admin.text("status"), "one\t0\t0\t1\nthree\t0\t0\t1\ntwo\t0\t0\t1\n.\n");
    worker.send(&Request::SetClientId { id: Bytes::from("x".repeat(200)) });
    worker.send(&Request::ResetAbilities);
    let listed = format!("1 127.0.0.1 - :\n2 127.0.0.1 {} :\n.\n", "x".repeat(127));
    assert_eq!(admin.text("workers"), listed);
    worker.close();
    assert_eq!(admin.text("workers"), "1 127.0.0.1 - :\n.\n");
}

#[test]
fn show_jobs_tells_retries_and_whether_a_job_outlives_its_clients() {
    let bench = Bench::new();
    let (mut admin, mut client) = (bench.open(), bench.open());
    let (run, added) = (client.run("f", "u1", "x"), client.add("f", "", "x"));
    let lines = format!("{}\t0\t0\t0\n{}\t0\t0\t1\n.\n", run.escape_ascii(), added.escape_ascii());
    assert_eq!(admin.text("show jobs"), lines);
    assert_eq!(admin.text("show unique jobs"), "u1\n\n.\n");
}

#[test]
fn a_cancelled_job_is_cancelled_whether_it_waits_or_runs() {
    let bench = Bench::new();
    let (mut admin, mut client, mut worker) = (bench.open(), bench.open(), bench.open());
    let (waiting, running) = (client.run("f", "", "1"), client.run("g", "", "2"));
    let kept = client.add("f", "", "3");
    worker.can_do("g");
    worker.take();
    for handle in [&waiting, &running, &kept] {
        let line = format!("cancel job {}", handle.escape_ascii());
        assert_eq!(admin.text(&line), "OK\r\n");
        assert_eq!(admin.text(&line), "ERR UNKNOWN_JOB\r\n");
    }
    client.hears_fail(&waiting);
    client.hears_fail(&running);
    client.hears_nothing();
    assert_eq!(client.status(&kept), JobStatus::default());
    worker.complete(&running, "done");
    assert_eq!(worker.hear_error().1, "Job given in work result not found");
    worker.can_do("f");
    assert_eq!(worker.grab(GrabKind::Plain), None);
    assert_eq!(admin.text("show jobs"), ".\n");
}

#[test]
fn maxqueue_limits_what_a_function_may_hold_for_each_priority() {
    let bench = Bench::new();
    let (mut admin, mut client) = (bench.open(), bench.open());
    let full = ("QUEUE_ERROR".to_owned(), "Job queue is full".to_owned());
    let background =
        |priority| crate::harness::submit(SubmitKind::Background(priority), "mq", "", "x");
    client.add("mq", "", "1");
    assert_eq!(admin.text("maxqueue mq 2"), "OK\r\n");
    client.add("mq", "", "2");
    for request in [
        background(Priority::Normal),
        background(Priority::High),
        crate::harness::submit(SubmitKind::Foreground(Priority::Normal), "mq", "", "3"),
    ] {
        client.send(&request);
        assert_eq!(client.hear_error(), full);
    }
    assert_eq!(admin.text("maxqueue mq 3 2 1"), "OK\r\n");
    for priority in [Priority::Normal, Priority::Low] {
        client.send(&background(priority));
        assert_eq!(client.hear_error(), full);
    }
    client.submit(SubmitKind::Background(Priority::High), "mq", "", "3");
    assert_eq!(admin.text("maxqueue mq 0"), "OK\r\n");
    client.add("mq", "", "4");
    // Known before its first job.
    assert_eq!(admin.text("maxqueue new 1"), "OK\r\n");
    client.add("new", "", "1");
    client.send(&crate::harness::submit(SubmitKind::Background(Priority::Normal), "new", "", "2"));
    assert_eq!(client.hear_error(), full);
}

#[test]
fn names_never_break_a_line_and_are_commanded_as_they_are_shown() {
    let bench = Bench::new();
    let (mut admin, mut client, mut worker) = (bench.open(), bench.open(), bench.open());
    bench.add_foreign("a\tb\nc", "x");
    assert_eq!(admin.text("status"), "a\\x09b\\x0ac\t1\t0\t0\n.\n");
    assert_eq!(admin.text("prioritystatus"), "a\\x09b\\x0ac\t0\t1\t0\t0\n.\n");
    assert_eq!(admin.text(r"drop function a\x09b\x0ac"), "OK\r\n");
    assert_eq!(admin.text("status"), ".\n");
    client.add("f", ".", "x");
    client.add("f", "\x1b[1A\r.", "x");
    assert_eq!(admin.text("show unique jobs"), "\\x2e\n\\x1b[1A\\x0d.\n.\n");
    worker.can_do("App\\Mailer\n.\n9 10.0.0.1 - : root");
    worker.send(&Request::SetClientId { id: Bytes::from_static(b"\x9b2J") });
    let listed = "3 127.0.0.1 \\x9b2J : App\\Mailer\\x0a.\\x0a9 10.0.0.1 - : root\n.\n";
    assert!(admin.text("workers").ends_with(listed));
}

#[test]
fn a_name_with_a_nul_is_nobodys_function() {
    let bench = Bench::new();
    let mut admin = bench.open();
    let refused = "ERR INVALID_ARGUMENTS Function+name+not+usable\r\n";
    assert_eq!(admin.text(r"create function a\x00b"), refused);
}
