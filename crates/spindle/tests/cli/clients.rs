//! The commands for people, against a scripted server.

use std::{fs, net::TcpListener};

use crate::fake_workq::{
    Answer, Fake, id, list, name, not_found, ok, refused, result, spindle, stderr, stdout, timeout,
};
use spindle_workq::wire::{JobInfo, JobState, NewJob, QueueInfo, Request, Uuid, encode};

fn added(fake: &Fake) -> Vec<NewJob> {
    let jobs = fake.requests().into_iter().filter_map(|request| match request {
        Request::Add(job) | Request::Schedule { job, .. } => Some(job),
        _ => None,
    });
    jobs.collect()
}

#[test]
fn add_sends_the_job_as_told_and_prints_its_id_alone() {
    let fake = Fake::start(|_| ok());
    let options = ["--priority", "-5", "--ttr", "90s", "--ttl", "2h"];
    let limits = ["--max-attempts", "3", "--tries", "2"];
    let output = fake.spindle(&["add", "mail", "hello"]).args(options).args(limits).unwrap();
    let jobs = added(&fake);
    assert_eq!(stdout(&output), format!("{}\n", jobs[0].id));
    let expected = NewJob {
        id: jobs[0].id,
        name: name("mail"),
        ttr_ms: 90_000,
        ttl_ms: 7_200_000,
        priority: -5,
        attempts_max: 3,
        fails_max: 2,
        payload: name("hello"),
    };
    assert_eq!(jobs, [expected]);
}

#[test]
fn add_has_the_documented_defaults() {
    let fake = Fake::start(|_| ok());
    fake.spindle(&["add", "mail"]).assert().success();
    let job = added(&fake).remove(0);
    assert_eq!((job.ttr_ms, job.ttl_ms), (60_000, 30 * 86_400_000));
    assert_eq!((job.priority, job.attempts_max, job.fails_max), (0, 25, 5));
    assert!(job.payload.is_empty());
}

#[test]
fn what_workq_cannot_say_of_tries_is_a_usage_error() {
    let fake = Fake::start(|_| ok());
    for (option, value, answer) in [
        ("--backoff", "5s*3..1h", "Workq knows no --backoff"),
        ("--tries", "0", "Workq knows 1 to 255 --tries"),
        ("--tries", "256", "Workq knows 1 to 255 --tries"),
        ("--max-attempts", "256", "Workq knows up to 255 --max-attempts"),
    ] {
        let output = fake.spindle(&["add", "q", option, value]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{option} {value}");
        assert!(stderr(&output).contains(answer), "{}", stderr(&output));
    }
    assert!(fake.requests().is_empty());
    let most = ["add", "q", "--tries", "255", "--max-attempts", "255"];
    fake.spindle(&most).assert().success();
    fake.spindle(&["add", "q", "--max-fails", "1", "--max-attempts", "0"]).assert().success();
    let limits = added(&fake).into_iter().map(|job| (job.fails_max, job.attempts_max));
    assert_eq!(limits.collect::<Vec<_>>(), [(255, 255), (1, 0)]);
}

#[test]
fn a_payload_comes_from_standard_input_or_a_file_byte_for_byte() {
    let fake = Fake::start(|_| ok());
    let bytes = b"\x00\xff\r\nbytes";
    fake.spindle(&["add", "q", "-"]).write_stdin(&bytes[..]).assert().success();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), bytes).unwrap();
    let argument = format!("@{}", file.path().display());
    fake.spindle(&["add", "q", &argument]).assert().success();
    let payloads: Vec<_> = added(&fake).into_iter().map(|job| job.payload).collect();
    assert_eq!(payloads, [&bytes[..], &bytes[..]]);
}

#[test]
fn a_payload_that_no_job_carries_is_refused_before_it_is_sent() {
    let fake = Fake::start(|_| ok());
    let output = fake.spindle(&["add", "q", "-"]).write_stdin(vec![0; (1 << 20) + 1]).output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("larger than 1048576 bytes"), "{}", stderr(&output));
    assert!(fake.requests().is_empty());
}

#[test]
fn add_lines_adds_a_job_per_line_in_order() {
    let fake = Fake::start(|_| ok());
    let lines: String = (0..1000).map(|number| format!("line {number}\n")).collect();
    let output = fake.spindle(&["add", "q", "--lines", "-"]).write_stdin(lines).unwrap();
    let jobs = added(&fake);
    assert_eq!(jobs.len(), 1000);
    assert_eq!(jobs[999].payload, name("line 999"));
    let ids: String = jobs.iter().map(|job| format!("{}\n", job.id)).collect();
    assert_eq!(stdout(&output), ids);
}

