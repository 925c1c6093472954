//! The Debian package: built from the existing program, installed into a separate folder, started
//! as its unit says, upgraded, purged. The machine stays unchanged.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::net::UnixDatagram;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use spindle_testkit::free_address;

use crate::packages::{NoDaemons, POLICY};
use crate::process::Process;
use crate::workspace::{Build, call, cargo, root, target};

/// The tool that builds the package, as Cargo installs it.
const BUILDER: (&str, &str) = ("cargo-deb", "3.8.0");
/// What the package installs, and its permissions.
const FILES: [(&str, u32); 6] = [
    ("usr/bin/spindle", 0o755),
    ("etc/spindle/spindle.toml", 0o644),
    ("usr/lib/systemd/system/spindle.service", 0o644),
    ("usr/lib/sysusers.d/spindle.conf", 0o644),
    ("usr/share/doc/spindle/operations.md", 0o644),
    ("usr/share/doc/spindle/copyright", 0o644),
];
/// The time limit for steps that normally take a moment.
const PATIENCE: Duration = Duration::from_secs(120);
const SETTINGS: &str = "etc/spindle/spindle.toml";
const UNIT: &str = "usr/lib/systemd/system/spindle.service";
/// The unit's `StateDirectory`, which the settings name too.
const DATA: &str = "var/lib/spindle";
const ENABLED: &str = "etc/systemd/system/multi-user.target.wants/spindle.service";

/// Why the package cannot be installed here.
pub fn impossible_here() -> Option<&'static str> {
    (!nix::unistd::geteuid().is_root()).then_some("only root may install packages")
}

/// Builds the package, installs, upgrades and purges it, and checks what each step leaves.
pub fn check(of: Build) -> Result<()> {
    let package = build(of)?;
    let system = System::new()?;
    // Its scripts run on this machine, where nothing is to be started or stopped.
    let _policy = NoDaemons::set(Path::new(POLICY))?;
    system.dpkg(&["--install", &package.to_string_lossy()])?;
    for (path, mode) in FILES {
        let found = fs::metadata(system.path(path)).with_context(|| path.to_owned())?;
        ensure!(found.permissions().mode() & 0o7777 == mode, "{path} has another mode");
    }
    let users = system.read("etc/passwd")?;
    ensure!(users.lines().any(|line| line.starts_with("spindle:")), "there is no user: {users}");
    ensure!(system.path(ENABLED).is_symlink(), "the service is not enabled");
    let shown = printed(
        Command::new(system.path("usr/bin/spindle"))
            .args(["config", "--config"])
            .arg(system.path(SETTINGS)),
    )?;
    ensure!(shown.contains("/var/lib/spindle"), "its settings are {shown}");
    Unit::of(&system)?.check(&system)?;

    // An upgrade keeps changed settings, and so does a removal.
    let changed = system.read(SETTINGS)? + "log-level = \"warn\"\n";
    fs::write(system.path(SETTINGS), &changed)?;
    system.dpkg(&["--force-confdef", "--install", &package.to_string_lossy()])?;
    ensure!(system.read(SETTINGS)? == changed, "an upgrade has overwritten the settings");
    system.dpkg(&["--remove", "spindle"])?;
    ensure!(!system.path("usr/bin/spindle").exists(), "the program is still there");
    ensure!(system.read(SETTINGS)? == changed, "a removal has taken the settings");

    // A purge removes them, and leaves the jobs.
    let jobs = || Ok::<_, anyhow::Error>(fs::read_dir(system.path(DATA))?.count());
    let before = jobs()?;
    system.dpkg(&["--purge", "spindle"])?;
    ensure!(!system.path(SETTINGS).exists(), "a purge has left the settings");
    ensure!(before > 0 && jobs()? == before, "a purge has taken the jobs");
    Ok(())
}

/// How the installed unit starts the server.
struct Unit {
    /// The program, below the folder of the system, and its arguments.
    program: PathBuf,
    arguments: Vec<String>,
    /// The ids of its user and group, which the package has created.
    ids: (u32, u32),
}

impl Unit {
    fn of(system: &System) -> Result<Unit> {
        let text = system.read(UNIT)?;
        let field = |name: &str| {
            let mut found =
                text.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            found.next().with_context(|| format!("the unit has no {name}"))
        };
        ensure!(
            !text.contains("\nEnvironment"),
            "the unit sets an environment: it belongs in this test"
        );
        ensure!(field("Type")? == "notify", "who starts it waits for its word");
        ensure!(format!("var/lib/{}", field("StateDirectory")?) == DATA, "the jobs are elsewhere");
        let here = |word: &str| match word.strip_prefix('/') {
            Some(path) => system.path(path).to_string_lossy().into_owned(),
            None => word.to_owned(),
        };
        let mut words = field("ExecStart")?.split(' ').map(here);
        let program = words.next().context("ExecStart names no program")?.into();
        let id = |file: &str, name: &str| {
            let lines = system.read(file)?;
            let line = lines.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let number = line.and_then(|line| line.split(':').nth(1)).map(str::parse);
            Ok::<u32, anyhow::Error>(number.with_context(|| format!("{file} has no {name}"))??)
        };
        let ids = (id("etc/passwd", field("User")?)?, id("etc/group", field("Group")?)?);
        Ok(Unit { program, arguments: words.collect(), ids })
    }

