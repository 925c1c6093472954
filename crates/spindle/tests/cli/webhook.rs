//! `spindle serve --webhook`.

use std::fs;

use spindle_testkit::{HookReceiver, PATIENCE};

use crate::{
    fake_workq::{spindle, stderr, stdout},
    native::object,
    serve::{data, serve},
};

const SECRET: &str = "nobody must read this";

#[test]
fn a_dead_job_is_told_and_the_secret_to_nobody() {
    let (folder, data) = data();
    let secret = folder.path().join("secret");
    fs::write(&secret, format!("{SECRET}\n")).unwrap();
    let receiver = HookReceiver::start(|_, _| 204);
    let hook = format!("{} dead queue=ma*", receiver.url);
    let secret = secret.to_str().unwrap();
    let flags = ["--webhook", &hook, "--webhook-secret-file", secret];
    let arguments = ["--workq", "127.0.0.1:0", "--data", &data, "--log-level", "debug"];
    let mut served = serve(&[&arguments[..], &flags].concat());
    let id = stdout(&served.spindle(&["add", "mail", "--tries", "1"]).unwrap()).trim().to_owned();
    served.spindle(&["work", "mail", "--once", "--", "false"]).assert().code(5);
    let (head, body) = receiver.posts.recv_timeout(PATIENCE).unwrap();
    let answer = object(&body);
    assert!(head.starts_with("POST /hook?key=hidden HTTP/1.1\r\n"), "{head}");
    assert!(head.to_lowercase().contains("spindle-signature: t="), "{head}");
    assert_eq!((&answer["event"], &answer["job"]["queue"]), (&"job_dead".into(), &"mail".into()));
    served.spindle(&["job", &id]).assert().success();
    assert_eq!(served.end().code(), Some(0));
    for file in fs::read_dir(&data).unwrap() {
        let bytes = fs::read(file.unwrap().path()).unwrap();
        let found = bytes.windows(SECRET.len()).any(|part| part == SECRET.as_bytes());
        assert!(!found, "the secret is in the data folder");
    }
    let shown = spindle(&["config"]).args(flags).env("SPINDLE_WEBHOOK_SECRET", SECRET).unwrap();
    assert!(!stdout(&shown).contains(SECRET) && stdout(&shown).contains("queue=ma*"));
}

#[test]
fn a_hook_without_a_good_secret_is_refused_before_anything_is_served() {
    let (folder, data) = data();
    let missing = folder.path().join("missing");
    let arguments = ["serve", "--data", &data, "--webhook", "http://127.0.0.1:1/ dead"];
    let without = spindle(&arguments).env_remove("SPINDLE_WEBHOOK_SECRET").output().unwrap();
    assert_eq!(without.status.code(), Some(2));
    assert!(stderr(&without).contains("--webhook-secret-file"), "{}", stderr(&without));
    let short = spindle(&arguments).env("SPINDLE_WEBHOOK_SECRET", "short").output().unwrap();
    assert_eq!(short.status.code(), Some(2));
    assert!(!stderr(&short).contains("short"), "{}", stderr(&short));
    let path = missing.to_str().unwrap();
    let unread = spindle(&arguments).args(["--webhook-secret-file", path]).output().unwrap();
    assert_eq!(unread.status.code(), Some(1));
    assert!(stderr(&unread).contains(path), "{}", stderr(&unread));
    assert!(!std::path::Path::new(&data).exists());
}

#[test]
fn a_file_without_authorities_is_refused_before_anything_is_served() {
    let (folder, data) = data();
    let empty = folder.path().join("authorities.pem");
    fs::write(&empty, "no certificate\n").unwrap();
    let missing = folder.path().join("missing.pem");
    let arguments = ["serve", "--data", &data, "--webhook", "https://127.0.0.1:1/ dead"];
    for (file, why) in [(empty, "there is no certificate in"), (missing, "No such file")] {
        let path = file.to_str().unwrap();
        let mut serve = spindle(&arguments);
        serve.args(["--webhook-ca-file", path]).env("SPINDLE_WEBHOOK_SECRET", SECRET);
        let refused = serve.output().unwrap();
        assert_eq!(refused.status.code(), Some(2));
        let answer = stderr(&refused);
        assert!(answer.contains(path) && answer.contains(why), "{answer}");
    }
    assert!(!std::path::Path::new(&data).exists());
}