#[test]
fn add_lines_prints_exactly_the_ids_that_the_server_has() {
    let fake = Fake::start(|request| match request {
        Request::Add(job) if job.payload == name("line 7") => refused("Some reason"),
        _ => ok(),
    });
    let lines: String = (0..10).map(|number| format!("line {number}\n")).collect();
    let output = fake.spindle(&["add", "q", "--lines", "-"]).write_stdin(lines).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("Some reason"), "{}", stderr(&output));
    let refused = |job: &NewJob| job.payload == name("line 7");
    let ids: String = added(&fake)
        .iter()
        .filter(|job| !refused(job))
        .map(|job| format!("{}\n", job.id))
        .collect();
    assert_eq!(stdout(&output), ids);
}

#[test]
fn schedule_takes_a_time_with_an_offset() {
    let fake = Fake::start(|_| ok());
    fake.spindle(&["schedule", "q", "2030-01-31T10:00:00+02:00", "x"]).assert().success();
    let Request::Schedule { time_ms, .. } = fake.requests().remove(0) else { panic!() };
    assert_eq!(time_ms, 1_896_076_800_000);
    let output = fake.spindle(&["schedule", "q", "tomorrow"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("+10m"), "{}", stderr(&output));
}

#[test]
fn result_prints_the_bytes_and_nothing_else() {
    let fake = Fake::start(|_| result(id(1), true, b"\x00\xffend"));
    let output = fake.spindle(&["result", &id(1).to_string(), "--wait", "5s"]).unwrap();
    assert_eq!(output.stdout, b"\x00\xffend");
    assert_eq!(fake.requests(), [Request::Result { id: id(1), wait_timeout_ms: 5000 }]);
}

#[test]
fn exit_codes_tell_scripts_what_happened() {
    let text = id(1).to_string();
    type Case = (fn(&Request) -> Answer, &'static [&'static str], i32, &'static str);
    let cases: [Case; 6] = [
        (|_| not_found(), &["result"], 3, "there is no job"),
        (|_| timeout(), &["result"], 4, "no result yet"),
        (|_| result(id(1), false, b"why"), &["result"], 5, "failed"),
        (|_| not_found(), &["job"], 3, "there is no job"),
        (|_| not_found(), &["delete"], 3, "there is no job"),
        (|_| refused("Odd"), &["delete"], 1, "refused: Odd"),
    ];
    for (script, command, code, answer) in cases {
        let fake = Fake::start(script);
        let output = fake.spindle(command).arg(&text).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{command:?} {}", stderr(&output));
        assert!(stderr(&output).contains(answer), "{}", stderr(&output));
    }
}

#[test]
fn run_prints_the_result_and_says_with_its_exit_code_when_the_job_failed() {
    let fake = Fake::start(|request| match request {
        Request::Run(run) => result(run.id, run.payload == name("good"), b"out"),
        _ => ok(),
    });
    let good = fake.spindle(&["run", "q", "good", "--wait", "3s", "--ttr", "2s"]).unwrap();
    assert_eq!(stdout(&good), "out");
    let Request::Run(run) = fake.requests().remove(0) else { panic!() };
    assert_eq!((run.wait_timeout_ms, run.ttr_ms), (3000, 2000));
    let bad = fake.spindle(&["run", "q", "bad"]).output().unwrap();
    assert_eq!((bad.status.code(), stdout(&bad).as_str()), (Some(5), "out"));
    let late = Fake::start(|_| timeout()).spindle(&["run", "q"]).output().unwrap();
    assert_eq!(late.status.code(), Some(4));
}

#[test]
fn json_tells_text_as_text_and_other_bytes_as_base64() {
    let fake = Fake::start(|_| result(id(1), true, b"text"));
    let output = fake.spindle(&["result", "--json", &id(1).to_string()]).unwrap();
    let expected = format!("{{\"id\":\"{}\",\"result\":\"text\",\"success\":true}}\n", id(1));
    assert_eq!(stdout(&output), expected);
    let fake = Fake::start(|_| result(id(1), true, b"\xff"));
    let output = fake.spindle(&["result", "--json", &id(1).to_string()]).unwrap();
    assert!(stdout(&output).contains("\"result_base64\":\"/w==\""));
}

fn info(id: Uuid) -> JobInfo {
    JobInfo {
        id,
        name: name("mail"),
        ttr_ms: 60_000,
        ttl_ms: 2_592_000_000,
        payload: name("a\tb"),
        attempts_max: 0,
        attempts: 1,
        fails_max: 2,
        fails: 1,
        priority: 7,
        state: JobState::Pending,
        created_ms: 1_471_830_651_000,
        time_ms: None,
    }
}

#[test]
fn jobs_asks_page_by_page_and_prints_tabs_between_columns() {
    let fake = Fake::start(|request| match request {
        Request::InspectJobs { cursor_offset, limit, .. } => {
            let jobs: Vec<_> =
                (*cursor_offset..150).take(*limit as usize).map(|n| info(id(n as u8))).collect();
            list(&jobs, encode::job)
        }
        Request::InspectQueue { name } => {
            let queue = QueueInfo { name: name.clone(), ready: 1_500, scheduled: 2 };
            list(&[queue], encode::queue)
        }
        _ => refused("what?"),
    });
    let output = fake.spindle(&["jobs", "mail", "--limit", "120", "--offset", "10"]).unwrap();
    assert_eq!(stderr(&output), "and 1,370 more (--limit, --offset)\n");
    let text = stdout(&output);
    assert_eq!(text.lines().count(), 120);
    let first = "mail\tready\t7\t1\t1\t2016-08-22T01:50:51Z\ta\\tb";
    assert_eq!(text.lines().next().unwrap(), format!("{}\t{first}", id(10)));
    let asked: Vec<_> = fake.requests();
    let page =
        |cursor_offset, limit| Request::InspectJobs { name: name("mail"), cursor_offset, limit };
    let count = Request::InspectQueue { name: name("mail") };
    assert_eq!(asked, [page(10, 100), page(110, 20), count]);
    let output = fake.spindle(&["jobs", "mail", "--limit", "200", "--offset", "10"]).unwrap();
    assert_eq!(stderr(&output), "");
}

#[test]
fn scheduled_jobs_show_their_time() {
    let fake = Fake::start(|request| match request {
        Request::InspectScheduledJobs { .. } => {
            let time_ms = Some(4_102_444_800_000);
            list(&[JobInfo { time_ms, state: JobState::New, ..info(id(1)) }], encode::job)
        }
        _ => refused("what?"),
    });
    let output = fake.spindle(&["jobs", "mail", "--scheduled"]).unwrap();
    assert!(stdout(&output).contains("\tscheduled\t"), "{}", stdout(&output));
    assert!(stdout(&output).contains("\t2100-01-01T00:00:00Z\t"), "{}", stdout(&output));
}

#[test]
fn a_job_is_shown_with_every_field() {
    let fake = Fake::start(|_| list(&[info(id(1))], encode::job));
    let output = fake.spindle(&["job", &id(1).to_string()]).unwrap();
    for line in ["queue\tmail", "status\tready", "attempts-max\tno limit", "ttl\t30d"] {
        assert!(
            stdout(&output).lines().any(|answer| answer == line),
            "{line}: {}",
            stdout(&output)
        );
    }
    let output = fake.spindle(&["job", "--json", &id(1).to_string()]).unwrap();
    let answer: serde_json::Value = serde_json::from_str(&stdout(&output)).unwrap();
    assert_eq!((&answer["status"], &answer["attempts_max"]), (&"ready".into(), &0.into()));
    assert_eq!(
        (&answer["payload_text"], &answer["payload_type"]),
        (&"a\tb".into(), &"bytes".into())
    );
}

#[test]
fn queues_are_listed_to_the_last_page() {
    let fake = Fake::start(|request| {
        let Request::InspectQueues { cursor_offset, limit } = request else {
            return refused("what?");
        };
        let queues: Vec<_> = (*cursor_offset..101)
            .take(*limit as usize)
            .map(|n| QueueInfo { name: name(&format!("q{n}")), ready: n.into(), scheduled: 2 })
            .collect();
        list(&queues, encode::queue)
    });
    let output = fake.spindle(&["queues"]).unwrap();
    assert_eq!(stdout(&output).lines().count(), 101);
    assert_eq!(stdout(&output).lines().last(), Some("q100\t100\t2"));
    let output = fake.spindle(&["queues", "--json"]).unwrap();
    let line = "{\"name\":\"q100\",\"jobs\":{\"ready\":100,\"scheduled\":2}}";
    assert_eq!(stdout(&output).lines().last(), Some(line));
}

#[test]
fn delete_goes_on_after_a_job_that_is_not_there() {
    let fake = Fake::start(|request| match request {
        Request::Delete { id: asked } if *asked == id(1) => not_found(),
        _ => ok(),
    });
    let ids = [id(1).to_string(), id(2).to_string()];
    let output = fake.spindle(&["delete", "--json"]).args(&ids).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let line = |id, deleted| format!("{{\"deleted\":{deleted},\"id\":\"{id}\"}}\n");
    assert_eq!(stdout(&output), line(&ids[0], false) + &line(&ids[1], true));
}

#[test]
fn a_server_that_is_not_there_is_told_with_what_to_do() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let commands: [&[&str]; 2] = [&["queues"], &["add", "q"]];
    for command in commands {
        let mut spindle = spindle(&command[..1]);
        let output = spindle.args(["--workq", &free]).args(&command[1..]).output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(stderr(&output).contains("is the server running?"), "{}", stderr(&output));
        assert!(stderr(&output).contains("spindle serve"), "{}", stderr(&output));
    }
}

#[test]
fn a_server_of_another_protocol_is_told() {
    let fake = Fake::start(|_| Answer::Bytes(b"HTTP/1.1 400 Bad Request\r\n".to_vec()));
    let output = fake.spindle(&["queues"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("is no Workq door"), "{}", stderr(&output));
}

#[test]
fn a_server_that_hangs_up_is_told() {
    let fake = Fake::start(|_| Answer::HangUp);
    let output = fake.spindle(&["queues"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("closed the connection"), "{}", stderr(&output));
}
