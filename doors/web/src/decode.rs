//! Payloads and results in readable form: JSON, MessagePack, text or hexadecimal, in limited
//! amounts.

use std::fmt::Write;

use maud::{Escaper, Markup, PreEscaped, html};
use serde_json::value::RawValue;
use spindle_msgpack::to_json_text;

use crate::html::visible;

/// The most bytes of HTML that are made of one body; the rest is cut off.
const HTML_BYTES_MAX: usize = 20_000;
/// The most bytes shown in hexadecimal.
const HEX_BYTES_MAX: usize = 2_048;
/// The deepest indentation of JSON; deeper levels are indented no further.
const INDENT_MAX: usize = 24;

/// How a person wants to see bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum View {
    /// According to their type.
    Decoded,
    /// As text.
    Raw,
    /// In hexadecimal.
    Hex,
}

impl View {
    pub const ALL: [View; 3] = [View::Decoded, View::Raw, View::Hex];

    /// Its name in addresses.
    pub fn name(self) -> &'static str {
        match self {
            View::Decoded => "decoded",
            View::Raw => "raw",
            View::Hex => "hex",
        }
    }

    pub fn named(name: Option<&str>) -> View {
        let named = |view: &View| Some(view.name()) == name;
        View::ALL.into_iter().find(named).unwrap_or(View::Decoded)
    }
}

/// Bytes as a page shows them.
pub(crate) struct Shown {
    /// What they are: `JSON`, `MessagePack`, `text`, `bytes`.
    pub kind: &'static str,
    pub body: Markup,
    /// Not all of them are shown.
    pub is_cut: bool,
}

/// Makes bytes visible. `kind` is what they are said to be; `is_whole`: they are all there.
pub(crate) fn shown(bytes: &[u8], kind: &str, is_whole: bool, view: View) -> Shown {
    let text = text_of(bytes, is_whole);
    let json = match kind {
        "msgpack" if is_whole => to_json_text(bytes).ok(),
        "msgpack" => None,
        _ => text.filter(|_| is_whole).filter(|text| is_json(text)).map(|text| text.into()),
    };
    let named = match (kind, &json, text) {
        ("msgpack", ..) => "MessagePack",
        ("json", ..) | (_, Some(_), _) => "JSON",
        (_, None, Some(_)) => "text",
        (_, None, None) => "bytes",
    };
    let mut out = Writer::default();
    match (view, json, text) {
        (View::Decoded, Some(json), _) => pretty(&mut out, &json),
        (View::Decoded, None, Some(text)) if named != "MessagePack" => out.plain(text),
        (View::Raw, ..) => out.plain(&String::from_utf8_lossy(bytes)),
        (View::Decoded | View::Hex, ..) => hex(&mut out, bytes),
    }
    let Writer { text, is_full } = out;
    let body = html! { pre tabindex="0" { code { (PreEscaped(text)) } } };
    Shown { kind: named, body, is_cut: is_full || !is_whole }
}

/// A text in readable form, otherwise as it is.
pub(crate) fn plain(text: &str) -> Markup {
    let mut out = Writer::default();
    out.plain(text);
    html! { code { (PreEscaped(out.text)) } }
}

/// The end of a text that takes no more bytes of HTML than `room`, which is reduced by that. It
/// begins at the start of a line if it contains one.
pub(crate) fn end_of<'a>(text: &'a str, room: &mut usize) -> &'a str {
    let mut begin = text.len();
    for (at, c) in text.char_indices().rev() {
        let Some(left) = room.checked_sub(html_len(c)) else {
            *room = 0;
            break;
        };
        (*room, begin) = (left, at);
    }
    let (before, end) = text.split_at(begin);
    if before.is_empty() || before.ends_with('\n') {
        return end;
    }
    match end.split_once('\n') {
        Some((_, lines)) if !lines.is_empty() => lines,
        _ => end,
    }
}

/// How many bytes of HTML a character takes.
fn html_len(c: char) -> usize {
    match in_text(c) {
        '&' => "&amp;".len(),
        '<' | '>' => "&lt;".len(),
        '"' => "&quot;".len(),
        c => c.len_utf8(),
    }
}

/// A character of a text of several lines, in readable form.
fn in_text(c: char) -> char {
    if matches!(c, '\n' | '\t') { c } else { visible(c) }
}

