//! Clients that record every answer that they got.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle, park_timeout};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Value, json};
use spindle_testkit::wait_until;

use crate::harness::{Cluster, Node, ask};

/// How long a client waits after it was refused.
const A_MOMENT: Duration = Duration::from_millis(20);
/// A lease whose answer was lost ends after this time.
const TTR_MS: u64 = 5_000;

#[derive(Default)]
struct Book {
    acknowledged: BTreeSet<u64>,
    completed: BTreeSet<u64>,
    wrong: Vec<String>,
}

/// Clients that submit and work through every node.
pub struct Load {
    book: Arc<Mutex<Book>>,
    submits: Arc<AtomicBool>,
    works: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
    queues: &'static [&'static str],
}

impl Load {
    pub fn start<S>(cluster: &Cluster<S>) -> Load {
        Load::start_in(cluster, &["load"])
    }

    /// Clients of these queues, each of which works on all of them.
    pub fn start_in<S>(cluster: &Cluster<S>, queues: &'static [&'static str]) -> Load {
        let book = Arc::<Mutex<Book>>::default();
        let [submits, works] = [(); 2].map(|()| Arc::new(AtomicBool::new(true)));
        let mut threads = Vec::new();
        for node in &cluster.nodes {
            let (address, its, goes_on) = (node.http.clone(), book.clone(), submits.clone());
            threads.push(thread::spawn(move || submit(&address, queues, &its, &goes_on)));
            for _ in 0..2 {
                let (address, its, goes_on) = (node.http.clone(), book.clone(), works.clone());
                threads.push(thread::spawn(move || work(&address, queues, &its, &goes_on)));
            }
        }
        Load { book, submits, works, threads, queues }
    }

    /// Waits until clients have been told that more jobs were taken, and that more are done.
    pub fn await_more(&self) {
        let counts = || {
            let book = self.book.lock();
            (book.acknowledged.len(), book.completed.len())
        };
        let (acknowledged, completed) = counts();
        wait_until("clients are served", || {
            let (now_acknowledged, now_completed) = counts();
            now_acknowledged >= acknowledged + 20 && now_completed >= completed + 20
        });
    }

    /// Records that another client was told that this job is taken.
    pub fn acknowledge(&self, id: u64) {
        self.book.lock().acknowledged.insert(id);
    }

    /// Ends the load, and has all acknowledged jobs done. All of them must be there, and none of them
    /// may have been done twice.
    pub fn settle<S>(self, cluster: &Cluster<S>) {
        self.settle_at(&cluster.nodes[cluster.leader()]);
    }

    /// The same, by what this node answers. Returns the jobs that were acknowledged.
    pub fn settle_at(self, leader: &Node) -> BTreeSet<u64> {
        self.submits.store(false, Ordering::SeqCst);
        let has_none = |queue: &&str| {
            let (status, queue) = answered(leader, &format!("GET /api/v1/queues/{queue}"));
            assert_eq!(status, 200, "{queue}");
            ["ready", "leased", "scheduled"].map(|of| queue["jobs"][of].as_u64()) == [Some(0); 3]
        };
        wait_until("all jobs are done", || self.queues.iter().all(&has_none));
        self.works.store(false, Ordering::SeqCst);
        self.threads.into_iter().for_each(|thread| thread.join().unwrap());
        let book = self.book.lock();
        assert_eq!(book.wrong, Vec::<String>::new());
        for id in &book.acknowledged {
            let (status, job) = answered(leader, &format!("GET /api/v1/jobs/{id}"));
            assert_eq!((status, job["status"].as_str()), (200, Some("done")), "job {id}: {job}");
        }
        book.acknowledged.clone()
    }
}

/// What a node answers when the lead does not change meanwhile.
fn answered(node: &Node, head: &str) -> (u16, Value) {
    loop {
        let answer = node.answer(head, &Value::Null);
        if !matches!(answer.0, 502 | 503) {
            return answer;
        }
        park_timeout(A_MOMENT);
    }
}

fn submit(address: &str, queues: &[&str], book: &Mutex<Book>, goes_on: &AtomicBool) {
    for queue in queues.iter().cycle() {
        if !goes_on.load(Ordering::SeqCst) {
            return;
        }
        let job = json!({ "queue": queue, "payload": {}, "ttr_ms": TTR_MS });
        match ask(address, "POST /api/v1/jobs", &job) {
            Some((201, job)) => {
                book.lock().acknowledged.insert(job["id"].as_u64().unwrap());
            }
            _ => park_timeout(A_MOMENT),
        }
    }
}

fn work(address: &str, queues: &[&str], book: &Mutex<Book>, goes_on: &AtomicBool) {
    while goes_on.load(Ordering::SeqCst) {
        let request = json!({ "queues": queues, "wait_s": 1 });
        let Some((200, lease)) = ask(address, "POST /api/v1/lease", &request) else {
            park_timeout(A_MOMENT);
            continue;
        };
        let id = lease["id"].as_u64().unwrap();
        if book.lock().completed.contains(&id) {
            book.lock().wrong.push(format!("job {id} was done, and given out again"));
        }
        let token = lease["lease_token"].as_str().unwrap();
        complete(address, book, id, &format!("POST /api/v1/leases/{token}/complete"));
    }
}

/// Reports the job as done until there is an answer. A lease may have run out meanwhile.
fn complete(address: &str, book: &Mutex<Book>, id: u64, head: &str) {
    loop {
        match ask(address, head, &json!({})) {
            Some((204, _)) => {
                book.lock().completed.insert(id);
                return;
            }
            Some((409, refusal)) => {
                if refusal["reason"] == "finished" {
                    book.lock().completed.insert(id);
                }
                return;
            }
            Some((410, _)) => {
                return book.lock().wrong.push(format!("job {id}, which was leased, is gone"));
            }
            _ => park_timeout(A_MOMENT),
        }
    }
}
