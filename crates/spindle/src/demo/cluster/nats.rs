//! Log servers of the demo's own: three of NATS, which sync before they acknowledge.

use std::{
    fs,
    io::{self, ErrorKind},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, bail};

use super::server::Server;
use crate::{
    demo::process::free_addresses,
    exit::{Code, Failure},
};

/// Where the program is looked for: Debian's is not in every user's PATH.
const PROGRAMS: [&str; 2] = ["nats-server", "/usr/sbin/nats-server"];
/// The first version that can sync before it acknowledges.
const VERSION_MIN: (u32, u32) = (2, 10);
/// The stream that is the log.
const STREAM: &str = "spindle-demo";

/// A program that will do.
#[derive(Debug)]
pub struct Program {
    path: PathBuf,
    /// What it calls its version.
    pub version: String,
}

impl Program {
    /// The program that was named, or that is found.
    ///
    /// # Errors
    ///
    /// When there is none, when it is none of NATS, or when it is too old.
    pub fn find(named: Option<&Path>) -> anyhow::Result<Self> {
        if let Some(named) = named {
            let said = version(named);
            return Self::of(
                named,
                &said.with_context(|| format!("cannot start {}", named.display()))?,
            );
        }
        Self::first_of(&PROGRAMS.map(Path::new))
    }

    fn first_of(paths: &[&Path]) -> anyhow::Result<Self> {
        for path in paths {
            match version(path) {
                Err(error) if error.kind() == ErrorKind::NotFound => {}
                said => return Self::of(path, &said?),
            }
        }
        let text = "a cluster needs a server for its log, and there is no nats-server in PATH: install version 2.10 \
                    or newer (the package nats-server), name it with --nats-server PROGRAM, or name a log with \
                    --log postgres://USER@HOST/DATABASE or --log nats://HOST/STREAM";
        Err(Failure::with(Code::Usage, text))
    }

    /// The program that says this of its version.
    fn of(path: &Path, said: &str) -> anyhow::Result<Self> {
        let shown = path.display();
        let said = said.lines().next().unwrap_or_default().trim();
        let version = said.strip_prefix("nats-server: v").with_context(|| {
            format!("{shown} is no nats-server: asked for its version it says {said:?}")
        })?;
        let mut numbers = version.split('.').map(|number| number.parse().unwrap_or(0));
        let found = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        if found < VERSION_MIN {
            let (major, minor) = VERSION_MIN;
            bail!(
                "{shown} is version {version}, and the log needs {major}.{minor} or newer: name another one with \
                 --nats-server PROGRAM, or a log with --log URL"
            );
        }
        Ok(Self { path: path.to_owned(), version: version.to_owned() })
    }
}

/// What a program says when it is asked for its version.
fn version(program: &Path) -> io::Result<String> {
    let output = Command::new(program).arg("--version").stdin(Stdio::null()).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Servers that have been started, and their log.
pub struct Started {
    /// The servers.
    pub servers: Vec<Server>,
    /// Where each says at `/healthz` how it is.
    pub monitoring: [SocketAddr; 3],
    /// The URL of the log.
    pub url: String,
}

/// Starts three servers in a folder.
pub fn start(program: &Program, folder: &Path) -> anyhow::Result<Started> {
    let clients: [SocketAddr; 3] = free_addresses()?;
    let routes: [SocketAddr; 3] = free_addresses()?;
    let monitoring: [SocketAddr; 3] = free_addresses()?;
    let mut servers = Vec::new();
    for (at, ((client, route), http)) in clients.iter().zip(&routes).zip(&monitoring).enumerate() {
        let name = format!("nats-{}", at + 1);
        let config = folder.join(format!("{name}.conf"));
        let text = format!(
            "server_name: {name}\nlisten: \"{client}\"\nhttp: \"{http}\"\n\
             jetstream {{\n  store_dir: {:?}\n  sync_interval: always\n}}\n\
             cluster {{\n  name: {STREAM}\n  listen: \"{route}\"\n  routes: [{}]\n}}\n",
            folder.join(&name),
            listed(&routes, |route| format!("\"nats://{route}\"")),
        );
        fs::write(&config, text)?;
        let arguments = vec!["--config".into(), config.into()];
        servers.push(Server::start(name, &program.path, arguments, folder)?);
    }
    let url = format!(
        "nats://{}/{STREAM}?monitoring={}",
        listed(&clients, SocketAddr::to_string),
        listed(&monitoring, |at| format!("http://{at}"))
    );
    Ok(Started { servers, monitoring, url })
}

fn listed(addresses: &[SocketAddr], shown: impl Fn(&SocketAddr) -> String) -> String {
    addresses.iter().map(shown).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_program_it_is_said_what_to_install_or_to_name() {
        let error = Program::first_of(&[Path::new("/nowhere/it")]).unwrap_err().to_string();
        for words in ["install version 2.10 or newer", "--nats-server PROGRAM", "--log postgres://"]
        {
            assert!(error.contains(words), "{error}");
        }
        let found = Program::first_of(&[Path::new("/nowhere/it"), Path::new("/bin/echo")]);
        assert!(found.unwrap_err().to_string().contains("/bin/echo is no nats-server"));
    }

    #[test]
    fn a_server_is_taken_if_it_is_one_and_new_enough() {
        let of = |said: &str| Program::of(Path::new("it"), said).map(|program| program.version);
        assert_eq!(of("nats-server: v2.10.27\n").unwrap(), "2.10.27");
        assert_eq!(of("nats-server: v3.0.0-beta.1\n").unwrap(), "3.0.0-beta.1");
        assert!(of("nats-server: v2.9.10\n").unwrap_err().to_string().contains("2.10 or newer"));
        for strange in ["", "hello", "nats-server: 2.11"] {
            assert!(of(strange).unwrap_err().to_string().contains("no nats-server"), "{strange}");
        }
    }
}
