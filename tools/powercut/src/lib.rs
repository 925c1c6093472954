//! A power cut for a process that is killed.
//!
//! SIGKILL alone does not test durability: what a killed process wrote is still in the kernel's
//! page cache, so a server that never syncs survives every kill. This library is preloaded into the
//! server (`LD_PRELOAD`), watches the calls that change files below one folder, and keeps beside
//! that folder a second one, the *shadow*, which holds what a disk would hold if the power failed
//! right now. After the kill the test discards the visible folder and continues with the shadow.
//!
//! ```text
//!                  write, rename, unlink           visible folder (what the process sees)
//!   the server --------------------------------->  data/00001.log   data/lock
//!        |
//!        | fsync, fdatasync of a file              shadow
//!        +------ dirty ranges ------------------>  inodes/7          (bytes and size, synced)
//!        | fsync of a directory                       ^ hard link
//!        +------ creates, renames, unlinks ----->  tree/00001.log    (names, synced)
//! ```
//!
//! # The model
//!
//! - A file is a *shadow inode*: one file below `inodes/`, found by device and inode number of the
//!   visible file. Writes only note which range became dirty; a sync of the file copies the dirty
//!   ranges and the size from the visible file into it. Nothing else ever does (see *leaks*).
//! - A directory entry is a hard link below `tree/` to a shadow inode. Creates, renames and unlinks
//!   wait in a list, in order, until the directory they happened in is synced. A rename from one
//!   directory to another comes with the sync of either, as on a journalling file system.
//! - So a file may be synced while its name is not: then it is not there after the cut. A file may
//!   be unlinked while the directory is not synced: then it is there again. If a directory was
//!   never synced into its parent, everything below it is lost too.
//! - `O_DSYNC` and `O_SYNC` descriptors sync after each write; `sync_file_range` syncs nothing.
//! - Reads need no help: the visible folder is real.
//!
//! A kill is legal at any moment. The shadow gets its name once it is complete, before the process
//! does anything: while there is no shadow, the visible folder is still unchanged. After that,
//! every step on the shadow is one system call that is atomic by itself (link, rename, unlink) or
//! changes only bytes whose sync has not returned yet, and a disk may have kept any part of those.
//!
//! # Leaks
//!
//! A real disk may also keep bytes that nobody synced, in any order. With `SPINDLE_POWERCUT_LEAK`
//! set to a number (the seed), a part of some unsynced writes reaches the shadow at once, in whole
//! sectors, within the size that is already durable.
//!
//! # Settings
//!
//! | environment | meaning |
//! |---|---|
//! | `SPINDLE_POWERCUT_DIR` | the visible folder; it must exist |
//! | `SPINDLE_POWERCUT_SHADOW` | the shadow; made anew at start, there once complete |
//! | `SPINDLE_POWERCUT_REPORT` | optional: a file of counts, fresh after each sync and each trouble |
//! | `SPINDLE_POWERCUT_LEAK` | optional: seed of the leaks |
//! | `SPINDLE_POWERCUT_SETTLE` | optional: at a regular exit everything counts as synced |
//! | `SPINDLE_POWERCUT_BROKEN` | optional: while a file of this name is there, syncs of files fail with EIO |
//! | `SPINDLE_POWERCUT_UNWRITABLE` | optional: while a file of this name is there, overwriting what a file has fails with EIO |
//! | `SPINDLE_POWERCUT_NO_DESCRIPTORS` | optional: while a file of this name is there, opens, sockets and accepts fail with EMFILE |
//! | `SPINDLE_POWERCUT_FULL` | optional: while a file of this name is there, what needs more of the disk fails with ENOSPC |
//! | `SPINDLE_POWERCUT_SHORT` | optional: seed of short writes: a fourth of the longer ones take some blocks only |
//! | `SPINDLE_POWERCUT_CLOCK` | optional: a file of eight bytes, little-endian: seconds that the wall clock is off |
//!
//! A failed sync loses the data that it should have made durable, like a kernel that reports a
//! failed write-back once and drops the pages: trying again succeeds and proves nothing.
//!
//! With `SPINDLE_POWERCUT_SETTLE` set, shadow and visible folder are equal byte for byte after a
//! regular exit, unless the process changed a file behind the library's back. In this way a test
//! makes sure that the library saw every write.
//!
//! # Limits
//!
//! Linux on x86-64 with glibc. It sees only calls that go through libc's symbols, and misses raw
//! system calls, io_uring and C's buffered streams (the comparison above finds them). A call that
//! it sees and can't model ends the process with a message: shared mappings, hard and symbolic
//! links, `copy_file_range`, `sendfile` or `splice` into a watched file, renamed directories,
//! `O_TMPFILE`.

mod hooks;
mod leak;
mod shadow;
mod tree;
mod troubles;
