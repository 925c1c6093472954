//! `spindle import --from redis-sidekiq`: jobs that Sidekiq itself has put into a Redis, and jobs as it
//! puts them there.

use std::{
    fs,
    net::TcpStream,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::{Value, json};
use spindle_testkit::{Certificates, Program, free_address};

use super::{counts, import_from, jobs, payload, payloads, redis::RedisServer, text};
use crate::{
    native::{object, output_of, served, url},
    serve::{Served, data},
};

/// Jobs, and the program that submits them. `fail` fails, `sleep` takes until it is killed.
const JOBS: &str = r#"
require "sidekiq"
redis = { url: ENV.fetch("REDIS") }
Sidekiq.configure_client { |config| config.redis = redis }
Sidekiq.configure_server { |config| config.redis = redis }

class Mail
  include Sidekiq::Worker
  sidekiq_options queue: "mail", retry: 5, tags: ["customer", "eu"]
  def perform(*) = nil
end

class Once
  include Sidekiq::Worker
  sidekiq_options retry: false
  def perform(*) = nil
end

class Work
  include Sidekiq::Worker
  sidekiq_options queue: "work"
  def perform(what) = what == "sleep" ? sleep(3600) : raise(what)
end

if ARGV == ["submit"]
  Mail.perform_async("bob", 5)
  Mail.perform_in(3600, "late", { "nested" => [1, nil] })
  Once.perform_async("gr\u00fc\u00dfe")
end
if ARGV == ["work"]
  Work.perform_async("fail")
  Work.perform_async("sleep")
end
"#;

fn import(served: &Served, address: &str, more: &[&str]) -> (i32, Value, String) {
    import_from(served, "redis-sidekiq", address, more)
}

/// Runs the program above.
fn sidekiq(folder: &Path, redis: &RedisServer, what: &str) {
    let path = folder.join("jobs.rb");
    fs::write(&path, JOBS).unwrap();
    let mut command = Command::new("ruby");
    command.arg(&path).arg(what).env("REDIS", redis.url()).stderr(Stdio::null());
    assert!(command.status().unwrap().success());
}

/// An entry as Sidekiq writes it.
fn entry(queue: &str, number: u32) -> String {
    format!(
        r#"{{"retry":true,"queue":"{queue}","args":[{number}],"class":"Plain","jid":"{number:024x}","created_at":1795458464.237303,"enqueued_at":1795458464.2373571}}"#
    )
}

/// Puts entries into a queue, the first of which is worked first.
fn push(redis: &RedisServer, queue: &str, entries: &[String]) {
    let (mut connection, mut pipe) = (redis.connect(), redis::pipe());
    pipe.cmd("SADD").arg("queues").arg(queue);
    for entry in entries {
        pipe.cmd("LPUSH").arg(format!("queue:{queue}")).arg(entry);
    }
    let _: redis::Value = pipe.query(&mut connection).unwrap();
}

#[test]
fn what_sidekiq_has_submitted_goes_over() {
    let (old, new) = (RedisServer::start(&[]), served(&["--memory"]));
    let folder = tempfile::tempdir().unwrap();
    sidekiq(folder.path(), &old, "submit");
    let mail: Vec<String> = old.ask(&["LRANGE", "queue:mail", "0", "-1"]);
    let late: Vec<(String, f64)> = old.ask(&["ZRANGE", "schedule", "0", "-1", "WITHSCORES"]);

    let (code, found, said) = import(&new, &old.url(), &["--dry-run"]);
    let row = |queue, state| json!({ "queue": queue, "state": state, "jobs": 1 });
    let rows = [row("default", "ready"), row("mail", "ready"), row("", "scheduled")];
    assert_eq!((code, &found), (0, &json!({ "waiting": rows, "at_work": 0 })), "{said}");

    let (code, done, said) = import(&new, &old.address, &[]);
    assert_eq!((code, &done), (0, &counts(&[("imported", 3)])), "{said}");
    let found = jobs(&new, "mail");
    assert_eq!((payload(&found[0]), payload(&found[1])), (mail[0].clone(), late[0].0.clone()));
    assert_eq!((&found[0]["fails_max"], &found[0]["payload_type"]), (&json!(6), &json!("json")));
    assert_eq!((&found[0]["attempts_max"], &found[0]["status"]), (&json!(25), &json!("ready")));
    assert_eq!(found[0]["tags_base64"], json!(["TWFpbA==", "Y3VzdG9tZXI=", "ZXU="]));
    assert_eq!(found[1]["status"], "scheduled");
    let run_at: jiff::Timestamp = found[1]["run_at"].as_str().unwrap().parse().unwrap();
    assert_eq!(run_at.as_millisecond(), (late[0].1 * 1_000.0) as i64);
    let once = &jobs(&new, "default")[0];
    assert_eq!(once["fails_max"], 1);
    assert!(payload(once).contains("grüße"), "{once}");
    assert_eq!(old.ask::<u64>(&["EXISTS", "queue:mail", "queue:default", "schedule"]), 0);
    assert_eq!(old.ask::<Vec<String>>(&["KEYS", "*spindle*"]), Vec::<String>::new());
    assert_eq!(import(&new, &old.address, &[]).1, counts(&[]));
}

#[test]
fn what_a_sidekiq_works_stays_with_it_and_what_it_is_to_try_again_goes_over() {
    let (old, new) = (RedisServer::start(&[]), served(&["--memory"]));
    let folder = tempfile::tempdir().unwrap();
    sidekiq(folder.path(), &old, "work");
    let mut command = Command::new("sidekiq");
    command.args(["-c", "2", "-q", "work", "-r"]).arg(folder.path().join("jobs.rb"));
    command.env("REDIS", old.url()).stdout(Stdio::null()).stderr(Stdio::null());
    let worker = Program::start(&mut command);
    let busy = || -> Option<u64> {
        let processes: Vec<String> = old.ask(&["SMEMBERS", "processes"]);
        old.ask(&["HGET", processes.first()?, "busy"])
    };
    // It says so with its heartbeat, every five seconds.
    while busy() != Some(1) || old.ask::<u64>(&["ZCARD", "retry"]) != 1 {
        thread::sleep(Duration::from_millis(20));
    }
    let (code, done, said) = import(&new, &old.url(), &[]);
    let wanted = counts(&[("imported", 1), ("at_work", 1)]);
    assert_eq!((code, &done), (0, &wanted), "{said}");
    let again = &jobs(&new, "work")[0];
    assert_eq!((&again["status"], &again["fails_max"]), (&json!("scheduled"), &json!(25)));
    drop(worker);
}

#[test]
fn a_job_is_there_once_whatever_is_killed_in_the_middle() {
    let (_folder, data) = data();
    let on_disk = ["--data", &data];
    let (mut old, mut new) = (RedisServer::start(&[]), served(&on_disk));
    let entries: Vec<String> = (0..2_600).map(|number| entry("mail", number)).collect();
    push(&old, "mail", &entries);
    old.interrupt_imports("redis-sidekiq", &mut new, &on_disk);
    let (code, done, said) = import(&new, &old.address, &[]);
    assert_eq!((code, &done["left"]), (0, &json!(0)), "{said}");
    let found = payloads(&new, "mail");
    assert_eq!(found.len(), entries.len());
    assert!(entries.iter().all(|entry| found.get(entry) == Some(&1)));
    assert_eq!(old.ask::<Vec<String>>(&["KEYS", "queue:*"]), Vec::<String>::new());
}

#[test]
fn a_job_is_there_once_when_two_imports_run() {
    let (old, new) = (RedisServer::start(&[]), served(&["--memory"]));
    let entries: Vec<String> = (0..3_000).map(|number| entry("mail", number)).collect();
    push(&old, "mail", &entries);
    let run = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_spindle"));
        command.args(["import", "--from", "redis-sidekiq", &old.address, "--json"]);
        command.env("SPINDLE_URL", url(&new)).stdout(Stdio::piped()).spawn().unwrap()
    };
    let outputs = [run(), run()].map(|child| child.wait_with_output().unwrap());
    let done = outputs.map(|output| object(str::from_utf8(&output.stdout).unwrap().trim()));
    let sum: u64 = done.iter().map(|done| done["imported"].as_u64().unwrap()).sum();
    assert_eq!(sum, 3_000, "{done:?}");
    let found = payloads(&new, "mail");
    assert!(found.len() == 3_000 && found.values().all(|count| *count == 1));
}

