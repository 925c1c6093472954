//! Calls that open, name and unname files.

use super::*;

/// Opens and, when the file lies below the visible folder, notes that it is there.
fn open_noted(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    if descriptors::is_refused() {
        return fail(libc::EMFILE);
    }
    if flags & libc::O_CREAT != 0 && has_no_room(dir, path) {
        return fail(libc::ENOSPC);
    }
    let fd = system_call!(libc::SYS_openat, dir, path, flags, mode) as c_int;
    if fd < 0 || flags & libc::O_PATH != 0 {
        return fd;
    }
    let Some(entered) = enter() else { return fd };
    let Some(inside) = entered.path_of(fd) else { return fd };
    if flags & libc::O_TMPFILE == libc::O_TMPFILE {
        give_up("open with O_TMPFILE", "not modelled below the watched folder");
    }
    let mut shadow = entered.shadow();
    // A file without a name was unlinked between the open and here.
    let Some(stat) = stat_of(fd).filter(|stat| stat.st_nlink > 0) else { return fd };
    let Some(key) = key_of(&stat) else { return fd };
    let visible = || File::open(format!("/proc/self/fd/{fd}"));
    must("noting an open", shadow.opened(key, &inside, visible));
    if flags & libc::O_TRUNC != 0 {
        shadow.resized(key, 0);
    }
    fd
}

/// Whether this would be a new file on a full disk.
fn has_no_room(dir: c_int, path: *const c_char) -> bool {
    let Some(entered) = enter() else { return false };
    let has_none = entered.troubles().is_full()
        && entered.path_at(dir, path).is_some_and(|inside| entered.key_at(&inside).is_none());
    if has_none {
        entered.count(|counts| counts.no_room += 1);
    }
    has_none
}

const CREATE: c_int = libc::O_CREAT | libc::O_WRONLY | libc::O_TRUNC;

/// The real rename and its note, in one hold of the shadow: no other thread may reuse the inode
/// number of the file that was replaced before the shadow has let go of it.
fn rename_noted(
    from_dir: c_int,
    from: *const c_char,
    to_dir: c_int,
    to: *const c_char,
    flags: c_uint,
) -> c_int {
    let real = || system_call!(libc::SYS_renameat2, from_dir, from, to_dir, to, flags) as c_int;
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

/// Makes the real call and, when it succeeds below the visible folder, notes what it did to the
/// path; `note` also gets the file that the path named before.
fn noted(
    dir: c_int,
    path: *const c_char,
    real: impl FnOnce() -> c_long,
    note: impl FnOnce(&mut Shadow, PathBuf, Option<FileKey>),
) -> c_int {
    let Some(entered) = enter() else { return real() as c_int };
    let Some(inside) = entered.path_at(dir, path) else {
        drop(entered);
        return real() as c_int;
    };
    let mut shadow = entered.shadow();
    let named = entered.key_at(&inside);
    let outcome = real();
    if outcome == 0 {
        note(&mut shadow, inside, named);
    }
    outcome as c_int
}

fn unlink_noted(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    let real = || system_call!(libc::SYS_unlinkat, dir, path, flags);
    noted(dir, path, real, |shadow, path, named| {
        if flags & libc::AT_REMOVEDIR != 0 {
            return shadow.changed(Entry::RemoveDir { path });
        }
        if let Some(key) = named {
            shadow.nameless(key);
        }
        shadow.changed(Entry::Remove { path });
    })
}

fn mkdir_noted(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
    let real = || system_call!(libc::SYS_mkdirat, dir, path, mode);
    noted(dir, path, real, |shadow, path, _| shadow.changed(Entry::CreateDir { path }))
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
    system_call!(libc::SYS_linkat, from_dir, from, to_dir, to, flags) as c_int
}

fn symlink_refused(target: *const c_char, dir: c_int, path: *const c_char) -> c_int {
    refuse_at(dir, path, "symlink");
    system_call!(libc::SYS_symlinkat, target, dir, path) as c_int
}

hooks! {
    fn open|open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_noted(libc::AT_FDCWD, path, flags, mode)
    }

    fn openat|openat64(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
        open_noted(dir, path, flags, mode)
    }

    fn creat|creat64(path: *const c_char, mode: mode_t) -> c_int {
        open_noted(libc::AT_FDCWD, path, CREATE, mode)
    }

    fn rename(from: *const c_char, to: *const c_char) -> c_int {
        rename_noted(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0)
    }

    fn renameat(
        from_dir: c_int,
        from: *const c_char,
        to_dir: c_int,
        to: *const c_char,
    ) -> c_int {
        rename_noted(from_dir, from, to_dir, to, 0)
    }

    fn renameat2(
        from_dir: c_int,
        from: *const c_char,
        to_dir: c_int,
        to: *const c_char,
        flags: c_uint,
    ) -> c_int {
        rename_noted(from_dir, from, to_dir, to, flags)
    }

    fn unlink(path: *const c_char) -> c_int {
        unlink_noted(libc::AT_FDCWD, path, 0)
    }

    fn unlinkat(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
        unlink_noted(dir, path, flags)
    }

    fn rmdir(path: *const c_char) -> c_int {
        unlink_noted(libc::AT_FDCWD, path, libc::AT_REMOVEDIR)
    }

    fn mkdir(path: *const c_char, mode: mode_t) -> c_int {
        mkdir_noted(libc::AT_FDCWD, path, mode)
    }

    fn mkdirat(dir: c_int, path: *const c_char, mode: mode_t) -> c_int {
        mkdir_noted(dir, path, mode)
    }

    fn link(from: *const c_char, to: *const c_char) -> c_int {
        link_refused(libc::AT_FDCWD, from, libc::AT_FDCWD, to, 0)
    }

    fn linkat(
        from_dir: c_int,
        from: *const c_char,
        to_dir: c_int,
        to: *const c_char,
        flags: c_int,
    ) -> c_int {
        link_refused(from_dir, from, to_dir, to, flags)
    }

    fn symlink(target: *const c_char, path: *const c_char) -> c_int {
        symlink_refused(target, libc::AT_FDCWD, path)
    }

    fn symlinkat(target: *const c_char, dir: c_int, path: *const c_char) -> c_int {
        symlink_refused(target, dir, path)
    }
}
