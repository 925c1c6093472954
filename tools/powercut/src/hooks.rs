//! The libc calls that this library stands in front of.
//!
//! Each of them makes the real system call and then notes in the [`Shadow`] what happened. The real
//! call is made directly (`syscall`), not through the next library's symbol: nothing has to be
//! looked up, and these calls can never end up in the library's own hooks. Where its other file
//! work does (the standard library calls libc too), `INSIDE` lets the call pass.
#![expect(unsafe_code, reason = "stands in for libc's functions, which take raw pointers")]

use std::cell::Cell;
use std::ffi::{CStr, OsStr, c_char, c_int, c_long, c_uint, c_void};
use std::fmt::Display;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::{env, io, mem};

use libc::{iovec, mode_t, off_t, size_t, ssize_t};

use crate::shadow::{Counts, FileKey, Shadow};
use crate::tree::Entry;
use crate::troubles::Troubles;

/// Makes the system call itself: libc's function of that name is in this library.
///
/// The arguments are numbers, and pointers that the hook's own caller passed: the call requires of
/// them just what libc's function requires of that caller.
macro_rules! system_call {
    ($($argument:expr),+ $(,)?) => {
        // SAFETY: see above.
        unsafe { libc::syscall($($argument),+) }
    };
}

/// Defines libc's functions. `pwrite|pwrite64` are two names for the same function: on 64 bits they
/// do not differ.
macro_rules! hooks {
    ($(fn $($name:ident)|+ ($($arguments:tt)*) -> $outcome:ty $body:block)+) => {
        $(hooks!(@each $($name)|+; ($($arguments)*) $outcome $body);)+
    };
    (@each $($name:ident)|+; $arguments:tt $outcome:ty $body:block) => {
        $(hooks!(@one $name $arguments $outcome $body);)+
    };
    (@one $name:ident ($($argument:ident: $kind:ty),* $(,)?) $outcome:ty $body:block) => {
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name($($argument: $kind),*) -> $outcome $body
    };
}

mod clock;
mod descriptors;
mod files;
mod folders;

struct Watch {
    visible: PathBuf,
    shadow: Mutex<Shadow>,
    troubles: Troubles,
}

static WATCH: OnceLock<Watch> = OnceLock::new();

