//! How and when the decisions of one serving thread's handlers are committed.
//!
//! It is as in a reactor of the TCP doors: the thread that owns the connections itself commits what they
//! decide, one cohort per commit ([`spindle_engine::cohort`] says when). Here a task of the thread's
//! runtime does it, [`CommitLoop::run`]. When it is awake it yields, so that everything else that is
//! ready goes first: by then all requests that the sockets had are served, and their decisions become
//! one record.
//!
//! Handlers reach the loop of their thread by [`CommitLoop::current`]. There is none on threads that
//! serve no connections, such as those of the blocking pool: there the engine's log thread commits.

use std::cell::RefCell;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use spindle_engine::cohort::{Cohort, Guest, Next};
use spindle_engine::{Committer, Delivery, Gate, Mailbox};
use tokio::sync::{Notify, oneshot};
use tokio::task::yield_now;

thread_local! {
    static CURRENT: RefCell<Option<Arc<CommitLoop>>> = const { RefCell::new(None) };
}

/// What the connections of one serving thread commit by.
#[derive(Debug, Default)]
pub(crate) struct CommitLoop {
    state: Mutex<State>,
    /// Wakes the loop. Notified only while it sleeps.
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    cohort: Cohort,
    /// Requests that have come so far.
    requests: u64,
    /// The engine was called, and the turn of that has not ended.
    has_called: bool,
    /// The durable position has moved, and the answers that this releases have not been looked for yet.
    has_moved: bool,
    /// Since when the loop sleeps; none while it is awake.
    asleep: Option<Instant>,
    /// The gates of answers that are held back, and how to wake the tasks that wait for them.
    gated: Vec<(Gate, oneshot::Sender<()>)>,
}

impl CommitLoop {
    /// The loop of this thread, if it serves connections.
    pub fn current() -> Option<Arc<CommitLoop>> {
        // None as well while the thread ends.
        CURRENT.try_with(|current| current.borrow().clone()).ok().flatten()
    }

    /// Makes this thread one whose handlers have their calls committed by this loop, as long as the
    /// guard lives.
    pub fn install(self: &Arc<Self>, committer: Arc<dyn Committer>) -> Installed {
        committer.attach(&(Arc::clone(self) as Arc<dyn Mailbox>));
        CURRENT.set(Some(Arc::clone(self)));
        Installed { committer }
    }

    /// The engine was called: what was decided goes to the log with the next commit.
    pub fn called(&self) {
        let mut state = self.state.lock();
        state.has_called = true;
        self.wake(&mut state);
    }

    /// Waits until the log may be durable up to a gate. The caller has to look at the durable position
    /// again before it awaits the returned future: a move before this call is not noticed.
    pub fn moved_to(&self, gate: Gate) -> impl Future<Output = ()> + use<> {
        let (opened, opens) = oneshot::channel();
        self.state.lock().gated.push((gate, opened));
        async {
            if opens.await.is_err() {
                // The thread ends, and this request with it.
                pending().await
            }
        }
    }

    /// A connection that shares the commits of this thread.
    pub fn member(self: &Arc<Self>) -> Member {
        Member { commit_loop: Arc::clone(self), guest: Mutex::default() }
    }

    /// Commits, one cohort at a time, for as long as the thread serves.
    pub async fn run(self: Arc<Self>, committer: Arc<dyn Committer>) -> Infallible {
        let mut has_work = false;
        loop {
            if self.let_go(&*committer) {
                // The answers leave before the cohort is asked: it may expect their clients back.
                yield_now().await;
            }
            if std::mem::take(&mut self.state.lock().has_called) {
                has_work = committer.end_turn();
            }
            let sync_time = committer.sync_time();
            let next = self.state.lock().cohort.next(has_work, sync_time);
            match next {
                Next::Look(_) => self.look().await,
                Next::Commit => {
                    committer.commit_if_quick();
                    has_work = false;
                }
                Next::Sleep => self.sleep().await,
            }
        }
    }

    /// If the durable position has moved, releases the answers whose gates are open. Returns whether it
    /// has moved.
    fn let_go(&self, committer: &dyn Committer) -> bool {
        if !std::mem::take(&mut self.state.lock().has_moved) {
            return false;
        }
        // Asked after the flag is cleared: a move from now on sets it again.
        let Some(durable) = committer.released() else { return false };
        let opened = {
            let mut state = self.state.lock();
            let gated = std::mem::take(&mut state.gated).into_iter();
            let (opened, shut): (Vec<_>, Vec<_>) = gated.partition(|(gate, _)| *gate <= durable);
            state.gated = shut;
            opened
        };
        for (_, waits) in opened {
            // The task that waited may be gone.
            let _ = waits.send(());
        }
        true
    }

    /// Lets all other tasks that are ready go on, and asks the sockets.
    async fn look(&self) {
        let (began, requests) = (Instant::now(), self.state.lock().requests);
        yield_now().await;
        let mut state = self.state.lock();
        if state.requests == requests {
            state.cohort.looked(began.elapsed());
        } else {
            state.cohort.served(began.elapsed());
        }
    }

    async fn sleep(&self) {
        {
            let mut state = self.state.lock();
            // Moved by another thread since this one has looked.
            if state.has_moved {
                return;
            }
            state.asleep = Some(Instant::now());
        }
        self.wake.notified().await;
    }

    fn wake(&self, state: &mut State) {
        if let Some(since) = state.asleep.take() {
            state.cohort.slept(since.elapsed());
            self.wake.notify_one();
        }
    }
}

