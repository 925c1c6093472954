//! Calls that change or sync what is in a file.

use super::*;

/// Makes the real call, and notes what it did if it did not fail and the file is a watched one.
/// The shadow stays locked meanwhile, so that no other call of this process changes the file or its
/// offset between the call and the check.
fn noted(
    fd: c_int,
    real: impl FnOnce() -> c_long,
    note: impl FnOnce(&mut Shadow, FileKey, c_long),
) -> c_long {
    let Some(entered) = enter() else { return real() };
    let Some(key) = entered.watches(fd) else {
        drop(entered);
        return real();
    };
    let mut shadow = entered.shadow();
    let outcome = real();
    if outcome >= 0 {
        note(&mut shadow, key, outcome);
    }
    outcome
}

/// How many bytes the file has behind the offset, or behind the descriptor's own.
fn room(fd: c_int, offset: Option<off_t>) -> usize {
    let size = stat_of(fd).map_or(0, |stat| stat.st_size);
    let from = offset.unwrap_or_else(|| system_call!(libc::SYS_lseek, fd, 0, libc::SEEK_CUR));
    usize::try_from(size - from).unwrap_or_default()
}

/// How much of a write of `len` bytes the disk accepts: nothing, with an error, if the existing
/// bytes are not writable, or if there is no room for more.
fn taken(fd: c_int, offset: Option<off_t>, len: size_t) -> Result<size_t, c_int> {
    let Some(entered) = enter() else { return Ok(len) };
    if entered.watches(fd).is_none() {
        return Ok(len);
    }
    let troubles = entered.troubles();
    let taken = troubles.taken(len);
    if troubles.is_unwritable() && room(fd, offset) >= taken {
        entered.count(|counts| counts.failed_writes += 1);
        return Err(libc::EIO);
    }
    if troubles.is_full() && room(fd, offset) < taken {
        entered.count(|counts| counts.no_room += 1);
        return Err(libc::ENOSPC);
    }
    if taken < len {
        entered.count(|counts| counts.short_writes += 1);
    }
    Ok(taken)
}

/// Whether a full disk refuses to make a file this long.
fn is_too_long(fd: c_int, len: off_t) -> bool {
    let Some(entered) = enter() else { return false };
    let is_too_long = entered.watches(fd).is_some()
        && entered.troubles().is_full()
        && stat_of(fd).is_some_and(|stat| stat.st_size < len);
    if is_too_long {
        entered.count(|counts| counts.no_room += 1);
    }
    is_too_long
}

/// Notes a write at `offset`, or at the descriptor's own offset.
fn write_noted(fd: c_int, offset: Option<off_t>, real: impl FnOnce() -> c_long) -> ssize_t {
    let outcome = noted(fd, real, |shadow, key, written| {
        if written == 0 {
            return;
        }
        let flags = system_call!(libc::SYS_fcntl, fd, libc::F_GETFL) as c_int;
        let end = if flags & libc::O_APPEND != 0 {
            stat_of(fd).map_or(0, |stat| stat.st_size)
        } else {
            match offset {
                Some(offset) => offset + written,
                None => system_call!(libc::SYS_lseek, fd, 0, libc::SEEK_CUR),
            }
        };
        must("noting a write", shadow.wrote(key, (end - written) as u64, end as u64));
        if flags & libc::O_DSYNC != 0 {
            must("syncing a written range", shadow.sync_file(key));
        }
    });
    outcome as ssize_t
}

fn resize_noted(fd: c_int, real: impl FnOnce() -> c_long) -> c_int {
    let outcome = noted(fd, real, |shadow, key, _| {
        let len = stat_of(fd).map_or(0, |stat| stat.st_size);
        shadow.resized(key, len as u64);
    });
    outcome as c_int
}

fn fallocate_noted(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
    if mode & !libc::FALLOC_FL_KEEP_SIZE != 0 {
        refuse(fd, "fallocate with a mode");
    }
    // This applies with FALLOC_FL_KEEP_SIZE too, because the call still asks for room.
    if is_too_long(fd, at + len) {
        return fail(libc::ENOSPC);
    }
    resize_noted(fd, || system_call!(libc::SYS_fallocate, fd, mode, at, len))
}

/// Whether the disk is broken for this file. If so, the bytes written to it since its last sync are
/// lost.
fn sync_breaks(fd: c_int) -> bool {
    let Some(entered) = enter() else { return false };
    if !entered.troubles().is_broken() {
        return false;
    }
    let Some(key) = entered.watches(fd) else { return false };
    entered.shadow().lose_unsynced(key);
    entered.count(|counts| counts.failed_syncs += 1);
    true
}

