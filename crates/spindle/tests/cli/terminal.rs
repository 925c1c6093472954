//! A terminal that a command runs on, and a person at it.

use std::{
    fs::File,
    io::{Read, Write},
    process::{Command, ExitStatus, Stdio},
    sync::{Arc, Condvar, Mutex},
    thread,
};

use nix::{
    pty::{Winsize, openpty},
    sys::{
        signal::Signal,
        termios::{LocalFlags, tcgetattr},
    },
};
use spindle_testkit::{PATIENCE, Program};

/// A command on a terminal.
pub struct Terminal {
    child: Program,
    keys: File,
    seen: Arc<(Mutex<String>, Condvar)>,
}

impl Terminal {
    /// Runs `spindle` with all its input and output on a terminal of 24 lines, 100 columns wide.
    pub fn run(url: &str, arguments: &[&str]) -> Self {
        Self::run_with(url, arguments, &[])
    }

    /// The same with more in its environment.
    pub fn run_with(url: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let size = Winsize { ws_row: 24, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
        let pair = openpty(Some(&size), None).unwrap();
        let stdio = || Stdio::from(pair.slave.try_clone().unwrap());
        let child = Program::start(
            Command::new(env!("CARGO_BIN_EXE_spindle"))
                .args(arguments)
                .env("SPINDLE_URL", url)
                .env("TERM", "xterm")
                .env_remove("SPINDLE_WORKQ")
                .envs(environment.iter().copied())
                .stdin(stdio())
                .stdout(stdio())
                .stderr(stdio()),
        );
        let keys = File::from(pair.master);
        let seen = Arc::<(Mutex<String>, Condvar)>::default();
        let (mut screen, sees) = (keys.try_clone().unwrap(), Arc::clone(&seen));
        thread::spawn(move || {
            let mut bytes = [0; 4096];
            // Reading fails once the other side is closed everywhere.
            while let Ok(count @ 1..) = screen.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..count]);
                sees.0.lock().unwrap().push_str(&text);
                sees.1.notify_all();
            }
        });
        Self { child, keys, seen }
    }

    /// Waits until this was shown; everything that was shown up to then is forgotten.
    pub fn await_text(&self, part: &str) {
        let (seen, changed) = &*self.seen;
        let missing = |seen: &mut String| !seen.contains(part);
        let waited = changed.wait_timeout_while(seen.lock().unwrap(), PATIENCE, missing).unwrap();
        let (mut seen, timeout) = waited;
        assert!(!timeout.timed_out(), "{part:?} was never shown: {seen}");
        *seen = seen.split_once(part).unwrap().1.to_owned();
    }

    /// Types a line.
    pub fn type_line(&mut self, text: &str) {
        writeln!(self.keys, "{text}").unwrap();
    }

    /// Types keys, as they come from a keyboard.
    pub fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
    }

    /// How the terminal treats what is typed: in lines with an echo, or raw.
    pub fn modes(&self) -> LocalFlags {
        tcgetattr(&self.keys).unwrap().local_flags
    }

    /// Ctrl-C.
    pub fn interrupt(&self) {
        self.signal(Signal::SIGINT);
    }

    /// Sends the command a signal.
    pub fn signal(&self, signal: Signal) {
        self.child.signal(signal);
    }

    /// Waits for the end.
    pub fn await_end(&mut self) -> ExitStatus {
        self.child.await_end()
    }
}
