//! A jobd master on a thread of its own, as a server has it.

use std::sync::mpsc::channel;
use std::thread;

use spindle_jobd_master::server::ListenSettings;
use spindle_jobd_master::{Master, MasterHandle, MasterSettings};
use tokio::sync::oneshot;

/// A master that listens on loopback; dropping it ends it.
pub struct JobdMaster {
    /// The handle that the surrounding program has.
    pub handle: MasterHandle,
    _ends: oneshot::Sender<()>,
}

impl JobdMaster {
    /// Starts one.
    #[expect(clippy::new_without_default, reason = "it starts a thread and listens")]
    pub fn new() -> JobdMaster {
        let (ends, ended) = oneshot::channel::<()>();
        let (started, handle) = channel();
        thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let host = "127.0.0.1".to_owned();
                let listen = ListenSettings { host, ..ListenSettings::default() };
                let master = Master::start(&MasterSettings::new(listen)).await.unwrap();
                started.send(master.handle()).unwrap();
                // An error, when the test drops it.
                let _ = ended.await;
            });
        });
        JobdMaster { handle: handle.recv().unwrap(), _ends: ends }
    }

    /// Where it listens.
    pub fn address(&self) -> String {
        self.handle.address().to_string()
    }
}
