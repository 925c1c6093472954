//! Calls that change or sync what is in a file.

use super::*;

/// Where a write went: at a given offset, or at the descriptor's own.
enum Place {
    At(off_t),
    Cursor,
}

/// Makes the real write and notes its range. The shadow stays locked meanwhile, so that no other
/// write of this process moves the offset between the write and the look at it.
fn write_noted(fd: c_int, place: Place, real: impl FnOnce() -> c_long) -> c_long {
    let Some(entered) = enter() else { return real() };
    let Some(key) = entered.watches(fd) else {
        drop(entered);
        return real();
    };
    let mut shadow = entered.shadow();
    let written = real();
    if written <= 0 {
        return written;
    }
    // SAFETY: both calls take numbers only.
    let (flags, cursor) = unsafe {
        let flags = libc::syscall(libc::SYS_fcntl, fd, libc::F_GETFL) as c_int;
        (flags, libc::syscall(libc::SYS_lseek, fd, 0, libc::SEEK_CUR))
    };
    let end = if flags & libc::O_APPEND != 0 {
        stat_of(fd).map_or(0, |stat| stat.st_size)
    } else {
        match place {
            Place::At(offset) => offset + written,
            Place::Cursor => cursor,
        }
    };
    must("noting a write", shadow.wrote(key, (end - written) as u64, end as u64));
    if flags & libc::O_DSYNC != 0 {
        must("syncing a written range", shadow.sync_file(key));
    }
    written
}

fn resize_noted(fd: c_int, real: impl FnOnce() -> c_long) -> c_long {
    let Some(entered) = enter() else { return real() };
    let Some(key) = entered.watches(fd) else {
        drop(entered);
        return real();
    };
    let mut shadow = entered.shadow();
    let outcome = real();
    if outcome == 0 {
        let len = stat_of(fd).map_or(0, |stat| stat.st_size);
        shadow.resized(key, len as u64);
    }
    outcome
}

#[unsafe(no_mangle)]
unsafe extern "C" fn write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t {
    // SAFETY: the caller's arguments, passed on.
    let real = || unsafe { libc::syscall(libc::SYS_write, fd, data, len) };
    write_noted(fd, Place::Cursor, real) as ssize_t
}

#[unsafe(no_mangle)]
unsafe extern "C" fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
    // SAFETY: the caller's arguments, passed on.
    let real = || unsafe { libc::syscall(libc::SYS_writev, fd, parts, count) };
    write_noted(fd, Place::Cursor, real) as ssize_t
}

