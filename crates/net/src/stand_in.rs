//! Who serves while the reactor commits.
//!
//! A reactor commits in its own thread: waking another thread for it, and being woken by it, would take
//! a good part of the time of a sync. But a client that asks for something that needs no disk must not
//! wait for one. So a reactor has a second thread, its stand-in, which takes over while the first
//! commits.
//!
//! It is woken only if there is something to do. It sleeps on a [`Watch`], an epoll set whose one
//! member is the poll of the reactor's sockets; the watch is on during commits only. When all
//! clients wait for that commit, as they do when they are answered together, no client sends anything
//! meanwhile, and the stand-in costs two system calls per commit.

use std::io;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::Registry;
use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use parking_lot::{Mutex, MutexGuard};

use crate::reactor::{Reactor, Step};

/// A reactor and the two threads that take turns at it.
pub(crate) struct Shift {
    reactor: Mutex<Reactor>,
    watch: Watch,
    /// The first thread is committing: the stand-in may take turns.
    is_committing: AtomicBool,
    over: AtomicBool,
}

impl Shift {
    pub(crate) fn new(reactor: Reactor) -> io::Result<Shift> {
        let watch = Watch::new(reactor.registry())?;
        Ok(Shift {
            reactor: Mutex::new(reactor),
            watch,
            is_committing: AtomicBool::new(false),
            over: AtomicBool::new(false),
        })
    }

    /// The reactor's thread: serves and commits until everything is shut down.
    pub(crate) fn serve(&self) {
        let _end = End(self);
        let mut reactor = self.reactor.lock();
        loop {
            match reactor.step() {
                Step::Served => {}
                Step::Commit => {
                    let committer = reactor.leave_for_commit();
                    self.is_committing.store(true, Ordering::Relaxed);
                    self.watch.set(true);
                    MutexGuard::unlocked(&mut reactor, || {
                        committer.commit();
                        // Before this thread asks for the lock, so that the stand-in releases it.
                        self.is_committing.store(false, Ordering::Relaxed);
                    });
                    self.watch.set(false);
                }
                Step::Over => return,
            }
        }
    }

    /// The stand-in's thread.
    pub(crate) fn stand_in(&self) {
        loop {
            self.watch.wait();
            if self.over.load(Ordering::Relaxed) {
                return;
            }
            while self.is_committing.load(Ordering::Relaxed) {
                let mut reactor = self.reactor.lock();
                if self.is_committing.load(Ordering::Relaxed) && !reactor.serve_what_came() {
                    self.watch.set(true);
                    break;
                }
            }
        }
    }
}

/// However the reactor's thread ends, its stand-in ends too.
struct End<'a>(&'a Shift);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.over.store(true, Ordering::Relaxed);
        self.0.reactor.lock().close();
        self.0.watch.set(true);
    }
}

/// Tells when a poll has an event, of its sockets or of its waker.
struct Watch {
    epoll: Epoll,
    /// The poll it watches: a second handle, so that it needs no lock.
    watched: Registry,
}

impl Watch {
    fn new(registry: &Registry) -> io::Result<Watch> {
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?;
        let watched = registry.try_clone()?;
        epoll.add(watched.as_fd(), EpollEvent::new(EpollFlags::EPOLLONESHOT, 0))?;
        Ok(Watch { epoll, watched })
    }

    /// When on, the next event, or one that is there already, ends one wait.
    fn set(&self, on: bool) {
        let what = if on { EpollFlags::EPOLLIN } else { EpollFlags::empty() };
        let mut event = EpollEvent::new(EpollFlags::EPOLLONESHOT | what, 0);
        if let Err(error) = self.epoll.modify(self.watched.as_fd(), &mut event) {
            tracing::warn!(%error, "cannot serve during commits");
        }
    }

    fn wait(&self) {
        // The caller finds out itself why the wait has ended.
        let _ = self.epoll.wait(&mut [EpollEvent::empty()], EpollTimeout::NONE);
    }
}
