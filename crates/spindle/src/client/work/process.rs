//! Runs the command for one job, and ends it when the job is lost.

use std::{
    env,
    ffi::{OsStr, OsString},
    io,
    os::unix::{
        fs::PermissionsExt,
        process::{CommandExt, ExitStatusExt},
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use nix::{
    errno::Errno,
    sys::signal::{Signal, killpg},
    unistd::Pid,
};

use super::{
    orders::Orders,
    output::{Pipes, Printed},
};
use crate::{client::session::Leased, queue_name::QueueName};

/// How often to check whether the processes that a command started have ended too.
const GROUP_LOOK: Duration = Duration::from_millis(10);

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code or signal.
    pub status: ExitStatus,
    /// What it printed.
    pub printed: Printed,
    /// It did not end when it was asked to.
    pub was_killed: bool,
}

/// What is to happen to a command that runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Beat {
    /// It goes on, and is asked about again after this time.
    Again(Duration),
    /// It is ended.
    End,
}

/// Where a command is, if it can be run at all.
pub fn find(program: &OsStr) -> Option<PathBuf> {
    let is_program = |path: &Path| {
        path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if program.as_encoded_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(|path| is_program(path));
    }
    let folders = env::var_os("PATH")?;
    env::split_paths(&folders).map(|folder| folder.join(program)).find(|path| is_program(path))
}

/// Runs a command on a job's payload. Calls `beat` when the command still runs after the time that
/// the last `beat` returned, at first after `first_beat`. A command that is to end has `kill_after`
/// to do so.
pub fn run(
    command: &[OsString],
    job: &Leased,
    orders: &Orders,
    kill_after: Duration,
    first_beat: Duration,
    mut beat: impl FnMut() -> Beat,
) -> io::Result<Ended> {
    let (mut child, group) = orders.start(|| spawn(command, job))?;
    let pipes = Pipes::of(&mut child, job.payload.clone());
    let (ended, wait) = channel();
    let waiter = thread::Builder::new().name("wait".to_owned()).spawn(move || {
        // Nobody listens any more when the process ends.
        let _ = ended.send(child.wait());
    });
    let ended = pipes.and_then(|pipes| waiter.map(|_| pipes)).and_then(|pipes| {
        let group = Group { leader: Pid::from_raw(group), wait };
        let (status, was_killed) = group.await_end(first_beat, kill_after, &mut beat)?;
        Ok((status, was_killed, pipes))
    });
    orders.ended(group);
    let (status, was_killed, pipes) = ended?;
    Ok(Ended { status, printed: pipes.finish(), was_killed })
}

fn spawn(command: &[OsString], job: &Leased) -> io::Result<Child> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env("SPINDLE_JOB_ID", &job.id)
        .env("SPINDLE_QUEUE", QueueName::of(job.queue.clone()).to_string());
    match job.attempt {
        Some(attempt) => command.env("SPINDLE_ATTEMPT", attempt.to_string()),
        // If this worker runs in a job of another worker, the variable is about that job.
        None => command.env_remove("SPINDLE_ATTEMPT"),
    };
    match &job.traceparent {
        Some(trace) => command.env("TRACEPARENT", trace),
        // The variable of this worker's own environment is not about the job.
        None => command.env_remove("TRACEPARENT"),
    };
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A group of its own, so that Ctrl-C reaches us and not the command, and that all it
        // started can be ended with it.
        .process_group(0)
        .spawn()
}

/// A command and what it started.
struct Group {
    leader: Pid,
    wait: Receiver<io::Result<ExitStatus>>,
}

impl Group {
    /// How the command ended, and whether it had to be killed.
    fn await_end(
        &self,
        first_beat: Duration,
        kill_after: Duration,
        beat: &mut impl FnMut() -> Beat,
    ) -> io::Result<(ExitStatus, bool)> {
        let mut next_beat = first_beat;
        loop {
            if let Some(status) = self.status_within(next_beat)? {
                return Ok((status, false));
            }
            match beat() {
                Beat::Again(after) => next_beat = after,
                Beat::End => return self.end(kill_after),
            }
        }
    }

    fn status_within(&self, time: Duration) -> io::Result<Option<ExitStatus>> {
        match self.wait.recv_timeout(time) {
            Ok(status) => status.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(lost_sight()),
        }
    }

    /// Asks all of the group to end, and kills what is left of it after that time.
    fn end(&self, kill_after: Duration) -> io::Result<(ExitStatus, bool)> {
        let deadline = Instant::now() + kill_after;
        let mut status = None;
        if !kill_after.is_zero() {
            self.send(Signal::SIGTERM);
            status = self.status_within(kill_after)?;
        }
        // The command may end before the processes that it started.
        while status.is_some() && self.is_there() {
            if Instant::now() >= deadline {
                self.send(Signal::SIGKILL);
                break;
            }
            thread::sleep(GROUP_LOOK);
        }
        if let Some(status) = status {
            return Ok((status, false));
        }
        self.send(Signal::SIGKILL);
        let status = self.wait.recv().map_err(|_| lost_sight())??;
        Ok((status, status.signal() == Some(Signal::SIGKILL as i32)))
    }

    fn is_there(&self) -> bool {
        killpg(self.leader, None) != Err(Errno::ESRCH)
    }

    fn send(&self, signal: Signal) {
        // It fails when all of them have just ended.
        let _ = killpg(self.leader, signal);
    }
}

