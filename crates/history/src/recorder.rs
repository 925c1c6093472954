//! Looking at the engine every ten seconds.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard};
use spindle_engine::{Engine, Tally};

use crate::book::{Book, Look, QueueNews};
use crate::file::File;
use crate::latency::{BUCKETS, FIRST_LIMIT_US};

/// The engine is looked at when its clock passes a multiple of this.
const LOOK_MS: u64 = 10_000;
/// The file is written after so many looks: once a minute, which is all that a crash may cost.
const LOOKS_PER_WRITING: u32 = 6;
/// At most so many queues are taken in one look: as many as the engine lists.
const QUEUES_PER_LOOK: usize = 1_024;

/// The history of a running server. Clones share one state.
#[derive(Clone, Debug, Default)]
pub struct History(Arc<Mutex<Book>>);

impl History {
    /// The book, to be asked.
    pub fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock()
    }

    /// Looks at the engine, and records what it did since the last look. An engine can have only
    /// one history: the counts that one takes, no other gets.
    pub fn look(&self, engine: &Engine) {
        let look = looked(engine);
        self.book().record(&look, |names: &[Bytes]| engine.observe().ready_counts(names));
    }
}

fn looked(engine: &Engine) -> Look {
    let observe = engine.observe();
    let stats = observe.stats();
    let mut commits = [0; BUCKETS];
    let counts = observe.meters().commit_us.counts;
    debug_assert!(counts.len() == BUCKETS && counts[0].0 == Some(FIRST_LIMIT_US));
    for (bucket, (_, count)) in commits.iter_mut().zip(counts) {
        *bucket = count;
    }
    let mut queues = Vec::new();
    while queues.len() < QUEUES_PER_LOOK {
        let some = observe.take_active_queues();
        if some.is_empty() {
            break;
        }
        queues.extend(some.into_iter().map(|(name, tally)| news(name, tally)));
    }
    let (failures, others) = observe.take_failures();
    if others > 0 {
        tracing::debug!("{others} failed attempts are in no row of the failures: too many kinds");
    }
    Look {
        at_ms: engine.now_ms(),
        totals: [stats.submitted, stats.completed, stats.failed, stats.died],
        commits,
        queues,
        failures,
    }
}

fn news(name: Bytes, tally: Tally) -> QueueNews {
    let Tally { submitted, completed, failed, died, .. } = tally;
    QueueNews { name, submitted, done: completed, failed, dead: died }
}

/// The thread that looks, and keeps the file. It writes the file a last time when it is dropped.
#[derive(Debug)]
pub struct Recorder {
    history: History,
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    /// Reads the history in a data folder and continues it; without a folder the history begins anew,
    /// and is not kept.
    ///
    /// # Errors
    ///
    /// There is no room for a thread.
    pub fn start(engine: &Engine, folder: Option<PathBuf>) -> io::Result<Recorder> {
        let file = File::new(folder);
        let history = History(Arc::new(Mutex::new(file.open(engine.now_ms()))));
        let (stop, stopped) = channel();
        let keeper = Keeper { engine: engine.clone(), history: history.clone(), file, stopped };
        let thread = Builder::new().name("spindle-history".to_owned());
        let thread = thread.spawn(move || keeper.keep())?;
        Ok(Recorder { history, stop: Some(stop), thread: Some(thread) })
    }

    /// What is kept.
    pub fn history(&self) -> History {
        self.history.clone()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        drop(self.stop.take());
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the thread of the history panicked");
        }
    }
}

struct Keeper {
    engine: Engine,
    history: History,
    file: File,
    stopped: Receiver<()>,
}

impl Keeper {
    fn keep(&self) {
        let mut looks = 0;
        while self.waits() {
            self.history.look(&self.engine);
            looks += 1;
            if looks == LOOKS_PER_WRITING {
                looks = 0;
                self.save();
            }
        }
        self.history.look(&self.engine);
        self.save();
    }

    /// Waits for the next look; false: there is none.
    fn waits(&self) -> bool {
        let left_ms = LOOK_MS - self.engine.now_ms() % LOOK_MS;
        let wait = self.stopped.recv_timeout(Duration::from_millis(left_ms));
        wait == Err(RecvTimeoutError::Timeout)
    }

    fn save(&self) {
        if !self.file.is_kept() {
            return;
        }
        // The folder may have been taken away, and its path be another server's.
        if self.engine.failure().is_some() {
            tracing::debug!("the history of the charts is not written: the engine has failed");
            return;
        }
        // The rest of a full disk is for the log.
        if self.engine.observe().gauges().is_disk_full {
            tracing::debug!("the history of the charts is not written: the disk is full");
            return;
        }
        let book = self.history.book().clone();
        self.file.save(&book);
    }
}
