//! A worker that was killed and comes back: which of its rows are run again, and which are listed.

use std::{fs, io::Write, os::fd::AsRawFd, sync::atomic::Ordering, time::Duration};

use nix::{
    fcntl::{FcntlArg, SealFlag, fcntl},
    sys::memfd::{MFdFlags, memfd_create},
};
use serde_json::{Value, json};
use spindle_jobd::{
    table::{Mark, Origin, Status},
    worker::StateFile,
};

use crate::{
    ctl::jobctl,
    peer::{Peer, until, until_told},
    world::{Mortal, TARGETS, World, connect, ended},
};

/// The mark of the world's worker.
fn mark(world: &World) -> Mark {
    StateFile::open(&world.file("w1.state")).unwrap().mark().clone()
}

fn left_behind(world: &World, id: i64, status: Status, sig: &str) {
    world.table.insert(id, "low", "waiting");
    world.table.change(id, |row| {
        row.status = status;
        row.sig = Some(sig.to_owned());
        row.started_s = 1_700_000_000;
    });
}

/// What the worker lists, once it has looked.
async fn listed(peer: &mut Peer) -> Value {
    peer.status().await.get("unfinished").cloned().unwrap_or_default()
}

/// Changes the state file's bytes.
fn rewrite(world: &World, change: impl FnOnce(String) -> String) {
    let path = world.file("w1.state");
    fs::write(&path, change(fs::read_to_string(&path).unwrap())).unwrap();
}

#[tokio::test]
async fn rows_that_were_taken_and_had_not_begun_are_run_by_the_next_life() {
    let world = World::new();
    let worker = Mortal::start(&world).await;
    world.table.insert(1, "normal", "waiting");
    world.table.insert(2, "normal", "manual");
    let answers = world.table.claim_answers.write().await;
    let mut peer = worker.connect().await;
    peer.data("poll", json!({})).await;
    until("it is taken", || world.table.line(1) == "running").await;
    worker.kill();
    // The worker's own rows, as a claim leaves them whose worker is killed before it knows.
    let sig = world.table.row(1).sig.unwrap().replace('#', "@");
    left_behind(&world, 2, Status::Running, &sig);
    drop(answers);
    let worker = world.worker("").await;
    until("it is run", || world.table.line(1) == "done ok 0 NULL").await;
    until("it is given back", || world.table.line(2) == "manual").await;
    assert_eq!((world.table.row(2).sig, world.table.row(2).started_s), (None, 0));
    assert_eq!(world.runs(), [1]);
    assert_eq!(listed(&mut connect(&worker).await).await, Value::Null);
}

#[tokio::test]
async fn rows_that_had_begun_are_listed_and_not_run_again_until_a_person_decides() {
    let world = World::new();
    let worker = Mortal::start(&world).await;
    for id in [5, 15, 25] {
        world.table.insert(id, "normal", "waiting");
    }
    worker.connect().await.data("poll", json!({})).await;
    until("all run", || world.runs().len() == 3).await;
    worker.kill();

    let worker = world.worker("").await;
    let mut peer = connect(&worker).await;
    let rows = listed(&mut peer).await;
    assert_eq!(rows.as_object().unwrap().len(), 3, "{rows}");
    let row = &rows["15"];
    assert_eq!((&row["target"], &row["alive"]), (&json!("normal"), &json!(true)), "{rows}");
    assert!(row["since"].as_i64().unwrap() > 1_700_000_000, "{rows}");
    let pid = row["pid"].to_string();
    let command = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    assert!(command.ends_with("\u{0}15\u{0}"), "{command}");
    let port = worker.address().port().to_string();
    let shown = jobctl(&["--port", &port, "status"]).await.stdout;
    assert!(shown.contains(&format!("{pid}, still there")), "{shown}");
    world.let_go();
    until_told("the processes are gone", async || {
        let rows = listed(&mut peer).await;
        rows.as_object().unwrap().values().all(|row| row["alive"] == false)
    })
    .await;

    // A person knows how the job ended, and sets its row by hand; nothing else is needed.
    world.table.change(5, |row| row.status = Status::Done);
    world.table.change(15, |row| row.status = Status::Waiting);
    assert!(listed(&mut peer).await.get("25").is_some());
    peer.data("poll", json!({})).await;
    until("it is run again", || world.table.line(15) == "done ok 0 NULL").await;
    world.table.delete(25);
    assert_eq!(listed(&mut peer).await, Value::Null);
    let mut runs = world.runs();
    runs.sort_unstable();
    assert_eq!(runs, [5, 15, 15, 25]);
}

