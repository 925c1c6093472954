//! The lines of a state file.

use std::fs;

use crate::table::Mark;

const FIRST_WORDS: &str = "jobd-mark ";
/// The version of the file's format that this program writes. The first format had no version, and
/// nothing behind its first line.
const VERSION: u32 = 2;
/// What stands behind the version when the other lines are not complete.
const NOTHING: &str = "-";

/// How long every line is, its end included. A page of memory holds a whole number of them.
pub(super) const LINE_BYTES: usize = 64;

/// A line of the file.
pub(super) fn line(text: &str) -> [u8; LINE_BYTES] {
    let mut line = [b' '; LINE_BYTES];
    for (at, byte) in line.iter_mut().zip(text.bytes()) {
        *at = byte;
    }
    line[LINE_BYTES - 1] = b'\n';
    line
}

/// The file's first line: whose it is, and for which table and boot its other lines are complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) mark: Mark,
    /// As [`claim`] writes it.
    claim: String,
}

/// What a file begins with.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum First {
    /// Nothing, or less than a mark: no row carries it yet.
    Nothing,
    /// A first line, of this or of an earlier form.
    Header(Header),
    /// A form that a later program writes.
    Newer,
    /// Something else.
    Foreign,
}

impl Header {
    /// The first line of a new file.
    pub(super) fn new(mark: Mark) -> Self {
        Self { mark, claim: NOTHING.to_owned() }
    }

    /// The first line of these bytes.
    pub(super) fn read(bytes: &[u8]) -> First {
        let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let is_whole = first.len() < bytes.len();
        let Ok(first) = std::str::from_utf8(first) else { return First::Foreign };
        let Some(rest) = first.strip_prefix(FIRST_WORDS) else {
            let is_begun = FIRST_WORDS.starts_with(first) && !is_whole;
            return if is_begun { First::Nothing } else { First::Foreign };
        };
        let (owner, rest) = rest.split_once(' ').unwrap_or((rest, ""));
        let Some(mark) = Mark::new(owner) else {
            let is_begun = owner.len() < Mark::OWNER_CHARS && rest.is_empty() && !is_whole;
            return if is_begun { First::Nothing } else { First::Foreign };
        };
        let words: Vec<&str> = rest.split_whitespace().collect();
        let claim = match words.as_slice() {
            [] => NOTHING,
            [version, rest @ ..] => match version.parse::<u32>() {
                Ok(VERSION) => rest.first().copied().unwrap_or(NOTHING),
                Ok(version) if version > VERSION => return First::Newer,
                _ => return First::Foreign,
            },
        };
        First::Header(Self { mark, claim: claim.to_owned() })
    }

    /// The line as it stands in the file.
    pub(super) fn line(&self) -> [u8; LINE_BYTES] {
        line(&format!("{FIRST_WORDS}{} {VERSION} {}", self.mark.owner(), self.claim))
    }

    /// Whether the other lines may be complete for some table.
    pub(super) fn claims_something(&self) -> bool {
        self.claim != NOTHING
    }

    /// Whether the other lines are complete for this table.
    pub(super) fn claims(&self, table: &str) -> bool {
        claim(table).is_some_and(|claim| claim == self.claim)
    }

    /// From now on the other lines are complete for this table, until the next boot.
    pub(super) fn make_claim(&mut self, table: &str) {
        self.claim = claim(table).unwrap_or_else(|| NOTHING.to_owned());
    }

    /// From now on the other lines do not count as complete.
    pub(super) fn drop_claim(&mut self) {
        NOTHING.clone_into(&mut self.claim);
    }
}

/// The system's id of its present boot, and a number for the table. Bytes that were written and not
/// synced can be read until the next boot, whichever process is killed.
fn claim(table: &str) -> Option<String> {
    const BOOT_ID_DIGITS: usize = 32;
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    let boot: String = boot.chars().filter(char::is_ascii_hexdigit).collect();
    (boot.len() == BOOT_ID_DIGITS).then(|| format!("{boot}-{:08x}", fnv(table.as_bytes())))
}

/// The hash of Fowler, Noll and Vo (FNV-1a), which is the same in every version of this program.
fn fnv(bytes: &[u8]) -> u32 {
    let step = |hash: u32, byte: &u8| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
    bytes.iter().fold(0x811c_9dc5, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(claim: &str) -> First {
        First::Header(Header { mark: Mark::new("abcdefghi").unwrap(), claim: claim.to_owned() })
    }

    #[test]
    fn the_first_line_of_every_form_is_known() {
        for (text, expected) in [
            ("jobd-mark abcdefghi\n", header("-")),
            ("jobd-mark abcdefghi", header("-")),
            ("jobd-mark abcdefghi 2 b00t   \nbegan 5\n", header("b00t")),
            ("jobd-mark abcdefghi 2\n", header("-")),
            ("jobd-mark abcdefghi 3 what comes\n", First::Newer),
            ("jobd-mark abcdefghi x\n", First::Foreign),
            ("jobd-mark AB\n", First::Foreign),
            ("jobd-mark abcdefghij\n", First::Foreign),
            ("\n", First::Foreign),
            ("something", First::Foreign),
            ("", First::Nothing),
            ("jobd-", First::Nothing),
            ("jobd-mark abc", First::Nothing),
        ] {
            assert_eq!(Header::read(text.as_bytes()), expected, "{text:?}");
        }
    }

    #[test]
    fn a_line_that_was_written_is_read_again_and_is_of_its_length() {
        let mut header = Header::new(Mark::new("abcdefghi").unwrap());
        assert!(!header.claims_something() && !header.claims("a table"));
        header.make_claim("a table");
        assert_eq!(Header::read(&header.line()), First::Header(header.clone()));
        assert!(header.claims_something() && header.claims("a table"));
        assert!(!header.claims("another table"));
        header.drop_claim();
        assert_eq!(Header::read(&header.line()), First::Header(header.clone()));
        assert!(!header.claims("a table"));
        assert_eq!(fnv(b"foobar"), 0xbf9c_f968, "as its authors publish it");
        assert_eq!(&line("began 5")[..8], b"began 5 ");
        assert_eq!(line(&"x".repeat(100))[LINE_BYTES - 1], b'\n');
    }
}
