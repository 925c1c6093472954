//! Writes past the page cache, and reads past it what is read only once.

use std::{
    fs::{File, OpenOptions},
    io,
    os::{
        fd::AsRawFd,
        unix::fs::{FileExt, OpenOptionsExt},
    },
};

use nix::{errno::Errno, fcntl::OFlag};
use parking_lot::Mutex;

use super::BLOCK_BYTES;

/// Longer appends are written in steps: a larger buffer is not kept.
const STEP_BYTES: usize = 1024 * 1024;
const ZERO_BYTES: usize = 256 * 1024;

#[repr(align(4096))]
struct Zeros([u8; ZERO_BYTES]);

static ZEROS: Zeros = Zeros([0; ZERO_BYTES]);

/// A second handle on a file that moves whole blocks straight to and from the disk.
///
/// A commit through the page cache copies, marks pages dirty and makes `fdatasync` look for them;
/// filling a segment with zeros copies each of them. The log never profits from that work: records that are read back
/// soon are in the engine's memory. Reads use the page cache, which the kernel keeps consistent with these writes,
/// except at a start: it reads everything once, none of it is in the page cache, and pages for all of it cost more than
/// the reading.
pub(super) struct DirectFile {
    file: File,
    appending: Mutex<Appending>,
}

#[derive(Default)]
struct Appending {
    /// Room for the blocks of one write, and for aligning them.
    buffer: Vec<u8>,
    /// Where the last append ended, and what it left in an unfinished block before that.
    end: u64,
    unfinished: Vec<u8>,
    file_bytes: u64,
}

impl DirectFile {
    /// `None` where the file system has no direct writes.
    pub(super) fn open(file: &File) -> Option<Self> {
        // Opened by its number, because a prepared segment changes its name.
        let same = format!("/proc/self/fd/{}", file.as_raw_fd());
        let direct = OFlag::O_DIRECT.bits();
        Some(Self::on(
            OpenOptions::new().read(true).write(true).custom_flags(direct).open(same).ok()?,
        ))
    }

    fn on(file: File) -> Self {
        Self { file, appending: Mutex::default() }
    }

