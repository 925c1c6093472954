//! Tests print for half an hour, and failures are somewhere in the middle of the output. They are
//! kept, and printed again when all steps have ended. A test that hangs does not prevent this,
//! because its program is killed.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::process::kill_with_children;

/// The most lines of one program that are kept.
const LINES_MAX: usize = 300;
/// Tests that print nothing for this long hang. No crate takes half as long to compile.
const SILENCE_MAX: Duration = Duration::from_secs(600);
/// The pause between two checks for that.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Runs one test program, and shows its output. An error has the part of the output that is about
/// failures.
pub fn run_alone(
    tests: &mut Command,
    shown: impl Write + Send,
    shown_errors: impl Write + Send,
) -> Result<()> {
    run_watched(tests, SILENCE_MAX, shown, shown_errors)
}

fn run_watched(
    tests: &mut Command,
    silence_max: Duration,
    shown: impl Write + Send,
    shown_errors: impl Write + Send,
) -> Result<()> {
    let mut running = tests
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("{tests:?} does not start"))?;
    let (id, printed, errors) = (running.id(), running.stdout.take(), running.stderr.take());
    let heard = Heard::default();
    let (mut failures, said, killed) = thread::scope(|scope| {
        let printed = scope.spawn(|| keep(printed, shown, &heard, Failures::of_tests));
        let errors = scope.spawn(|| keep(errors, shown_errors, &heard, Failures::of_cargo));
        let (goes_on, ended) = channel::<()>();
        let (heard, silence_max) = (&heard, silence_max);
        let watch = scope.spawn(move || watch(id, heard, silence_max, &ended));
        let printed = printed.join().expect("it does not panic");
        let errors = errors.join().expect("it does not panic");
        drop(goes_on);
        (printed, errors, watch.join().expect("it does not panic"))
    });
    if running.wait()?.success() {
        return Ok(());
    }
    failures.lines.extend(said.lines);
    if killed {
        let (seconds, tests) = (silence_max.as_secs(), failures.slow.join(", "));
        failures.lines.push(format!("killed, as nothing was printed for {seconds} s: {tests}"));
    }
    bail!("{}", failures.lines.join("\n"))
}

/// The time of the last output.
struct Heard(Mutex<Instant>);

impl Default for Heard {
    fn default() -> Self {
        Heard(Mutex::new(Instant::now()))
    }
}

impl Heard {
    fn now(&self) {
        *self.0.lock().expect("nobody panics with it") = Instant::now();
    }

    fn ago(&self) -> Duration {
        self.0.lock().expect("nobody panics with it").elapsed()
    }
}

/// Kills a program and its children if it is silent for too long before `ended`. Returns whether it
/// did.
fn watch(id: u32, heard: &Heard, silence_max: Duration, ended: &Receiver<()>) -> bool {
    let mut killed = false;
    while ended.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
        if heard.ago() > silence_max {
            kill_with_children(id);
            heard.now();
            killed = true;
        }
    }
    killed
}

/// Copies the output, and keeps what `read` makes of its lines.
fn keep(
    from: Option<impl Read>,
    mut to: impl Write,
    heard: &Heard,
    mut read: impl FnMut(&mut Failures, &str),
) -> Failures {
    let mut failures = Failures::default();
    let lines =
        from.into_iter().flat_map(|from| BufReader::new(from).split(b'\n').map_while(Result::ok));
    for line in lines {
        let line = String::from_utf8_lossy(&line);
        // A reader that has closed the output does not end the tests.
        let _ = writeln!(to, "{line}");
        heard.now();
        read(&mut failures, &line);
    }
    failures
}

/// The output about failures.
#[derive(Default)]
struct Failures {
    is_among: bool,
    lines: Vec<String>,
    /// Tests that have said that they take long, and have not ended.
    slow: Vec<String>,
}

