//! A worker as a service: what its manager is notified of, and what its jobs do not inherit.

use std::{fs, os::unix::net::UnixDatagram, process::Stdio, time::Duration};

use nix::sys::signal::Signal;
use serde_json::json;

use crate::{
    peer::{Peer, until},
    programs::{Folder, Program},
};

fn next_word(socket: &UnixDatagram) -> String {
    let mut word = [0; 512];
    let length = socket.recv(&mut word).unwrap();
    String::from_utf8(word[..length].to_vec()).unwrap().trim_end().to_owned()
}

#[tokio::test]
async fn the_service_manager_is_told_and_its_variables_are_not_handed_on() {
    let folder = Folder::new("echo $NOTIFY_SOCKET-$WATCHDOG_USEC-$KEPT");
    let socket = UnixDatagram::bind(folder.file("notify")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let child = std::process::Command::new(env!("CARGO_BIN_EXE_jobd"))
        .args(folder.options("a", &["targets.mail=2"]))
        .env("NOTIFY_SOCKET", folder.file("notify"))
        .env("WATCHDOG_USEC", "1000000")
        .env("KEPT", "kept")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn();
    let mut jobd = Program(child.unwrap());
    let address = jobd.address();
    assert_eq!(next_word(&socket), "READY=1");
    folder.has_table().await;
    folder.insert(1..=1, "mail");
    Peer::connect(address).await.data("poll", json!({})).await;
    until("it is done", || folder.count("done") == 1).await;
    let query = "SELECT stdout FROM jobs";
    let stdout: String = folder.database().query_row(query, [], |row| row.get(0)).unwrap();
    assert_eq!(stdout, "--kept\n");
    jobd.signal(Signal::SIGTERM);
    assert_eq!(next_word(&socket), "STOPPING=1");
    assert_eq!(jobd.ended().await.code(), Some(0));
}

/// Processes whose parent this is, ended or not.
fn children(parent: u32) -> usize {
    let is_child = |stat: &String| {
        let after_name = stat.rsplit_once(") ").map(|(_, rest)| rest);
        after_name.and_then(|rest| rest.split(' ').nth(1)) == Some(&parent.to_string())
    };
    let processes = fs::read_dir("/proc").unwrap().map(|entry| entry.unwrap().path().join("stat"));
    processes.filter_map(|stat| fs::read_to_string(stat).ok()).filter(is_child).count()
}

#[tokio::test]
async fn processes_that_have_ended_are_reaped() {
    let folder = Folder::new("while [ ! -e $1/go ] && [ -e $1/job.sh ]; do sleep 0.02; done");
    let mut jobd = Program::jobd(&folder.options("a", &["targets.mail=8"]));
    let address = jobd.address();
    folder.has_table().await;
    folder.insert(1..=40, "mail");
    Peer::connect(address).await.data("poll", json!({})).await;
    until("eight run", || children(jobd.0.id()) == 8).await;
    fs::write(folder.file("go"), "").unwrap();
    until("all are done", || folder.count("done") == 40).await;
    until("none is left behind", || children(jobd.0.id()) == 0).await;
}