/// The bytes as a text, if they are one. If they are the beginning of a longer text, the last
/// character may be cut.
fn text_of(bytes: &[u8], is_whole: bool) -> Option<&str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if !is_whole && error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    }
}

fn is_json(text: &str) -> bool {
    let is_structure = text.trim_start().starts_with(['{', '[', '"']);
    is_structure && serde_json::from_str::<&RawValue>(text).is_ok()
}

/// HTML up to a limit.
#[derive(Default)]
struct Writer {
    text: String,
    is_full: bool,
}

impl Writer {
    /// Adds a text in readable form, in a span of this class if one is given.
    fn add(&mut self, class: &str, text: &str) {
        if !class.is_empty() {
            let _ = write!(self.text, "<span class=\"{class}\">");
        }
        let mut letter = [0; 4];
        for c in text.chars() {
            if self.text.len() >= HTML_BYTES_MAX {
                self.is_full = true;
                break;
            }
            let _ = Escaper::new(&mut self.text).write_str(in_text(c).encode_utf8(&mut letter));
        }
        if !class.is_empty() {
            self.text.push_str("</span>");
        }
    }

    fn plain(&mut self, text: &str) {
        self.add("", text);
    }

    fn line(&mut self, depth: usize) {
        self.plain("\n");
        self.plain(&"  ".repeat(depth.min(INDENT_MAX)));
    }
}

/// Indents and colours JSON, token by token; the tokens stay as they were written.
fn pretty(out: &mut Writer, json: &[u8]) {
    let json = String::from_utf8_lossy(json);
    let (mut rest, mut depth) = (json.trim(), 0_usize);
    while let Some(first) = rest.chars().next() {
        if out.is_full {
            return;
        }
        let len = token(rest, first);
        let (text, behind) = rest.split_at(len);
        rest = behind.trim_start();
        match first {
            '{' | '[' if rest.starts_with(['}', ']']) => {
                out.plain(text);
                out.plain(&rest[..1]);
                rest = rest[1..].trim_start();
            }
            '{' | '[' => {
                out.plain(text);
                depth += 1;
                out.line(depth);
            }
            '}' | ']' => {
                depth = depth.saturating_sub(1);
                out.line(depth);
                out.plain(text);
            }
            ',' => {
                out.plain(text);
                out.line(depth);
            }
            ':' => out.plain(": "),
            '"' => out.add(if rest.starts_with(':') { "k" } else { "s" }, text),
            _ => out.add("n", text),
        }
    }
}

/// How long the token is that begins here.
fn token(text: &str, first: char) -> usize {
    match first {
        '"' => {
            let mut is_escaped = false;
            let end = text.bytes().skip(1).position(|byte| {
                let ends = byte == b'"' && !is_escaped;
                is_escaped = byte == b'\\' && !is_escaped;
                ends
            });
            end.map_or(text.len(), |end| end + 2)
        }
        '{' | '}' | '[' | ']' | ',' | ':' => 1,
        _ => {
            let end = text.find(|c: char| c.is_whitespace() || matches!(c, ',' | '}' | ']' | ':'));
            end.unwrap_or(text.len()).max(first.len_utf8())
        }
    }
}

