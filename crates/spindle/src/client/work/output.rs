//! What a command prints: its standard output is the job's result, its standard error is passed on
//! and its end kept.

use std::{
    io::{self, Read, Write},
    process::Child,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

use bytes::Bytes;

use crate::client::payload::block_bytes_max;

/// How long output may still come once the command ended: a process that it left behind may hold
/// the pipe open for ever.
const OUTPUT_WITHIN: Duration = Duration::from_secs(1);
const READ_BYTES: usize = 64 * 1024;
/// How much of the end of standard error goes with a failure, in bytes.
const TAIL_BYTES: usize = 4096;

/// The pipes of a command that runs.
pub struct Pipes {
    output: Arc<Mutex<Output>>,
    tail: Arc<Mutex<Tail>>,
    /// Both ends are dropped when the command and all that it left behind closed its pipes.
    closed: [Receiver<()>; 2],
}

/// What a command printed.
#[derive(Debug)]
pub struct Printed {
    /// On standard output, cut to what a job's result can be.
    pub output: Bytes,
    /// Whether something was cut off.
    pub is_cut: bool,
    /// The end of what it printed on standard error, as text.
    pub error: String,
}

#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    is_cut: bool,
}

/// The last bytes of a stream.
#[derive(Default)]
struct Tail {
    bytes: Vec<u8>,
    is_cut: bool,
}

impl Pipes {
    /// Feeds a command and reads what it prints.
    pub fn of(child: &mut Child, payload: Bytes) -> io::Result<Self> {
        if let Some(mut stdin) = child.stdin.take() {
            thread::Builder::new().name("feed".to_owned()).spawn(move || {
                // A command need not read what it is given.
                let _ = stdin.write_all(&payload);
            })?;
        }
        let (output, tail) = (Arc::<Mutex<Output>>::default(), Arc::<Mutex<Tail>>::default());
        let (keeps_output, keeps_tail) = (Arc::clone(&output), Arc::clone(&tail));
        let closed = [
            read("stdout", child.stdout.take(), move |bytes| locked(&keeps_output).keep(bytes))?,
            read("stderr", child.stderr.take(), move |bytes| {
                // Standard error may be closed by now; the job goes on.
                let _ = io::stderr().write_all(bytes);
                locked(&keeps_tail).keep(bytes);
            })?,
        ];
        Ok(Self { output, tail, closed })
    }

    /// What the command printed, once it has ended. If the pipes are not closed in time, the output
    /// counts that has come until then.
    pub fn finish(self) -> Printed {
        let until = Instant::now() + OUTPUT_WITHIN;
        for closed in &self.closed {
            let _ = closed.recv_timeout(until.saturating_duration_since(Instant::now()));
        }
        let mut output = locked(&self.output);
        let bytes = std::mem::take(&mut output.bytes);
        let error = locked(&self.tail).text();
        Printed { output: bytes.into(), is_cut: output.is_cut, error }
    }
}

/// Reads a pipe to its end, whatever is kept: a command must not hang because it talks too much.
fn read(
    name: &str,
    pipe: Option<impl Read + Send + 'static>,
    keep: impl FnMut(&[u8]) + Send + 'static,
) -> io::Result<Receiver<()>> {
    let (closing, closed) = channel();
    if let Some(pipe) = pipe {
        let body = move || to_the_end(pipe, keep, &closing);
        thread::Builder::new().name(name.to_owned()).spawn(body)?;
    }
    Ok(closed)
}

/// Dropping `_closing` says that the end was reached.
fn to_the_end(mut pipe: impl Read, mut keep: impl FnMut(&[u8]), _closing: &Sender<()>) {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        match pipe.read(&mut buffer) {
            Ok(0) => return,
            Ok(count) => keep(buffer.get(..count).unwrap_or_default()),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// A reader that panicked left nothing half done in here.
fn locked<T>(kept: &Mutex<T>) -> MutexGuard<'_, T> {
    kept.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Output {
    fn keep(&mut self, bytes: &[u8]) {
        let room = block_bytes_max().saturating_sub(self.bytes.len());
        self.bytes.extend_from_slice(bytes.get(..bytes.len().min(room)).unwrap_or_default());
        self.is_cut |= bytes.len() > room;
    }
}

impl Tail {
    fn keep(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let excess = self.bytes.len().saturating_sub(TAIL_BYTES);
        self.bytes.drain(..excess);
        self.is_cut |= excess > 0;
    }

    /// As text: no character is cut in two, what is no UTF-8 is replaced, and the last line has no
    /// end. It has at most as many characters as the tail has bytes.
    fn text(&self) -> String {
        let is_middle = |byte: &&u8| **byte & 0b1100_0000 == 0b1000_0000;
        // A character has at most three bytes behind its first.
        let begun = self.bytes.iter().take(3).take_while(is_middle).count();
        let whole = self.bytes.get(if self.is_cut { begun } else { 0 }..).unwrap_or_default();
        String::from_utf8_lossy(whole).trim_end().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tail(parts: &[&[u8]]) -> String {
        let mut tail = Tail::default();
        parts.iter().for_each(|part| tail.keep(part));
        tail.text()
    }

    #[test]
    fn the_end_of_a_stream_is_kept_up_to_its_limit() {
        assert_eq!(tail(&[b"a\n", b"b\n"]), "a\nb");
        let full = "x".repeat(TAIL_BYTES);
        assert_eq!(tail(&[full.as_bytes()]), full);
        assert_eq!(tail(&[b"y", full.as_bytes()]), full);
        let long = format!("{full}{full}z");
        assert_eq!(tail(&[long.as_bytes()]), long[TAIL_BYTES + 1..]);
    }

    #[test]
    fn no_character_is_cut_in_two_and_what_is_no_text_is_replaced() {
        let letters = "ä".repeat(TAIL_BYTES / 2);
        // One byte of the first letter falls off, and the other one with it.
        let cut = tail(&[letters.as_bytes(), b"!"]);
        assert_eq!(cut, format!("{}!", "ä".repeat(TAIL_BYTES / 2 - 1)));
        assert_eq!(tail(&[b"\x80bad \xff"]), "\u{fffd}bad \u{fffd}");
        let noise = tail(&[&[0xff; 2 * TAIL_BYTES]]);
        assert_eq!(noise.chars().count(), TAIL_BYTES);
        assert_eq!(tail(&[&[0x80; 2 * TAIL_BYTES]]).chars().count(), TAIL_BYTES - 3);
    }
}
