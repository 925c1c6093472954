//! Reads files ahead of the thread that checks their contents, so that the disk and the processor work at the same
//! time.

use std::{
    io,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, SyncSender, channel, sync_channel},
    },
};

use crate::{
    disk::{BLOCK_BYTES, DiskFile},
    scan::Source,
};

/// Bytes read at once.
const CHUNK_BYTES: usize = 1024 * 1024;
/// Chunks that wait to be taken. Memory is used for these, the one being read and the one being taken from.
const CHUNKS_AHEAD: usize = 2;

/// Bytes at the offset of a block of the disk, in memory that begins at the address of one.
struct Chunk {
    file: usize,
    offset: u64,
    memory: Vec<u8>,
    filled: io::Result<usize>,
}

fn aligned(memory: &[u8]) -> usize {
    memory.as_ptr().align_offset(BLOCK_BYTES)
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        let from = aligned(&self.memory);
        &self.memory[from..from + self.filled.as_ref().copied().unwrap_or(0)]
    }
}

/// The reading end; see [`read_ahead`].
pub(crate) struct Reader {
    files: Vec<(Arc<dyn DiskFile>, u64)>,
    full: SyncSender<Chunk>,
    empty: Receiver<Vec<u8>>,
}

/// The end to take from: what was read ahead, in order, each file from its beginning to its end.
pub(crate) struct Ahead {
    full: Receiver<Chunk>,
    empty: Sender<Vec<u8>>,
    current: Option<Chunk>,
}

/// Two ends of a pipe that files of these lengths go through: the one to be run in a thread of its own, and the one to
/// read from, which ends that thread when it is dropped.
pub(crate) fn read_ahead(files: Vec<(Arc<dyn DiskFile>, u64)>) -> (Reader, Ahead) {
    let (to, full) = sync_channel(CHUNKS_AHEAD);
    let (empty, back) = channel();
    (Reader { files, full: to, empty: back }, Ahead { full, empty, current: None })
}

impl Reader {
    /// Reads until all is read, or the other end is dropped.
    pub(crate) fn run(self) {
        for (number, (file, len)) in self.files.iter().enumerate() {
            let whole = CHUNK_BYTES.min(usize::try_from(*len).unwrap_or(CHUNK_BYTES));
            let whole = whole.next_multiple_of(BLOCK_BYTES);
            for offset in (0..*len).step_by(CHUNK_BYTES) {
                let mut memory = self.empty.try_recv().unwrap_or_default();
                if memory.len() < whole + BLOCK_BYTES {
                    memory = vec![0; whole + BLOCK_BYTES];
                }
                let from = aligned(&memory);
                let filled = file.read_once(&mut memory[from..from + whole], offset);
                if self.full.send(Chunk { file: number, offset, memory, filled }).is_err() {
                    return;
                }
            }
            file.settle();
        }
    }
}

impl Ahead {
    /// Goes on with a file, which is not before the one read so far.
    pub(crate) fn of(&mut self, file: usize) -> AheadOf<'_> {
        AheadOf { file, ahead: self }
    }
}

/// The bytes of one file.
pub(crate) struct AheadOf<'a> {
    file: usize,
    ahead: &'a mut Ahead,
}

impl AheadOf<'_> {
    /// The chunk with the bytes at an offset, which is not before those read so far; none at the end of the file.
    fn chunk_at(&mut self, offset: u64) -> io::Result<Option<&Chunk>> {
        let Ahead { full, empty, current } = &mut *self.ahead;
        loop {
            if let Some(chunk) = current
                && chunk.file == self.file
            {
                let filled = match &chunk.filled {
                    Ok(filled) => *filled,
                    Err(error) => return Err(again(error)),
                };
                if offset < chunk.offset + filled as u64 {
                    return Ok(current.as_ref());
                }
            }
            if current.as_ref().is_some_and(|chunk| chunk.file > self.file) {
                return Ok(None);
            }
            let Ok(next) = full.recv() else { return Ok(None) };
            if let Some(done) = current.replace(next) {
                // The reader may have read all and be gone.
                empty.send(done.memory).ok();
            }
        }
    }
}

/// An error that may be asked for twice.
fn again(error: &io::Error) -> io::Error {
    match error.raw_os_error() {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::new(error.kind(), error.to_string()),
    }
}

