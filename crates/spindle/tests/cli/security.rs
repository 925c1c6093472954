//! The examples of docs/security.md, run as they stand there.

use std::{
    fs,
    os::unix::fs::symlink,
    path::Path,
    process::{Command, Stdio},
};

use spindle_testkit::{Program, Said};
use tempfile::TempDir;

use crate::fake_workq::{spindle, stderr};

/// The page's examples for a shell, each of which ends with a server.
fn examples() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/security.md");
    let page = fs::read_to_string(page).unwrap();
    let blocks = page.split("```sh\n").skip(1);
    blocks.map(|block| block.split("```").next().unwrap().to_owned()).collect()
}

/// A server that an example has started, in the folder of the example.
struct Started {
    folder: TempDir,
    _server: Program,
    workq: String,
}

impl Started {
    /// Runs an example whose last command is `spindle serve`. Doors get free ports.
    fn by(example: &str) -> Started {
        let folder = tempfile::tempdir().unwrap();
        symlink(env!("CARGO_BIN_EXE_spindle"), folder.path().join("spindle")).unwrap();
        assert!(example.contains("\nspindle serve "), "{example}");
        let script = example.replace("\nspindle serve ", "\nexec spindle serve ");
        let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
        let mut command = Command::new("bash");
        command.args(["-euc", &script]).current_dir(&folder).env("PATH", path);
        for door in ["WORKQ", "GEARMAN", "HTTP"] {
            command.env(format!("SPINDLE_SERVE_{door}"), "127.0.0.1:0");
        }
        if !example.contains("--jobd-master") {
            command.env("SPINDLE_SERVE_JOBD_MASTER", "off");
        }
        let mut server = Program::start(command.stdout(Stdio::null()).stderr(Stdio::piped()));
        let said = Said::by(server.stderr.take().unwrap());
        let greeting = said.await_line("workq on ");
        let workq = greeting.split_once("workq on ").unwrap().1.split(',').next().unwrap();
        Started { folder, workq: workq.to_owned(), _server: server }
    }

    /// Adds a job, with a file of the example behind each of these flags.
    fn adds(&self, queue: &str, flags: &[&str], files: &[(&str, &str)]) -> Result<(), String> {
        let mut command = spindle(&["add", queue, "x", "--workq", &self.workq]);
        command.args(flags);
        for (flag, file) in files {
            command.arg(flag).arg(self.folder.path().join(file));
        }
        let output = command.output().unwrap();
        if output.status.success() { Ok(()) } else { Err(stderr(&output)) }
    }
}

#[test]
fn every_example_for_a_shell_starts_the_server_that_it_promises() {
    let examples = examples();
    let [token, certificate] = examples.as_slice() else { panic!("{examples:?}") };
    let guarded = Started::by(token);
    let with_token = [("--token-file", "mailer.token")];
    assert_eq!(guarded.adds("mail.welcome", &[], &with_token), Ok(()));
    assert!(guarded.adds("sms", &[], &with_token).unwrap_err().contains("not for this queue"));
    assert!(guarded.adds("mail.welcome", &[], &[]).unwrap_err().contains("needs a token"));

    let encrypted = Started::by(certificate);
    assert_eq!(encrypted.adds("mail", &["--tls"], &[("--ca-file", "server.pem")]), Ok(()));
    assert!(encrypted.adds("mail", &["--tls"], &[]).unwrap_err().contains("is not trusted"));
}
