//! `spindle work` against a scripted server.

use spindle_testkit::Program;
use std::{
    process::{Command, Stdio},
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::fake_workq::{
    Answer, Fake, Said, await_exit, id, lease, name, not_found, ok, refused, stderr, stdout,
    timeout,
};
use nix::sys::signal::Signal;
use spindle_workq::wire::{Request, Uuid};

/// A server that has these jobs to give out.
fn with_jobs(jobs: Vec<(u8, &'static [u8])>) -> Fake {
    let jobs = Mutex::new(jobs.into_iter());
    Fake::start(move |request| match request {
        Request::Lease { .. } => match jobs.lock().unwrap().next() {
            Some((number, payload)) => lease(id(number), "q", 60_000, payload),
            None => timeout(),
        },
        _ => ok(),
    })
}

fn finished(fake: &Fake) -> Vec<(Uuid, bool, Vec<u8>)> {
    let finishes = fake.requests().into_iter().filter_map(|request| match request {
        Request::Complete { id, result } => Some((id, true, result.to_vec())),
        Request::Fail { id, result } => Some((id, false, result.to_vec())),
        _ => None,
    });
    finishes.collect()
}

#[test]
fn the_exit_code_decides_and_the_output_is_the_result() {
    let fake = with_jobs(vec![(1, b"true"), (2, b"false"), (3, b"exit 7")]);
    let script = "printf %s \"$SPINDLE_QUEUE $SPINDLE_JOB_ID\"; eval \"$(cat)\"";
    let output = fake.spindle(&["work", "q", "--drain", "--", "sh", "-c", script]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
    let result = |number| format!("q {}", id(number)).into_bytes();
    let expected = [(id(1), true, result(1)), (id(2), false, result(2)), (id(3), false, result(3))];
    assert_eq!(finished(&fake), expected);
    assert!(stderr(&output).contains("1 completed, 2 failed"), "{}", stderr(&output));
    assert!(stderr(&output).contains("exit code 7"), "{}", stderr(&output));
    assert!(stdout(&output).is_empty());
}

#[test]
fn once_takes_one_job_and_waits_for_it() {
    let asked = AtomicUsize::new(0);
    let fake = Fake::start(move |request| match request {
        Request::Lease { wait_timeout_ms, .. } => {
            assert_ne!(*wait_timeout_ms, 0);
            match asked.fetch_add(1, Ordering::SeqCst) {
                0 => timeout(),
                _ => lease(id(1), "q", 60_000, b""),
            }
        }
        _ => ok(),
    });
    fake.spindle(&["work", "q", "--once", "--", "true"]).assert().success();
    assert_eq!(finished(&fake), [(id(1), true, Vec::new())]);
}

#[test]
fn max_jobs_bounds_many_workers_together() {
    let next = AtomicUsize::new(0);
    let fake = Fake::start(move |request| match request {
        Request::Lease { .. } => {
            lease(id(next.fetch_add(1, Ordering::SeqCst) as u8), "q", 60_000, b"")
        }
        _ => ok(),
    });
    let arguments = ["work", "q", "-j", "4", "--max-jobs", "10", "--", "true"];
    fake.spindle(&arguments).assert().success();
    assert_eq!(finished(&fake).len(), 10);
}

#[test]
fn a_long_job_keeps_its_lease() {
    let fake = Fake::start(|request| match request {
        Request::Lease { .. } => lease(id(1), "q", 90, b""),
        _ => ok(),
    });
    fake.spindle(&["work", "q", "--once", "--", "sleep", "0.3"]).assert().success();
    let requests = fake.requests();
    let extends = requests.iter().filter(|r| **r == Request::Extend { id: id(1), ttr_ms: 90 });
    assert!(extends.count() >= 3, "{requests:?}");
}

#[test]
fn a_server_without_extend_is_asked_once_per_job() {
    let fake = Fake::start(|request| match request {
        Request::Lease { .. } => lease(id(1), "q", 60, b""),
        Request::Extend { .. } => refused("Unknown command"),
        _ => ok(),
    });
    fake.spindle(&["work", "q", "--once", "--", "sleep", "0.2"]).assert().success();
    let asked = fake.requests().iter().filter(|r| matches!(r, Request::Extend { .. })).count();
    assert_eq!(asked, 1);
    assert_eq!(finished(&fake).len(), 1);
}

#[test]
fn a_result_is_delivered_when_the_server_was_away() {
    let tries = AtomicUsize::new(0);
    let fake = Fake::start(move |request| match request {
        Request::Lease { .. } => lease(id(1), "q", 60_000, b""),
        Request::Complete { .. } => match tries.fetch_add(1, Ordering::SeqCst) {
            0 | 1 => Answer::HangUp,
            // It had arrived, and only its answer was lost.
            _ => refused("Duplicate result"),
        },
        _ => ok(),
    });
    let output = fake.spindle(&["work", "q", "--once", "--json", "--", "echo", "x"]).unwrap();
    assert_eq!(finished(&fake), vec![(id(1), true, b"x\n".to_vec()); 3]);
    let line: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!(line["delivered"], true);
    assert_eq!((&line["success"], &line["exit_code"]), (&true.into(), &0.into()));
}

#[test]
fn a_connection_lost_while_waiting_is_made_anew() {
    let tries = AtomicUsize::new(0);
    let fake = Fake::start(move |request| match request {
        Request::Lease { .. } => match tries.fetch_add(1, Ordering::SeqCst) {
            0 => Answer::HangUp,
            _ => lease(id(1), "q", 60_000, b""),
        },
        _ => ok(),
    });
    fake.spindle(&["work", "q", "--once", "--", "true"]).assert().success();
    assert_eq!(finished(&fake).len(), 1);
}

/// What becomes of a job whose server answers this to its result: what programs and what people
/// are told.
fn after_answer(answer: fn() -> Answer) -> (serde_json::Value, String) {
    let fake = Fake::start(move |request| match request {
        Request::Lease { .. } => lease(id(1), "q", 60_000, b""),
        Request::Complete { .. } => answer(),
        _ => ok(),
    });
    let output = fake.spindle(&["work", "q", "--once", "--json", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(5));
    let line = serde_json::from_str(&stdout(&output)).unwrap();
    let output = fake.spindle(&["work", "q", "--once", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(5));
    (line, stderr(&output))
}

#[test]
fn a_result_nobody_wants_any_more_is_told_and_dropped() {
    type Case = (fn() -> Answer, &'static str, Option<&'static str>, &'static str);
    let cases: [Case; 3] = [
        (not_found, "deleted", None, "was deleted, or its time to live is over"),
        (
            || refused("Duplicate result"),
            "lease_lost",
            Some("finished_or_cancelled"),
            "was finished by another worker, or cancelled",
        ),
        (|| refused("Too large"), "refused", Some("Too large"), "is dropped: Too large"),
    ];
    for (answer, outcome, reason, shown) in cases {
        let (line, said) = after_answer(answer);
        assert_eq!(line["outcome"], outcome, "{line}");
        assert_eq!(line["reason"].as_str(), reason, "{line}");
        assert_eq!((&line["success"], &line["delivered"]), (&false.into(), &false.into()));
        assert_eq!(line["exit_code"], 0);
        assert!(said.contains(shown) && said.contains("result is dropped"), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn a_job_that_is_lost_while_its_command_runs_is_told_and_the_command_ended() {
    for (answer, outcome) in
        [(not_found as fn() -> Answer, "deleted"), (|| refused("Not leased"), "lease_lost")]
    {
        let fake = Fake::start(move |request| match request {
            Request::Lease { .. } => lease(id(1), "q", 60, b""),
            Request::Extend { .. } => answer(),
            _ => ok(),
        });
        let arguments = ["work", "q", "--once", "--json", "--", "sleep", "600"];
        let output = fake.spindle(&arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(5), "{}", stderr(&output));
        let line: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
        assert_eq!((&line["outcome"], &line["signal"]), (&outcome.into(), &15.into()), "{line}");
        assert_eq!(finished(&fake), []);
    }
}

#[test]
fn a_command_that_does_not_exist_costs_no_job() {
    let fake = with_jobs(vec![(1, b"")]);
    let output = fake.spindle(&["work", "q", "--", "no-such-program-anywhere"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no such program"), "{}", stderr(&output));
    assert!(fake.requests().is_empty());
}

#[test]
fn several_queues_are_asked_for_together() {
    let fake = with_jobs(vec![]);
    fake.spindle(&["work", "a", "b", "--drain", "--", "true"]).assert().success();
    let names = vec![name("a"), name("b")];
    let asked = Request::Lease { names, wait_timeout_ms: 0 };
    assert!(fake.requests().contains(&asked), "{:?}", fake.requests());
}

/// Starts `spindle work` and waits until its command says that it runs.
fn at_work(fake: &Fake, script: &str) -> (Program, Said) {
    let address = fake.address();
    let mut child = Program::start(
        Command::new(env!("CARGO_BIN_EXE_spindle"))
            .args(["work", "q", "--workq", &address, "--", "sh", "-c", script])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped()),
    );
    let said = Said::by(child.stderr.take().unwrap());
    said.await_line("running");
    (child, said)
}

#[test]
fn a_signal_lets_the_running_job_finish_and_takes_no_other() {
    let fake = with_jobs(vec![(1, b""), (2, b"")]);
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let script =
        format!("echo running >&2; until [ -e {} ]; do sleep 0.01; done; echo out", go.display());
    let (mut child, said) = at_work(&fake, &script);
    child.signal(Signal::SIGTERM);
    said.await_line("waiting for 1 running");
    std::fs::write(&go, "").unwrap();
    assert_eq!(await_exit(&mut child).code(), Some(0));
    assert_eq!(finished(&fake), [(id(1), true, b"out\n".to_vec())]);
}

#[test]
fn a_second_signal_kills_the_running_job() {
    let fake = with_jobs(vec![(1, b"")]);
    let folder = tempfile::tempdir().unwrap();
    let held = folder.path().join("held");
    let path = held.display();
    // A reader of this pipe sees its end when all processes that could write into it are gone.
    let script = format!("mkfifo {path}; echo running >&2; exec sleep 600 >{path}");
    let (mut child, said) = at_work(&fake, &script);
    let pipe = Said::by(std::fs::File::open(&held).unwrap());
    child.signal(Signal::SIGINT);
    said.await_line("waiting for 1 running");
    child.signal(Signal::SIGINT);
    assert_eq!(await_exit(&mut child).code(), Some(130));
    pipe.await_end();
    assert_eq!(finished(&fake), []);
}

#[test]
fn a_signal_ends_a_worker_that_waits_for_a_job_at_once() {
    let fake = Fake::start(|request| match request {
        // No answer: the wait goes on until the client half closes the connection.
        Request::Lease { .. } => Answer::Bytes(Vec::new()),
        _ => ok(),
    });
    let mut child = Program::start(
        Command::new(env!("CARGO_BIN_EXE_spindle"))
            .args(["work", "q", "-j", "3", "--workq", &fake.address(), "--", "true"])
            .stderr(Stdio::null()),
    );
    fake.await_request(|request| matches!(request, Request::Lease { .. }));
    let asked = std::time::Instant::now();
    child.signal(Signal::SIGINT);
    assert_eq!(await_exit(&mut child).code(), Some(0));
    assert!(asked.elapsed().as_secs() < 10, "it waited for the lease to time out");
}
