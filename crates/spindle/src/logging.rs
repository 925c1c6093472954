//! What the server says on standard error, and in which form.

mod json;

use std::{
    fmt::{self, Debug, Write as _},
    io::{self, IsTerminal},
};

use spindle_access::hidden_bytes;
use tracing::field::Field;
use tracing_subscriber::{
    field::MakeExt,
    fmt::format::{Writer, debug_fn},
};

use crate::config::{Config, LogFormat};
use json::JsonLines;

/// The most characters of a field. The rest is cut off: much of it comes from outside.
const FIELD_CHARS_MAX: usize = 4096;

/// Begins to log, as the settings say.
pub fn start(config: &Config) {
    let to_stderr = tracing_subscriber::fmt()
        .with_writer(|| WithoutTokens(io::stderr()))
        .with_max_level(config.log_level.0);
    match config.log_format {
        LogFormat::Text => to_stderr
            .with_ansi(io::stderr().is_terminal())
            .with_target(false)
            .fmt_fields(debug_fn(write_field).delimited(" "))
            .init(),
        LogFormat::Json => to_stderr.event_format(JsonLines).init(),
    }
}

/// Passes lines on with tokens hidden: a line may quote clients, and some type tokens where names
/// belong. Each line comes in one piece.
struct WithoutTokens<W>(W);

impl<W: io::Write> io::Write for WithoutTokens<W> {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.write_all(&hidden_bytes(line))?;
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Writes one field of a line for people. It may contain names that clients chose, so no part of it
/// may end the line or control the terminal.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn Debug) -> fmt::Result {
    let mut plain = Plain::new(writer);
    match field.name() {
        "message" => write!(plain, "{value:?}"),
        name => write!(plain, "{name}={value:?}"),
    }
}

/// Passes text on with its control characters written out, up to a limit.
struct Plain<'a> {
    out: &'a mut dyn fmt::Write,
    left: usize,
}

impl<'a> Plain<'a> {
    fn new(out: &'a mut dyn fmt::Write) -> Self {
        Plain { out, left: FIELD_CHARS_MAX }
    }
}

impl fmt::Write for Plain<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for char in text.chars() {
            if self.left == 0 {
                return Ok(());
            }
            self.left -= 1;
            if self.left == 0 {
                self.out.write_char('…')?;
            } else if char.is_control() || is_mark(char) {
                write!(self.out, "{}", char.escape_default())?;
            } else {
                self.out.write_char(char)?;
            }
        }
        Ok(())
    }
}

/// What ends a line, or turns the direction of writing, without being a control character.
fn is_mark(char: char) -> bool {
    matches!(char, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> String {
        let mut line = String::new();
        let mut plain = Plain::new(&mut line);
        plain.write_str(text).unwrap();
        line
    }

    #[test]
    fn no_field_ends_its_line_or_speaks_to_the_terminal() {
        assert_eq!(shown("queue \"déjà vu\" \\ 1"), "queue \"déjà vu\" \\ 1");
        for forged in ["a\nb", "a\r\nb", "\u{1b}[2Jx", "a\u{9b}31m", "a\u{2028}b", "a\u{202e}b"] {
            let line = shown(forged);
            assert!(!line.chars().any(|it| it.is_control() || is_mark(it)), "{line:?}");
        }
        assert_eq!(shown("a\nb\u{1b}[2J"), "a\\nb\\u{1b}[2J");
    }

    #[test]
    fn a_long_field_is_cut_off() {
        let whole = "é".repeat(FIELD_CHARS_MAX - 1);
        assert_eq!(shown(&whole), whole);
        for more in ["a", "ab"] {
            assert_eq!(shown(&format!("{whole}{more}")), format!("{whole}…"));
        }
    }
}
