//! `spindle top` on a terminal: what is seen, what keys do, and that the terminal is given back.

use nix::sys::signal::Signal;
use spindle_testkit::{Certificates, TokensFile};

use crate::{
    fake_workq::{spindle, stderr},
    serve::{Served, serve},
    terminal::Terminal,
};

fn served() -> (Served, String) {
    let served = serve(&["--workq", "127.0.0.1:0", "--http", "127.0.0.1:0", "--memory"]);
    let url = format!("http://{}", served.address_of("http"));
    (served, url)
}

fn add(url: &str, queue: &str, payload: &str) {
    let added = spindle(&["add", queue, payload]).env("SPINDLE_URL", url).output().unwrap();
    assert!(added.status.success(), "{}", stderr(&added));
}

/// The sequences that take a terminal over and give it back.
const OTHER_SCREEN: &str = "\u{1b}[?1049h";
const FIRST_SCREEN: &str = "\u{1b}[?1049l";

#[test]
fn a_queue_is_paused_by_a_key_and_the_terminal_is_given_back() {
    let (_served, url) = served();
    add(&url, "mail", "hello");
    let mut terminal = Terminal::run(&url, &["top"]);
    let before = terminal.modes();
    terminal.await_text(OTHER_SCREEN);
    terminal.await_text("mail");
    assert_ne!(terminal.modes(), before, "keys come one by one");
    terminal.press("p");
    terminal.await_text("pause queue mail? y, or any other key");
    terminal.press("y");
    terminal.await_text("queue mail is paused");
    terminal.press("\r");
    // Only cells that change are written, so words are what can be waited for.
    terminal.await_text("newest");
    terminal.await_text("hello");
    terminal.press("\r");
    terminal.await_text("paused");
    terminal.press("?");
    terminal.await_text("PgUp");
    terminal.press("xq");
    terminal.await_text(FIRST_SCREEN);
    assert_eq!(terminal.await_end().code(), Some(0));
    assert_eq!(terminal.modes(), before);
}

#[test]
fn a_server_that_goes_is_named_and_signals_give_the_terminal_back() {
    for signal in [Signal::SIGTERM, Signal::SIGINT] {
        let (served, url) = served();
        add(&url, "mail", "hello");
        let mut terminal = Terminal::run(&url, &["top"]);
        let before = terminal.modes();
        terminal.await_text("mail");
        drop(served);
        terminal.await_text("tries again; the screen is old: ");
        terminal.signal(signal);
        terminal.await_text(FIRST_SCREEN);
        assert_eq!(terminal.await_end().code(), Some(128 + signal as i32));
        assert_eq!(terminal.modes(), before);
    }
}

#[test]
fn without_a_terminal_it_says_what_to_use_instead() {
    let output = spindle(&["top"]).env("SPINDLE_URL", "http://127.0.0.1:1").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = stderr(&output);
    assert!(said.contains("needs a terminal") && said.contains("--json"), "{said}");
}

#[test]
fn a_server_that_is_not_there_is_an_error_before_the_screen_is_taken() {
    let mut terminal = Terminal::run("http://127.0.0.1:1", &["top"]);
    terminal.await_text("error: cannot connect to http://127.0.0.1:1");
    assert_eq!(terminal.await_end().code(), Some(1));
}

#[test]
fn it_asks_over_tls_with_a_token() {
    let (certificates, tokens) = (Certificates::new(), TokensFile::of_all_roles());
    let files = certificates.server();
    let paths = [files.certificate, files.key, certificates.ca(), tokens.path()];
    let [cert, key, ca, tokens] = paths.each_ref().map(|path| path.to_str().unwrap());
    let doors = ["--memory", "--workq", "127.0.0.1:0", "--http", "127.0.0.1:0"];
    let secured = ["--http-tls", "required", "--tls-cert", cert, "--tls-key", key];
    let guarded = ["--require-auth", "--tokens", tokens];
    let served = serve(&[&doors[..], &secured, &guarded].concat());
    let port = served.address_of("http").rsplit(':').next().unwrap().to_owned();
    let url = format!("https://localhost:{port}");
    let environment = |token| [("SPINDLE_CA_FILE", ca), ("SPINDLE_TOKEN", token)];
    let added = spindle(&["add", "mail", "hello"])
        .env("SPINDLE_URL", &url)
        .envs(environment("admin"))
        .output()
        .unwrap();
    assert!(added.status.success(), "{}", stderr(&added));
    let mut terminal = Terminal::run_with(&url, &["top"], &environment("manage"));
    terminal.await_text(OTHER_SCREEN);
    terminal.await_text("mail");
    terminal.press("py");
    terminal.await_text("queue mail is paused");
    terminal.press("q");
    terminal.await_text(FIRST_SCREEN);
    assert_eq!(terminal.await_end().code(), Some(0));
    // An action that the token does not allow is reported, and the rest works.
    let mut terminal = Terminal::run_with(&url, &["top"], &environment("read"));
    terminal.await_text("mail");
    terminal.press("py");
    terminal.await_text("manage");
    terminal.press("q");
    assert_eq!(terminal.await_end().code(), Some(0));
    // A wrong token or an untrusted server is reported on the first screen.
    let mut terminal = Terminal::run_with(&url, &["top"], &environment("nobody"));
    terminal.await_text("error: ");
    assert_ne!(terminal.await_end().code(), Some(0));
    let mut terminal = Terminal::run_with(&url, &["top"], &[("SPINDLE_TOKEN", "read")]);
    terminal.await_text("error: ");
    assert_ne!(terminal.await_end().code(), Some(0));
}
