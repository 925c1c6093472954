//! The page about clusters: its walkthrough works as printed.

use std::fmt::Write as _;
use std::fs;
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::Value;
use spindle_testkit::{free_address, nats_program, wait_until};
use tempfile::TempDir;

use crate::harness::{SPINDLE, ask, database};

/// A shell and all that it left running.
struct Shell(Child);

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = killpg(Pid::from_raw(self.0.id().try_into().unwrap()), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

fn page() -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cluster.md");
    fs::read_to_string(page).unwrap()
}

/// The scripts between two headings.
fn scripts(page: &str, begin: &str, end: &str) -> Vec<String> {
    let (_, part) = page.split_once(&format!("\n{begin}\n")).unwrap();
    let (part, _) = part.split_once(&format!("\n{end}\n")).unwrap();
    let scripts = part.split("```sh\n").skip(1);
    scripts.map(|script| script.split_once("```").unwrap().0.to_owned()).collect()
}

/// The scripts of the part about three nodes on one machine, and the one before it.
fn of_one_machine() -> [String; 5] {
    let scripts = scripts(&page(), "## Setting it up", "### Three nodes on three machines");
    scripts.try_into().unwrap_or_else(|scripts| panic!("{scripts:?}"))
}

/// Addresses as the page prints them up to the number of the node or server at their end, and the name of
/// the variables that have them here.
const PRINTED: [(&str, &str); 5] = [
    ("127.0.0.1:742", "HTTP"),
    ("127.0.0.1:993", "CLUSTER"),
    ("127.0.0.1:422", "NATS"),
    ("127.0.0.1:822", "MONITORING"),
    ("127.0.0.1:622", "ROUTE"),
];

