//! Settings, databases and logs that cannot be used are refused with a message.

use spindle_testkit::{PostgresServer, free_address};

use crate::harness::{Node, database, refused};

/// Checks that the program ends with this code and says these words.
#[track_caller]
pub fn is_refused(arguments: &[&str], code: i32, words: &[&str]) {
    let folder = tempfile::tempdir().unwrap();
    let doors = ["--http", "127.0.0.1:0", "--workq", "off", "--gearman", "off"];
    let own = ["--jobd-master", "off", "--data", folder.path().to_str().unwrap()];
    let (ended, said) = refused(&[arguments, &doors, &own].concat());
    assert_eq!(ended, Some(code), "{said}");
    for word in words {
        assert!(said.contains(word), "{word:?} is not said: {said}");
    }
    assert!(!said.contains("secret"), "{said}");
}

#[test]
fn settings_that_will_not_do_end_the_program_with_code_2() {
    let log = ["--log", "postgres://u@127.0.0.1/d"];
    let with = |more: &[&'static str]| [&log[..], more].concat();
    is_refused(&["--log", "postgres://u:secret@h/d"], 2, &["--log-password-file"]);
    is_refused(&["--log", "redis://h"], 2, &["postgres://USER@HOST/DATABASE"]);
    is_refused(&["--log", "postgres://u@h/d?sslmode=perhaps"], 2, &["--log", "sslmode=perhaps"]);
    is_refused(&["--log", "postgres://u@h/d?schema=Jobs"], 2, &["--log", "small letters"]);
    is_refused(&with(&["--memory"]), 2, &["--memory", "--log"]);
    is_refused(&with(&["--node", "a b"]), 2, &["--node", "no name of a node"]);
    is_refused(&with(&["--advertise", "h:1"]), 2, &["--cluster-listen"]);
    is_refused(&with(&["--log-password-file", "/nowhere"]), 2, &["--log-password-file"]);
    is_refused(&["--node", "one"], 2, &["--log URL"]);
    let far = with(&["--cluster-listen", "0.0.0.0:1", "--advertise", "h:1"]);
    is_refused(&far, 2, &["--cluster-ca-file", "--insecure cluster"]);
}

#[test]
fn a_database_that_will_not_do_ends_the_program_with_code_1() {
    let nobody = format!("postgres://u@{}/d", free_address());
    is_refused(&["--log", &nobody], 1, &["cannot open the shared log", "no PostgreSQL server"]);
    let server = database();
    let none = server.url("spindle").replace("/postgres", "/none");
    is_refused(&["--log", &none], 1, &["does not let the log in", "none"]);
    server.sql("CREATE SCHEMA other; CREATE TABLE other.head (x int)");
    let other = format!("{}?schema=other", server.url("spindle"));
    is_refused(&["--log", &other], 1, &["is not a log of Spindle", "?schema="]);
    server.sql("ALTER ROLE spindle SET synchronous_commit = off");
    is_refused(&["--log", &server.url("spindle")], 1, &["synchronous_commit is off"]);
}

#[test]
fn a_server_that_does_not_sync_is_taken_only_if_that_is_said() {
    let server = PostgresServer::start(&["fsync=off"]);
    is_refused(&["--log", &server.url("spindle")], 1, &["fsync is off"]);
    let mut node = Node::new(server.url("spindle"), "careless");
    node.start_with(&["--log-sync", "os"]);
    spindle_testkit::wait_until("it leads", || node.leads());
}

#[test]
fn a_second_server_of_the_same_name_is_turned_away() {
    let server = database();
    let [mut first, second] = [(); 2].map(|()| Node::new(server.url("spindle"), "one"));
    first.start();
    spindle_testkit::wait_until("it leads", || first.leads());
    let (code, said) = refused(&second.arguments());
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("another server of this cluster is named \"one\""), "{said}");
    assert!(first.leads());
}
