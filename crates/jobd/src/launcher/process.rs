//! One job's process, from its start to its end.

use std::os::unix::process::ExitStatusExt;

use nix::{
    sys::signal::{Signal, kill, killpg},
    unistd::Pid,
};
use tokio::{
    io::AsyncWriteExt,
    process::{Child, ChildStdin},
    sync::{mpsc, oneshot},
    task::JoinSet,
};
use tracing::warn;

use super::{
    capture::{Capture, Output},
    command::Launcher,
    signal::{SignalNumber, name_of},
};
use crate::table::{Input, RowId};

/// A signal to send to a running job, and where to say whether it was sent.
#[derive(Debug)]
pub struct SignalRequest {
    /// Which.
    pub signal: SignalNumber,
    /// Becomes `true` when the process was there and the signal was sent.
    pub sent: oneshot::Sender<bool>,
}

impl SignalRequest {
    /// Sends a signal to a running job. Returns whether the process was there and got it.
    pub async fn send(job: &mpsc::Sender<Self>, signal: SignalNumber) -> bool {
        let (sent, was_sent) = oneshot::channel();
        // A process that has just ended takes no signal.
        job.send(Self { signal, sent }).await.is_ok() && was_sent.await.unwrap_or(false)
    }
}

/// How a job's process ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ending {
    /// Its exit code; `None` when a signal ended it or it never started.
    pub code: Option<u8>,
    /// The name of the signal that ended it.
    pub signal: Option<String>,
    /// What it printed.
    pub stdout: Output,
    /// What it printed about its troubles, or why it could not be started.
    pub stderr: Output,
}

impl Ending {
    /// Whether the job succeeded: exit code 0.
    pub fn is_success(&self) -> bool {
        self.code == Some(0)
    }

    fn not_started(reason: String) -> Self {
        Self { stderr: Output { text: reason, is_cut: false }, ..Self::default() }
    }
}

impl Launcher {
    /// Runs the job's process to its end. Signals that come meanwhile are sent to it. `began` gets
    /// the process's number once it is there.
    ///
    /// The job ends when its own process exits; what a grandchild prints later, and input that was
    /// not read, are not waited for.
    pub async fn run(
        &self,
        id: RowId,
        input: Input,
        mut signals: mpsc::Receiver<SignalRequest>,
        began: impl FnOnce(u32),
    ) -> Ending {
        let (mut child, mut stdout, mut stderr) = match self.start(id, &input) {
            Ok(started) => started,
            Err(error) => {
                let program = self.words(id).next().unwrap_or_default();
                warn!(%id, program, %error, "cannot start the launcher");
                return Ending::not_started(format!("cannot start {program}: {error}"));
            }
        };
        // It has not been waited for, so it has its number still.
        if let Some(pid) = child.id() {
            began(pid);
        }
        // Ends with this function.
        let mut feeding = JoinSet::new();
        if let Some(stdin) = child.stdin.take() {
            feeding.spawn(feed(stdin, input));
        }
        let status = loop {
            tokio::select! {
                status = child.wait() => break status,
                Some(request) = signals.recv() => {
                    // The sender of the request may have stopped waiting.
                    let _ = request.sent.send(self.send(&child, request.signal.0));
                }
                () = stdout.read() => {}
                () = stderr.read() => {}
            }
        };
        let (stdout, stderr) = (stdout.finish(), stderr.finish());
        match status {
            Ok(status) => Ending {
                code: status.code().and_then(|code| u8::try_from(code).ok()),
                signal: status.signal().map(name_of),
                stdout,
                stderr,
            },
            Err(error) => {
                warn!(%id, %error, "cannot learn how the launcher ended");
                Ending { stdout, stderr, ..Ending::default() }
            }
        }
    }

    /// Starts the process with pipes of our own, because the runtime's pipes would have to be taken
    /// apart and registered again.
    fn start(&self, id: RowId, input: &Input) -> std::io::Result<(Child, Capture, Capture)> {
        let (stdout, its_stdout) = Capture::new(self.settings.output_bytes_max)?;
        let (stderr, its_stderr) = Capture::new(self.settings.output_bytes_max)?;
        // Our copies of the process's ends are closed when the command is dropped.
        let child = self.command(id, input).stdout(its_stdout).stderr(its_stderr).spawn()?;
        Ok((child, stdout, stderr))
    }