/// The real sync comes first: when it fails, nothing became durable.
fn sync_noted(fd: c_int, call: c_long) -> c_int {
    if sync_breaks(fd) {
        return fail(libc::EIO);
    }
    let outcome = system_call!(call, fd) as c_int;
    let Some(entered) = enter() else { return outcome };
    let Some(stat) = stat_of(fd) else { return outcome };
    if outcome != 0 {
        return outcome;
    }
    if let Some(key) = key_of(&stat) {
        must("syncing a file", entered.shadow().sync_file(key));
    } else if stat.st_mode & libc::S_IFMT == libc::S_IFDIR
        && let Some(folder) = entered.path_of(fd)
    {
        must("syncing a directory", entered.shadow().sync_dir(&folder));
    }
    outcome
}

hooks! {
    fn write(fd: c_int, data: *const c_void, len: size_t) -> ssize_t {
        match taken(fd, None, len) {
            Ok(len) => write_noted(fd, None, || system_call!(libc::SYS_write, fd, data, len)),
            Err(error) => fail(error) as ssize_t,
        }
    }

    fn writev(fd: c_int, parts: *const iovec, count: c_int) -> ssize_t {
        write_noted(fd, None, || system_call!(libc::SYS_writev, fd, parts, count))
    }

    fn pwrite|pwrite64(fd: c_int, data: *const c_void, len: size_t, at: off_t) -> ssize_t {
        let real = |len: size_t| system_call!(libc::SYS_pwrite64, fd, data, len, at);
        match taken(fd, Some(at), len) {
            Ok(len) => write_noted(fd, Some(at), || real(len)),
            Err(error) => fail(error) as ssize_t,
        }
    }

    fn pwritev|pwritev64(fd: c_int, parts: *const iovec, count: c_int, at: off_t) -> ssize_t {
        // The system call takes the offset in two halves, the upper one unused on 64 bits.
        write_noted(fd, Some(at), || system_call!(libc::SYS_pwritev, fd, parts, count, at, 0))
    }

    fn pwritev2|pwritev64v2(
        fd: c_int,
        parts: *const iovec,
        count: c_int,
        at: off_t,
        how: c_int,
    ) -> ssize_t {
        refuse(fd, "pwritev2");
        system_call!(libc::SYS_pwritev2, fd, parts, count, at, 0, how) as ssize_t
    }

    fn ftruncate|ftruncate64(fd: c_int, len: off_t) -> c_int {
        if is_too_long(fd, len) {
            return fail(libc::ENOSPC);
        }
        resize_noted(fd, || system_call!(libc::SYS_ftruncate, fd, len))
    }

    fn truncate|truncate64(path: *const c_char, len: off_t) -> c_int {
        refuse_at(libc::AT_FDCWD, path, "truncate by path");
        system_call!(libc::SYS_truncate, path, len) as c_int
    }

    fn fallocate|fallocate64(fd: c_int, mode: c_int, at: off_t, len: off_t) -> c_int {
        fallocate_noted(fd, mode, at, len)
    }

    // These return their error instead of setting `errno`.
    fn posix_fallocate|posix_fallocate64(fd: c_int, at: off_t, len: off_t) -> c_int {
        match fallocate_noted(fd, 0, at, len) {
            0 => 0,
            _ => io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO),
        }
    }

    fn fsync(fd: c_int) -> c_int {
        sync_noted(fd, libc::SYS_fsync)
    }

    fn fdatasync(fd: c_int) -> c_int {
        sync_noted(fd, libc::SYS_fdatasync)
    }

    fn syncfs(fd: c_int) -> c_int {
        let outcome = system_call!(libc::SYS_syncfs, fd) as c_int;
        if outcome == 0 {
            settle();
        }
        outcome
    }

    fn sync() -> () {
        system_call!(libc::SYS_sync);
        settle();
    }

    fn mmap|mmap64(
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
        system_call!(libc::SYS_mmap, at, len, protection, flags, fd, offset) as *mut c_void
    }

    fn copy_file_range(
        from: c_int,
        from_at: *mut off_t,
        to: c_int,
        to_at: *mut off_t,
        len: size_t,
        flags: c_uint,
    ) -> ssize_t {
        refuse(to, "copy_file_range");
        system_call!(libc::SYS_copy_file_range, from, from_at, to, to_at, len, flags) as ssize_t
    }

    fn sendfile|sendfile64(to: c_int, from: c_int, at: *mut off_t, len: size_t) -> ssize_t {
        refuse(to, "sendfile");
        system_call!(libc::SYS_sendfile, to, from, at, len) as ssize_t
    }

    fn splice(
        from: c_int,
        from_at: *mut off_t,
        to: c_int,
        to_at: *mut off_t,
        len: size_t,
        flags: c_uint,
    ) -> ssize_t {
        refuse(to, "splice");
        system_call!(libc::SYS_splice, from, from_at, to, to_at, len, flags) as ssize_t
    }
}