thread_local! {
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The way into the shadow; while it lives, this thread's calls pass the hooks untouched.
struct Entered(&'static Watch);

impl Drop for Entered {
    fn drop(&mut self) {
        INSIDE.set(false);
    }
}

fn enter() -> Option<Entered> {
    let watch = WATCH.get()?;
    if INSIDE.replace(true) { None } else { Some(Entered(watch)) }
}

impl Entered {
    fn shadow(&self) -> MutexGuard<'static, Shadow> {
        self.0.shadow.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The path below the visible folder that this descriptor was opened by.
    fn path_of(&self, fd: c_int) -> Option<PathBuf> {
        let path = fs::read_link(format!("/proc/self/fd/{fd}")).ok()?;
        Some(path.strip_prefix(&self.0.visible).ok()?.to_path_buf())
    }

    /// The path below the visible folder that a call's arguments name, its last part not followed.
    fn path_at(&self, dir: c_int, path: *const c_char) -> Option<PathBuf> {
        if path.is_null() {
            return None;
        }
        // SAFETY: the caller passes a string that ends in NUL, as the call it made demands.
        let bytes = unsafe { CStr::from_ptr(path) }.to_bytes();
        let given = Path::new(OsStr::from_bytes(bytes));
        let base = match dir {
            _ if given.is_absolute() => PathBuf::new(),
            libc::AT_FDCWD => env::current_dir().ok()?,
            fd => fs::read_link(format!("/proc/self/fd/{fd}")).ok()?,
        };
        let full = base.join(given);
        let parent = fs::canonicalize(full.parent()?).ok()?;
        let inside = parent.strip_prefix(&self.0.visible).ok()?;
        Some(inside.join(full.file_name()?))
    }

    /// Which file a path below the visible folder names now.
    fn key_at(&self, inside: &Path) -> Option<FileKey> {
        use std::os::unix::fs::MetadataExt;
        let meta = fs::symlink_metadata(self.0.visible.join(inside)).ok()?;
        meta.is_file().then(|| FileKey { dev: meta.dev(), ino: meta.ino() })
    }

    fn troubles(&self) -> &'static Troubles {
        &self.0.troubles
    }

    fn count(&self, happened: impl FnOnce(&mut Counts)) {
        must("counting", self.shadow().count(happened));
    }

    fn watches(&self, fd: c_int) -> Option<FileKey> {
        let key = key_of(&stat_of(fd)?)?;
        self.shadow().knows(key).then_some(key)
    }
}

/// Which regular file it is.
fn key_of(stat: &libc::stat) -> Option<FileKey> {
    let is_file = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
    is_file.then_some(FileKey { dev: stat.st_dev, ino: stat.st_ino })
}

fn stat_of(fd: c_int) -> Option<libc::stat> {
    // SAFETY: `stat` is plain data; zeroes are a value of it, and the call fills it in.
    unsafe {
        let mut stat: libc::stat = mem::zeroed();
        (libc::syscall(libc::SYS_fstat, fd, &raw mut stat) == 0).then_some(stat)
    }
}

/// Ends the process: otherwise the test would not prove what it claims.
fn give_up(what: &str, why: impl Display) -> ! {
    let text = format!("powercut: {what}: {why}\n");
    // SAFETY: the buffer lives and has that length; abort takes nothing.
    unsafe {
        libc::syscall(libc::SYS_write, 2, text.as_ptr(), text.len());
        libc::abort()
    }
}

fn must<T>(what: &str, outcome: io::Result<T>) -> T {
    outcome.unwrap_or_else(|e| give_up(what, e))
}

/// Fails a call with this error.
fn fail(error: c_int) -> c_int {
    // SAFETY: the location is this thread's own.
    unsafe { *libc::__errno_location() = error };
    -1
}

/// Refuses a call that would change a watched file in a way the shadow can't follow.
fn refuse(fd: c_int, what: &str) {
    let Some(entered) = enter() else { return };
    if entered.watches(fd).is_some() {
        give_up(what, "not modelled for a watched file");
    }
}

fn refuse_at(dir: c_int, path: *const c_char, what: &str) {
    let Some(entered) = enter() else { return };
    if entered.path_at(dir, path).is_some() {
        give_up(what, "not modelled below the watched folder");
    }
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

extern "C" fn start() {
    let Some(visible) = env::var_os("SPINDLE_POWERCUT_DIR") else { return };
    let visible = must("SPINDLE_POWERCUT_DIR", fs::canonicalize(visible));
    let Some(store) = env::var_os("SPINDLE_POWERCUT_SHADOW") else {
        give_up("SPINDLE_POWERCUT_SHADOW", "not set");
    };
    // A child process must not start over with the same shadow.
    // SAFETY: runs before main, with one thread.
    unsafe { libc::unsetenv(c"LD_PRELOAD".as_ptr()) };
    let mut shadow = must("making the shadow", Shadow::create(&visible, Path::new(&store)));
    if let Some(report) = env::var_os("SPINDLE_POWERCUT_REPORT") {
        must("making the report", shadow.report_to(Path::new(&report)));
    }
    if let Some(seed) = env::var_os("SPINDLE_POWERCUT_LEAK") {
        match seed.to_str().and_then(|s| s.parse().ok()) {
            Some(seed) => shadow.leak(seed),
            None => give_up("SPINDLE_POWERCUT_LEAK", "not a number"),
        }
    }
    if env::var_os("SPINDLE_POWERCUT_SETTLE").is_some() {
        // SAFETY: `settle` is a function without arguments that lives as long as the process.
        unsafe { libc::atexit(settle) };
    }
    let troubles = Troubles::from_environment().unwrap_or_else(|what| give_up(what, "no number"));
    let watch = Watch { visible, shadow: Mutex::new(shadow), troubles };
    if WATCH.set(watch).is_err() {
        give_up("start", "ran twice");
    }
}

extern "C" fn settle() {
    if let Some(entered) = enter() {
        must("settling at exit", entered.shadow().sync_all());
    }
}
