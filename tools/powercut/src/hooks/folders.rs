//! Calls that open, name and unname files.

use super::*;

/// Opens and, when the file lies below the visible folder, notes that it is there.
fn open_noted(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments, passed on.
    let fd = unsafe { libc::syscall(libc::SYS_openat, dir, path, flags, mode) } as c_int;
    if fd < 0 || flags & libc::O_PATH != 0 {
        return fd;
    }
    let Some(entered) = enter() else { return fd };
    let Some(inside) = entered.path_of(fd) else { return fd };
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        give_up("open with O_TMPFILE", "not modelled below the watched folder");
    }
    let mut shadow = entered.shadow();
    let Some(stat) = stat_of(fd) else { return fd };
    // A file without a name was unlinked between the open and here.
    if stat.st_mode & libc::S_IFMT != libc::S_IFREG || stat.st_nlink == 0 {
        return fd;
    }
    let key = FileKey { dev: stat.st_dev, ino: stat.st_ino };
    let visible = || File::open(format!("/proc/self/fd/{fd}"));
    must("noting an open", shadow.opened(key, &inside, visible));
    if flags & libc::O_TRUNC != 0 {
        shadow.resized(key, 0);
    }
    fd
}

#[unsafe(no_mangle)]
unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    open_noted(libc::AT_FDCWD, path, flags, mode)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    open_noted(libc::AT_FDCWD, path, flags, mode)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    open_noted(dir, path, flags, mode)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn openat64(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    open_noted(dir, path, flags, mode)
}

const CREATE: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

#[unsafe(no_mangle)]
unsafe extern "C" fn creat(path: *const c_char, mode: mode_t) -> c_int {
    open_noted(libc::AT_FDCWD, path, CREATE, mode)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn creat64(path: *const c_char, mode: mode_t) -> c_int {
    open_noted(libc::AT_FDCWD, path, CREATE, mode)
}

/// The real rename and its note, in one hold of the shadow: no other thread may reuse the inode
/// number of the file that was replaced before the shadow has let go of it.
fn rename_noted(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    // SAFETY: the caller's arguments, passed on.
    let real = || unsafe {
        libc::syscall(libc::SYS_renameat2, from_dir, from, to_dir, to, flags) as c_int
    };
    let Some(entered) = enter() else { return real() };
    let (old, new) = match (entered.path_at(from_dir, from), entered.path_at(to_dir, to)) {
        (None, None) => {
            drop(entered);
            return real();
        }
        (Some(old), Some(new)) if flags & !libc::RENAME_NOREPLACE == 0 => (old, new),
        _ => give_up("rename", "into, out of or exchanging below the watched folder"),
    };
    let mut shadow = entered.shadow();
    let (moved, replaced) = (entered.key_at(&old), entered.key_at(&new));
    let outcome = real();
    if outcome != 0 {
        return outcome;
    }
    if moved.is_none() {
        give_up("rename", "of a directory below the watched folder");
    }
    if let Some(key) = replaced.filter(|key| Some(*key) != moved) {
        shadow.nameless(key);
    }
    if old != new {
        shadow.changed(Entry::Rename { from: old, to: new });
    }
    outcome
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rename(from: *const c_char, to: *const c_char) -> c_int {
    rename_noted(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn renameat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
) -> c_int {
    rename_noted(from_dir, from, to_dir, to, 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn renameat2(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    rename_noted(from_dir, from, to_dir, to, flags)
}

fn unlink_noted(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the caller's arguments, passed on.
    let real = || unsafe { libc::syscall(libc::SYS_unlinkat, dir, path, flags) as c_int };
    let Some(entered) = enter() else { return real() };
    let Some(inside) = entered.path_at(dir, path) else {
        drop(entered);
        return real();
    };
    let mut shadow = entered.shadow();
    let key = entered.key_at(&inside);
    let outcome = real();
    if outcome != 0 {
        return outcome;
    }
    if flags & libc::AT_REMOVEDIR != 0 {
        shadow.changed(Entry::RemoveDir { path: inside });
        return outcome;
    }
    if let Some(key) = key {
        shadow.nameless(key);
    }
    shadow.changed(Entry::Remove { path: inside });
    outcome
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlink(path: *const c_char) -> c_int {
    unlink_noted(libc::AT_FDCWD, path, 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    unlink_noted(dir, path, flags)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn rmdir(path: *const c_char) -> c_int {
    unlink_noted(libc::AT_FDCWD, path, libc::AT_REMOVEDIR)
}

fn mkdir_noted(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
    // SAFETY: the caller's arguments, passed on.
    let real = || unsafe { libc::syscall(libc::SYS_mkdirat, dir, path, mode) as c_int };
    let Some(entered) = enter() else { return real() };
    let Some(inside) = entered.path_at(dir, path) else {
        drop(entered);
        return real();
    };
    let mut shadow = entered.shadow();
    let outcome = real();
    if outcome == 0 {
        shadow.changed(Entry::CreateDir { path: inside });
    }
    outcome
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
    mkdir_noted(libc::AT_FDCWD, path, mode)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
    mkdir_noted(dir, path, mode)
}

fn link_refused(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    refuse_at(from_dir, from, "link");
    refuse_at(to_dir, to, "link");
    // SAFETY: the caller's arguments, passed on.
    unsafe { libc::syscall(libc::SYS_linkat, from_dir, from, to_dir, to, flags) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn link(from: *const c_char, to: *const c_char) -> c_int {
    link_refused(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn linkat(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_int,
) -> c_int {
    link_refused(from_dir, from, to_dir, to, flags)
}

fn symlink_refused(target: *const c_char, dir: c_int, path: *const c_char) -> c_int {
    refuse_at(dir, path, "symlink");
    // SAFETY: the caller's arguments, passed on.
    unsafe { libc::syscall(libc::SYS_symlinkat, target, dir, path) as c_int }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn symlink(target: *const c_char, path: *const c_char) -> c_int {
    symlink_refused(target, libc::AT_FDCWD, path)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn symlinkat(target: *const c_char, dir: c_int, path: *const c_char) -> c_int {
    symlink_refused(target, dir, path)
}
