//! Out of file descriptors. Alone in its process, because it lowers the process's limit.

#[expect(dead_code, reason = "each test file uses a part of it")]
mod common;

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use common::{one_reactor, serve};
use nix::sys::resource::{Resource, getrlimit, setrlimit};

#[test]
fn without_descriptors_open_connections_are_served_and_new_ones_wait() {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let served = serve(one_reactor());
    let mut first = served.client();
    first.asks("echo a", "a");
    // The next client gets the last descriptor there is; its other end finds none.
    let last = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let limit = last.as_raw_fd() as u64 + 1;
    drop(last);
    setrlimit(Resource::RLIMIT_NOFILE, limit, hard).unwrap();
    let mut second = served.client();
    second.send("echo b\n");
    for _ in 0..1000 {
        first.asks("echo c", "c");
    }
    assert!(second.has_nothing_to_read());
    assert_eq!(served.handle.counters().accepted.load(Ordering::Relaxed), 1);
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    assert_eq!(second.line(), "b");
}
