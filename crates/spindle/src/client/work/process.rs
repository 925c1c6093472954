//! Runs the command for one job.

use std::{
    env,
    ffi::{OsStr, OsString},
    io::{self, Read, Write},
    os::unix::{fs::PermissionsExt, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, Sender, channel},
    },
    thread,
    time::Duration,
};

use bytes::Bytes;

use super::orders::Orders;
use crate::{
    client::{payload::block_bytes_max, session::Leased},
    queue_name::QueueName,
};

/// How long output may still come once the command ended: a process that it left behind may hold
/// the pipe open for ever.
const OUTPUT_WITHIN: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 64 * 1024;

/// How a command ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code or signal.
    pub status: ExitStatus,
    /// What it printed, cut to what a job's result can be.
    pub output: Bytes,
    /// Whether something was cut off.
    pub is_cut: bool,
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
/// `beat` said last, `first_beat` at the beginning.
pub fn run(
    command: &[OsString],
    job: &Leased,
    orders: &Orders,
    first_beat: Duration,
    mut beat: impl FnMut() -> Duration,
) -> io::Result<Ended> {
    let (mut child, group) = orders.start(|| spawn(command, job))?;
    let started = Running::start(&mut child, job.payload.clone());
    let (ended, wait) = channel();
    let waiter = thread::Builder::new().name("wait".to_owned()).spawn(move || {
        // Nobody listens any more when the process ends.
        let _ = ended.send(child.wait());
    });
    let status = started.and_then(|running| waiter.map(|_| running)).and_then(|running| {
        let status = await_end(&wait, first_beat, &mut beat)?;
        Ok((status, running))
    });
    orders.ended(group);
    let (status, running) = status?;
    let (output, is_cut) = running.output();
    Ok(Ended { status, output, is_cut })
}

fn spawn(command: &[OsString], job: &Leased) -> io::Result<Child> {
    let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
    Command::new(program)
        .args(arguments)
        .env("SPINDLE_JOB_ID", &job.id)
        .env("SPINDLE_QUEUE", QueueName::of(job.queue.clone()).to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        // A group of its own, so that Ctrl-C reaches us and not the command.
        .process_group(0)
        .spawn()
}

fn await_end(
    wait: &Receiver<io::Result<ExitStatus>>,
    first_beat: Duration,
    beat: &mut impl FnMut() -> Duration,
) -> io::Result<ExitStatus> {
    let mut next_beat = first_beat;
    loop {
        match wait.recv_timeout(next_beat) {
            Ok(status) => return status,
            Err(RecvTimeoutError::Timeout) => next_beat = beat(),
            Err(RecvTimeoutError::Disconnected) => {
                return Err(io::Error::other("lost sight of the command"));
            }
        }
    }
}

/// The two ends of a command that runs.
struct Running {
    output: Arc<Mutex<Output>>,
    closed: Receiver<()>,
}

#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Running {
    fn start(child: &mut Child, payload: Bytes) -> io::Result<Self> {
        if let Some(mut stdin) = child.stdin.take() {
            thread::Builder::new().name("feed".to_owned()).spawn(move || {
                // A command need not read what it is given.
                let _ = stdin.write_all(&payload);
            })?;
        }
        let output = Arc::<Mutex<Output>>::default();
        let (closing, closed) = channel();
        if let Some(stdout) = child.stdout.take() {
            let output = Arc::clone(&output);
            thread::Builder::new()
                .name("read".to_owned())
                .spawn(move || collect(stdout, &output, &closing))?;
        }
        Ok(Self { output, closed })
    }

    fn output(self) -> (Bytes, bool) {
        // Whether it closed or took too long: what is there is the result.
        let _ = self.closed.recv_timeout(OUTPUT_WITHIN);
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        (std::mem::take(&mut output.bytes).into(), output.is_cut)
    }
}

/// Reads to the end, whatever is kept: a command must not hang because it talks too much. Dropping
/// `_closing` says that the end was reached.
fn collect(mut stdout: impl Read, output: &Mutex<Output>, _closing: &Sender<()>) {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let count = match stdout.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(_) => return,
        };
        let mut output = output.lock().unwrap_or_else(PoisonError::into_inner);
        let room = block_bytes_max().saturating_sub(output.bytes.len());
        let kept = buffer.get(..count.min(room)).unwrap_or_default();
        output.bytes.extend_from_slice(kept);
        output.is_cut |= count > room;
    }
}

#[cfg(test)]
mod tests {
    use nix::unistd::Pid;

    use super::*;

    fn shell(script: &str, payload: &[u8]) -> Ended {
        let command = ["sh", "-c", script].map(OsString::from);
        let job = Leased {
            id: "7".to_owned(),
            queue: Bytes::from_static(b"q"),
            ttr_ms: 1000,
            payload: Bytes::copy_from_slice(payload),
            claim: String::new(),
        };
        let never = Duration::from_secs(3600);
        run(&command, &job, &Orders::new(None), never, || never).unwrap()
    }

    #[test]
    fn a_command_gets_the_payload_and_its_output_comes_back() {
        let ended = shell("cat; printf %s $SPINDLE_QUEUE-$SPINDLE_JOB_ID; exit 3", b"in:\0");
        assert_eq!(ended.output, b"in:\0q-7".as_slice());
        assert_eq!(ended.status.code(), Some(3));
    }

    #[test]
    fn output_is_cut_and_the_command_is_read_to_its_end() {
        let ended = shell("head -c 3000000 /dev/zero", b"");
        assert_eq!((ended.output.len(), ended.is_cut), (1 << 20, true));
        assert!(ended.status.success());
        assert!(!shell("head -c 1048576 /dev/zero", b"").is_cut);
    }

    #[test]
    fn a_payload_nobody_reads_does_not_hang_the_job() {
        assert!(shell("exit 0", &vec![b'x'; 1 << 20]).status.success());
    }

    #[test]
    fn a_process_left_behind_does_not_hang_the_job() {
        let ended = shell("sleep 600 & echo $!", b"");
        let pid = String::from_utf8(ended.output.to_vec()).unwrap().trim().parse().unwrap();
        // It is there: the signal reaches it.
        nix::sys::signal::kill(Pid::from_raw(pid), nix::sys::signal::SIGKILL).unwrap();
    }

    #[test]
    fn only_programs_are_found() {
        assert!(find(OsStr::new("sh")).is_some());
        assert!(find(OsStr::new("/bin/sh")).is_some());
        assert!(find(OsStr::new("/etc/passwd")).is_none());
        assert!(find(OsStr::new("no-such-program-anywhere")).is_none());
    }
}