/// Where scripts of the page are run, with addresses of its own instead of the printed ones.
struct Reader {
    folder: TempDir,
    setup: String,
    http: Vec<String>,
    /// Others, in the place of this one.
    replaced: Vec<(&'static str, String)>,
}

impl Reader {
    fn new(replaced: Vec<(&'static str, String)>) -> Reader {
        let (mut setup, mut http) = (String::new(), Vec::new());
        for (_, name) in PRINTED {
            for n in 1..=3 {
                let address = free_address();
                writeln!(setup, "{name}_{n}={address}").unwrap();
                http.extend((name == "HTTP").then_some(address));
            }
        }
        Reader { folder: tempfile::tempdir().unwrap(), setup, http, replaced }
    }

    /// A shell that runs a script.
    fn run(&self, script: &str) -> Command {
        let mut script = script.to_owned();
        for (printed, here) in &self.replaced {
            script = script.replace(printed, here);
        }
        for (printed, name) in PRINTED {
            for variable in ["node", "n"] {
                let here = format!("$(eval echo \\${name}_${variable})");
                // The longer name first.
                script = script.replace(&format!("{printed}${variable}"), &here);
            }
            for n in 1..=3 {
                script = script.replace(&format!("{printed}{n}"), &format!("${name}_{n}"));
            }
        }
        let program = |path: &Path| path.parent().unwrap().display().to_string();
        let own = [program(Path::new(SPINDLE)), program(&nats_program())].join(":");
        let path = format!("{own}:{}", std::env::var("PATH").unwrap());
        let mut shell = Command::new("bash");
        shell.args(["-c", &format!("{}{script}", self.setup)]).current_dir(self.folder.path());
        shell.env("PATH", &path).env("HOME", "/").process_group(0);
        shell
    }

    /// Runs a script that leaves something running behind it.
    fn begin(&self, script: &str) -> Shell {
        Shell(self.run(script).spawn().unwrap())
    }

    /// What a script prints, which succeeds.
    #[track_caller]
    fn prints(&self, script: &str) -> String {
        let output = self.run(script).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{script}: {said}{output:?}");
        said
    }

    fn await_leader(&self) {
        let leads = |http: &String| {
            ask(http, "GET /readyz", &Value::Null)
                .is_some_and(|(status, body)| status == 200 && body["status"] == "ok")
        };
        wait_until("one leads", || self.http.iter().any(leads));
    }

    /// Any node can be asked: each has heard who leads.
    fn await_all(&self) {
        let knows = |http: &String| {
            ask(http, "GET /readyz", &Value::Null).is_some_and(|(status, _)| status == 200)
        };
        wait_until("all know who leads", || self.http.iter().all(knows));
    }

    /// Looks, kills the leader and ends, as the page says.
    fn go_on(&self, [look, kill, end]: [&str; 3]) {
        self.await_all();
        let said = self.prints(look);
        assert!(said.contains("node-1") && said.contains("leader"), "{said}");
        assert!(said.contains("mail"), "{said}");
        let said = self.prints(kill);
        assert!(said.contains("mail"), "{said}");
        self.await_leader();
        self.prints(end);
        wait_until("all have ended", || {
            self.http.iter().all(|http| TcpStream::connect(http).is_err())
        });
    }
}

/// What the servers said, if the test fails.
impl Drop for Reader {
    fn drop(&mut self) {
        if !thread::panicking() {
            return;
        }
        for entry in fs::read_dir(self.folder.path()).unwrap().flatten() {
            let path = entry.path();
            if path.extension().is_some_and(|is| is == "log") {
                let said = fs::read(&path).unwrap_or_default();
                println!("{}:\n{}", path.display(), String::from_utf8_lossy(&said));
            }
        }
    }
}

#[test]
fn three_nodes_on_one_machine_are_set_up_as_the_page_says() {
    let [database_script, begin, look, kill, end] = of_one_machine();
    let server = database();
    // The test's server knows a role of this name already, which may do all.
    server.sql("CREATE ROLE admin SUPERUSER LOGIN");
    server.sql_as("admin", "ALTER ROLE spindle RENAME TO former");
    let statements = database_script.split('"').skip(1).step_by(2);
    statements.for_each(|statement| drop(server.sql_as("admin", statement)));
    let reader = Reader::new(vec![("127.0.0.1:5432", server.address().to_owned())]);
    let _nodes = reader.begin(&begin);
    reader.go_on([&look, &kill, &end]);
}

/// A server of NATS that has not joined the others by then was left out.
const LEFT_OUT: Duration = Duration::from_secs(20);

#[test]
fn three_nodes_on_one_machine_are_set_up_on_nats_as_the_page_says() {
    let [_, _, look, kill, end] = of_one_machine();
    let on_nats = scripts(&page(), "### NATS on one machine", "## Who leads");
    let [servers, begin] = &on_nats[..] else { panic!("{on_nats:?}") };
    let reader = Reader::new(Vec::new());
    let mut shells = vec![reader.begin(servers)];
    let is_well = "for n in 1 2 3; do
        curl --fail --silent http://127.0.0.1:822$n/healthz || exit 1
        curl --silent http://127.0.0.1:822$n/jsz | grep '\"cluster_size\": 3' || exit 1
    done";
    let are_well = || reader.run(is_well).output().unwrap().status.success();
    // One may be left out at the first election; the page says to start it again then.
    for n in 1..=3 {
        let begun = Instant::now();
        while !are_well() && begun.elapsed() < LEFT_OUT {
            thread::sleep(Duration::from_millis(100));
        }
        if !are_well() {
            shells.push(reader.begin(&format!(
                "kill $(cat nats-{n}.pid); sleep 1; nats-server --config nats-{n}.conf 2>> nats-{n}.log"
            )));
        }
    }
    wait_until("the servers have found each other", are_well);
    let _nodes = reader.begin(begin);
    reader.go_on([&look, &kill, &end]);
}

#[test]
fn the_demo_of_a_cluster_says_what_the_page_says() {
    let page = page();
    let (_, part) = page.split_once("\n```console\n").unwrap();
    let (example, _) = part.split_once("```").unwrap();
    let (command, said) = example.split_once('\n').unwrap();
    let reader = Reader::new(Vec::new());
    let output = reader.run(command.strip_prefix("$ ").unwrap()).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let told = String::from_utf8(output.stderr).unwrap();
    // Lines that differ from run to run are not compared, nor those that only appear if it takes long.
    let mut lines = told.lines();
    for wanted in said.lines() {
        let parts: Vec<&str> = wanted.split('…').collect();
        let fits = |line: &str| {
            let mut rest = Some(line);
            for part in &parts {
                rest = rest.and_then(|rest| rest.find(part).map(|at| &rest[at + part.len()..]));
            }
            rest.is_some()
        };
        assert!(lines.any(fits), "{wanted:?} does not come, or not in its place: {told}");
    }
}
