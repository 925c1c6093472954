//! One line of the log for each command of a connection, at level debug.

use std::fmt::{self, Write};
use std::time::Instant;

use tracing::Level;

use crate::door::ConnectionId;

/// What these lines say they come from, whichever door it is.
pub const COMMANDS: &str = "spindle::commands";

/// The most characters that are shown of a name from outside.
const NAME_CHARS_MAX: usize = 128;

/// Whether each command is logged. Costs two loads when it is not.
#[inline]
pub fn logs_commands() -> bool {
    tracing::enabled!(target: COMMANDS, Level::DEBUG)
}

/// A name that a client chose, for the log: characters that would end a line, control a terminal or
/// turn the direction of writing are written as escapes, and a long name is cut off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShownName(String);

impl ShownName {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// How these bytes are shown.
    pub fn of(name: &[u8]) -> ShownName {
        let mut shown = String::new();
        let mut left = NAME_CHARS_MAX;
        for chunk in name.utf8_chunks() {
            for letter in chunk.valid().chars() {
                if left == 0 {
                    shown.push('…');
                    return ShownName(shown);
                }
                left -= 1;
                if letter.is_alphanumeric() || matches!(letter, ' '..='~') {
                    shown.push(letter);
                } else {
                    shown.extend(letter.escape_unicode());
                }
            }
            for byte in chunk.invalid() {
                left = left.saturating_sub(1);
                write!(shown, "\\x{byte:02x}").expect("a string takes what is written");
            }
        }
        ShownName(shown)
    }
}

impl fmt::Display for ShownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Logs the commands of one connection, which are handled one after the other. Never payloads,
/// tokens or results.
#[derive(Debug)]
pub struct CommandLog {
    door: &'static str,
    connection: u64,
    /// How many commands came.
    request: u64,
    current: Option<Box<Current>>,
}

#[derive(Debug)]
struct Current {
    command: &'static str,
    queue: ShownName,
    began: Instant,
}

impl CommandLog {
    /// The log of a connection of a door.
    pub fn new(door: &'static str, connection: ConnectionId) -> CommandLog {
        CommandLog { door, connection: connection.0, request: 0, current: None }
    }

    /// A command has come. `describe` says which it is and which queue it is about, if any; it is
    /// called only if the command is logged.
    #[inline]
    pub fn begin<'a>(&mut self, describe: impl FnOnce() -> (&'static str, &'a [u8])) {
        self.request += 1;
        if logs_commands() {
            let (command, queue) = describe();
            let queue = ShownName::of(queue);
            self.current = Some(Box::new(Current { command, queue, began: Instant::now() }));
        }
    }

    /// The command that came last is answered. `outcome` is called only if it is logged.
    #[inline]
    pub fn end<'a>(&mut self, outcome: impl FnOnce() -> &'a str) {
        if let Some(current) = self.current.take() {
            self.write(&current, outcome());
        }
    }

    #[cold]
    fn write(&self, current: &Current, outcome: &str) {
        let CommandLog { door, connection, request, .. } = *self;
        let Current { command, queue, began } = current;
        let us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
        tracing::debug!(
            target: COMMANDS,
            door, connection, request, command, %queue, outcome, us, "command"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_word_of_a_line_whatever_is_in_it() {
        let shown = |name: &[u8]| ShownName::of(name).to_string();
        assert_eq!(shown("größe 1".as_bytes()), "größe 1");
        assert_eq!(shown(b"q\nINFO forged"), "q\\u{a}INFO forged");
        assert_eq!(shown(b"\x1b[2J\xff\x9b"), "\\u{1b}[2J\\xff\\x9b");
        assert_eq!(shown("a\u{202e}b\u{2028}c\u{9b}d".as_bytes()), "a\\u{202e}b\\u{2028}c\\u{9b}d");
    }

    #[test]
    fn a_long_name_is_cut_off() {
        let whole = "n".repeat(NAME_CHARS_MAX);
        assert_eq!(ShownName::of(whole.as_bytes()).to_string(), whole);
        assert_eq!(ShownName::of(format!("{whole}n").as_bytes()).to_string(), format!("{whole}…"));
        assert!(ShownName::of(&[0xff; 2048]).to_string().len() < 16_384);
    }
}
