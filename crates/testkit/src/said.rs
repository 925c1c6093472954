//! What a program says, line by line.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use crate::PATIENCE;

/// The lines of an output. A separate thread keeps reading them, so that a program never blocks on
/// its output.
pub struct Said(Receiver<String>);

impl Said {
    /// Listens to an output.
    pub fn by(output: impl Read + Send + 'static) -> Said {
        let (lines, said) = channel();
        thread::spawn(move || {
            let mut output = BufReader::new(output);
            let mut line = Vec::new();
            while output.read_until(b'\n', &mut line).is_ok_and(|count| count > 0) {
                // Nobody listens any more when the test has heard enough.
                let _ = lines.send(String::from_utf8_lossy(&line).trim_end().to_owned());
                line.clear();
            }
        });
        Said(said)
    }

    /// Waits for a line with this in it; those before it are forgotten.
    #[track_caller]
    pub fn await_line(&self, part: &str) -> String {
        let line = self.await_line_or_end(part);
        line.unwrap_or_else(|said| panic!("{part:?} was never said, but\n{said}"))
    }

    /// Waits for a line with this in it, as [`Said::await_line`]. Returns the other lines if the
    /// output ends before there is one.
    #[track_caller]
    pub fn await_line_or_end(&self, part: &str) -> Result<String, String> {
        let mut before = String::new();
        loop {
            match self.0.recv_timeout(PATIENCE) {
                Ok(line) if line.contains(part) => return Ok(line),
                Ok(line) => before += &(line + "\n"),
                Err(RecvTimeoutError::Disconnected) => return Err(before),
                Err(RecvTimeoutError::Timeout) => {
                    panic!("neither {part:?} nor the end came; said was\n{before}")
                }
            }
        }
    }

    /// The next line, whatever it is.
    #[track_caller]
    pub fn next_line(&self) -> String {
        let line = self.0.recv_timeout(PATIENCE);
        line.unwrap_or_else(|error| panic!("nothing more was said: {error}"))
    }

    /// A line, if one comes soon.
    pub fn next_line_within_a_moment(&self) -> Option<String> {
        self.0.recv_timeout(Duration::from_millis(200)).ok()
    }

    /// Waits until the program and all that it started have closed their output; what they said
    /// until then.
    #[track_caller]
    pub fn await_end(&self) -> String {
        let mut text = String::new();
        loop {
            match self.0.recv_timeout(PATIENCE) {
                Ok(line) => text += &(line + "\n"),
                Err(RecvTimeoutError::Disconnected) => return text,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("somebody still holds the output, which was\n{text}")
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_heard_in_order_up_to_the_one_that_is_awaited_and_then_to_the_end() {
        let said = Said::by(&b"one\ntwo \xff\nthree\nfour"[..]);
        assert_eq!(said.await_line("tw"), "two \u{fffd}");
        assert_eq!(said.await_line_or_end("thr"), Ok("three".to_owned()));
        assert_eq!(said.await_line_or_end("five"), Err("four\n".to_owned()));
        assert_eq!(said.await_end(), "");
        assert_eq!(said.next_line_within_a_moment(), None);
    }
}
