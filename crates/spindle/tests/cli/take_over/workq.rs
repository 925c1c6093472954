//! `spindle import --from workq`: jobs of a Workq server, for which Spindle's own door stands in: the
//! original is in no package.

use std::{
    process::{Command, Stdio},
    time::Duration,
};

use bytes::Bytes;
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use spindle_testkit::Program;
use spindle_workq::{
    client::Client,
    wire::{NewJob, Uuid},
};

use super::{
    counts,
    held::{Held, Interrupted, Victim},
    import_from, jobs, payload, payloads,
};
use crate::{
    native::{object, output_of, served, url},
    serve::{Served, data},
};

const HOUR_MS: u64 = 3_600_000;

fn import(served: &Served, old: &str, more: &[&str]) -> (i32, Value, String) {
    import_from(served, "workq", old, more)
}

fn client(served: &Served) -> Client {
    Client::connect(&*served.address_of("workq"), Duration::from_secs(30)).unwrap()
}

fn job(number: u128, queue: &str) -> NewJob {
    NewJob {
        id: Uuid::from_random((number + 1).to_be_bytes()),
        name: Bytes::copy_from_slice(queue.as_bytes()),
        ttr_ms: 60_000,
        ttl_ms: HOUR_MS,
        priority: 0,
        attempts_max: 0,
        fails_max: 0,
        payload: number.to_string().into(),
    }
}

fn now_ms() -> u64 {
    spindle_client::now().as_millisecond().try_into().unwrap()
}

#[test]
fn jobs_of_workq_go_over_with_their_uuids() {
    let (old, new) = (served(&["--memory"]), served(&["--memory"]));
    let mut there = client(&old);
    let limited = NewJob { priority: 7, attempts_max: 3, fails_max: 2, ..job(1, "mail") };
    there.add(&limited).unwrap();
    there.add(&job(2, "mail")).unwrap();
    let due_ms = (now_ms() / 1_000 + 3_600) * 1_000;
    there.schedule(&NewJob { ttl_ms: 5_000, ..job(3, "mail") }, due_ms).unwrap();
    let address = old.address_of("workq");
    let (code, found, said) = import(&new, &address, &["--dry-run"]);
    let row = |state, jobs| json!({ "queue": "mail", "state": state, "jobs": jobs });
    let rows = [row("ready", 2), row("scheduled", 1)];
    assert_eq!((code, &found), (0, &json!({ "waiting": rows, "at_work": 0 })), "{said}");

    let (code, done, said) = import(&new, &address, &[]);
    assert_eq!((code, &done), (0, &counts(&[("imported", 3)])), "{said}");
    assert!(there.inspect_job(limited.id).is_err());
    let found = jobs(&new, "mail");
    let [first, second, later] = &found[..] else { panic!("{found:?}") };
    assert_eq!((&first["uuid"], &first["door"]), (&json!(limited.id.to_string()), &json!("workq")));
    assert_eq!((&first["priority"], &first["ttr_ms"]), (&json!(7), &json!(60_000)));
    assert_eq!((&first["attempts_max"], &first["fails_max"]), (&json!(3), &json!(2)));
    assert_eq!((payload(second), &second["attempts_max"]), ("2".to_owned(), &Value::Null));
    let at = |job: &Value, field: &str| -> i64 {
        job[field].as_str().unwrap().parse::<jiff::Timestamp>().unwrap().as_millisecond()
    };
    let due_ms = i64::try_from(due_ms).unwrap();
    assert_eq!(at(later, "run_at"), due_ms);
    assert_eq!(at(later, "expires_at"), due_ms + 5_999);
    let lives_ms = at(first, "expires_at") - at(first, "created_at");
    assert!((3_590_000..=3_601_000).contains(&lives_ms), "{lives_ms}");
    // Clients find the job on the new server by the id that they gave it.
    let mut here = client(&new);
    assert_eq!(here.lease(&["mail"], 0).unwrap().id, limited.id);
    here.complete(limited.id, "done").unwrap();
    assert_eq!(here.result(limited.id, 0).unwrap().result, "done");
    assert_eq!(import(&new, &address, &[]).1, counts(&[]));
}

