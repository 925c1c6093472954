//! What a process prints, up to a limit, without ever making it wait.

use std::{
    fs::File,
    io::{self, PipeWriter, Read},
    os::fd::OwnedFd,
};

use nix::fcntl::{FcntlArg, OFlag, fcntl};
use tokio::net::unix::pipe::Receiver;

/// What the system keeps in a pipe at most: a process may enlarge its own so far (`pipe(7)`).
const PIPE_BYTES_MAX: usize = 1024 * 1024;
/// How much is asked for at once.
const READ_BYTES: usize = 16 * 1024;

/// What a process printed on one of its outputs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Its bytes as text; bytes that are not UTF-8 became U+FFFD.
    pub text: String,
    /// Whether there was more, over the limit.
    pub is_cut: bool,
}

/// Reads one output of a process. What is over the limit is read and thrown away, so that the
/// process never blocks on a full pipe.
#[derive(Debug)]
pub(super) struct Capture {
    pipe: Option<Receiver>,
    bytes: Vec<u8>,
    bytes_max: usize,
    is_cut: bool,
}

impl Capture {
    /// A new capture, and the other end of its pipe.
    pub(super) fn new(bytes_max: usize) -> io::Result<(Self, PipeWriter)> {
        let (pipe, other_end) = io::pipe()?;
        // Only our end does not block: a process expects to wait when it writes.
        fcntl(&pipe, FcntlArg::F_SETFL(OFlag::O_NONBLOCK))?;
        let pipe = Receiver::from_owned_fd_unchecked(OwnedFd::from(pipe))?;
        let capture = Self { pipe: Some(pipe), bytes: Vec::new(), bytes_max, is_cut: false };
        Ok((capture, other_end))
    }

    /// Waits for something to read and reads it. Never ready once the output has ended. Nothing
    /// is lost when it is dropped while it waits.
    pub(super) async fn read(&mut self) {
        let Some(pipe) = &self.pipe else { return std::future::pending().await };
        if pipe.readable().await.is_err() {
            self.pipe = None;
            return;
        }
        self.bytes.reserve(READ_BYTES);
        match pipe.try_read_buf(&mut self.bytes) {
            Ok(0) => self.pipe = None,
            Ok(_) => self.cut(),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(_) => self.pipe = None,
        }
    }

    /// Takes what a process that has ended left in the pipe. A grandchild may still hold the
    /// other end and go on printing: not more is read than the process can have left.
    ///
    /// Reads the pipe itself, not through the runtime, which learns of new bytes only when it next
    /// looks, perhaps after the end of the process.
    pub(super) fn finish(mut self) -> Output {
        let pipe = self.pipe.take().and_then(|pipe| pipe.into_nonblocking_fd().ok());
        if let Some(pipe) = pipe {
            let mut pipe = File::from(pipe);
            let mut left = 0;
            let mut piece = vec![0; READ_BYTES];
            while left < PIPE_BYTES_MAX {
                match pipe.read(&mut piece) {
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    // Would block: the pipe is empty and a process still has the other end.
                    Ok(0) | Err(_) => break,
                    Ok(count) => {
                        left += count;
                        self.bytes.extend(piece.iter().take(count));
                        self.cut();
                    }
                }
            }
        }
        Output { text: decoded(self.bytes, self.is_cut), is_cut: self.is_cut }
    }

    fn cut(&mut self) {
        if self.bytes.len() > self.bytes_max {
            self.bytes.truncate(self.bytes_max);
            self.is_cut = true;
        }
    }
}

/// Bytes as text. A character that the cut went through is dropped: it would become a U+FFFD that
/// the process never printed, and more bytes than the limit.
fn decoded(mut bytes: Vec<u8>, is_cut: bool) -> String {
    if is_cut {
        let tail = bytes.len().saturating_sub(3);
        let split = bytes.utf8_chunks().last().filter(|chunk| {
            let is_at_end = bytes.len() - chunk.invalid().len() >= tail;
            !chunk.invalid().is_empty()
                && is_at_end
                && std::str::from_utf8(chunk.invalid())
                    .is_err_and(|error| error.error_len().is_none())
        });
        if let Some(invalid) = split.map(|chunk| chunk.invalid().len()) {
            bytes.truncate(bytes.len() - invalid);
        }
    }
    String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_character_that_was_cut_through_goes_whole() {
        let bytes = "aé€😀".as_bytes();
        assert_eq!(decoded(bytes[..2].to_vec(), true), "a");
        assert_eq!(decoded(bytes[..4].to_vec(), true), "aé");
        assert_eq!(decoded(bytes[..9].to_vec(), true), "aé€");
        assert_eq!(decoded(bytes.to_vec(), true), "aé€😀");
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        assert_eq!(decoded(b"a\xffb".to_vec(), true), "a\u{fffd}b");
        assert_eq!(decoded(b"a\xe2\x82".to_vec(), false), "a\u{fffd}");
        assert_eq!(decoded(b"a\xff".to_vec(), true), "a\u{fffd}");
    }
}
