//! `spindle verify`, `backup` and `restore` of shared logs: what is refused, and what is damaged.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;

use serde_json::{Value, json};
use spindle_log::{Opening, Position};
use spindle_log_pgsql::{PgsqlLog, PgsqlLogOptions};
use spindle_testkit::{NatsServers, PostgresServer, wait_until};

use crate::harness::{Node, database};
use crate::kinds::{Servers, ended, is_refused, object};

/// Starts a node, adds jobs with these payloads, and ends it.
fn filled(url: &str, payloads: &[&str]) {
    let mut node = Node::new(url.to_owned(), "one");
    node.start();
    wait_until("it leads", || node.leads());
    for payload in payloads {
        let job = json!({ "queue": "q", "payload": payload });
        assert_eq!(node.answer("POST /api/v1/jobs", &job).0, 201);
    }
    assert_eq!(node.end(), Some(0));
}

fn path(folder: &tempfile::TempDir, name: &str) -> String {
    folder.path().join(name).to_str().unwrap().to_owned()
}

#[test]
fn a_log_that_is_not_there_is_not_made_and_one_that_is_there_is_not_filled() {
    for servers in Servers::of_each_kind() {
        let url = servers.url("jobs");
        let folder = tempfile::tempdir().unwrap();
        let backup = path(&folder, "backup");
        for _ in 0..2 {
            is_refused(
                3,
                &["verify", "--log", &url],
                &["cannot open the shared log", "there is no"],
            );
            is_refused(3, &["backup", "--log", &url, &backup], &["there is no"]);
        }
        assert!(!folder.path().join("backup").exists());
        filled(&url, &["one"]);
        let found = object(0, &["verify", "--log", &url]);
        let counts = (&found["contents"]["jobs"]["ready"], &found["contents"]["epoch"]);
        assert_eq!(counts, (&json!(1), &json!(1)), "{found}");
        object(0, &["backup", "--log", &url, &backup]);
        is_refused(1, &["restore", &backup, "--log", &url], &["a log already"]);
        assert_eq!(object(0, &["verify", "--log", &url]), found);
        // Where something else is.
        std::fs::write(folder.path().join("notes"), "mine").unwrap();
        let here = folder.path().to_str().unwrap();
        is_refused(
            1,
            &["backup", "--log", &url, here],
            &["holds other files (", "choose an empty"],
        );
        is_refused(1, &["restore", here, "--log", &url], &["holds no backup"]);
        // A damaged backup makes no log.
        let copy = std::fs::read_dir(&backup).unwrap().flatten().map(|file| file.path());
        let copy = copy.filter(|file| file.extension().is_some_and(|it| it == "copy")).min();
        let mut bytes = std::fs::read(copy.as_ref().unwrap()).unwrap();
        bytes[70] ^= 1;
        std::fs::write(copy.unwrap(), bytes).unwrap();
        let other = servers.url("other");
        is_refused(1, &["restore", &backup, "--log", &other], &["damaged at byte 64"]);
        is_refused(3, &["verify", "--log", &other], &["there is no"]);
    }
}

#[test]
fn what_is_typed_wrongly_is_said_without_passwords() {
    for command in [&["verify"][..], &["backup", "/tmp/b"], &["restore", "/tmp"]] {
        let with = |more: &[&'static str], words: &[&str]| {
            is_refused(2, &[command, more].concat(), words);
        };
        if command[0] == "restore" {
            // A backup is looked at first.
            continue;
        }
        with(&["--log", "postgres://u:secret@h/d"], &["--log-password-file"]);
        with(&["--log", "redis://u:secret@h"], &["--log-password-file"]);
        with(&["--log", "redis://h"], &["--log", "postgres://USER@HOST/DATABASE"]);
        with(&["--log", "nats://h/a.b"], &["--log", "cannot be the name of a stream"]);
        let log = ["--log", "postgres://u@127.0.0.1:1/d"];
        with(&[log[0], log[1], "--log-password-file", "/nowhere"], &["--log-password-file"]);
        with(&[log[0], log[1], "--log-sync", "never"], &["use always or os"]);
        with(&["--log-sync", "os"], &["--log"]);
    }
    is_refused(2, &["verify", "/tmp", "--log", "nats://h/s"], &["cannot be used with"]);
    is_refused(2, &["verify", "--repair", "--log", "nats://h/s"], &["cannot be used with"]);
    is_refused(2, &["restore", "/tmp", "/tmp/x", "--log", "nats://h/s"], &["cannot be used with"]);
    let nobody = format!("postgres://u@{}/d", spindle_testkit::free_address());
    is_refused(1, &["verify", "--log", &nobody], &["no PostgreSQL server can be used"]);
    let server = database();
    server.sql("CREATE SCHEMA other; CREATE TABLE other.head (x int)");
    let servers = Servers::Postgres(server);
    is_refused(1, &["verify", "--log", &servers.url("other")], &["is not a log of Spindle"]);
}