fn pwrite_noted(fd: c_int, data: *const c_void, len: size_t, at: off_t) -> ssize_t {
    // SAFETY: the caller's arguments, passed on.
    let real = || unsafe { libc::syscall(libc::SYS_pwrite64, fd, data, len, at) };
    write_noted(fd, Place::At(at), real) as ssize_t
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite(fd: c_int, data: *const c_void, len: size_t, at: off_t) -> ssize_t {
    pwrite_noted(fd, data, len, at)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwrite64(fd: c_int, data: *const c_void, len: size_t, at: off_t) -> ssize_t {
    pwrite_noted(fd, data, len, at)
}

fn pwritev_noted(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t {
    // The system call takes the offset in two halves, the upper one unused on 64 bits.
    // SAFETY: the caller's arguments, passed on.
    let real = || unsafe { libc::syscall(libc::SYS_pwritev, fd, parts, count, at, 0) };
    write_noted(fd, Place::At(at), real) as ssize_t
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t {
    pwritev_noted(fd, parts, count, at)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev64(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t {
    pwritev_noted(fd, parts, count, at)
}

fn pwritev2_noted(fd: c_int, parts: *const iovec, count: c_int, at: off_t, how: c_int) -> ssize_t {
    refuse(fd, "pwritev2");
    // SAFETY: the caller's arguments, passed on.
    unsafe { libc::syscall(libc::SYS_pwritev2, fd, parts, count, at, 0, how) as ssize_t }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
    how: c_int,
) -> ssize_t {
    pwritev2_noted(fd, parts, count, at, how)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn pwritev64v2(
    fd: c_int,
    parts: *const iovec,
    count: c_int,
    at: off_t,
    how: c_int,
) -> ssize_t {
    pwritev2_noted(fd, parts, count, at, how)
}

fn ftruncate_noted(fd: c_int, len: off_t) -> c_int {
    // SAFETY: the call takes numbers only.
    resize_noted(fd, || unsafe { libc::syscall(libc::SYS_ftruncate, fd, len) }) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ftruncate(fd: c_int, len: off_t) -> c_int {
    ftruncate_noted(fd, len)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn ftruncate64(fd: c_int, len: off_t) -> c_int {
    ftruncate_noted(fd, len)
}

fn truncate_refused(path: *const c_char, len: off_t) -> c_int {
    refuse_at(libc::AT_FDCWD, path, "truncate by path");
    // SAFETY: the caller's arguments, passed on.
    unsafe { libc::syscall(libc::SYS_truncate, path, len) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn truncate(path: *const c_char, len: off_t) -> c_int {
    truncate_refused(path, len)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn truncate64(path: *const c_char, len: off_t) -> c_int {
    truncate_refused(path, len)
}

fn fallocate_noted(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
    if mode & !libc::FALLOC_FL_KEEP_SIZE != 0 {
        refuse(fd, "fallocate with a mode");
    }
    // SAFETY: the call takes numbers only.
    let real = || unsafe { libc::syscall(libc::SYS_fallocate, fd, mode, at, len) };
    resize_noted(fd, real) as c_int
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fallocate(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
    fallocate_noted(fd, mode, at, len)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fallocate64(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
    fallocate_noted(fd, mode, at, len)
}

/// This one returns its error instead of setting `errno`.
fn posix_fallocate_noted(fd: c_int, at: off_t, len: off_t) -> c_int {
    match fallocate_noted(fd, 0, at, len) {
        0 => 0,
        _ => io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_fallocate(fd: c_int, at: off_t, len: off_t) -> c_int {
    posix_fallocate_noted(fd, at, len)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn posix_fallocate64(fd: c_int, at: off_t, len: off_t) -> c_int {
    posix_fallocate_noted(fd, at, len)
}

/// Whether the disk is broken for this file: then what was written to it since its last sync is
/// lost.
fn sync_breaks(fd: c_int) -> bool {
    let Some(entered) = enter() else { return false };
    if !entered.is_broken() {
        return false;
    }
    let Some(key) = entered.watches(fd) else { return false };
    entered.shadow().lose_unsynced(key);
    true
}

/// The real sync comes first: when it fails, nothing became durable.
fn sync_noted(fd: c_int, call: c_long) -> c_int {
    if sync_breaks(fd) {
        // SAFETY: the location is this thread's own.
        unsafe { *libc::__errno_location() = libc::EIO };
        return -1;
    }
    // SAFETY: the call takes a number only.
    let outcome = unsafe { libc::syscall(call, fd) } as c_int;
    let Some(entered) = enter() else { return outcome };
    let Some(stat) = stat_of(fd) else { return outcome };
    if outcome != 0 {
        return outcome;
    }
    match stat.st_mode & libc::S_IFMT {
        libc::S_IFREG => {
            let key = FileKey { dev: stat.st_dev, ino: stat.st_ino };
            must("syncing a file", entered.shadow().sync_file(key));
        }
        libc::S_IFDIR => {
            if let Some(folder) = entered.path_of(fd) {
                must("syncing a directory", entered.shadow().sync_dir(&folder));
            }
        }
        _ => {}
    }
    outcome
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fsync(fd: c_int) -> c_int {
    sync_noted(fd, libc::SYS_fsync)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fdatasync(fd: c_int) -> c_int {
    sync_noted(fd, libc::SYS_fdatasync)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn syncfs(fd: c_int) -> c_int {
    // SAFETY: the call takes a number only.
    let outcome = unsafe { libc::syscall(libc::SYS_syncfs, fd) } as c_int;
    if outcome == 0 {
        settle();
    }
    outcome
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sync() {
    // SAFETY: the call takes nothing.
    unsafe { libc::syscall(libc::SYS_sync) };
    settle();
}

fn mmap_checked(
    at: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    if fd >= 0 && flags & libc::MAP_TYPE != libc::MAP_PRIVATE {
        refuse(fd, "mmap, shared");
    }
    // SAFETY: the caller's arguments, passed on.
    unsafe { libc::syscall(libc::SYS_mmap, at, len, protection, flags, fd, offset) as *mut c_void }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap(
    at: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    mmap_checked(at, len, protection, flags, fd, offset)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mmap64(
    at: *mut c_void,
    len: size_t,
    protection: c_int,
    flags: c_int,
    fd: c_int,
    offset: off_t,
) -> *mut c_void {
    mmap_checked(at, len, protection, flags, fd, offset)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn copy_file_range(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    refuse(to, "copy_file_range");
    // SAFETY: the caller's arguments, passed on.
    unsafe {
        libc::syscall(libc::SYS_copy_file_range, from, from_at, to, to_at, len, flags) as ssize_t
    }
}

fn sendfile_checked(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
    refuse(to, "sendfile");
    // SAFETY: the caller's arguments, passed on.
    unsafe { libc::syscall(libc::SYS_sendfile, to, from, at, len) as ssize_t }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
    sendfile_checked(to, from, at, len)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn sendfile64(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
    sendfile_checked(to, from, at, len)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn splice(
    from: c_int,
    from_at: *mut off_t,
    to: c_int,
    to_at: *mut off_t,
    len: size_t,
    flags: c_uint,
) -> ssize_t {
    refuse(to, "splice");
    // SAFETY: the caller's arguments, passed on.
    unsafe { libc::syscall(libc::SYS_splice, from, from_at, to, to_at, len, flags) as ssize_t }
}
