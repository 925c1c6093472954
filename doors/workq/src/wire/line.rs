//! A command line taken apart into words and flags, without allocating.

use std::ops::Range;

use super::ErrorText;

/// Longest name of a queue.
const NAME_BYTES_MAX: usize = 255;
/// `schedule` has the most words of all lines that have a fixed number of them.
const WORDS_KEPT: usize = 7;
/// One more than any command takes, so that too many are seen.
const FLAGS_KEPT: usize = 4;

/// Whether these bytes can be the name of a queue in this protocol: 1 to 255 letters, digits,
/// `_`, `-`, `.`.
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    let in_alphabet = |letter: &u8| letter.is_ascii_alphanumeric() || b"_-.".contains(letter);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.iter().all(in_alphabet)
}

/// A word and where in the line it begins.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Word<'a> {
    at: usize,
    pub(super) text: &'a [u8],
}

impl Word<'_> {
    pub(super) fn range(self) -> Range<usize> {
        self.at..self.at + self.text.len()
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Flag<'a> {
    name: &'a [u8],
    value: &'a [u8],
}

/// A line's words and flags.
#[derive(Debug)]
pub(super) struct Line<'a> {
    text: &'a [u8],
    /// How many words there are, the command included. Only the first few are kept.
    pub(super) word_count: usize,
    words: [Word<'a>; WORDS_KEPT],
    /// How many flags there are.
    pub(super) flag_count: usize,
    flags: [Flag<'a>; FLAGS_KEPT],
}

impl<'a> Line<'a> {
    /// Takes a line without its CR LF apart. A word is a flag when it starts with `-` and has a
    /// `=`; bad flags are complained of before anything else, as recorded.
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, ErrorText> {
        let mut line = Self {
            text,
            word_count: 0,
            words: [Word::default(); WORDS_KEPT],
            flag_count: 0,
            flags: [Flag::default(); FLAGS_KEPT],
        };
        for word in words(text) {
            if let Some(flag) = parse_flag(word.text)? {
                line.push_flag(flag)?;
            } else {
                if let Some(slot) = line.words.get_mut(line.word_count) {
                    *slot = word;
                }
                line.word_count += 1;
            }
        }
        if line.flag_count > FLAGS_KEPT {
            line.check_many_flags()?;
        }
        Ok(line)
    }

    fn push_flag(&mut self, flag: Flag<'a>) -> Result<(), ErrorText> {
        let seen = self.flags.get(..self.flag_count).unwrap_or(&self.flags);
        if seen.iter().any(|other| other.name == flag.name) {
            return Err(ErrorText::InvalidCommandFlags);
        }
        if let Some(slot) = self.flags.get_mut(self.flag_count) {
            *slot = flag;
        }
        self.flag_count += 1;
        Ok(())
    }

    /// Looks for repeated flags among more than are kept. Such a line is refused in any case;
    /// this only decides the words, at a cost that no line can make quadratic.
    fn check_many_flags(&self) -> Result<(), ErrorText> {
        let mut names = Vec::with_capacity(self.flag_count);
        for word in words(self.text) {
            names.extend(parse_flag(word.text)?.map(|flag| flag.name));
        }
        names.sort_unstable();
        let repeated = names.windows(2).any(|pair| pair.first() == pair.last());
        if repeated { Err(ErrorText::InvalidCommandFlags) } else { Ok(()) }
    }

    /// The command: what stands before the first space, even if that is nothing.
    pub(super) fn command(&self) -> &'a [u8] {
        self.text.split(|letter| *letter == b' ').next().unwrap_or_default()
    }

    /// The word at `index`, the command being 0. Empty when there is none.
    pub(super) fn word(&self, index: usize) -> Word<'a> {
        self.words.get(index).copied().unwrap_or_default()
    }

    /// The value of a flag among the first few.
    pub(super) fn flag(&self, name: &[u8]) -> Option<&'a [u8]> {
        let seen = self.flags.get(..self.flag_count).unwrap_or(&self.flags);
        seen.iter().find(|flag| flag.name == name).map(|flag| flag.value)
    }

    /// All words, the command included and the flags left out.
    pub(super) fn all_words(&self) -> impl Iterator<Item = Word<'a>> + use<'a> {
        words(self.text).filter(|word| !matches!(parse_flag(word.text), Ok(Some(_))))
    }
}

/// The parts between spaces that are not empty.
fn words(text: &[u8]) -> impl Iterator<Item = Word<'_>> {
    let mut at = 0;
    text.split(|letter| *letter == b' ').filter_map(move |part| {
        let word = Word { at, text: part };
        at += part.len() + 1;
        (!part.is_empty()).then_some(word)
    })
}

/// A flag's value ends at a second `=`, as recorded.
fn parse_flag(word: &[u8]) -> Result<Option<Flag<'_>>, ErrorText> {
    let Some(text) = word.strip_prefix(b"-") else { return Ok(None) };
    let mut parts = text.split(|letter| *letter == b'=');
    let (Some(name), Some(value)) = (parts.next(), parts.next()) else { return Ok(None) };
    if name.is_empty() || value.is_empty() {
        return Err(ErrorText::InvalidCommandFlags);
    }
    Ok(Some(Flag { name, value }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_stands_between_spaces() {
        let line = Line::parse(b"add  a   bc ").unwrap();
        assert_eq!(line.word_count, 3);
        assert_eq!(line.command(), b"add");
        assert_eq!(line.word(1).text, b"a");
        assert_eq!(line.word(2).text, b"bc");
        assert_eq!(line.word(2).range(), 9..11);
        assert_eq!(line.word(3).text, b"");
    }

    #[test]
    fn a_leading_space_is_an_empty_command() {
        let line = Line::parse(b" add").unwrap();
        assert_eq!((line.command(), line.word_count), (&b""[..], 1));
    }

    #[test]
    fn flags_may_stand_anywhere_and_keep_what_is_before_a_second_equals_sign() {
        let line = Line::parse(b"add -priority=-3=9 x -y y").unwrap();
        assert_eq!(line.word_count, 4);
        assert_eq!(line.flag_count, 1);
        assert_eq!(line.flag(b"priority"), Some(&b"-3"[..]));
        assert_eq!(line.flag(b"y"), None);
        let words: Vec<_> = line.all_words().map(|word| word.text).collect();
        assert_eq!(words, [&b"add"[..], b"x", b"-y", b"y"]);
    }

    #[test]
    fn bad_flags_are_refused_however_many_there_are() {
        for text in ["-=1", "-a=", "-a==1", "-a=1 -a=2", "-a=1 -b=1 -c=1 -d=1 -e=1 -f=1 -e=1"] {
            assert_eq!(
                Line::parse(text.as_bytes()).err(),
                Some(ErrorText::InvalidCommandFlags),
                "{text}"
            );
        }
        let line = Line::parse(b"-a=1 -b=1 -c=1 -d=1 -e=1 -f=1").unwrap();
        assert_eq!(line.flag_count, 6);
    }

    #[test]
    fn names_are_short_and_of_their_alphabet() {
        assert!(is_name(b"aZ09_-."));
        assert!(is_name(&[b'n'; 255]));
        for name in [&b""[..], b"a*b", b"a b", b"a\n", b"\xc3\xa4", &[b'n'; 256]] {
            assert!(!is_name(name), "{}", name.escape_ascii());
        }
    }
}
