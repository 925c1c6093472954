//! Does what its arguments say to files of the current folder, so that the tests can cut its power.
//!
//! Each argument is a verb and its operands, with `:` between them. When all are done it prints
//! `done` and waits for the end of its standard input; then it exits regularly.

use std::fmt::Debug;
use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{SystemTime, UNIX_EPOCH};

const O_DSYNC: i32 = libc::O_DSYNC;

fn write_to(path: &str) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}

fn write_at(path: &str, offset: &str, text: &str) -> io::Result<()> {
    let offset = offset.parse().map_err(io::Error::other)?;
    write_to(path)?.write_all_at(text.as_bytes(), offset)
}

/// Accepts this error only.
fn fails<T: Debug>(wanted: i32, outcome: io::Result<T>) -> io::Result<()> {
    match outcome {
        Err(error) if error.raw_os_error() == Some(wanted) => Ok(()),
        outcome => Err(io::Error::other(format!("it did not fail with {wanted}: {outcome:?}"))),
    }
}

fn step(words: &[&str]) -> io::Result<()> {
    match *words {
        ["create", path, text] => File::create(path)?.write_all(text.as_bytes()),
        ["append", path, text] => {
            OpenOptions::new().append(true).open(path)?.write_all(text.as_bytes())
        }
        ["at", path, offset, text] => write_at(path, offset, text),
        ["parts", path, one, two] => {
            let parts = [IoSlice::new(one.as_bytes()), IoSlice::new(two.as_bytes())];
            let written = write_to(path)?.write_vectored(&parts)?;
            assert_eq!(written, one.len() + two.len(), "a short write would test something else");
            Ok(())
        }
        ["dsync", path, text] => OpenOptions::new()
            .write(true)
            .custom_flags(O_DSYNC)
            .open(path)?
            .write_all(text.as_bytes()),
        ["resize", path, len] => write_to(path)?.set_len(len.parse().map_err(io::Error::other)?),
        ["sync-fails", path] => fails(libc::EIO, File::open(path)?.sync_data()),
        ["no-room", path, offset, text] => fails(libc::ENOSPC, write_at(path, offset, text)),
        ["unwritable", path, offset, text] => fails(libc::EIO, write_at(path, offset, text)),
        ["no-descriptor", path] => {
            fails(libc::EMFILE, File::open(path))?;
            fails(libc::EMFILE, TcpListener::bind("127.0.0.1:0"))
        }
        ["before-1970"] => match SystemTime::now().duration_since(UNIX_EPOCH) {
            Err(_) => Ok(()),
            Ok(since) => Err(io::Error::other(format!("{since:?} since 1970"))),
        },
        ["sync", path] => File::open(path)?.sync_data(),
        ["rename", from, to] => fs::rename(from, to),
        ["remove", path] => fs::remove_file(path),
        ["mkdir", path] => fs::create_dir(path),
        ["copy", from, to] => fs::copy(from, to).map(|_| ()),
        ["link", from, to] => fs::hard_link(from, to),
        _ => Err(io::Error::other("no such step")),
    }
}

fn main() -> io::Result<()> {
    for argument in std::env::args().skip(1) {
        let words: Vec<&str> = argument.split(':').collect();
        step(&words).map_err(|e| io::Error::other(format!("{argument}: {e}")))?;
    }
    println!("done");
    io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