impl Source for AheadOf<'_> {
    fn read_at(&mut self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buffer.len() {
            let at = offset + done as u64;
            let Some(chunk) = self.chunk_at(at)? else { break };
            let bytes = &chunk.bytes()[(at - chunk.offset) as usize..];
            let step = bytes.len().min(buffer.len() - done);
            buffer[done..done + step].copy_from_slice(&bytes[..step]);
            done += step;
        }
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::Mutex, thread};

    use super::*;

    /// A file that says how it was read.
    struct File {
        bytes: Vec<u8>,
        fails_from: Option<u64>,
        reads: Mutex<Vec<u64>>,
    }

    impl DiskFile for File {
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            self.reads.lock().expect("no panic").push(offset);
            if self.fails_from.is_some_and(|from| offset >= from) {
                return Err(io::Error::from_raw_os_error(5));
            }
            let from = self.bytes.len().min(offset as usize);
            let count = buffer.len().min(self.bytes.len() - from);
            buffer[..count].copy_from_slice(&self.bytes[from..from + count]);
            Ok(count)
        }
        fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
            panic!("only read")
        }
        fn claim(&self, _: u64) -> io::Result<bool> {
            panic!("only read")
        }
        fn sync(&self) -> io::Result<()> {
            panic!("only read")
        }
        fn len(&self) -> io::Result<u64> {
            Ok(self.bytes.len() as u64)
        }
    }

    fn file(len: usize, seed: u8, fails_from: Option<u64>) -> Arc<File> {
        let bytes = (0..len).map(|at| (at / 7) as u8 ^ seed).collect();
        Arc::new(File { bytes, fails_from, reads: Mutex::default() })
    }

    fn with<T>(files: &[Arc<File>], read: impl FnOnce(Ahead) -> T) -> T {
        let all = files.iter().map(|f| (f.clone() as Arc<dyn DiskFile>, f.bytes.len() as u64));
        let (reader, ahead) = read_ahead(all.collect());
        thread::scope(|scope| {
            scope.spawn(|| reader.run());
            read(ahead)
        })
    }

    const LONG: usize = 5 * CHUNK_BYTES + 3000;

    #[test]
    fn files_are_read_in_order_and_each_byte_once() {
        let files = [file(LONG, 1, None), file(10, 2, None), file(0, 3, None), file(LONG, 4, None)];
        with(&files, |mut ahead| {
            for (number, file) in files.iter().enumerate() {
                let (mut source, mut all) = (ahead.of(number), vec![0; LONG + 1]);
                let mut at = 0;
                for step in [64, 1, CHUNK_BYTES, 3 * CHUNK_BYTES, 5000, LONG].into_iter().cycle() {
                    let end = (at + step).min(all.len());
                    let read = source.read_at(&mut all[at..end], at as u64).expect("readable");
                    at += read;
                    if at < end || at == all.len() {
                        break;
                    }
                }
                assert!(all[..at] == file.bytes, "file {number}");
            }
        });
        let reads = files.map(|file| file.reads.lock().expect("no panic").clone());
        let chunks: Vec<u64> = (0..6).map(|nth| nth * CHUNK_BYTES as u64).collect();
        assert_eq!(reads, [chunks.clone(), vec![0], vec![], chunks]);
    }

    #[test]
    fn the_rest_of_a_file_may_be_passed_over_and_the_reader_ends_with_whoever_reads() {
        let files = [file(LONG, 1, None), file(LONG, 2, None), file(LONG, 3, None)];
        with(&files, |mut ahead| {
            let mut bytes = [0; 100];
            assert_eq!(ahead.of(0).read_at(&mut bytes, 64).expect("readable"), 100);
            assert_eq!(bytes, files[0].bytes[64..164]);
            assert_eq!(ahead.of(1).read_at(&mut bytes, 64).expect("readable"), 100);
            assert_eq!(bytes, files[1].bytes[64..164]);
            assert_eq!(ahead.of(0).read_at(&mut bytes, 200).expect("behind"), 0);
        });
        assert!(files[2].reads.lock().expect("no panic").is_empty(), "nobody wanted that");
    }

    #[test]
    fn an_error_is_reported_where_it_is_and_as_often_as_it_is_asked_for() {
        let files = [file(LONG, 1, Some(CHUNK_BYTES as u64)), file(10, 2, None)];
        with(&files, |mut ahead| {
            let mut bytes = vec![0; CHUNK_BYTES];
            let mut source = ahead.of(0);
            assert_eq!(source.read_at(&mut bytes, 0).expect("readable"), CHUNK_BYTES);
            for _ in 0..2 {
                let error = source.read_at(&mut bytes, CHUNK_BYTES as u64).expect_err("failed");
                assert_eq!(error.raw_os_error(), Some(5));
            }
            assert_eq!(ahead.of(1).read_at(&mut bytes, 0).expect("the next file"), 10);
        });
    }
}