/// The one number that a question of SQL answers.
fn number(server: &PostgresServer, question: &str) -> u64 {
    server.sql(question).parse().unwrap()
}

#[test]
fn a_record_of_a_deposed_leader_is_told_and_left_out_of_a_backup() {
    let server = database();
    let url = server.url("spindle");
    filled(&url, &["one", "two"]);
    let folder = tempfile::tempdir().unwrap();
    let backup = path(&folder, "backup");
    // Two backups, so that one of them begins behind the record.
    filled(&url, &["three"]);
    let before = object(0, &["verify", "--log", &url]);
    let next = number(&server, "SELECT max(position) + 1 FROM spindle.records_0");
    assert_eq!(before["next"], next);
    // The record that has made a job comes once more, of the epoch that is over.
    let copy = "INSERT INTO spindle.records_0 SELECT max(position) + 1, 1, \
                (SELECT bytes FROM spindle.records_0 WHERE strpos(encode(bytes, 'escape'), 'two') > 0 \
                ORDER BY position LIMIT 1) FROM spindle.records_0";
    server.sql(copy);
    let after = object(0, &["verify", "--log", &url]);
    assert_eq!(after["fenced"], json!([next]), "{after}");
    assert_eq!(after["contents"], before["contents"]);
    let (_, said) = ended(&["verify", "--log", &url]);
    assert!(said.contains(&format!("fenced\trecord {next}: ")), "{said}");
    let taken = object(0, &["backup", "--log", &url, &backup]);
    assert_eq!(taken["next"], next + 1);
    // It is continued behind that record.
    server.sql(copy);
    let again = object(0, &["backup", "--log", &url, &backup]);
    assert_eq!(again["next"], next + 2);
    let restored = path(&folder, "restored");
    object(0, &["restore", &backup, &restored]);
    let found = object(0, &["verify", &restored]);
    assert_eq!(found["contents"]["jobs"], before["contents"]["jobs"], "{found}");
    let elsewhere = format!("{url}?schema=elsewhere");
    object(0, &["restore", &backup, "--log", &elsewhere]);
    let found = object(0, &["verify", "--log", &elsewhere]);
    assert_eq!(
        (&found["fenced"], &found["contents"]["jobs"]),
        (&json!([]), &before["contents"]["jobs"])
    );
}

#[test]
fn damage_in_postgresql_is_told_with_its_place_and_not_backed_up() {
    let server = database();
    let url = server.url("spindle");
    filled(&url, &["the first one", "the second one"]);
    let folder = tempfile::tempdir().unwrap();
    let backup = path(&folder, "backup");
    let taken = object(0, &["backup", "--log", &url, &backup]);
    let holds = |text: &str| format!("position('{text}'::bytea IN bytes)");
    let at = number(
        &server,
        &format!("SELECT position FROM spindle.records_0 WHERE {} > 0", holds("the second one")),
    );
    // Byte N of this record becomes another one.
    let change = |byte: &str| {
        format!(
            "UPDATE spindle.records_0 SET bytes = set_byte(bytes, {byte}, get_byte(bytes, {byte}) # 1) \
             WHERE position = {at}"
        )
    };
    let place =
        format!("SELECT {} FROM spindle.records_0 WHERE position = {at}", holds("the second one"));
    let payload = change(&number(&server, &place).to_string());
    server.sql(&payload);
    let found = object(1, &["verify", "--log", &url]);
    assert_eq!(found["verdict"], "payloads damaged", "{found}");
    assert_eq!(found["damaged_records"], json!([{ "position": at }]));
    assert_eq!(found["damaged_jobs"].as_array().map(Vec::len), Some(1));
    assert_eq!(found["contents"]["jobs"]["ready"], 2);
    server.sql(&payload);
    assert_eq!(object(0, &["verify", "--log", &url])["verdict"], "sound");

    for (damage, reason) in [
        (change("length(bytes) - 1"), "a checksum does not match"),
        (format!("UPDATE spindle.records_0 SET epoch = epoch + 1 WHERE position = {at}"), "epoch"),
    ] {
        server.sql(&format!(
            "CREATE TABLE kept AS SELECT * FROM spindle.records_0 WHERE position = {at}"
        ));
        server.sql(&damage);
        let found = object(1, &["verify", "--log", &url]);
        assert_eq!(
            (&found["verdict"], &found["damage"]["position"]),
            (&json!("damaged"), &json!(at))
        );
        let said = found["damage"]["reason"].as_str().unwrap();
        assert!(said.contains(reason), "{said}");
        assert_eq!(found["contents"]["jobs"]["ready"], 1, "{found}");
        let words = ["damage\trecord", "advice\t", "spindle restore BACKUP --log URL"];
        is_refused(1, &["verify", "--log", &url], &words);
        let new = path(&folder, "new");
        is_refused(
            1,
            &["backup", "--log", &url, &new],
            &[&format!("record {at}"), "cannot be read"],
        );
        server.sql(&format!("DELETE FROM spindle.records_0 WHERE position = {at}"));
        server.sql("INSERT INTO spindle.records_0 SELECT * FROM kept; DROP TABLE kept");
    }
    // A gap among the newest records is seen when the log is opened.
    server.sql(&format!(
        "CREATE TABLE kept AS SELECT * FROM spindle.records_0 WHERE position = {at}"
    ));
    server.sql(&format!("DELETE FROM spindle.records_0 WHERE position = {at}"));
    let words = ["is damaged", "1 of the records 0 to", "restore the database from a backup"];
    is_refused(1, &["verify", "--log", &url], &words);
    is_refused(1, &["backup", "--log", &url, &backup], &words);
    server.sql("INSERT INTO spindle.records_0 SELECT * FROM kept; DROP TABLE kept");
    assert_eq!(object(0, &["backup", "--log", &url, &backup])["next"], taken["next"]);
    // A database that was set back is another log for a backup.
    server.sql("DELETE FROM spindle.records_0 WHERE position = (SELECT max(position) FROM spindle.records_0)");
    is_refused(1, &["backup", "--log", &url, &backup], &["another log", "the backup at"]);
    assert_eq!(object(0, &["verify", &backup])["next"], taken["next"]);
}

