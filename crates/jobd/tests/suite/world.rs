//! A worker on a table in memory, with a launcher whose jobs do what the last digit of their id
//! says.

use std::{
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
};

use spindle_jobd::{
    config::{Ini, MasterConfig, WorkerConfig},
    worker::Worker,
};
use spindle_jobd_master::Master;
use tokio::time::timeout;

use crate::{
    fake_table::FakeTable,
    peer::{DEADLINE, Peer, until},
};

/// 3: error text and exit code 3. 4: kills itself. 5: waits until the file `go` is there. 6: runs
/// until SIGTERM, and says so. 7: 2,000,000 bytes. Others: a word on each output. Every run leaves
/// a line in the file `runs`. None outlives the folder.
const LAUNCHER: &str = r#"cd "$1" || exit 99
id=$2
echo "$id" >> runs
case $id in
*3) echo "err $id" >&2; exit 3 ;;
*4) echo "start $id"; kill -KILL $$ ;;
*5) while [ ! -e go ] && [ -e job.sh ]; do sleep 0.02; done; echo "slow $id" ;;
*6) trap 'echo term; exit 0' TERM; : > trapped; echo "long $id"; while [ -e job.sh ]; do sleep 0.02; done ;;
*7) head -c 2000000 /dev/zero | tr '\0' x ;;
*) echo "hello $id"; printf "e$id" >&2 ;;
esac
"#;

pub const TARGETS: &str = "[targets]\nlow = 1\nnormal = 3\n1/high = 10\n";

/// A folder for a test's daemons.
pub struct World {
    folder: tempfile::TempDir,
    pub table: Arc<FakeTable>,
}

impl World {
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("job.sh"), LAUNCHER).unwrap();
        Self { folder, table: Arc::default() }
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn file(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }

    /// A configuration: these lines, and what every test needs. Targets come from `lines`.
    pub fn config(&self, lines: &str) -> WorkerConfig {
        let folder = self.path().display();
        let text = format!(
            "port = 0\nname = w1\nstate_file = {folder}/w1.state\n\
             launcher = sh {folder}/job.sh {folder} {{id}}\n{lines}"
        );
        WorkerConfig::from_ini(&Ini::parse(Path::new("test.conf"), &text).unwrap()).unwrap()
    }

    /// Starts a worker with these lines of configuration before the usual targets. When the table
    /// is there, the worker has looked for rows that were waiting already.
    pub async fn worker(&self, lines: &str) -> Worker {
        let claims = self.table.claims.load(Ordering::SeqCst);
        let worker = self.start(&self.config(&format!("{lines}\n{TARGETS}"))).await;
        if !self.table.away.load(Ordering::SeqCst) {
            let first = || self.table.claims.load(Ordering::SeqCst) > claims;
            until("the first look at the table", first).await;
        }
        worker
    }

    pub async fn start(&self, config: &WorkerConfig) -> Worker {
        let table: Arc<FakeTable> = Arc::clone(&self.table);
        Worker::start(config, table).await.unwrap()
    }

    /// Lets the jobs that wait for it go on.
    pub fn let_go(&self) {
        fs::write(self.file("go"), "").unwrap();
    }

    /// The ids that were run, in order of their starts.
    pub fn runs(&self) -> Vec<i64> {
        let text = fs::read_to_string(self.file("runs")).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }
}

pub async fn connect(worker: &Worker) -> Peer {
    Peer::connect(worker.address()).await
}

pub async fn ended(worker: &mut Worker) {
    timeout(DEADLINE, worker.ended()).await.expect("the worker ends");
}

/// Starts a master with these lines of configuration.
pub async fn master(lines: &str) -> Master {
    let text = format!("port = 0\n{lines}");
    let ini = Ini::parse(Path::new("test.conf"), &text).unwrap();
    Master::start(&MasterConfig::from_ini(&ini).unwrap().master).await.unwrap()
}

/// A worker that can be killed: what it was about to do is not done.
pub struct Mortal {
    runtime: Option<tokio::runtime::Runtime>,
    address: SocketAddr,
}

impl Mortal {
    /// Starts one with the usual targets.
    pub async fn start(world: &World) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let (config, table) = (world.config(TARGETS), Arc::clone(&world.table));
        let claims = world.table.claims.load(Ordering::SeqCst);
        let start = async move { Worker::start(&config, table).await.unwrap().address() };
        let address = runtime.spawn(start).await.unwrap();
        let first = || world.table.claims.load(Ordering::SeqCst) > claims;
        until("the first look at the table", first).await;
        Self { runtime: Some(runtime), address }
    }

    pub async fn connect(&self) -> Peer {
        Peer::connect(self.address).await
    }

    pub fn kill(mut self) {
        self.runtime.take().unwrap().shutdown_background();
    }
}

impl Drop for Mortal {
    fn drop(&mut self) {
        // A runtime must not be dropped where others run.
        self.runtime.take().into_iter().for_each(tokio::runtime::Runtime::shutdown_background);
    }
}
