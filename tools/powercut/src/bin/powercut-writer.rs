//! Does what its arguments say to files of the current folder, so that the tests can cut its power.
//!
//! Each argument is a verb and its operands, with `:` between them. When all are done it prints
//! `done` and waits for the end of its standard input; then it exits regularly.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice, Read, Write};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::time::{SystemTime, UNIX_EPOCH};

const O_DSYNC: i32 = libc::O_DSYNC;

fn write_to(path: &str) -> io::Result<File> {
    OpenOptions::new().write(true).create(true).truncate(false).open(path)
}

fn step(words: &[&str]) -> io::Result<()> {
    match *words {
        ["create", path, text] => File::create(path)?.write_all(text.as_bytes()),
        ["append", path, text] => {
            OpenOptions::new().append(true).open(path)?.write_all(text.as_bytes())
        }
        ["at", path, offset, text] => {
            let offset = offset.parse().map_err(io::Error::other)?;
            write_to(path)?.write_all_at(text.as_bytes(), offset)
        }
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
        ["sync-fails", path] => match File::open(path)?.sync_data() {
            Err(error) if error.raw_os_error() == Some(libc::EIO) => Ok(()),
            outcome => Err(io::Error::other(format!("it did not fail: {outcome:?}"))),
        },
        ["no-room", path, offset, text] => {
            let offset = offset.parse().map_err(io::Error::other)?;
            match write_to(path).and_then(|file| file.write_all_at(text.as_bytes(), offset)) {
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => Ok(()),
                outcome => Err(io::Error::other(format!("it did not fail: {outcome:?}"))),
            }
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
