//! SIGTERM and SIGINT: the first asks for an orderly end, the second ends the process at once.
//! SIGHUP asks a server to read files anew. SIGXFSZ ends nothing.

use std::{io, process, thread};

use nix::sys::signal::{SigSet, Signal as Number};
use tokio::{
    runtime::Builder,
    select,
    signal::unix::{Signal, SignalKind, signal},
};

/// A signal that ends programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    /// Its name.
    pub name: &'static str,
    number: i32,
}

impl Ending {
    /// The ending that a test sends in place of a signal.
    #[cfg(test)]
    pub const OF_TEST: Ending = Ending { name: "a test", number: 15 };

    /// The ending for the other parts of a server when one part has failed.
    pub const OF_FAILURE: Ending = Ending { name: "a failure", number: 15 };

    /// The exit code of a process that it ended: 128 and its number.
    pub fn code(self) -> i32 {
        128 + self.number
    }
}

/// A write beyond the longest file that the process may have fails from now on, and is reported like any other. The
/// signal for it, SIGXFSZ, would end the process without a word. Called before there are other threads, which inherit
/// this.
pub fn let_long_files_fail() {
    // It fails for no signal that there is; without it, the process ends as it would have.
    let _ = SigSet::from(Number::SIGXFSZ).thread_block();
}

/// Watches for signals from now on. Calls `first` at the first one; at the second calls `second`
/// and ends the process with 128 and the signal's number, whatever else is under way.
pub fn watch(
    first: impl FnOnce(Ending) + Send + 'static,
    second: impl FnOnce(Ending) + Send + 'static,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let inside = runtime.enter();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    drop(inside);
    let body = move || {
        first(runtime.block_on(next(&mut terminate, &mut interrupt)));
        let ending = runtime.block_on(next(&mut terminate, &mut interrupt));
        second(ending);
        process::exit(ending.code());
    };
    thread::Builder::new().name("signals".to_owned()).spawn(body)?;
    Ok(())
}

/// Calls `call` at each SIGHUP from now on; otherwise SIGHUP would end the process.
pub fn on_hangup(mut call: impl FnMut() + Send + 'static) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_io().build()?;
    let mut hangup = {
        let _inside = runtime.enter();
        signal(SignalKind::hangup())?
    };
    let body = move || {
        while runtime.block_on(hangup.recv()).is_some() {
            call();
        }
    };
    thread::Builder::new().name("hangups".to_owned()).spawn(body)?;
    Ok(())
}

async fn next(terminate: &mut Signal, interrupt: &mut Signal) -> Ending {
    let ending = |name, kind: SignalKind| Ending { name, number: kind.as_raw_value() };
    select! {
        _ = terminate.recv() => ending("SIGTERM", SignalKind::terminate()),
        _ = interrupt.recv() => ending("SIGINT", SignalKind::interrupt()),
    }
}