#[tokio::test]
async fn a_row_that_is_run_again_is_not_listed_and_does_not_count_as_begun_before_it_has() {
    let world = World::new();
    let worker = Mortal::start(&world).await;
    world.table.insert(5, "low", "waiting");
    worker.connect().await.data("poll", json!({})).await;
    until("it runs", || world.runs() == [5]).await;
    worker.kill();
    let worker = Mortal::start(&world).await;
    let mut peer = worker.connect().await;
    assert!(listed(&mut peer).await.get("5").is_some());
    // It is taken again, and waits behind a pause that came while it was claimed.
    world.table.change(5, |row| row.status = Status::Waiting);
    let answers = world.table.claim_answers.write().await;
    peer.data("poll", json!({})).await;
    until("it is taken", || world.table.line(5) == "running").await;
    peer.data("pause", json!({})).await;
    drop(answers);
    until_told("it waits", async || peer.status().await["targets"]["low"]["length"] == 1).await;
    assert_eq!(listed(&mut peer).await, Value::Null);
    worker.kill();
    let _worker = world.worker("").await;
    world.let_go();
    until("it is done", || world.table.line(5) == "done ok 0 NULL").await;
    assert_eq!(world.runs(), [5, 5]);
}

#[tokio::test]
async fn after_a_power_cut_every_row_that_says_running_is_listed() {
    let world = World::new();
    let worker = Mortal::start(&world).await;
    world.table.insert(5, "normal", "waiting");
    worker.connect().await.data("poll", json!({})).await;
    until("it runs", || world.runs() == [5]).await;
    worker.kill();
    world.let_go();
    let mark = mark(&world);
    left_behind(&world, 7, Status::Running, &mark.text(Origin::Background));
    left_behind(&world, 8, Status::Accepted, &mark.text(Origin::Background));
    // Another boot, which has lost the lines behind the first.
    rewrite(&world, |text| {
        let digit = |digit: char| if digit == '0' { '1' } else { '0' };
        let (whose, claim) = text[..64].split_once(" 2 ").unwrap();
        format!("{whose} 2 {}{}", digit(claim.chars().next().unwrap()), &claim[1..])
    });
    for _ in 0..2 {
        let mut worker = world.worker("").await;
        let rows = listed(&mut connect(&worker).await).await;
        let ids: Vec<_> = rows.as_object().unwrap().keys().collect();
        assert_eq!(ids, ["5", "7"]);
        assert_eq!(rows["7"], json!({"target": "low", "since": 1_700_000_000}));
        until("what was accepted is run", || world.table.line(8) == "done ok 0 NULL").await;
        worker.stop();
        ended(&mut worker).await;
    }
    // From now on the worker knows again which rows have begun, and that these may have.
    left_behind(&world, 9, Status::Running, &mark.text(Origin::Background));
    let worker = world.worker("").await;
    until("what had not begun is run", || world.table.line(9) == "done ok 0 NULL").await;
    assert_eq!(listed(&mut connect(&worker).await).await.as_object().unwrap().len(), 2);
    assert_eq!(world.runs(), [5, 8, 9]);
}

