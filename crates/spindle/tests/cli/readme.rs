//! The examples of the README, run as a reader types them: in one shell, on a terminal.

use std::{
    fs::{self, File},
    io::Read,
    os::unix::{fs::symlink, process::CommandExt},
    path::Path,
    process::{Child, Command, Stdio},
    thread,
};

use nix::{
    pty::openpty,
    sys::signal::{Signal, killpg},
    unistd::Pid,
};
use spindle_testkit::write_script;

use crate::{
    fake_workq::await_exit,
    pages::{Example, examples, fits},
    serve::{Served, serve},
};

/// Between what two examples print.
const MARK: char = '\u{1e}';

/// The page up to the jobd suite, which has tests of its own.
fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../README.md");
    let page = fs::read_to_string(page).unwrap();
    let (ours, _) = page.split_once("\n## jobd\n").unwrap();
    ours.to_owned()
}

/// A script that runs all examples one after the other. Standard error is printed after the rest, so
/// that it is no terminal and progress bars are not part of the comparison.
fn script(examples: &[Example], served: &Served) -> String {
    let mut script = String::new();
    for (number, Example { command, .. }) in examples.iter().enumerate() {
        let command = command.replace("localhost:7420", &served.address_of("http"));
        script += &format!("printf '{MARK}'\n{{ {command}\n}} 2>err.{number}\ncat err.{number}\n");
    }
    script
}

/// Puts a program into a folder that runs Gearman's of the same name with the server's port.
fn tell_port(folder: &Path, name: &str, served: &Served) {
    let gearman = served.address_of("gearman");
    let (host, port) = gearman.rsplit_once(':').unwrap();
    let path = std::env::var("PATH").unwrap();
    let program = folder.join(name);
    let text = format!("#!/bin/sh\nPATH='{path}' exec {name} -h {host} -p {port} \"$@\"\n");
    write_script(&program, &text);
}

/// A shell, and all that it left running.
struct Shell(Child);

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = killpg(Pid::from_raw(self.0.id() as i32), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// Runs a script in a shell on a terminal; what is shown there.
fn shown(script: &str, folder: &Path, served: &Served) -> String {
    fs::write(folder.join("script"), script).unwrap();
    let path = format!("{}:{}", folder.display(), std::env::var("PATH").unwrap());
    let terminal = openpty(None, None).unwrap();
    let shell = Command::new("bash")
        .arg("script")
        .current_dir(folder)
        .env("PATH", path)
        .env("HOME", folder)
        .env("SPINDLE_URL", format!("http://{}", served.address_of("http")))
        .env_remove("SPINDLE_WORKQ")
        .stdin(Stdio::null())
        .stdout(terminal.slave)
        .process_group(0)
        .spawn();
    let mut shell = Shell(shell.unwrap());
    let mut screen = File::from(terminal.master);
    let reader = thread::spawn(move || {
        let mut bytes = Vec::new();
        // On Linux, reading a terminal whose other side is closed ends with an error.
        let _ = screen.read_to_end(&mut bytes);
        String::from_utf8(bytes).unwrap()
    });
    await_exit(&mut shell.0);
    drop(shell);
    reader.join().unwrap().replace("\r\n", "\n")
}

/// Without colours, and with all times the same.
fn plain(line: &str) -> String {
    let mut plain = String::new();
    let mut rest = line;
    while let Some((before, behind)) = rest.split_once("\u{1b}[") {
        plain += before;
        rest = behind.split_once('m').map_or("", |(_, rest)| rest);
    }
    plain += rest;
    let shape = "0000-00-00T00:00:00.000Z";
    let digits = |text: &str| {
        text.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect::<String>()
    };
    let mut at = 0;
    while let Some(here) = digits(&plain[at..]).find(shape) {
        plain.replace_range(at + here..at + here + shape.len(), shape);
        at += here + shape.len();
    }
    plain
}

#[test]
fn every_example_of_the_readme_says_what_it_does() {
    let examples = examples(&page());
    assert!(examples.len() > 20, "{}", examples.len());
    let doors = ["--workq", "--gearman", "--http"].map(|door| [door, "127.0.0.1:0"]);
    let served = serve(&[&["--memory"], doors.concat().as_slice()].concat());
    let folder = tempfile::tempdir().unwrap();
    symlink(env!("CARGO_BIN_EXE_spindle"), folder.path().join("spindle")).unwrap();
    fs::write(folder.path().join("letter.eml"), "Dear reader").unwrap();
    tell_port(folder.path(), "gearman", &served);
    tell_port(folder.path(), "gearadmin", &served);
    for picture in ["a.png", "b.png"] {
        fs::write(folder.path().join(picture), picture).unwrap();
    }
    let shown = shown(&script(&examples, &served), folder.path(), &served);
    let parts: Vec<&str> = shown.split(MARK).skip(1).collect();
    assert_eq!(parts.len(), examples.len(), "{shown}");
    for (Example { line, command, prints }, answer) in examples.iter().zip(parts) {
        let wanted: Vec<String> = prints.iter().map(|line| plain(line)).collect();
        let lines: Vec<String> = answer.lines().map(plain).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert!(fits(&wanted, &lines), "line {line}: {command}\n{answer}");
    }
}

#[test]
fn times_and_colours_do_not_count() {
    assert_eq!(plain("\u{1b}[0;32m\"2026-11-21T19:06:59.757Z\"\u{1b}[0m x"), {
        "\"0000-00-00T00:00:00.000Z\" x"
    });
    assert_eq!(plain("2026-11-21"), "2026-11-21");
}
