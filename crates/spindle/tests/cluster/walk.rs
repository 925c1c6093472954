//! The page about clusters: its walk works as it is printed.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use spindle_testkit::{free_address, wait_until};

use crate::harness::{SPINDLE, ask, database};

/// A shell and all that it left running.
struct Shell(Child);

impl Drop for Shell {
    fn drop(&mut self) {
        let _ = killpg(Pid::from_raw(self.0.id().try_into().unwrap()), Signal::SIGKILL);
        let _ = self.0.wait();
    }
}

/// The scripts of the part about three nodes on one machine, and the one before it.
fn scripts() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cluster.md");
    let page = fs::read_to_string(page).unwrap();
    let (_, part) = page.split_once("\n## Setting it up\n").unwrap();
    let (part, _) = part.split_once("\n### Three nodes on three machines\n").unwrap();
    let scripts = part.split("```sh\n").skip(1);
    scripts.map(|script| script.split_once("```").unwrap().0.to_owned()).collect()
}

#[test]
fn three_nodes_on_one_machine_are_set_up_as_the_page_says() {
    let scripts = scripts();
    let [database_script, begin, look, kill] = &scripts[..] else { panic!("{scripts:?}") };
    let server = database();
    // The test's server knows a role of this name already, which may do all.
    server.sql("CREATE ROLE admin SUPERUSER LOGIN");
    server.sql_as("admin", "ALTER ROLE spindle RENAME TO former");
    let statements = database_script.split('"').skip(1).step_by(2);
    statements.for_each(|statement| drop(server.sql_as("admin", statement)));

    let folder = tempfile::tempdir().unwrap();
    let nodes: [(String, String); 3] = std::array::from_fn(|_| (free_address(), free_address()));
    let mut setup = String::new();
    for (n, (http, cluster)) in nodes.iter().enumerate() {
        setup += &format!("HTTP_{0}={http} CLUSTER_{0}={cluster}\n", n + 1);
    }
    let at_home = |script: &str| {
        let mut script = script.replace("127.0.0.1:5432", server.address());
        for (printed, name) in [("127.0.0.1:742", "HTTP"), ("127.0.0.1:993", "CLUSTER")] {
            let variable = format!("$(eval echo \\${name}_$node)");
            script = script.replace(&format!("{printed}$node"), &variable);
            for n in 1..=3 {
                script = script.replace(&format!("{printed}{n}"), &format!("${name}_{n}"));
            }
        }
        script
    };
    let program = Path::new(SPINDLE).parent().unwrap();
    let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap());
    let run = |script: &str| {
        let script = format!("{setup}{}", at_home(script));
        let mut shell = Command::new("bash");
        shell.args(["-c", &script]).current_dir(folder.path()).env("PATH", &path).env("HOME", "/");
        shell
    };
    let mut begun = run(begin);
    let _shell = Shell(begun.process_group(0).spawn().unwrap());
    let is_led = || {
        let leads = |(http, _): &(String, String)| {
            ask(http, "GET /readyz", &serde_json::Value::Null)
                .is_some_and(|(status, body)| status == 200 && body["status"] == "ok")
        };
        nodes.iter().any(leads)
    };
    wait_until("one leads", is_led);
    let output = run(look).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{said}");
    assert!(said.contains("node-1") && said.contains("leader") && said.contains("mail"), "{said}");
    let output = run(kill).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("mail"), "{said}: {output:?}");
    wait_until("another one leads", is_led);
}