#[tokio::test]
async fn a_state_file_of_the_old_form_lists_every_row_that_says_running() {
    let world = World::new();
    fs::write(world.file("w1.state"), "jobd-mark abcdefghi\n").unwrap();
    let mark = mark(&world);
    assert_eq!(mark.owner(), "abcdefghi");
    left_behind(&world, 1, Status::Accepted, &mark.text(Origin::Background));
    left_behind(&world, 2, Status::Accepted, &mark.text(Origin::Manual));
    left_behind(&world, 3, Status::Running, &mark.text(Origin::Background));
    // Somebody else's.
    left_behind(&world, 4, Status::Accepted, "#123456789");
    left_behind(&world, 5, Status::Running, "#123456789");
    let worker = world.worker("").await;
    until("its background row is run", || world.table.line(1) == "done ok 0 NULL").await;
    assert_eq!(world.table.line(2), "manual");
    assert_eq!(world.table.line(3), "running");
    assert_eq!((world.table.line(4), world.table.line(5)), ("accepted".into(), "running".into()));
    let mut peer = connect(&worker).await;
    let expected = json!({"3": {"target": "low", "since": 1_700_000_000}});
    assert_eq!(listed(&mut peer).await, expected);
    assert_eq!(world.runs(), [1]);
}

#[tokio::test]
async fn a_row_whose_result_is_refused_is_listed_and_not_run_again() {
    let world = World::new();
    let mut worker = world.worker("").await;
    world.table.insert(1, "low", "waiting");
    world.table.refused_rows.lock().insert(1);
    let mut peer = connect(&worker).await;
    peer.data("poll", json!({})).await;
    until_told("it is listed", async || listed(&mut peer).await.get("1").is_some()).await;
    worker.stop();
    ended(&mut worker).await;
    let worker = world.worker("").await;
    assert!(listed(&mut connect(&worker).await).await.get("1").is_some());
    assert_eq!((world.table.line(1), world.runs()), ("running".into(), vec![1]));
}

/// The claim of a killed worker may not be committed yet when its next life looks for rows.
#[tokio::test]
async fn rows_that_come_to_light_later_are_given_back_too() {
    let world = World::new();
    let mark = mark(&world);
    let mut config = world.config(TARGETS);
    config.second_look = Duration::from_secs(2);
    let _worker = world.start(&config).await;
    until("the first look", || world.table.claims.load(Ordering::SeqCst) > 0).await;
    world.table.insert(2, "elsewhere", "waiting");
    world.table.change(2, |row| {
        row.status = Status::Running;
        row.sig = Some(mark.text(Origin::Background));
    });
    until("it is given back", || world.table.line(2) == "waiting").await;
}

#[tokio::test]
async fn what_has_ended_leaves_no_line() {
    let world = World::new();
    let mut worker = world.worker("").await;
    for id in [1, 3, 4] {
        world.table.insert(id, "low", "waiting");
    }
    connect(&worker).await.data("poll", json!({})).await;
    until("all are done", || world.table.count("done") == 3).await;
    worker.stop();
    ended(&mut worker).await;
    let text = fs::read_to_string(world.file("w1.state")).unwrap();
    assert!(text.len() > 64 && !text.contains("began"), "{text}");
}

#[tokio::test]
async fn a_row_does_not_begin_while_that_cannot_be_noted_and_is_given_back_at_the_end() {
    // A file that takes nothing more from some time on.
    let file = memfd_create("state", MFdFlags::MFD_ALLOW_SEALING).map(fs::File::from).unwrap();
    (&file).write_all(b"jobd-mark abcdefghi\n").unwrap();
    let world = World::new();
    let mut config = world.config(TARGETS);
    config.state_file = format!("/proc/self/fd/{}", file.as_raw_fd()).into();
    let mut worker = world.start(&config).await;
    let mut peer = connect(&worker).await;
    world.table.insert(1, "normal", "waiting");
    peer.data("poll", json!({})).await;
    until("the first is run", || world.table.line(1) == "done ok 0 NULL").await;
    fcntl(&file, FcntlArg::F_ADD_SEALS(SealFlag::F_SEAL_WRITE)).unwrap();
    world.table.insert(2, "normal", "waiting");
    peer.data("poll", json!({})).await;
    until("it is taken", || world.table.line(2) == "running").await;
    // The worker is well otherwise.
    assert_eq!(peer.status().await["targets"]["normal"]["length"], 1);
    worker.stop();
    ended(&mut worker).await;
    assert_eq!((world.table.line(2), world.runs()), ("waiting".into(), vec![1]));
}