    /// Sends a signal to a child that has not been waited for, so that its id is still its own.
    fn send(&self, child: &Child, signal: impl Into<Option<Signal>>) -> bool {
        let Some(pid) = child.id().and_then(|id| i32::try_from(id).ok()) else { return false };
        let pid = Pid::from_raw(pid);
        let sent = if self.settings.signal_group {
            killpg(pid, signal.into())
        } else {
            kill(pid, signal.into())
        };
        sent.is_ok()
    }
}

/// Gives a process its input as fast as it reads. A process may also end without reading it.
async fn feed(mut stdin: ChildStdin, input: Input) {
    let _ = stdin.write_all(&input.payload).await;
}

#[cfg(test)]
mod tests {
    use std::{fs, time::Duration};

    use tokio::time::timeout;

    use super::*;
    use crate::launcher::LauncherSettings;

    /// A launcher that runs this shell script with the job's id as `$1`.
    struct Script {
        launcher: Launcher,
        _folder: tempfile::TempDir,
    }

    fn script(text: &str, change: impl FnOnce(&mut LauncherSettings)) -> Script {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("job.sh");
        fs::write(&path, text).unwrap();
        let mut settings = LauncherSettings {
            template: format!("sh {} {{id}}", path.display()),
            cwd: None,
            environment: Vec::new(),
            output_bytes_max: 1024 * 1024,
            signal_group: false,
        };
        change(&mut settings);
        Script { launcher: Launcher::new(settings).unwrap(), _folder: folder }
    }

    async fn run(script: &Script) -> Ending {
        run_with(script, Input::default()).await
    }

    async fn run_with(script: &Script, input: Input) -> Ending {
        let (_keep, signals) = mpsc::channel(1);
        let running = script.launcher.run(RowId(7), input, signals, drop);
        timeout(Duration::from_secs(60), running).await.expect("the job ends")
    }

    #[tokio::test]
    async fn code_and_output_come_back() {
        let job = script("echo out $1; echo err >&2; exit 3", |_| {});
        let ending = run(&job).await;
        assert_eq!((ending.code, ending.signal.as_deref()), (Some(3), None));
        assert_eq!((&*ending.stdout.text, &*ending.stderr.text), ("out 7\n", "err\n"));
        assert!(!ending.is_success());
        assert!(run(&script("exit 0", |_| {})).await.is_success());
    }

    #[tokio::test]
    async fn what_a_process_prints_just_before_its_end_is_not_lost() {
        let job = script("printf $1", |_| {});
        for _ in 0..20 {
            let jobs: Vec<_> = (0..10)
                .map(|_| {
                    let launcher = job.launcher.clone();
                    let (keep, signals) = mpsc::channel(1);
                    tokio::spawn(async move {
                        (launcher.run(RowId(7), Input::default(), signals, drop).await, keep)
                    })
                })
                .collect();
            // Keeps the runtime busy, so that it learns of output and end at the same time.
            std::thread::sleep(Duration::from_millis(20));
            for job in jobs {
                assert_eq!(job.await.unwrap().0.stdout.text, "7");
            }
        }
    }

    #[tokio::test]
    async fn a_job_that_was_killed_tells_the_signal() {
        let ending = run(&script("echo begun; kill -KILL $$", |_| {})).await;
        assert_eq!((ending.code, ending.signal.as_deref()), (None, Some("SIGKILL")));
        assert_eq!(ending.stdout.text, "begun\n");
    }

    #[tokio::test]
    async fn output_over_the_limit_is_cut_and_the_job_is_not_held_up() {
        let text = "head -c 3000000 /dev/zero | tr '\\0' x; printf yyyy >&2";
        let ending = run(&script(text, |settings| settings.output_bytes_max = 1000)).await;
        assert_eq!(ending.code, Some(0));
        assert_eq!(ending.stdout, Output { text: "x".repeat(1000), is_cut: true });
        assert_eq!(ending.stderr, Output { text: "yyyy".to_owned(), is_cut: false });
    }