impl Failures {
    /// Test programs print what failed between two lines of their own.
    fn of_tests(&mut self, line: &str) {
        if let Some(test) = line.strip_prefix("test ").and_then(|line| line.split(' ').next()) {
            self.slow.retain(|slow| slow != test);
            if line.contains(" has been running for ") {
                self.slow.push(test.to_owned());
            }
        }
        self.is_among |= line == "failures:";
        if self.is_among {
            self.push(line);
        }
        self.is_among &= !line.starts_with("test result:");
    }

    /// Cargo reports which programs failed, and how a program without a result ended.
    fn of_cargo(&mut self, line: &str) {
        self.is_among |= line.starts_with("error");
        if self.is_among {
            self.push(line);
        }
        let goes_on = ["error", "Caused by", "  "].iter().any(|begin| line.starts_with(begin));
        self.is_among &= goes_on || line.is_empty();
    }

    fn push(&mut self, line: &str) {
        match self.lines.len() {
            LINES_MAX => self.lines.push("(and more)".to_owned()),
            kept if kept < LINES_MAX => self.lines.push(line.to_owned()),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_kept_and_what_passed_is_not() {
        let printed = "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout \
                       ----\nit was 7\n\nfailures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed\n\n\
                       running 1 test\ntest c ... ok\n\ntest result: ok. 1 passed\n";
        let mut copy = Vec::new();
        let failures =
            keep(Some(printed.as_bytes()), &mut copy, &Heard::default(), Failures::of_tests);
        assert_eq!(String::from_utf8(copy).unwrap(), printed);
        let text = failures.lines.join("\n");
        assert!(text.starts_with("failures:\n\n---- b"), "{text}");
        assert!(text.ends_with("    b\n\ntest result: FAILED. 1 passed; 1 failed"), "{text}");
    }

    #[test]
    fn what_cargo_says_of_a_program_that_was_killed_is_kept() {
        let said = "   Compiling a v0.1.0\nerror: test failed, to rerun pass `-p a --lib`\n\nCaused by:\n  \
                    process didn't exit successfully: `a` (signal: 9)\n     Running unittests\nerror: 1 \
                    target failed:\n    `-p a --lib`\n";
        let failures =
            keep(Some(said.as_bytes()), std::io::sink(), &Heard::default(), Failures::of_cargo);
        let text = failures.lines.join("\n");
        assert!(!text.contains("Compiling"), "{text}");
        assert!(text.ends_with("error: 1 target failed:\n    `-p a --lib`"), "{text}");
    }

    #[test]
    fn no_more_is_kept_than_is_read_at_once() {
        let mut failures = Failures::default();
        for _ in 0..LINES_MAX + 5 {
            failures.of_cargo("error");
        }
        assert_eq!(failures.lines.len(), LINES_MAX + 1);
        assert_eq!(failures.lines.last().unwrap(), "(and more)");
    }

    #[test]
    fn a_program_that_fails_is_an_error_with_what_it_said() {
        let script =
            "printf 'failures:\\n    x\\ntest result: FAILED\\n'; echo error: y >&2; exit 3";
        let error = run_script(script, SILENCE_MAX).unwrap_err();
        assert_eq!(error.to_string(), "failures:\n    x\ntest result: FAILED\nerror: y");
        run_script("echo error: y >&2", SILENCE_MAX).unwrap();
        let sink = std::io::sink;
        run_alone(&mut Command::new("/nonexistent"), sink(), sink()).unwrap_err();
    }

    /// Its output is not shown, because it would mix with that of the real tests.
    fn run_script(script: &str, silence_max: Duration) -> Result<()> {
        let (sink, tests) = (std::io::sink, &mut Command::new("sh"));
        run_watched(tests.args(["-c", script]), silence_max, sink(), sink())
    }

    #[test]
    fn tests_that_hang_are_killed_and_named() {
        let script = "echo 'test a has been running for over 60 seconds'
            echo 'test b has been running for over 60 seconds'; echo 'test b ... ok'
            sleep 100; echo 'it goes on'";
        let began = Instant::now();
        let error = run_script(script, Duration::from_secs(1)).unwrap_err();
        assert!(began.elapsed() < Duration::from_secs(50));
        assert_eq!(error.to_string(), "killed, as nothing was printed for 1 s: a");
    }
}
