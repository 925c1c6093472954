//! The examples of docs/webhooks.md.

use std::{fs, path::Path, process::Command};

use spindle_webhook::{Authorities, Hook, Options, Secret};

use crate::receiver::{Receiver, SECRET, dead, memory, options, start};

fn blocks<'a>(page: &'a str, kind: &str) -> Vec<&'a str> {
    let opens = format!("```{kind}\n");
    page.split(&opens).skip(1).map(|rest| rest.split("```").next().unwrap()).collect()
}

fn page() -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/webhooks.md");
    fs::read_to_string(path).unwrap()
}

#[test]
fn the_hooks_of_the_page_are_hooks() {
    let page = page();
    let toml = blocks(&page, "toml");
    let hooks = toml[0].lines().filter_map(|line| line.trim().strip_prefix('"'));
    let hooks: Vec<Hook> =
        hooks.map(|line| line.trim_end_matches("\",").parse().unwrap()).collect();
    assert_eq!(hooks.len(), 2);
    assert!(hooks[1].older.is_some() && hooks[1].is_about(b"payments.eu"));
}

#[test]
fn a_receiver_written_as_the_page_says_finds_the_signature_right() {
    let engine = memory();
    let receiver = Receiver::start(|_| 200);
    let hooks = start(&engine, &receiver, "dead", &options());
    dead(&engine, "q", "x");
    let post = receiver.next();
    let check = |secret: &[u8], body: &[u8]| {
        let script = blocks(&page(), "python")[0].to_owned()
            + "\nimport sys\nsecret, header, body = (text.encode() for text in sys.argv[1:])\n\
               print(is_ours(secret, header.decode(), body))\n";
        let output = Command::new("python3")
            .args(["-c", &script, std::str::from_utf8(secret).unwrap()])
            .args([post.header("spindle-signature"), std::str::from_utf8(body).unwrap()])
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    assert!(Secret::new(SECRET).is_ok());
    assert_eq!(check(SECRET, &post.body), "True\n");
    assert_eq!(check(b"another secret of 16", &post.body), "False\n");
    assert_eq!(check(SECRET, b"{}"), "False\n");
    drop(hooks);
    engine.stop();
}

#[test]
fn a_certificate_made_as_the_page_says_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let command = blocks(&page(), "sh")[0].replace("hooks.internal", "localhost");
    let made = Command::new("sh").args(["-ec", &command]).current_dir(&folder).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let authorities = Authorities::read(&folder.path().join("hook.pem")).unwrap();
    let read = |name| fs::read_to_string(folder.path().join(name)).unwrap();
    let (certificate, key) = (read("hook.pem"), read("hook.key"));
    let receiver = Receiver::start_with(&certificate, &key, |_| 200);
    let engine = memory();
    let hooks = start(&engine, &receiver, "dead", &Options { authorities, ..options() });
    let id = dead(&engine, "q", "x");
    assert_eq!(receiver.next().json()["job"]["id"], id.0);
    drop(hooks);
    engine.stop();
}

#[test]
fn the_page_shows_the_fields_that_are_sent() {
    let engine = memory();
    let receiver = Receiver::start(|_| 200);
    let hooks = start(&engine, &receiver, "dead older=1s", &options());
    dead(&engine, "q", "x");
    let page = page();
    let shown = blocks(&page, "http")[0].split_once("\n\n").unwrap().1;
    let shown: serde_json::Value = serde_json::from_str(shown).unwrap();
    let answer = receiver.next().json();
    let names =
        |value: &serde_json::Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>();
    assert_eq!(names(&answer), names(&shown));
    assert_eq!(names(&answer["job"]), names(&shown["job"]));
    crate::receiver::submit(&engine, "mail");
    let shown: serde_json::Value = serde_json::from_str(blocks(&page, "json")[0]).unwrap();
    assert_eq!(names(&receiver.next().json()), names(&shown));
    drop(hooks);
    engine.stop();
}
