//! Data on standard output: tables for people, tab-separated lines and JSON for programs.

use std::{
    fmt::{Display, Write as _},
    io::{self, IsTerminal, Write},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use comfy_table::{Table, presets::NOTHING};
use serde_json::{Map, Value, json};

/// Rows of a list. A table when standard output is a terminal; else a line for each row, without
/// a heading, with tabs between the columns.
pub struct Rows {
    heading: Vec<&'static str>,
    rows: Vec<Vec<String>>,
}

impl Rows {
    /// No row yet.
    pub fn new(heading: &[&'static str]) -> Self {
        Self { heading: heading.to_vec(), rows: Vec::new() }
    }

    /// Adds a row. What would break a line or move a column is escaped.
    pub fn add(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().map(|cell| escape(&cell)).collect());
    }

    /// Prints all rows.
    pub fn print(self, out: &mut impl Write) -> io::Result<()> {
        if io::stdout().is_terminal() {
            let mut table = Table::new();
            table.load_preset(NOTHING).set_header(self.heading);
            table.add_rows(self.rows);
            return write_line(out, table.trim_fmt());
        }
        self.rows.into_iter().try_for_each(|row| write_line(out, row.join("\t")))
    }
}

/// Prints one line.
pub fn write_line(out: &mut impl Write, line: impl Display) -> io::Result<()> {
    writeln!(out, "{line}")
}

/// Prints bytes as they are; on a terminal the last line is ended.
pub fn write_bytes(out: &mut impl Write, bytes: &[u8]) -> io::Result<()> {
    out.write_all(bytes)?;
    if !bytes.ends_with(b"\n") && !bytes.is_empty() && io::stdout().is_terminal() {
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Puts bytes into an object: as a text `name`, or, when they are none, as `name_base64`.
pub fn put_bytes(object: &mut Map<String, Value>, name: &str, bytes: &[u8]) {
    match str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), json!(text)),
        Err(_) => object.insert(format!("{name}_base64"), json!(BASE64_STANDARD.encode(bytes))),
    };
}

/// Bytes in one line: text, or how many there are; at most `letters_max` letters.
pub fn preview(bytes: &[u8], letters_max: usize) -> String {
    let Ok(text) = str::from_utf8(bytes) else {
        return format!("({} bytes)", bytes.len());
    };
    let mut letters = text.chars();
    let mut shown: String = letters.by_ref().take(letters_max).collect();
    if letters.next().is_some() {
        shown.push('…');
    }
    shown
}

/// Control characters spelled out, so that what a stranger put into a job cannot steer a terminal.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if letter.is_control() {
            // Writing into a string cannot fail.
            let _ = write!(escaped, "{}", letter.escape_default());
        } else {
            escaped.push(letter);
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_can_neither_break_a_line_nor_steer_a_terminal() {
        assert_eq!(escape("a\tb\nc\x1b[2J"), "a\\tb\\nc\\u{1b}[2J");
        assert_eq!(escape("grüße"), "grüße");
    }

    #[test]
    fn bytes_that_are_no_text_go_into_json_as_base64() {
        let mut object = Map::new();
        put_bytes(&mut object, "payload", b"text");
        put_bytes(&mut object, "result", b"\xff\x00");
        let told = Value::Object(object);
        assert_eq!(told, json!({"payload": "text", "result_base64": "/wA="}));
    }

    #[test]
    fn a_preview_is_short() {
        assert_eq!(preview(b"abc", 3), "abc");
        assert_eq!(preview("äöüß".as_bytes(), 3), "äöü…");
        assert_eq!(preview(b"\xff", 3), "(1 bytes)");
    }
}