    #[tokio::test]
    async fn output_that_is_no_text_is_replaced() {
        let ending = run(&script(r"printf 'a\377b'", |_| {})).await;
        assert_eq!(ending.stdout.text, "a\u{fffd}b");
    }

    #[tokio::test]
    async fn a_grandchild_that_keeps_the_outputs_open_does_not_hold_the_job() {
        let ending = run(&script("sleep 100 & echo $!; exit 4", |_| {})).await;
        assert_eq!(ending.code, Some(4));
        let grandchild: i32 = ending.stdout.text.trim().parse().unwrap();
        kill(Pid::from_raw(grandchild), Signal::SIGKILL).expect("it was still there");
    }

    #[tokio::test]
    async fn standard_input_is_empty_and_the_process_leads_its_group() {
        let text = "cat; read pid name state parent group rest < /proc/$$/stat; [ $pid = $group ]";
        let ending = run(&script(text, |_| {})).await;
        assert_eq!((ending.code, &*ending.stdout.text), (Some(0), ""), "{ending:?}");
    }

    #[tokio::test]
    async fn a_payload_is_read_from_standard_input_to_its_end() {
        let payload: Vec<u8> = (0..1_000_000_u32).map(|at| b'a' + (at % 26) as u8).collect();
        let environment = vec![("SPINDLE_QUEUE".to_owned(), "mail room".to_owned())];
        let input = Input { payload: payload.clone().into(), environment };
        let job = script("cat; printf %s \"$SPINDLE_QUEUE\" >&2", |_| {});
        let ending = run_with(&job, input).await;
        assert!(ending.stdout.text.as_bytes() == payload, "{} bytes", ending.stdout.text.len());
        assert_eq!(ending.stderr.text, "mail room");
    }

    #[tokio::test]
    async fn a_job_that_does_not_read_its_payload_ends_all_the_same() {
        let input = Input { payload: vec![0; 1_000_000].into(), ..Input::default() };
        let ending = run_with(&script("sleep 100 & echo $!; exit 5", |_| {}), input).await;
        assert_eq!(ending.code, Some(5));
        let grandchild: i32 = ending.stdout.text.trim().parse().unwrap();
        kill(Pid::from_raw(grandchild), Signal::SIGKILL).expect("it was still there");
    }

    #[tokio::test]
    async fn folder_and_environment_are_the_configured_ones() {
        let job =
            script("pwd; echo $COLOUR $HOME_IS_KEPT; echo ${NOTIFY_SOCKET:-none}", |settings| {
                settings.cwd = Some("/".into());
                settings.environment = vec![("COLOUR".to_owned(), "green blue".to_owned())];
            });
        assert_eq!(run(&job).await.stdout.text, "/\ngreen blue\nnone\n");
    }

    #[tokio::test]
    async fn a_launcher_that_is_not_there_fails_the_job() {
        let job = script("", |settings| settings.template = "/no/such/program {id}".to_owned());
        let ending = run(&job).await;
        assert_eq!((ending.code, ending.is_success()), (None, false));
        assert!(ending.stderr.text.starts_with("cannot start /no/such/program: "), "{ending:?}");
    }

    async fn signalled(text: &str, signal: SignalNumber, group: bool) -> Ending {
        let job = script(text, |settings| settings.signal_group = group);
        let (send, signals) = mpsc::channel(1);
        let launcher = job.launcher.clone();
        let running =
            tokio::spawn(
                async move { launcher.run(RowId(7), Input::default(), signals, drop).await },
            );
        let (sent, was_sent) = oneshot::channel();
        send.send(SignalRequest { signal, sent }).await.unwrap();
        assert!(was_sent.await.unwrap());
        timeout(Duration::from_secs(60), running).await.expect("the job ends").unwrap()
    }

    #[tokio::test]
    async fn a_signal_reaches_the_process() {
        let ending = signalled("sleep 100", SignalNumber::KILL, false).await;
        assert_eq!(ending.signal.as_deref(), Some("SIGKILL"));
    }

    #[tokio::test]
    async fn a_group_signal_reaches_what_the_process_started() {
        let ending = signalled("sleep 100 | sleep 100", SignalNumber::TERM, true).await;
        assert_eq!(ending.signal.as_deref(), Some("SIGTERM"));
    }
}
