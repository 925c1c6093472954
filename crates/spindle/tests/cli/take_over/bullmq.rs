//! `spindle import --from redis-bullmq`: jobs that BullMQ itself has put into a Redis.

use std::{
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use super::{counts, import_from, jobs, payload, payloads, redis::RedisServer};
use crate::{
    native::{object, output_of, served},
    serve::{Served, data},
};

fn import(served: &Served, address: &str, more: &[&str]) -> (i32, Value, String) {
    import_from(served, "redis-bullmq", address, more)
}

/// Where `cargo xtask test` puts BullMQ.
fn modules() -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap().join("bullmq-clients/node_modules")
}

/// Runs a program that has a queue `q` of BullMQ, and `connection`: the lines it prints.
fn bullmq(redis: &RedisServer, program: &str) -> String {
    let (_, port) = redis.address.split_once(':').unwrap();
    let whole = format!(
        r#"const {{ Queue, Worker, FlowProducer, Job }} = require("bullmq");
        const connection = {{ host: "127.0.0.1", port: {port} }};
        setTimeout(() => {{ console.error("not done in time"); process.exit(1); }}, 60000).unref();
        (async () => {{
            const q = new Queue("mail", {{ connection }});
            {program}
            process.exit(0);
        }})().catch(error => {{ console.error(error); process.exit(1); }});"#
    );
    let mut command = Command::new("node");
    command.args(["-e", &whole]).env("NODE_PATH", modules());
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// What its own queue counts.
fn waiting(redis: &RedisServer) -> Value {
    object(&bullmq(redis, "console.log(JSON.stringify(await q.getJobCounts()));"))
}

#[test]
fn what_bullmq_has_submitted_goes_over() {
    let (old, new) = (RedisServer::start(&[]), served(&["--memory"]));
    let backoff = r#"{ type: "exponential", delay: 1000, jitter: 0.5 }"#;
    bullmq(
        &old,
        &format!(
            r#"await q.add("welcome", {{ to: "grüße", n: 1.50 }}, {{ attempts: 4, backoff: {backoff} }});
            await q.add("later", 7, {{ delay: 3600000, priority: 2 }});
            await q.add("first", {{}}, {{ priority: 3, deduplication: {{ id: "same" }} }});
            await q.add("again", {{}}, {{ attempts: 3, backoff: 3600000 }});
            const other = new Queue("sms", {{ connection }});
            await other.pause();
            await other.add("text", [1], {{ jobId: "by hand" }});"#
        ),
    );
    let (code, found, said) = import(&new, &old.url(), &["--dry-run"]);
    let row = |queue, state, jobs| json!({ "queue": queue, "state": state, "jobs": jobs });
    let rows = [
        row("mail", "wait", 2),
        row("mail", "prioritized", 1),
        row("mail", "delayed", 1),
        row("sms", "wait", 1),
    ];
    assert_eq!((code, &found), (0, &json!({ "waiting": rows, "at_work": 0 })), "{said}");
    let due: Vec<(String, f64)> =
        old.ask(&["ZRANGE", "bull:mail:delayed", "0", "-1", "WITHSCORES"]);

    let (code, done, said) = import(&new, &old.url(), &["--queue", "mail"]);
    assert_eq!((code, &done), (0, &counts(&[("imported", 4)])), "{said}");
    let found = jobs(&new, "mail");
    let [welcome, again, first, later] = &found[..] else { panic!("{found:?}") };
    let whole = object(&payload(welcome));
    assert_eq!((&whole["id"], &whole["name"]), (&json!("1"), &json!("welcome")));
    assert_eq!((&whole["data"]["to"], &whole["opts"]["attempts"]), (&json!("grüße"), &json!(4)));
    assert!(whole["timestamp"].is_u64(), "{whole}");
    let backoff =
        json!({ "base_ms": 1000, "factor": 2, "cap_ms": 31_536_000_000_u64, "jitter": 0.5 });
    assert_eq!((&welcome["fails_max"], &welcome["backoff"]), (&json!(4), &backoff));
    assert_eq!(welcome["tags_base64"], json!(["d2VsY29tZQ=="]));
    assert_eq!((&again["fails_max"], &again["backoff"]["base_ms"]), (&json!(3), &json!(3_600_000)));
    assert_eq!((&first["priority"], &first["fails_max"]), (&json!(-3), &json!(1)));
    assert_eq!((&later["priority"], &later["status"]), (&json!(-2), &json!("scheduled")));
    assert_eq!(object(&payload(later))["data"], 7);
    let run_at: jiff::Timestamp = later["run_at"].as_str().unwrap().parse().unwrap();
    assert_eq!(run_at.as_millisecond(), (due[0].1 / 4096.0) as i64);

    assert_eq!(import(&new, &old.url(), &[]).1, counts(&[("imported", 1)]));
    assert_eq!(object(&payload(&jobs(&new, "sms")[0]))["id"], "by hand");
    // Nothing of them is left: as after BullMQ's own remove.
    let mut keys: Vec<String> = old.ask(&["KEYS", "bull:mail:*"]);
    keys.sort_unstable();
    let wanted = ["events", "id", "marker", "meta", "pc"].map(|key| format!("bull:mail:{key}"));
    assert_eq!(keys, wanted);
    let removed = bullmq(
        &old,
        r#"const { default: Redis } = require("ioredis");
        const found = await new Redis(connection).xrange("bull:mail:events", "-", "+");
        console.log(found.filter(([, fields]) => fields[1] === "removed").length);"#,
    );
    assert_eq!(removed.trim(), "4");
}

#[test]
fn what_bullmq_works_and_what_it_alone_can_work_stays() {
    let (old, new) = (RedisServer::start(&[]), served(&["--memory"]));
    bullmq(
        &old,
        r#"await q.add("failed once", {}, { attempts: 3, backoff: { type: "exponential", delay: 3600000 } });
        let taken; const is_taken = new Promise(resolve => taken = resolve);
        const worker = new Worker("mail", async job => {
            if (job.name === "failed once") throw new Error("no");
            taken(); await new Promise(() => {});
        }, { connection });
        await new Promise(resolve => worker.once("failed", resolve));
        await q.add("at work", {});
        await is_taken;
        await new FlowProducer({ connection }).add({ name: "parent", queueName: "flows",
            children: [{ name: "child", queueName: "flows", data: {} }] });
        await new Queue("ticks", { connection }).upsertJobScheduler("s", { every: 3600000 }, { name: "t" });"#,
    );
    old.ask::<u64>(&["RPUSH", "bull:mail:wait", "no-such-job"]);
    old.ask::<u64>(&["HSET", "bull:mail:odd", "name", "odd", "data", "{no", "opts", "{}"]);
    old.ask::<u64>(&["RPUSH", "bull:mail:wait", "odd", "0:marker"]);
    let (code, done, said) = import(&new, &old.url(), &[]);
    let wanted = [("imported", 1), ("unreadable", 2), ("at_work", 1), ("left", 3)];
    assert_eq!((code, &done), (1, &counts(&wanted)), "{said}");
    for reason in [
        "bull:mail:wait: an id has no job, and stays there: `no-such-job`",
        "bull:mail:wait: job odd cannot be read (data: ",
        "left there, parts of flows, which their workers have to finish: 1",
        "left there, made by job schedulers (`spindle cron` puts schedules here): 1",
        "left there, waiting for other jobs of their flows: 1",
    ] {
        assert!(said.contains(reason), "{reason}: {said}");
    }
    // One failure of three, and the second wait of those that double.
    let again = &jobs(&new, "mail")[0];
    assert_eq!((&again["fails_max"], &again["status"]), (&json!(2), &json!("scheduled")));
    assert_eq!(again["backoff"]["base_ms"], 7_200_000);
    let left = waiting(&old);
    assert_eq!((&left["active"], &left["delayed"]), (&json!(1), &json!(0)));
}

#[test]
fn a_job_of_bullmq_is_there_once_whatever_is_killed_in_the_middle() {
    let (_folder, data) = data();
    let on_disk = ["--data", &data];
    let (mut old, mut new) = (RedisServer::start(&[]), served(&on_disk));
    bullmq(
        &old,
        r#"const one = n => ({ name: "n", data: n, opts: n % 2 ? {} : { delay: 3600000 + n } });
        for (let at = 0; at < 2600; at += 200)
            await q.addBulk(Array.from({ length: 200 }, (_, n) => one(at + n)));"#,
    );
    old.interrupt_imports("redis-bullmq", &mut new, &on_disk);
    let (code, done, said) = import(&new, &old.address, &[]);
    assert_eq!((code, &done["left"]), (0, &json!(0)), "{said}");
    let found = payloads(&new, "mail");
    let mut numbers: Vec<_> =
        found.keys().map(|whole| object(whole)["data"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..2_600).collect::<Vec<_>>());
    assert!(found.values().all(|count| *count == 1));
    assert_eq!(old.ask::<Vec<String>>(&["KEYS", "bull:mail:[0-9]*"]), Vec::<String>::new());
}

#[test]
fn what_is_refused_can_still_be_worked_there() {
    let (old, new) = (RedisServer::start(&[]), served(&["--memory"]));
    bullmq(
        &old,
        r#"for (const n of [1, 2, 3]) await q.add("n", n, n > 1 ? {} : { priority: 1 });"#,
    );
    output_of(&new, &["queue", "set", "mail", "--max-jobs", "1"]);
    let (code, done, said) = import(&new, &old.url(), &["--skip-refused"]);
    let wanted = [("imported", 1), ("refused", 2), ("left", 2)];
    assert_eq!((code, &done), (1, &counts(&wanted)), "{said}");
    let worked = bullmq(
        &old,
        r#"const seen = [];
        await new Promise(resolve => new Worker("mail", async job => {
            seen.push(job.data);
            if (seen.length === 2) resolve();
        }, { connection }));
        console.log(JSON.stringify(seen));"#,
    );
    assert_eq!(object(&worked), json!([3, 1]));
}