#[test]
fn what_a_lease_could_harm_is_only_looked_at() {
    let (old, new) = (served(&["--memory"]), served(&["--memory"]));
    let mut there = client(&old);
    let last = NewJob { attempts_max: 1, ..job(1, "mail") };
    there.add(&last).unwrap();
    there.add(&job(2, "mail")).unwrap();
    let mut waits = client(&old);
    let run = spindle_workq::wire::Run {
        id: job(3, "mail").id,
        name: Bytes::from_static(b"mail"),
        ttr_ms: 60_000,
        wait_timeout_ms: 60_000,
        priority: 0,
        payload: Bytes::from_static(b"3"),
    };
    waits.send(&spindle_workq::wire::Request::Run(run)).unwrap();
    while there.inspect_queue("mail").unwrap().ready < 3 {
        std::thread::yield_now();
    }
    let address = old.address_of("workq");
    // The connection is held up with the first deletion: nothing may be leased then.
    let held = Held::at(1, "delete ", &address);
    let mut command = Command::new(env!("CARGO_BIN_EXE_spindle"));
    command.args(["import", "--from", "workq", &held.address]).env("SPINDLE_URL", url(&new));
    let mut killed = Program::start(command.stdout(Stdio::null()).stderr(Stdio::null()));
    held.await_request();
    killed.signal(Signal::SIGKILL);
    killed.await_end();
    assert_eq!(there.inspect_job(last.id).unwrap().attempts, 0);
    // A worker gets one of them first.
    let leased = there.lease(&["mail"], 0).unwrap();
    held.release(false);
    let (code, done, said) = import(&new, &address, &[]);
    assert_eq!((code, &done), (0, &counts(&[("existing", 1), ("left", 1)])), "{said}");
    assert!(said.contains("left there, because clients wait for the results: 1"), "{said}");
    assert_eq!(there.inspect_job(leased.id).unwrap().attempts, 1);
    assert_eq!(payloads(&new, "mail").into_keys().collect::<Vec<_>>(), ["1", "2"]);
}

#[test]
fn a_job_that_a_worker_gets_while_it_goes_over_is_not_deleted_under_it() {
    let (old, new) = (served(&["--memory"]), served(&["--memory"]));
    let mut there = client(&old);
    let last = NewJob { attempts_max: 1, ..job(1, "mail") };
    there.add(&last).unwrap();
    let address = old.address_of("workq");
    let held = Held::at(1, "inspect job ", &address);
    let mut command = Command::new(env!("CARGO_BIN_EXE_spindle"));
    command.args(["import", "--from", "workq", &held.address, "--json"]);
    let import = command.env("SPINDLE_URL", url(&new)).stdout(Stdio::piped()).spawn().unwrap();
    held.await_request();
    assert_eq!(there.lease(&["mail"], 0).unwrap().id, last.id);
    held.release(true);
    let output = import.wait_with_output().unwrap();
    let done = object(str::from_utf8(&output.stdout).unwrap().trim());
    assert_eq!(done, counts(&[("imported", 1), ("gone", 1)]));
    there.complete(last.id, "done").unwrap();
}

#[test]
fn a_job_of_workq_is_there_once_whatever_is_killed_in_the_middle() {
    let (_folder, data) = data();
    let on_disk = ["--data", &data];
    let (old, mut new) = (served(&["--memory"]), served(&on_disk));
    let mut there = client(&old);
    for number in 0..300 {
        let ready = NewJob { ttr_ms: 1_000, ..job(number, "mail") };
        if number % 3 == 0 {
            there.schedule(&ready, now_ms() + HOUR_MS).unwrap();
        } else {
            there.add(&ready).unwrap();
        }
    }
    let address = old.address_of("workq");
    for (request, victim) in
        [(1, Victim::Import), (60, Victim::New), (30, Victim::Import), (10, Victim::Connections)]
    {
        let import = Interrupted { kind: "workq", old: &address, mark: "delete ", request, victim };
        import.run(&mut new, &on_disk, || {});
    }
    // Jobs that were leased at the kill wait again when their leases end.
    while there.inspect_queue("mail").is_ok_and(|queue| queue.ready + queue.scheduled > 0)
        || payloads(&new, "mail").len() < 300
    {
        let (code, _, said) = import(&new, &address, &[]);
        assert_eq!(code, 0, "{said}");
    }
    let found = payloads(&new, "mail");
    assert!(found.len() == 300 && found.values().all(|count| *count == 1), "{found:?}");
}

#[test]
fn what_is_refused_stays_with_workq() {
    let (old, new) = (served(&["--memory"]), served(&["--memory"]));
    output_of(&new, &["queue", "set", "mail", "--max-jobs", "1"]);
    let mut there = client(&old);
    for number in 0..3 {
        there.add(&job(number, "mail")).unwrap();
    }
    there.schedule(&job(3, "mail"), now_ms() + HOUR_MS).unwrap();
    there.add(&job(4, "sms")).unwrap();
    let arguments = ["--skip-refused", "--queue", "mail"];
    let (code, done, said) = import(&new, &old.address_of("workq"), &arguments);
    let wanted = counts(&[("imported", 1), ("refused", 3), ("left", 3)]);
    assert_eq!((code, &done), (1, &wanted), "{said}");
    assert_eq!(there.inspect_queue("sms").unwrap().ready, 1);
}

#[test]
fn what_is_no_workq_is_said() {
    let new = served(&["--memory"]);
    let (code, _, said) = import(&new, &new.address_of("http"), &[]);
    assert!(code == 1 && said.contains("that is no Workq"), "{said}");
}