#[test]
fn what_is_no_job_or_is_refused_stays_where_it_was() {
    let (old, new) = (RedisServer::start(&[]), served(&["--memory"]));
    output_of(&new, &["queue", "set", "small", "--max-jobs", "1"]);
    let [a, b, c] = [1, 2, 3].map(|number| entry("small", number));
    push(&old, "small", &[a, "{no json".to_owned(), b.clone(), "[]".to_owned(), c.clone()]);
    let long = entry("long", 9).replace("[9]", &format!("[\"{}\"]", "x".repeat(12 << 20)));
    push(&old, "long", &[long.clone(), entry("long", 10)]);
    push(&old, &"q".repeat(600), &[entry("x", 11)]);
    let (code, done, said) = import(&new, &old.url(), &[]);
    assert_eq!((code, &done["refused"]), (1, &json!(1)), "{said}");
    assert!(
        said.contains("is too long for a request") && said.contains("--skip-refused"),
        "{said}"
    );

    let (code, done, said) = import(&new, &old.url(), &["--skip-refused"]);
    assert_eq!((code, &done["refused"], &done["left"]), (1, &json!(4), &json!(4)), "{said}");
    assert_eq!((&done["imported"], &done["unreadable"]), (&json!(1), &json!(2)), "{said}");
    assert!(said.contains("queue:small: an entry is no job"), "{said}");
    assert!(said.contains("stays there: `{no json`"), "{said}");
    let left: Vec<String> = old.ask(&["LRANGE", "queue:small", "0", "-1"]);
    assert_eq!(left, ["[]", "{no json", &c, &b]);
    assert_eq!(old.ask::<Vec<String>>(&["LRANGE", "queue:long", "0", "-1"]), [long]);
    assert_eq!((jobs(&new, "small").len(), jobs(&new, "long").len()), (1, 1));
}

