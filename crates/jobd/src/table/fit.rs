//! What a column can take, and how text is made to fit it.

use std::borrow::Cow;

use super::row::Finish;

/// The letters a column can store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Letters {
    /// Every one.
    All,
    /// Every one but NUL.
    NoNul,
    /// Those of the basic plane, which take at most three bytes of UTF-8.
    BasicPlane,
    /// Printable ASCII, tabs and line ends: what every encoding has.
    Ascii,
}

impl Letters {
    fn take(self, letter: char) -> bool {
        match self {
            Self::All => true,
            Self::NoNul => letter != '\0',
            Self::BasicPlane => letter.len_utf8() < 4,
            Self::Ascii => matches!(letter, ' '..='~' | '\t' | '\n' | '\r'),
        }
    }

    fn instead(self) -> char {
        if self == Self::Ascii { '?' } else { char::REPLACEMENT_CHARACTER }
    }
}

/// How much text a column takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Capacity {
    /// The most bytes of UTF-8.
    pub bytes_max: usize,
    /// The most characters.
    pub chars_max: usize,
    /// Which letters.
    pub letters: Letters,
}

impl Capacity {
    /// The text with what the column cannot store replaced, cut at the last character that fits.
    pub fn fit(self, text: &str) -> Cow<'_, str> {
        let stored: Cow<'_, str> = if text.chars().all(|letter| self.letters.take(letter)) {
            Cow::Borrowed(text)
        } else {
            let instead = self.letters.instead();
            let stored = |letter| if self.letters.take(letter) { letter } else { instead };
            text.chars().map(stored).collect()
        };
        let end = self.end(&stored);
        match stored {
            Cow::Borrowed(text) => Cow::Borrowed(&text[..end]),
            Cow::Owned(mut text) => {
                text.truncate(end);
                Cow::Owned(text)
            }
        }
    }

    /// The byte at which a text must end.
    fn end(self, text: &str) -> usize {
        // A text has at most as many characters as bytes: most need no counting.
        if text.len() <= self.chars_max {
            return text.floor_char_boundary(self.bytes_max.min(text.len()));
        }
        let after = text.char_indices().nth(self.chars_max).map_or(text.len(), |(at, _)| at);
        text.floor_char_boundary(after.min(self.bytes_max))
    }
}

/// The columns that take a process's signal and outputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutputColumns {
    pub sig: Capacity,
    pub stdout: Capacity,
    pub stderr: Capacity,
}

/// The fields of a row that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ending<'a> {
    pub finished_s: i64,
    pub result: &'static str,
    pub code: Option<u8>,
    pub sig: Option<Cow<'a, str>>,
    pub stdout: Option<Cow<'a, str>>,
    pub stderr: Option<Cow<'a, str>>,
}

/// How much of a process's output a write keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KeepOutput {
    /// Everything the column is known to take.
    Fitting,
    /// What every column of some length takes, after the database refused the other.
    Ascii,
    /// Nothing: the output is lost, the result is not.
    Nothing,
}

impl KeepOutput {
    /// From the first to the last try.
    pub const ALL: [Self; 3] = [Self::Fitting, Self::Ascii, Self::Nothing];
    /// As much as a column of type `text` has for sure, in every database.
    const ASCII_BYTES_MAX: usize = 60_000;

    /// The fields of the row for this end of a job.
    pub fn ending<'a>(self, finish: &'a Finish, outputs: &OutputColumns) -> Ending<'a> {
        let output = |capacity: Capacity, text: &'a str| match self {
            Self::Fitting => Some(capacity.fit(text)),
            Self::Ascii => {
                let bytes_max = capacity.bytes_max.min(Self::ASCII_BYTES_MAX);
                Some(Capacity { bytes_max, letters: Letters::Ascii, ..capacity }.fit(text))
            }
            Self::Nothing => None,
        };
        Ending {
            finished_s: finish.finished_s,
            result: if finish.success { "ok" } else { "fail" },
            code: finish.code,
            sig: finish.signal.as_deref().map(|name| signal_name(name, outputs.sig)),
            stdout: output(outputs.stdout, &finish.stdout),
            stderr: output(outputs.stderr, &finish.stderr),
        }
    }
}

/// A signal's name as column `sig` takes it. `SIGRTMIN+10` has eleven letters and the
/// specification's column ten: cut at the end it would be another signal's name.
fn signal_name(name: &str, capacity: Capacity) -> Cow<'_, str> {
    let whole = capacity.fit(name);
    if whole.len() == name.len() {
        return whole;
    }
    capacity.fit(name.strip_prefix("SIG").unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capacity(bytes_max: usize, chars_max: usize, letters: Letters) -> Capacity {
        Capacity { bytes_max, chars_max, letters }
    }

    #[test]
    fn text_that_fits_is_not_copied() {
        let text = "größer \0 😀";
        let fitted = capacity(100, 100, Letters::All).fit(text);
        assert!(matches!(fitted, Cow::Borrowed(t) if t == text));
    }

    #[test]
    fn bytes_are_cut_between_characters() {
        for (bytes_max, expected) in
            [(0, ""), (1, "a"), (2, "a"), (3, "aß"), (4, "aß"), (6, "aß"), (7, "aß😀"), (9, "aß😀")]
        {
            assert_eq!(capacity(bytes_max, 99, Letters::All).fit("aß😀"), expected, "{bytes_max}");
        }
    }

    #[test]
    fn characters_are_counted_where_the_column_counts_them() {
        assert_eq!(capacity(99, 3, Letters::All).fit("aß😀x"), "aß😀");
        assert_eq!(capacity(99, 4, Letters::All).fit("aß😀x"), "aß😀x");
        assert_eq!(capacity(6, 3, Letters::All).fit("aß😀x"), "aß");
    }

    #[test]
    fn letters_a_column_has_not_are_replaced_before_the_cut() {
        assert_eq!(capacity(99, 99, Letters::BasicPlane).fit("a😀€\0"), "a\u{fffd}€\0");
        // Four bytes become three, and those are what must fit.
        assert_eq!(capacity(4, 99, Letters::BasicPlane).fit("a😀b"), "a\u{fffd}");
        assert_eq!(capacity(3, 99, Letters::BasicPlane).fit("a😀b"), "a");
        assert_eq!(capacity(99, 99, Letters::NoNul).fit("a\0b😀"), "a\u{fffd}b😀");
        assert_eq!(capacity(99, 99, Letters::Ascii).fit("a\0\tö\x1b\r\n~"), "a?\t??\r\n~");
    }

    #[test]
    fn a_long_signal_name_stays_that_signals_name() {
        let capacity = capacity(10, 10, Letters::All);
        assert_eq!(signal_name("SIGVTALRM", capacity), "SIGVTALRM");
        assert_eq!(signal_name("SIGRTMIN+10", capacity), "RTMIN+10");
    }
}
