//! A command line taken apart into words and flags, without allocating.

use std::ops::Range;

use super::ErrorText;

/// Longest name of a queue.
const NAME_BYTES_MAX: usize = 255;
/// `schedule` has the most words of all lines that have a fixed number of them.
const WORDS_KEPT: usize = 7;
/// One more than any command takes, so that too many are noticed.
const FLAGS_KEPT: usize = 4;

/// Whether these bytes can be the name of a queue in this protocol: 1 to 255 letters, digits,
/// `_`, `-`, `.`.
#[must_use]
pub fn is_name(name: &[u8]) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len())
        && name.iter().all(|letter| IN_NAMES[usize::from(*letter)])
}

/// The letters of names.
const IN_NAMES: [bool; 256] = {
    let mut letters = [false; 256];
    let mut letter = 0;
    while letter < 128 {
        let byte = letter as u8;
        letters[letter] = byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
        letter += 1;
    }
    letters
};

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

/// The place of a word or a flag: the index of its first letter and the one behind its last.
type Span = (u32, u32);

#[derive(Clone, Copy, Debug)]
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
    words: [Span; WORDS_KEPT],
    /// How many flags there are.
    pub(super) flag_count: usize,
    flags: [Span; FLAGS_KEPT],
}

impl<'a> Line<'a> {
    /// Takes a line without its CR LF apart. A word is a flag when it starts with `-` and has a
    /// `=`; bad flags are reported before anything else, as recorded.
    pub(super) fn parse(text: &'a [u8]) -> Result<Self, ErrorText> {
        let (words, flags) = ([(0, 0); WORDS_KEPT], [(0, 0); FLAGS_KEPT]);
        let mut line = Self { text, word_count: 0, words, flag_count: 0, flags };
        let mut start = 0;
        for (number, eight) in text.chunks(8).enumerate() {
            let mut spaces = spaces_in(eight);
            while spaces != 0 {
                let end = number * 8 + spaces.trailing_zeros() as usize / 8;
                line.push(start, end)?;
                start = end + 1;
                spaces &= spaces - 1;
            }
        }
        line.push(start, text.len())?;
        if line.flag_count > FLAGS_KEPT {
            line.check_many_flags()?;
        }
        Ok(line)
    }

    /// The part between two spaces: a word, a flag, or nothing.
    #[inline]
    fn push(&mut self, start: usize, end: usize) -> Result<(), ErrorText> {
        let span = (start as u32, end as u32);
        match self.text.get(start..end) {
            None | Some([]) => return Ok(()),
            Some(word @ [b'-', ..]) => {
                if let Some(flag) = parse_flag(word)? {
                    return self.push_flag(flag, span);
                }
            }
            Some(_) => {}
        }
        if let Some(slot) = self.words.get_mut(self.word_count) {
            *slot = span;
        }
        self.word_count += 1;
        Ok(())
    }

    fn push_flag(&mut self, flag: Flag<'a>, span: Span) -> Result<(), ErrorText> {
        if self.flags().any(|other| other.name == flag.name) {
            return Err(ErrorText::InvalidCommandFlags);
        }
        if let Some(slot) = self.flags.get_mut(self.flag_count) {
            *slot = span;
        }
        self.flag_count += 1;
        Ok(())
    }

    /// The first few flags.
    fn flags(&self) -> impl Iterator<Item = Flag<'a>> + '_ {
        let spans = self.flags.iter().take(self.flag_count);
        spans.filter_map(|span| parse_flag(self.at(*span).text).ok().flatten())
    }

    fn at(&self, (start, end): Span) -> Word<'a> {
        let at = start as usize;
        Word { at, text: self.text.get(at..end as usize).unwrap_or_default() }
    }

    /// Looks for repeated flags among more than are kept. Such a line is refused in any case;
    /// this only decides the words, at a cost that no line can make quadratic.
    fn check_many_flags(&self) -> Result<(), ErrorText> {
        let mut names = Vec::with_capacity(self.flag_count);
        for word in words_of(self.text) {
            names.extend(parse_flag(word.text)?.map(|flag| flag.name));
        }
        names.sort_unstable();
        let repeated = names.windows(2).any(|pair| pair.first() == pair.last());
        if repeated { Err(ErrorText::InvalidCommandFlags) } else { Ok(()) }
    }

    /// The command: what stands before the first space, even if that is nothing.
    pub(super) fn command(&self) -> &'a [u8] {
        Some(self.word(0)).filter(|word| word.at == 0).map_or(b"", |word| word.text)
    }

    /// The word at `index`, the command being 0. Empty when there is none.
    pub(super) fn word(&self, index: usize) -> Word<'a> {
        self.at(self.words.get(index).copied().unwrap_or_default())
    }

    /// The value of a flag among the first few.
    pub(super) fn flag(&self, name: &[u8]) -> Option<&'a [u8]> {
        self.flags().find(|flag| flag.name == name).map(|flag| flag.value)
    }

    /// All words, the command included and the flags left out.
    pub(super) fn all_words(&self) -> impl Iterator<Item = Word<'a>> + use<'a> {
        words_of(self.text).filter(|word| !matches!(parse_flag(word.text), Ok(Some(_))))
    }
}

/// The parts between spaces that are not empty.
fn words_of(text: &[u8]) -> impl Iterator<Item = Word<'_>> {
    let mut at = 0;
    text.split(|letter| *letter == b' ').filter_map(move |part| {
        let word = Word { at, text: part };
        at += part.len() + 1;
        (!part.is_empty()).then_some(word)
    })
}

/// The top bit of each of up to eight letters that is a space, the first letter in the lowest byte.
/// All are looked at in one step: the sum sets the top bit of those that differ from a space.
fn spaces_in(letters: &[u8]) -> u64 {
    const ONES: u64 = u64::from_ne_bytes([1; 8]);
    const LOW_BITS: u64 = ONES * 0x7f;
    let letters = match letters.first_chunk() {
        Some(eight) => u64::from_le_bytes(*eight),
        None => letters.iter().rev().fold(0, |rest, letter| rest << 8 | u64::from(*letter)),
    };
    let differing = letters ^ (ONES * u64::from(b' '));
    !(((differing & LOW_BITS) + LOW_BITS) | differing | LOW_BITS)
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
