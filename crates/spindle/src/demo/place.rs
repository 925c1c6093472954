//! The server of the demo: its folder, its ports, and its end.

use std::{
    net::SocketAddr,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, anyhow, bail};
use tempfile::TempDir;

use super::{
    doors::Addresses,
    past,
    process::{Process, free_addresses, this_program},
};
use crate::client::web::ApiRequest;

/// How often to try again if other programs take the server's ports before it does.
const START_TRIES: u32 = 5;
/// How often to ask the server whether it is ready, and for how long in all: a slow disk takes time.
const READY_PAUSE: Duration = Duration::from_millis(10);
const READY_TRIES: u32 = 12_000;

/// The server, shared by all that may have to end it: clones are the same one.
#[derive(Clone, Default)]
pub struct Stage(Arc<Mutex<Option<Place>>>);

/// A server, its folder and its ports. Dropping it kills the server and removes the folder.
pub struct Place {
    addresses: Addresses,
    server: Process,
    folder: TempDir,
}

impl Stage {
    fn locked(&self) -> MutexGuard<'_, Option<Place>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a server in a new folder, and waits until it is ready. Returns where its HTTP door is.
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

    /// Makes a folder, ports and a process. Holds the lock, so that `close` waits and finds all of them.
    fn start(&self) -> anyhow::Result<Addresses> {
        let mut place = self.locked();
        let folder = tempfile::Builder::new().prefix("spindle-demo-").tempdir()?;
        past::spend(&data_of(&folder)).context("cannot make up the hour before")?;
        let [http, workq, gearman, jobd_master] = free_addresses()?;
        let addresses = Addresses { http, workq, gearman, jobd_master };
        let server = start(&folder, &addresses)?;
        *place = Some(Place { addresses, server, folder });
        Ok(addresses)
    }

    /// Where its doors are.
    pub fn addresses(&self) -> anyhow::Result<Addresses> {
        self.locked().as_ref().map(|place| place.addresses).context("there is no server")
    }

    /// Kills the server with SIGKILL, and waits until it is gone. Returns which process it was.
    pub fn kill(&self) -> anyhow::Result<u32> {
        let mut place = self.locked();
        let place = place.as_mut().context("there is no server")?;
        place.server.kill()?;
        Ok(place.server.id())
    }

    /// Starts it on the folder and the ports it had, and waits until it is ready.
    pub fn restart(&self) -> anyhow::Result<()> {
        if let Some(place) = self.locked().as_mut() {
            place.server = start(&place.folder, &place.addresses)?;
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
            if let Some(status) = place.server.ended()? {
                bail!("it ended with {status}: {}", place.server.last_words());
            }
            sleep(READY_PAUSE);
        }
        bail!("it is not ready after two minutes")
    }
}

/// Where the server's data are.
fn data_of(folder: &TempDir) -> PathBuf {
    folder.path().join("data")
}

/// Starts this program again as a server.
fn start(folder: &TempDir, addresses: &Addresses) -> anyhow::Result<Process> {
    let mut arguments = vec!["serve".into(), "--data".into(), data_of(folder).into()];
    arguments.extend(addresses.flags());
    Process::start(&this_program()?, arguments, &folder.path().join("server.log"))
}
