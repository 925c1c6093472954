//! The copy of the jobs on a thread of its own, of low priority: SQLite gets what processors have
//! left, so that no other door waits for a query. It never holds the engine's lock, which is why it
//! may be slow: the engine is asked by `clerk.rs`.

use std::sync::mpsc::{SyncSender, sync_channel};

use rustix::process::setpriority_process;
use rustix::thread::gettid;

use crate::mirror::{Mirror, QueryLimits};

/// About a tenth of a processor that others want as well, and all of one that nobody wants.
const NICENESS: i32 = 10;

type Errand = Box<dyn FnOnce(&mut Mirror) + Send>;

/// The copy, for whoever has something done with it. It goes when this is dropped.
pub struct Aside {
    errands: SyncSender<Errand>,
}

impl Aside {
    /// Makes an empty copy and starts its thread.
    pub fn start(limits: QueryLimits) -> std::io::Result<Aside> {
        let mut mirror = Mirror::new(limits).map_err(std::io::Error::other)?;
        let (errands, received) = sync_channel::<Errand>(1);
        let thread = std::thread::Builder::new().name("spindle-sqlite".to_owned());
        thread.spawn(move || {
            if let Err(error) = setpriority_process(Some(gettid()), NICENESS) {
                tracing::warn!("jobq: queries run at the priority of all else: {error}");
            }
            for errand in received {
                errand(&mut mirror);
            }
        })?;
        Ok(Aside { errands })
    }

    /// Has something done with the copy, and waits for it. None: the thread has ended.
    pub fn run<T: Send + 'static>(
        &self,
        errand: impl FnOnce(&mut Mirror) -> T + Send + 'static,
    ) -> Option<T> {
        let (done, doing) = sync_channel(1);
        let errand = move |mirror: &mut Mirror| {
            // Who asked waits for it.
            let _ = done.send(errand(mirror));
        };
        self.errands.send(Box::new(errand)).ok()?;
        doing.recv().ok()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rustix::process::getpriority_process;

    use super::*;

    #[test]
    fn the_copy_is_kept_at_low_priority_and_nothing_else_is() {
        let limits = QueryLimits { time: Duration::from_secs(1), answer_bytes_max: 1 };
        let before = getpriority_process(Some(gettid())).expect("this thread is there");
        let aside = Aside::start(limits).expect("the thread starts");
        let niceness = aside.run(|_| getpriority_process(Some(gettid())));
        assert_eq!(niceness, Some(Ok(NICENESS.max(before))));
        assert_eq!(getpriority_process(Some(gettid())), Ok(before));
    }
}