#[test]
fn damage_on_nats_is_told_with_its_place() {
    let servers = NatsServers::one();
    let (address, servers) = (servers.addresses()[0].clone(), Servers::Nats(servers));
    let url = servers.url("jobs");
    filled(&url, &["one"]);
    let next = object(0, &["verify", "--log", &url])["next"].clone();
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"CONNECT {}\r\nPUB jobs.log 5\r\nhello\r\nPING\r\n").unwrap();
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "PONG"));
    let mut found = Value::Null;
    wait_until("the message is in the stream", || {
        let (_, said) = ended(&["verify", "--json", "--log", &url]);
        found = serde_json::from_str(said.lines().next().unwrap()).unwrap();
        found["verdict"] == "damaged"
    });
    assert_eq!(
        (&found["damage"]["position"], &found["contents"]["jobs"]["ready"]),
        (&next, &json!(1))
    );
    let said = found["damage"]["reason"].as_str().unwrap();
    assert!(said.contains("no header Spindle-Record"), "{said}");
    let folder = tempfile::tempdir().unwrap();
    let words = ["cannot be read", "no header Spindle-Record"];
    is_refused(1, &["backup", "--log", &url, &path(&folder, "backup")], &words);
}

#[test]
fn a_restore_that_was_interrupted_keeps_nodes_out_and_goes_on() {
    let server = database();
    let url = server.url("spindle");
    filled(&url, &["one", "two"]);
    let folder = tempfile::tempdir().unwrap();
    let backup = path(&folder, "backup");
    object(0, &["backup", "--log", &url, &backup]);
    let other = format!("{url}?schema=other");
    let mut options = PgsqlLogOptions::from_url(&other).unwrap();
    options.opening = Opening::Restore(Position(0));
    drop(PgsqlLog::open(&options).unwrap());
    let words = ["was not restored to its end", "spindle restore"];
    is_refused(1, &["verify", "--log", &other], &words);
    crate::refused::is_refused(&["--log", &other], 1, &words);
    object(0, &["restore", &backup, "--log", &other]);
    let found = object(0, &["verify", "--log", &other]);
    assert_eq!(found["contents"]["jobs"]["ready"], 2);
    filled(&other, &["three"]);
    assert_eq!(object(0, &["verify", "--log", &other])["contents"]["jobs"]["ready"], 3);
    // A log that begins elsewhere is another restore's.
    let third = format!("{url}?schema=third");
    let mut options = PgsqlLogOptions::from_url(&third).unwrap();
    options.opening = Opening::Restore(Position(7));
    drop(PgsqlLog::open(&options).unwrap());
    is_refused(1, &["restore", &backup, "--log", &third], &["begins at 7, the backup at 0"]);
}

#[test]
fn a_node_names_the_command_that_backs_the_cluster_up() {
    let server = database();
    let url = server.url("spindle");
    let mut node = Node::new(url, "one");
    node.start();
    wait_until("it leads", || node.leads());
    let folder = tempfile::tempdir().unwrap();
    let backup = path(&folder, "backup");
    let words = ["spindle backup --log URL BACKUP"];
    is_refused(1, &["backup", &format!("http://{}", node.http), &backup], &words);
}