    /// Starts the server as systemd does, adds a job, asks for the end, starts it again and finds the job.
    fn check(&self, system: &System) -> Result<()> {
        let data = system.path(DATA);
        fs::create_dir_all(&data)?;
        chown(&data, Some(self.ids.0), Some(self.ids.1))?;
        fs::set_permissions(&data, fs::Permissions::from_mode(0o700))?;
        self.serve(system, &["add", "mail", "kept"])?;
        let queues = self.serve(system, &["queues"])?;
        ensure!(queues == "mail\t1\t0\n", "after a stop and a start the queues are {queues}");
        Ok(())
    }

    /// Runs a command against the server, which runs only meanwhile. Returns the command's output.
    fn serve(&self, system: &System, command: &[&str]) -> Result<String> {
        let folder = tempfile::tempdir_in(system.0.path())?;
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755))?;
        let told = folder.path().join("notify");
        let socket = UnixDatagram::bind(&told)?;
        fs::set_permissions(&told, fs::Permissions::from_mode(0o666))?;
        socket.set_read_timeout(Some(PATIENCE))?;
        let address = free_address();
        let mut server = Command::new(&self.program);
        server.args(&self.arguments).uid(self.ids.0).gid(self.ids.1);
        // The folder stands for `/`; and other servers may run on this machine.
        server.env("NOTIFY_SOCKET", &told).env("SPINDLE_SERVE_DATA", system.path(DATA));
        server.env("SPINDLE_SERVE_WORKQ", &address);
        for door in ["HTTP", "GEARMAN", "JOBD_MASTER"] {
            server.env(format!("SPINDLE_SERVE_{door}"), "off");
        }
        let mut server = Process(server.spawn().context("the installed program")?);
        let mut word = [0; 256];
        let count = socket.recv(&mut word).context("it never said that it is ready")?;
        let word = String::from_utf8_lossy(&word[..count]);
        ensure!(word.contains("READY=1"), "it says {word}");
        let said =
            printed(Command::new(&self.program).args(command).env("SPINDLE_WORKQ", address))?;
        kill(Pid::from_raw(server.0.id().try_into()?), Signal::SIGTERM)?;
        let ended = server.ended_within(PATIENCE)?.context("it does not end")?;
        ensure!(ended.success(), "it ends with {ended}");
        Ok(said)
    }
}

/// The package of a program that is built.
fn build(of: Build) -> Result<PathBuf> {
    let folder = target()?.join("debian");
    let builder = builder()?;
    let out = folder.join("spindle.deb");
    fs::create_dir_all(&folder)?;
    // The program is called as Cargo calls it. `--fast` compresses less.
    let words = ["deb", "--package", "spindle", "--no-build", "--strip", "--fast", "--locked"];
    let out_text = out.to_string_lossy();
    call(builder, &[&words[..], &of.arguments(), &["--output", &out_text]].concat())?;
    let fields = printed(Command::new("dpkg-deb").arg("--field").arg(&out))?;
    ensure!(fields.contains("libc6 (>= "), "its needs were not found out: {fields}");
    Ok(out)
}

/// The program that builds packages. It is installed once, in the target folder.
fn builder() -> Result<PathBuf> {
    let (name, version) = BUILDER;
    let tools = target()?.join("tools");
    let path = tools.join("bin").join(name);
    if !path.exists() {
        // A debug build takes half the time, and it only packs one program.
        let words = ["install", name, "--version", version, "--locked", "--debug", "--root"];
        cargo(&[&words[..], &[&tools.to_string_lossy()]].concat())?;
    }
    Ok(path)
}

/// An empty system in a folder, with dpkg's own records.
struct System(tempfile::TempDir);

impl System {
    fn new() -> Result<System> {
        let system = System(tempfile::tempdir()?);
        for folder in ["var/lib/dpkg/info", "var/lib/dpkg/updates", "etc", "var/log"] {
            fs::create_dir_all(system.path(folder))?;
        }
        // The server's user must be able to enter it.
        fs::set_permissions(system.0.path(), fs::Permissions::from_mode(0o755))?;
        for file in ["var/lib/dpkg/status", "etc/passwd", "etc/group"] {
            fs::write(system.path(file), "")?;
        }
        Ok(system)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.0.path().join(path)
    }

    fn read(&self, path: &str) -> Result<String> {
        fs::read_to_string(self.path(path)).with_context(|| path.to_owned())
    }

    /// Runs dpkg on this system. Scripts of packages run on the machine and are handed the folder
    /// (`DPKG_ROOT`), because there is no shell in it; what packages depend on is not there either.
    fn dpkg(&self, words: &[&str]) -> Result<()> {
        let output = Command::new("dpkg")
            .arg(format!("--root={}", self.0.path().display()))
            .args(["--force-script-chrootless", "--force-depends"])
            .args(words)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .output()
            .context("dpkg")?;
        if !output.status.success() {
            let said = [output.stdout, output.stderr].concat();
            bail!("dpkg {}: {}", words.join(" "), String::from_utf8_lossy(&said));
        }
        Ok(())
    }
}

fn printed(command: &mut Command) -> Result<String> {
    let output = command.current_dir(root()).output().context("it does not start")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8(output.stdout)?)
}