#[test]
fn only_the_queues_that_are_asked_for_go_over() {
    let (old, new) = (RedisServer::start(&[]), served(&["--memory"]));
    push(&old, "mail", &[entry("mail", 1)]);
    push(&old, "sms", &[entry("sms", 2)]);
    for (score, queue, number) in [("1.5", "mail", 3), ("4102444800.25", "sms", 4)] {
        old.ask::<u64>(&["ZADD", "schedule", score, &entry(queue, number)]);
    }
    let (code, done, said) = import(&new, &old.address, &["--queue", "mail", "--queue", "none"]);
    assert_eq!((code, &done), (0, &counts(&[("imported", 2), ("left", 1)])), "{said}");
    assert!(said.contains("there is no queue none of Sidekiq"), "{said}");
    assert!(said.contains("left there, of other queues: 1"), "{said}");
    // One whose time has come is due at once.
    assert!(jobs(&new, "mail").iter().all(|job| job["status"] == "ready"));
    // A run finishes what a killed one had begun, whichever queues it is to take from itself.
    old.ask::<u64>(&["ZADD", "schedule:spindle-import", "2", &entry("fax", 6)]);
    let (_, done, said) = import(&new, &old.address, &["--queue", "mail"]);
    assert_eq!(done, counts(&[("imported", 1), ("left", 1)]), "{said}");
    assert_eq!(jobs(&new, "fax").len(), 1);
    let (_, done, _) = import(&new, &old.address, &[]);
    assert_eq!(done, counts(&[("imported", 2)]));
    assert_eq!(jobs(&new, "sms")[1]["run_at"], "2100-01-01T00:00:00.250Z");
    old.ask::<u64>(&["SADD", "app:queues", "mail"]);
    old.ask::<u64>(&["LPUSH", "app:queue:mail", &entry("mail", 5)]);
    let (_, done, said) = import(&new, &old.address, &["--from-prefix", "app"]);
    assert_eq!(done, counts(&[("imported", 1)]), "{said}");
}

#[test]
fn a_redis_that_wants_a_password_gets_it_and_nobody_sees_it() {
    let (old, new) = (RedisServer::start(&["--requirepass", "s3cret"]), served(&["--memory"]));
    while TcpStream::connect(&old.address).is_err() {
        thread::sleep(Duration::from_millis(5));
    }
    let with = |password: &str| format!("redis://:{password}@{}/0", old.address);
    for address in [old.url(), with("wr0ng")] {
        let (code, _, said) = import(&new, &address, &[]);
        assert!(code == 1 && said.contains("wants another user or password"), "{said}");
        assert!(!said.contains("wr0ng"), "{said}");
    }
    assert_eq!(import(&new, &with("s3cret"), &[]).1, counts(&[]));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("password");
    fs::write(&file, "s3cret\n").unwrap();
    fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    let (_, done, said) = import(&new, &old.url(), &["--from-password-file", text(&file)]);
    assert_eq!(done, counts(&[]), "{said}");
    let (code, _, said) = import(&new, "redis://:s3cret@host:no/0", &[]);
    assert!(code == 2 && said.contains("no URL of a Redis") && !said.contains("s3cret"), "{said}");
}

#[test]
fn a_redis_behind_tls_has_to_be_vouched_for() {
    let certificates = Certificates::new();
    let (old, new) = (RedisServer::with_tls(&certificates), served(&["--memory"]));
    while TcpStream::connect(&old.address).is_err() {
        thread::sleep(Duration::from_millis(5));
    }
    let address = old.address.replace("127.0.0.1", "rediss://localhost");
    let ca = certificates.ca();
    let (_, done, said) = import(&new, &address, &["--from-ca-file", text(&ca)]);
    assert_eq!(done, counts(&[]), "{said}");
    let (code, _, said) = import(&new, &address, &[]);
    assert!(code == 1 && said.contains("cannot connect to localhost"), "{said}");
}

#[test]
fn what_is_no_redis_is_said() {
    let new = served(&["--memory"]);
    let (code, _, said) = import(&new, &new.address_of("http"), &[]);
    assert!(code == 1 && said.contains("that is no Redis at 127.0.0.1:"), "{said}");
    let (code, _, said) = import(&new, &free_address(), &[]);
    assert!(code == 1 && said.contains("cannot connect to 127.0.0.1:"), "{said}");
}

#[test]
fn nothing_is_taken_for_a_server_that_would_not_have_it() {
    let (old, mut new) = (RedisServer::start(&[]), served(&["--memory"]));
    push(&old, "mail", &[entry("mail", 1)]);
    new.kill();
    let (code, _, said) = import(&new, &old.address, &[]);
    assert!(code == 1 && said.contains("cannot"), "{said}");
    assert_eq!(old.ask::<u64>(&["LLEN", "queue:mail"]), 1);
}
