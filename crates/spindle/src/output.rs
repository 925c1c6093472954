//! Data on standard output: tables for people, tab-separated lines and JSON for programs.

use std::{
    fmt::{Display, Write as _},
    io::{self, IsTerminal, Write},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use comfy_table::{Table, presets::NOTHING};
use serde_json::{Map, Value, json};

use crate::exit::Code;

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

    /// As a table for people, with a heading.
    pub fn table(self) -> String {
        let mut table = Table::new();
        table.load_preset(NOTHING).set_header(self.heading);
        table.add_rows(self.rows);
        table.trim_fmt()
    }

    /// Prints all rows.
    pub fn print(self, out: &mut impl Write) -> io::Result<()> {
        if io::stdout().is_terminal() {
            return write_line(out, self.table());
        }
        self.print_lines(out)
    }

    /// Prints a line for each row, with tabs between the columns.
    pub fn print_lines(self, out: &mut impl Write) -> io::Result<()> {
        self.rows.into_iter().try_for_each(|row| write_line(out, row.join("\t")))
    }
}

/// Prints one line.
pub fn write_line(out: &mut impl Write, line: impl Display) -> io::Result<()> {
    writeln!(out, "{line}")
}

/// Prints something as one line of JSON.
pub fn write_json(out: &mut impl Write, value: &impl serde::Serialize) -> io::Result<()> {
    let line = serde_json::to_string(value).map_err(io::Error::other)?;
    write_line(out, line)
}

/// Prints counts of what was done: rows for people, or one object.
pub fn print_counts(counts: &[(&str, u64)], as_json: bool) -> io::Result<()> {
    let mut out = io::stdout().lock();
    if as_json {
        let object = counts.iter().map(|(name, count)| ((*name).to_owned(), (*count).into()));
        return write_line(&mut out, Value::Object(object.collect()));
    }
    let mut rows = Rows::new(&["what", "count"]);
    counts.iter().for_each(|(name, count)| rows.add([(*name).to_owned(), count.to_string()]));
    rows.print(&mut out)
}

/// Prints what commands found: as JSON, a line for each item, or as `rows`.
pub fn print_all<T: serde::Serialize>(
    items: &[T],
    as_json: bool,
    rows: impl FnOnce() -> Rows,
) -> anyhow::Result<Code> {
    let mut out = io::stdout().lock();
    if as_json {
        items.iter().try_for_each(|item| write_json(&mut out, item))?;
    } else {
        rows().print(&mut out)?;
    }
    Ok(Code::Ok)
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

/// Bytes in one line: the text if they are text, else their number. At most `letters_max` letters
/// of the text are shown, counted after escaping.
pub fn preview(bytes: &[u8], letters_max: usize) -> String {
    let Ok(text) = str::from_utf8(bytes) else {
        return format!("({} bytes)", bytes.len());
    };
    let mut shown = String::new();
    let mut letters_left = letters_max;
    for letter in text.chars() {
        let escaped = escape(letter.encode_utf8(&mut [0; 4]));
        match letters_left.checked_sub(escaped.chars().count()) {
            Some(left) => letters_left = left,
            None => return shown + "…",
        }
        shown.push_str(&escaped);
    }
    shown
}

/// Escapes whatever would control a terminal, because strangers may have put it into a job.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        if is_shown(letter) {
            escaped.push(letter);
        } else {
            // Writing into a string cannot fail.
            let _ = write!(escaped, "{}", letter.escape_default());
        }
    }
    escaped
}

/// Whether a terminal shows it as a letter: no control character, and none that ends a line or
/// turns the direction of others.
pub fn is_shown(letter: char) -> bool {
    !letter.is_control()
        && !matches!(letter, '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}')
        && !matches!(letter, '\u{61c}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

/// A job's id in JSON: a number, as the native API numbers jobs, or else a UUID.
pub fn id_json(id: &str) -> Value {
    id.parse::<u64>().map_or_else(|_| json!(id), |number| json!(number))
}

/// A number for people: `1,204`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// `1 job`, `1,204 jobs`.
pub fn jobs_counted(count: u64) -> String {
    format!("{} {}", grouped(count), if count == 1 { "job" } else { "jobs" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_can_neither_break_a_line_nor_steer_a_terminal() {
        assert_eq!(escape("a\tb\nc\x1b[2J"), "a\\tb\\nc\\u{1b}[2J");
        assert_eq!(escape("grüße"), "grüße");
        assert_eq!(escape("\u{202e}a\u{2028}"), "\\u{202e}a\\u{2028}");
    }

    #[test]
    fn an_id_is_a_number_in_json_if_it_is_one() {
        assert_eq!(id_json("42"), json!(42));
        let uuid = "6ba7b810-9dad-41d1-80b4-00c04fd430c4";
        assert_eq!(id_json(uuid), json!(uuid));
    }

    #[test]
    fn large_numbers_are_grouped() {
        let message = [0, 999, 1_000, 12_345, 1_234_567].map(grouped);
        assert_eq!(message, ["0", "999", "1,000", "12,345", "1,234,567"]);
        assert_eq!([jobs_counted(1), jobs_counted(1_204)], ["1 job", "1,204 jobs"]);
    }

    #[test]
    fn bytes_that_are_no_text_go_into_json_as_base64() {
        let mut object = Map::new();
        put_bytes(&mut object, "payload", b"text");
        put_bytes(&mut object, "result", b"\xff\x00");
        let message = Value::Object(object);
        assert_eq!(message, json!({"payload": "text", "result_base64": "/wA="}));
    }

    #[test]
    fn a_preview_is_short() {
        assert_eq!(preview(b"abc", 3), "abc");
        assert_eq!(preview("äöüß".as_bytes(), 3), "äöü…");
        assert_eq!(preview(b"\xff", 3), "(1 bytes)");
        assert_eq!(preview(b"a\n\nb", 5), "a\\n\\n…");
        assert_eq!(preview(b"a\n\nb", 4), "a\\n…");
        assert_eq!(preview(b"a\n\nb", 6), "a\\n\\nb");
    }
}
