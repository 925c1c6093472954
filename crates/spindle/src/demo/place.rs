//! The server as a process of its own, so that it can really be killed; its folder and its ports.

use std::{
    env,
    fs::File,
    io::{self, Read, Seek, SeekFrom},
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use rand::Rng;
use tempfile::TempDir;

use super::{doors::Addresses, past};
use crate::client::web::ApiRequest;

/// Ports below those that the system gives to clients: a port that is free while the server is down
/// is free when it comes back.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// So many ports are tried for each door.
const PORT_TRIES: u32 = 1_000;
/// A server whose ports were taken before it had them is tried again so often.
const START_TRIES: u32 = 5;
/// How often it is asked whether it is ready, and how long in all: a slow disk takes its time.
const READY_PAUSE: Duration = Duration::from_millis(10);
const READY_TRIES: u32 = 12_000;
/// How much of the end of the server's own output stands in an error, in bytes.
const LOG_BYTES_SHOWN: u64 = 2_000;

/// The server, for those who have to end it: clones are the same one.
#[derive(Clone, Default)]
pub struct Stage(Arc<Mutex<Option<Place>>>);

/// A server, its folder and its ports. Dropping it kills the server and removes the folder.
pub struct Place {
    addresses: Addresses,
    child: Child,
    folder: TempDir,
}

impl Stage {
    fn locked(&self) -> MutexGuard<'_, Option<Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a server in a new folder, and waits until it is ready. Where its HTTP door is.
    pub fn open(&self) -> anyhow::Result<SocketAddr> {
        let mut outcome = Err(anyhow!("no port is free"));
        for _ in 0..START_TRIES {
            let addresses = self.start()?;
            outcome = self.await_ready();
            if outcome.is_ok() {
                return Ok(addresses.http);
            }
            self.close();
        }
        Err(outcome.err().unwrap_or_else(|| anyhow!("it does not start")))
    }

    /// A folder, ports and a process. Who wants to end it meanwhile waits, and finds all of it.
    fn start(&self) -> anyhow::Result<Addresses> {
        let mut place = self.locked();
        let folder = tempfile::Builder::new().prefix("spindle-demo-").tempdir()?;
        past::spend(&data_of(&folder)).context("cannot make up the hour before")?;
        let addresses = free_addresses()?;
        let child = start(&folder, &addresses)?;
        *place = Some(Place { addresses, child, folder });
        Ok(addresses)
    }

    /// Where its doors are.
    pub fn addresses(&self) -> anyhow::Result<Addresses> {
        self.locked().as_ref().map(|place| place.addresses).context("there is no server")
    }

    /// Kills the server with SIGKILL, and waits until it is gone. Which process it was.
    pub fn kill(&self) -> anyhow::Result<u32> {
        let mut place = self.locked();
        let place = place.as_mut().context("there is no server")?;
        let pid = place.child.id();
        place.child.kill()?;
        place.child.wait()?;
        Ok(pid)
    }

    /// Starts it on the folder and the ports it had, and waits until it is ready.
    pub fn restart(&self) -> anyhow::Result<()> {
        if let Some(place) = self.locked().as_mut() {
            place.child = start(&place.folder, &place.addresses)?;
        }
        self.await_ready()
    }

    /// Ends the server and removes its folder.
    pub fn close(&self) {
        *self.locked() = None;
    }

    fn await_ready(&self) -> anyhow::Result<()> {
        let http = self.addresses()?.http();
        for _ in 0..READY_TRIES {
            if http.answer(ApiRequest::get("/readyz")).is_ok() {
                return Ok(());
            }
            let mut place = self.locked();
            let place = place.as_mut().context("there is no server")?;
            if let Some(status) = place.child.try_wait()? {
                bail!("it ended with {status}: {}", place.last_words().unwrap_or_default());
            }
            sleep(READY_PAUSE);
        }
        bail!("it is not ready after two minutes")
    }
}

impl Place {
    fn last_words(&self) -> io::Result<String> {
        let mut log = File::open(self.folder.path().join("server.log"))?;
        let end = log.seek(SeekFrom::End(0))?;
        log.seek(SeekFrom::Start(end.saturating_sub(LOG_BYTES_SHOWN)))?;
        let mut words = Vec::new();
        log.read_to_end(&mut words)?;
        Ok(String::from_utf8_lossy(&words).trim().to_owned())
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Where the server's data are.
fn data_of(folder: &TempDir) -> PathBuf {
    folder.path().join("data")
}

/// Starts this program again as a server. What the environment sets for servers is not for this
/// one, and Ctrl-C at the terminal is the demo's.
fn start(folder: &TempDir, addresses: &Addresses) -> anyhow::Result<Child> {
    let log = folder.path().join("server.log");
    let log = File::options().create(true).append(true).open(log)?;
    let program = env::current_exe().context("where is this program?")?;
    let mut command = Command::new(program);
    for (name, _) in env::vars_os() {
        if name.as_encoded_bytes().starts_with(b"SPINDLE_") || name == "NOTIFY_SOCKET" {
            command.env_remove(name);
        }
    }
    let Addresses { http, workq, gearman, jobd_master } = addresses;
    command.arg("serve").arg("--data").arg(data_of(folder));
    for (door, address) in [
        ("--http", http),
        ("--workq", workq),
        ("--gearman", gearman),
        ("--jobd-master", jobd_master),
    ] {
        command.arg(door).arg(address.to_string());
    }
    let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).process_group(0);
    command.spawn().context("cannot start this program as a server")
}

fn free_addresses() -> anyhow::Result<Addresses> {
    // All are held until there are enough, so that none is found twice.
    let mut held = Vec::new();
    let mut free = || {
        let mut tries = 0..PORT_TRIES;
        let found = tries.find_map(|_| {
            let port = rand::rng().random_range(PORTS);
            TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()
        });
        let listener = found.context("no port is free")?;
        let address = listener.local_addr()?;
        held.push(listener);
        anyhow::Ok(address)
    };
    Ok(Addresses { http: free()?, workq: free()?, gearman: free()?, jobd_master: free()? })
}