fn lost_sight() -> io::Error {
    io::Error::other("lost sight of the command")
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    const NEVER: Duration = Duration::from_secs(3600);

    fn run_shell(
        script: &str,
        payload: &[u8],
        kill_after: Duration,
        first_beat: Duration,
        beat: impl FnMut() -> Beat,
    ) -> Ended {
        let command = ["sh", "-c", script].map(OsString::from);
        let job = Leased {
            id: "7".to_owned(),
            queue: Bytes::from_static(b"q"),
            attempt: Some(3),
            ttr_ms: 1000,
            payload: Bytes::copy_from_slice(payload),
            traceparent: None,
            claim: String::new(),
        };
        run(&command, &job, &Orders::new(None), kill_after, first_beat, beat).unwrap()
    }

    fn shell(script: &str, payload: &[u8]) -> Ended {
        run_shell(script, payload, NEVER, NEVER, || Beat::Again(NEVER))
    }

    #[test]
    fn a_command_gets_the_payload_and_its_output_comes_back() {
        let script = "cat; printf %s $SPINDLE_QUEUE-$SPINDLE_JOB_ID-$SPINDLE_ATTEMPT; exit 3";
        let ended = shell(script, b"in:\0");
        assert_eq!(ended.printed.output, b"in:\0q-7-3".as_slice());
        assert_eq!(ended.status.code(), Some(3));
    }

    #[test]
    fn output_is_cut_and_the_command_is_read_to_its_end() {
        let ended = shell("head -c 3000000 /dev/zero", b"");
        assert_eq!((ended.printed.output.len(), ended.printed.is_cut), (1 << 20, true));
        assert!(ended.status.success());
        assert!(!shell("head -c 1048576 /dev/zero", b"").printed.is_cut);
    }

    #[test]
    fn a_payload_nobody_reads_does_not_hang_the_job() {
        assert!(shell("exit 0", &vec![b'x'; 1 << 20]).status.success());
    }

    /// Ends a process that a command left behind, which must be there for that.
    fn kill_left_behind(ended: &Ended) {
        let pid = String::from_utf8(ended.printed.output.to_vec()).unwrap();
        let pid = Pid::from_raw(pid.trim().parse().unwrap());
        nix::sys::signal::kill(pid, Signal::SIGKILL).unwrap();
    }

    #[test]
    fn a_process_left_behind_does_not_hang_the_job_whatever_pipe_it_holds() {
        kill_left_behind(&shell("sleep 600 & echo $!", b""));
        kill_left_behind(&shell("sleep 600 >/dev/null & echo $!", b""));
        kill_left_behind(&shell("sleep 600 2>/dev/null & echo $!", b""));
    }

    /// Runs a script and ends it once it has made the file whose path is in place of `UP`.
    fn end_once_up(script: &str, kill_after: Duration) -> Ended {
        let folder = tempfile::tempdir().unwrap();
        let up = folder.path().join("up");
        let script = script.replace("UP", &format!("touch {}", up.display()));
        let moment = Duration::from_millis(5);
        run_shell(&script, b"", kill_after, moment, || match up.exists() {
            true => Beat::End,
            false => Beat::Again(moment),
        })
    }

    /// Waits until the process that a command named is gone. One that is dead but was not waited
    /// for counts as gone.
    fn await_gone(ended: &Ended) {
        let printed = String::from_utf8(ended.printed.output.to_vec()).unwrap();
        let stat = format!("/proc/{}/stat", printed.trim());
        let state = || {
            let stat = std::fs::read_to_string(&stat).unwrap_or_default();
            stat.rsplit_once(')').and_then(|(_, rest)| rest.trim_start().chars().next())
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        while state().is_some_and(|state| state != 'Z' && state != 'X') {
            assert!(Instant::now() < deadline, "{printed} still runs");
            thread::sleep(GROUP_LOOK);
        }
    }

    const SOON: Duration = Duration::from_millis(300);
    /// Starts nothing that can outlive a signal which comes just before it starts.
    const BUSY: &str = "while :; do sleep 0.05; done";
    const STUBBORN: &str = "trap '' TERM; while :; do sleep 1; done";

    #[test]
    fn what_is_ended_may_clean_up() {
        let script = format!("trap 'echo cleaned; exit 4' TERM; echo begun; UP; {BUSY}");
        let ended = end_once_up(&script, NEVER);
        assert_eq!(ended.printed.output, "begun\ncleaned\n");
        assert_eq!((ended.status.code(), ended.was_killed), (Some(4), false));
    }

    #[test]
    fn what_does_not_end_is_killed_with_all_it_started() {
        let script = format!("({STUBBORN}) & echo $!; trap '' TERM; UP; {STUBBORN}");
        for kill_after in [Duration::ZERO, SOON] {
            let ended = end_once_up(&script, kill_after);
            assert_eq!((ended.status.signal(), ended.was_killed), (Some(9), true));
            await_gone(&ended);
        }
    }

    #[test]
    fn what_a_command_started_has_its_time_to_end_too_and_no_more() {
        let late = format!("trap 'sleep 0.1; echo late; exit' TERM; UP; {BUSY}");
        let ended = end_once_up(&format!("({late}) & wait"), NEVER);
        assert_eq!((ended.status.signal(), ended.was_killed), (Some(15), false));
        assert_eq!(ended.printed.output, "late\n");
        let ended = end_once_up(&format!("(trap '' TERM; UP; {STUBBORN}) & echo $!; wait"), SOON);
        await_gone(&ended);
    }

    #[test]
    fn only_programs_are_found() {
        assert!(find(OsStr::new("sh")).is_some());
        assert!(find(OsStr::new("/bin/sh")).is_some());
        assert!(find(OsStr::new("/etc/passwd")).is_none());
        assert!(find(OsStr::new("no-such-program-anywhere")).is_none());
    }
}