    /// Reads blocks. Fewer bytes than asked for only at the end of the file, or of what can be read so; none when the
    /// range is none of whole blocks, or the memory is none.
    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let block = BLOCK_BYTES;
        let whole = buffer.as_ptr().align_offset(block) == 0 && buffer.len().is_multiple_of(block);
        if !whole || !offset.is_multiple_of(block as u64) {
            return Ok(0);
        }
        let mut done = 0;
        while done < buffer.len() && done.is_multiple_of(block) {
            match self.file.read_at(&mut buffer[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(read) => done += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if is_refused(&error) => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Writes zeros; `false` when the range is none of whole blocks.
    pub(super) fn write_zeros(&self, mut offset: u64, len: u64) -> io::Result<bool> {
        let block = BLOCK_BYTES as u64;
        if !offset.is_multiple_of(block) || !len.is_multiple_of(block) {
            return Ok(false);
        }
        let end = offset + len;
        while offset < end {
            let step = (end - offset).min(ZERO_BYTES as u64);
            if !taken(self.file.write_all_at(&ZEROS.0[..step as usize], offset))? {
                return Ok(false);
            }
            offset += step;
        }
        Ok(true)
    }

    /// Writes bytes and makes them durable; `false` when their last block is not all in the file. The
    /// blocks they begin and end in are written whole: `before` reads what the first one holds, if
    /// that is not known from the append before; what is behind the bytes becomes zeros.
    pub(super) fn append(
        &self,
        bytes: &[u8],
        offset: u64,
        before: impl FnOnce(&mut [u8], u64) -> io::Result<usize>,
    ) -> io::Result<bool> {
        let mut appending = self.appending.lock();
        let appending = &mut *appending;
        let known = (offset % BLOCK_BYTES as u64) as usize;
        let end = (offset + bytes.len() as u64).next_multiple_of(BLOCK_BYTES as u64);
        if !appending.has_room(&self.file, end)? {
            return Ok(false);
        }
        if appending.end != offset || appending.unfinished.len() != known {
            appending.unfinished.resize(known, 0);
            if known > 0 {
                before(&mut appending.unfinished, offset - known as u64)?;
            }
        }
        // The first step ends where a block does, so that no block is written twice.
        let (first, others) = bytes.split_at(bytes.len().min(STEP_BYTES - known));
        let mut at = offset;
        for step in std::iter::once(first).chain(others.chunks(STEP_BYTES)) {
            if !appending.write(&self.file, step, at)? {
                return Ok(false);
            }
            at += step.len() as u64;
        }
        self.file.sync_data()?;
        Ok(true)
    }
}

impl Appending {
    /// Writes what follows the unfinished block, and what there is of that.
    fn write(&mut self, file: &File, bytes: &[u8], offset: u64) -> io::Result<bool> {
        let known = self.unfinished.len();
        let used = known + bytes.len();
        let len = used.next_multiple_of(BLOCK_BYTES);
        if self.buffer.len() < len + BLOCK_BYTES {
            self.buffer = vec![0; len.next_power_of_two() + BLOCK_BYTES];
        }
        let skip = self.buffer.as_ptr().align_offset(BLOCK_BYTES);
        let blocks = &mut self.buffer[skip..skip + len];
        blocks[..known].copy_from_slice(&self.unfinished);
        blocks[known..used].copy_from_slice(bytes);
        blocks[used..].fill(0);
        if !taken(file.write_all_at(blocks, offset - known as u64))? {
            return Ok(false);
        }
        self.end = offset + bytes.len() as u64;
        self.unfinished.clear();
        let last = used - used % BLOCK_BYTES;
        self.unfinished.extend_from_slice(&blocks[last..used]);
        Ok(true)
    }

    fn has_room(&mut self, file: &File, end: u64) -> io::Result<bool> {
        if end > self.file_bytes {
            self.file_bytes = file.metadata()?.len();
        }
        Ok(end <= self.file_bytes)
    }
}

/// Some file systems open a file for direct reads and writes and then refuse them: nothing was read or written.
fn is_refused(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::EINVAL as i32)
}

fn taken(written: io::Result<()>) -> io::Result<bool> {
    match written {
        Err(error) if is_refused(&error) => Ok(false),
        other => other.map(|()| true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE_BYTES: u64 = 2 * 1024 * 1024;

    /// On an ordinary handle: which blocks are written does not depend on whether the writes are
    /// direct.
    fn file() -> (File, DirectFile) {
        let file = tempfile::tempfile().expect("a folder for temporary files");
        file.set_len(FILE_BYTES).expect("room");
        let direct = DirectFile::on(file.try_clone().expect("another handle"));
        (file, direct)
    }

    fn content(file: &File) -> Vec<u8> {
        let mut all = vec![0; FILE_BYTES as usize];
        file.read_exact_at(&mut all, 0).expect("readable");
        all
    }

    fn unread(_: &mut [u8], _: u64) -> io::Result<usize> {
        panic!("the block is known from the append before")
    }

    #[test]
    fn appends_of_any_length_leave_their_bytes_and_zeros_behind_them() {
        let (file, direct) = file();
        let mut model = vec![0; FILE_BYTES as usize];
        let mut end = 0;
        for (nth, len) in [44, 1, 4051, 4096, 4097, 5, 8187, 100_000, 3].into_iter().enumerate() {
            let bytes = vec![nth as u8 + 1; len];
            assert!(direct.append(&bytes, end as u64, unread).expect("written"));
            model[end..end + len].copy_from_slice(&bytes);
            end += len;
            assert_eq!(content(&file), model, "after {len} bytes");
        }
    }

    #[test]
    fn an_append_to_a_block_it_does_not_know_keeps_what_is_there() {
        let (file, direct) = file();
        file.write_all_at(&[7; 5000], 0).expect("written");
        // What stands behind the end is the rest of an earlier life of the file.
        file.write_all_at(&[9; 3000], 5000).expect("written");
        let before = |buffer: &mut [u8], at| file.read_at(buffer, at);
        assert!(direct.append(&[8; 10], 5000, before).expect("written"));
        let all = content(&file);
        assert_eq!(all[..5000], [7; 5000]);
        assert_eq!(all[5000..5010], [8; 10]);
        assert_eq!(all[5010..8192], [0; 3182]);
    }

    #[test]
    fn what_is_longer_than_a_step_is_written_in_several_and_no_block_twice() {
        for before in [0, 100, 4096] {
            for len in [STEP_BYTES - 1, STEP_BYTES, STEP_BYTES + 1] {
                let (file, direct) = file();
                assert!(direct.append(&vec![7; before], 0, unread).expect("written"));
                let bytes: Vec<u8> = (0..len).map(|at| (at % 251) as u8).collect();
                assert!(direct.append(&bytes, before as u64, unread).expect("written"));
                assert!(direct.append(&[8; 3], (before + len) as u64, unread).expect("written"));
                let all = content(&file);
                assert!(all[..before].iter().all(|byte| *byte == 7));
                assert!(all[before..before + len] == bytes, "{before} + {len}");
                let end = before + len + 3;
                assert_eq!(all[end - 3..end], [8; 3]);
                assert!(all[end..].iter().all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn what_ends_behind_the_file_is_left_to_the_page_cache() {
        let (file, direct) = file();
        assert!(!direct.append(&[1; 8193], FILE_BYTES - 8192, unread).expect("no error"));
        assert!(direct.append(&[2; 4096], FILE_BYTES - 4096, unread).expect("written"));
        assert_eq!(file.metadata().expect("a file").len(), FILE_BYTES);
        file.set_len(FILE_BYTES - 1).expect("shorter");
        let short = DirectFile::on(file.try_clone().expect("another handle"));
        assert!(!short.append(&[3; 10], FILE_BYTES - 4096, unread).expect("no error"));
        assert_eq!(file.metadata().expect("a file").len(), FILE_BYTES - 1);
    }

    #[test]
    fn whole_blocks_are_read_up_to_the_end_of_the_file() {
        let (file, direct) = file();
        file.write_all_at(&[7; 5000], 4096).expect("written");
        file.set_len(9096).expect("shorter");
        let mut memory = vec![0; 5 * BLOCK_BYTES];
        let from = memory.as_ptr().align_offset(BLOCK_BYTES);
        let blocks = &mut memory[from..from + 3 * BLOCK_BYTES];
        assert_eq!(direct.read(&mut blocks[1..4097], 0).expect("no error"), 0);
        assert_eq!(direct.read(&mut blocks[..4095], 0).expect("no error"), 0);
        assert_eq!(direct.read(&mut blocks[..4096], 1).expect("no error"), 0);
        assert_eq!(direct.read(blocks, 0).expect("readable"), 9096);
        assert!(blocks[4096..9096].iter().all(|byte| *byte == 7));
        assert_eq!(direct.read(blocks, 4096).expect("readable"), 5000);
        assert!(blocks[..5000].iter().all(|byte| *byte == 7));
    }

    #[test]
    fn zeros_are_written_in_whole_blocks_only() {
        let (file, direct) = file();
        file.write_all_at(&[1; FILE_BYTES as usize], 0).expect("written");
        assert!(!direct.write_zeros(1, 4096).expect("no error"));
        assert!(!direct.write_zeros(4096, 4095).expect("no error"));
        assert!(content(&file).iter().all(|byte| *byte == 1));
        assert!(direct.write_zeros(4096, FILE_BYTES - 4096).expect("written"));
        let all = content(&file);
        assert!(all[..4096].iter().all(|byte| *byte == 1));
        assert!(all[4096..].iter().all(|byte| *byte == 0));
    }
}
