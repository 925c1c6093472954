//! A worker whose job table is the server.

use std::{fs, path::Path};

use spindle_jobd::{
    config::{Ini, WorkerConfig},
    table::open_table,
    worker::Worker,
};
use tokio::time::timeout;

use crate::server::{PATIENCE, Peer, Served};

/// What a job does is the first word of its payload. Every run leaves a line in the file `runs`.
/// None outlives the folder.
const LAUNCHER: &str = r#"cd "$1" || exit 99
echo "$2" >> runs
payload=$(cat)
case $payload in
*fail*) echo "out"; echo "no luck" >&2; exit 3 ;;
*wait*) while [ ! -e go ] && [ -e job.sh ]; do sleep 0.02; done; echo "waited" ;;
*trap*) trap 'echo term >> signals; exit 0' TERM; : > trapped; while [ -e job.sh ]; do sleep 0.02; done ;;
*slow*) sleep 1; echo "slow" ;;
*) printf '%s|%s|%s|%s|%s' "$payload" "$2" "$SPINDLE_JOB_ID" "$SPINDLE_QUEUE" "$SPINDLE_ATTEMPT" ;;
esac
"#;

/// A worker of this name, with these lines of configuration and targets.
pub async fn worker(served: &Served, name: &str, lines: &str, targets: &str) -> Worker {
    let folder = served.file("");
    fs::write(served.file("job.sh"), LAUNCHER).unwrap();
    let folder = folder.display();
    let text = format!(
        "port = 0\nname = {name}\nstate_file = {folder}/{name}.state\n\
         spindle_url = http://{}\nlauncher = sh {folder}/job.sh {folder} {{id}}\n{lines}\n\
         [targets]\n{targets}",
        served.http
    );
    let config = WorkerConfig::from_ini(&Ini::parse(Path::new("test.conf"), &text).unwrap());
    let config = config.unwrap();
    Worker::start(&config, open_table(&config.table)).await.unwrap()
}

pub fn connect(worker: &Worker) -> Peer {
    Peer::connect(worker.address())
}

/// Stops a worker and waits for its end.
pub async fn stop(worker: Worker) {
    worker.stop();
    ended(worker).await;
}

/// Waits for the end of a worker that was stopped.
pub async fn ended(mut worker: Worker) {
    timeout(PATIENCE, worker.ended()).await.expect("the worker ends");
}