impl Mailbox for CommitLoop {
    fn deliver(&self, _: Delivery) {
        // No caller names this mailbox: requests wait at that of their door.
    }

    fn durable_moved(&self) {
        let mut state = self.state.lock();
        state.has_moved = true;
        self.wake(&mut state);
    }
}

/// This thread has a loop. When this is dropped, decisions made before are committed, if need be by the
/// log thread; later decisions are committed elsewhere.
#[must_use = "without it the loop hears of no call"]
pub(crate) struct Installed {
    committer: Arc<dyn Committer>,
}

impl Drop for Installed {
    fn drop(&mut self) {
        CURRENT.take();
        if self.committer.end_turn() {
            self.committer.commit_if_quick();
        }
    }
}

/// A connection among those that share the commits of their thread.
#[derive(Debug)]
pub(crate) struct Member {
    commit_loop: Arc<CommitLoop>,
    guest: Mutex<Guest>,
}

impl Member {
    /// The head of a request has come.
    pub fn asks(&self) {
        let mut state = self.commit_loop.state.lock();
        self.commit_loop.wake(&mut state);
        state.requests += 1;
        state.cohort.asks(&mut self.guest.lock());
    }

    /// Waits until an answer that has been made may leave: numbers for people have no gate, but of a shared log
    /// only the leader may give them.
    pub async fn may_answer(&self, committer: &dyn Committer) {
        while committer.released().is_none() {
            let moved = self.commit_loop.moved_to(Gate::OPEN);
            if committer.released().is_some() {
                return;
            }
            moved.await;
        }
    }

    /// It has its answer.
    pub fn answered(&self) {
        self.commit_loop.state.lock().cohort.answered(&mut self.guest.lock());
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.commit_loop.state.lock().cohort.leaves(&mut self.guest.lock());
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use std::time::Duration;

    use futures_util::FutureExt;

    use super::*;

    /// An engine that notes what it is asked to commit.
    #[derive(Default)]
    struct Recorder {
        mailbox: Mutex<Option<Arc<dyn Mailbox>>>,
        decided: AtomicBool,
        durable: AtomicU64,
    }

    impl Recorder {
        fn move_to(&self, durable: u64) {
            self.durable.store(durable, Ordering::SeqCst);
            let mailbox = self.mailbox.lock().clone();
            mailbox.unwrap().durable_moved();
        }
    }

    impl Committer for Recorder {
        fn attach(&self, mailbox: &Arc<dyn Mailbox>) {
            *self.mailbox.lock() = Some(Arc::clone(mailbox));
        }

        fn durable(&self) -> Gate {
            Gate(self.durable.load(Ordering::SeqCst))
        }

        fn end_turn(&self) -> bool {
            self.decided.swap(false, Ordering::SeqCst)
        }

        fn commit(&self) {
            self.move_to(self.durable().0 + 1);
        }

        fn commit_if_quick(&self) {
            self.commit();
        }

        fn sync_time(&self) -> Duration {
            Duration::ZERO
        }
    }

    /// A loop at work on this test's thread.
    fn started() -> (Arc<Recorder>, Arc<CommitLoop>, Installed) {
        let (recorder, commit_loop) = (Arc::<Recorder>::default(), Arc::<CommitLoop>::default());
        let installed = commit_loop.install(Arc::clone(&recorder) as Arc<dyn Committer>);
        tokio::spawn(Arc::clone(&commit_loop).run(Arc::clone(&recorder) as Arc<dyn Committer>));
        (recorder, commit_loop, installed)
    }

    /// A handler decides something.
    fn decide(recorder: &Recorder) {
        recorder.decided.store(true, Ordering::SeqCst);
        CommitLoop::current().unwrap().called();
    }

    async fn pass() {
        for _ in 0..10 {
            yield_now().await;
        }
    }

    #[tokio::test]
    async fn what_is_decided_before_the_loop_goes_on_is_one_commit() {
        let (recorder, commit_loop, _installed) = started();
        pass().await;
        assert_eq!(recorder.durable(), Gate(0), "nothing is decided");
        let members = [commit_loop.member(), commit_loop.member()];
        for member in &members {
            member.asks();
            decide(&recorder);
        }
        assert_eq!(recorder.durable(), Gate(0));
        commit_loop.moved_to(Gate(1)).await;
        assert_eq!(recorder.durable(), Gate(1));
        members.iter().for_each(Member::answered);
        pass().await;
        assert_eq!(recorder.durable(), Gate(1));
        decide(&recorder);
        commit_loop.moved_to(Gate(2)).await;
    }

    #[tokio::test]
    async fn an_answer_goes_when_its_gate_opens_whoever_commits() {
        let (recorder, commit_loop, _installed) = started();
        pass().await;
        let (first, second) = (commit_loop.moved_to(Gate(1)), commit_loop.moved_to(Gate(3)));
        drop(commit_loop.moved_to(Gate(2)));
        let elsewhere = Arc::clone(&recorder);
        std::thread::spawn(move || elsewhere.move_to(2)).join().unwrap();
        first.await;
        let mut second = Box::pin(second);
        assert!(second.as_mut().now_or_never().is_none());
        recorder.move_to(3);
        second.await;
        assert!(commit_loop.state.lock().gated.is_empty());
    }

    #[tokio::test]
    async fn a_thread_that_ends_commits_what_is_left_and_has_no_loop_then() {
        let (recorder, _, installed) = started();
        decide(&recorder);
        drop(installed);
        assert_eq!(recorder.durable(), Gate(1));
        assert!(CommitLoop::current().is_none());
    }
}