/// Sixteen bytes a line: where, in hexadecimal, as ASCII.
fn hex(out: &mut Writer, bytes: &[u8]) {
    for (row, line) in bytes.chunks(16).enumerate().take(HEX_BYTES_MAX / 16) {
        let digits: String = line.iter().map(|byte| format!("{byte:02x} ")).collect();
        let ascii = line.iter().map(|byte| match byte {
            b' '..=b'~' => char::from(*byte),
            _ => '.',
        });
        let ascii: String = ascii.collect();
        out.plain(&format!("{:08x}  {digits:<48} {ascii}\n", row * 16));
    }
    out.is_full |= bytes.len() > HEX_BYTES_MAX;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8], kind: &str, view: View) -> (&'static str, String) {
        let Shown { kind, body, .. } = shown(bytes, kind, true, view);
        let body = body.into_string();
        let body = body
            .strip_prefix("<pre tabindex=\"0\"><code>")
            .unwrap()
            .strip_suffix("</code></pre>")
            .unwrap();
        (kind, body.to_owned())
    }

    #[test]
    fn json_is_indented_and_says_what_it_said() {
        let json = br#" {"a":[1,2.50,{}], "b\"":"x:,]","c":[],"d":null}"#;
        let (kind, body) = text(json, "json", View::Decoded);
        assert_eq!(kind, "JSON");
        let plain = body.replace("</span>", "").replace("&quot;", "\"");
        let plain = ["k", "s", "n"]
            .iter()
            .fold(plain, |text, class| text.replace(&format!("<span class=\"{class}\">"), ""));
        let expected = "{\n  \"a\": [\n    1,\n    2.50,\n    {}\n  ],\n  \"b\\\"\": \"x:,]\",\n  \
                        \"c\": [],\n  \"d\": null\n}";
        assert_eq!(plain, expected);
        assert!(body.contains("<span class=\"k\">&quot;a&quot;</span>"), "{body}");
        assert!(body.contains("<span class=\"s\">&quot;x:,]&quot;</span>"), "{body}");
        assert!(body.contains("<span class=\"n\">2.50</span>"), "{body}");
    }

    #[test]
    fn bytes_are_shown_as_what_they_are() {
        for (bytes, kind, expected) in [
            (&b"{\"a\":1}"[..], "bytes", "JSON"),
            (b"12", "bytes", "text"),
            (b"hello", "bytes", "text"),
            (b"\xff\x00", "bytes", "bytes"),
            (b"\x81\xa1a\x01", "msgpack", "MessagePack"),
            (b"\xc1", "msgpack", "MessagePack"),
            (b"", "bytes", "text"),
        ] {
            assert_eq!(text(bytes, kind, View::Decoded).0, expected, "{bytes:?}");
        }
        assert!(text(b"\x81\xa1a\x01", "msgpack", View::Decoded).1.contains("&quot;a&quot;"));
        let hex = "00000000  c1                                               .\n";
        assert_eq!(text(b"\xc1", "msgpack", View::Decoded).1, hex);
        assert_eq!(text(b"\xff", "bytes", View::Raw).1, "\u{fffd}");
    }

    #[test]
    fn the_end_of_a_text_begins_with_a_line_and_fits() {
        for (text, room, end) in [
            ("one\ntwo\n", 100, "one\ntwo\n"),
            ("one\ntwo\n", 7, "two\n"),
            ("one\ntwo\n", 4, "two\n"),
            ("one\ntwo\n", 3, "wo\n"),
            ("one\ntwo", 2, "wo"),
            ("<<<", 8, "<<"),
            ("\"&", 10, "&"),
            ("\u{1b}é", 5, "\u{1b}é"),
            ("\u{1b}é", 4, "é"),
            ("x", 0, ""),
        ] {
            let mut left = room;
            let found = end_of(text, &mut left);
            assert_eq!(found, end, "{text:?} in {room}");
            let html = plain(found).into_string();
            assert!(html.len() - "<code></code>".len() <= room, "{html}");
        }
        let mut room = 10;
        end_of("12345", &mut room);
        assert_eq!(room, 5);
        end_of("123456", &mut room);
        assert_eq!(room, 0, "what is before a cut has no room");
    }

    #[test]
    fn what_is_hostile_becomes_harmless_and_short() {
        let (_, body) = text(b"<script>alert(1)</script>\x1b[31m\0", "bytes", View::Decoded);
        assert_eq!(body, "&lt;script&gt;alert(1)&lt;/script&gt;\u{241b}[31m\u{2400}");
        let (_, body) = text("a\u{202e}b".as_bytes(), "bytes", View::Decoded);
        assert_eq!(body, "a\u{fffd}b");
        let deep = "[".repeat(100) + &"]".repeat(100);
        for bytes in ["<".repeat(1 << 20), deep, format!("[{}]", "\"<\",".repeat(99_999) + "1")] {
            for view in View::ALL {
                let made = shown(bytes.as_bytes(), "bytes", true, view);
                let len = made.body.into_string().len();
                assert!(len < HTML_BYTES_MAX + 200, "{len}");
                assert_eq!(made.is_cut, bytes.len() > HEX_BYTES_MAX, "{view:?}");
            }
        }
        // The beginning of a long text may end within a letter.
        let made = shown(b"caf\xc3", "bytes", false, View::Decoded);
        assert!(made.is_cut && made.kind == "text" && made.body.into_string().contains("caf"));
    }
}
