//! Patterns of names: `*`, `?` and `\`.

/// Longer texts fit no pattern: the time a match may take grows with both lengths.
const TEXT_BYTES_MAX: usize = 4096;

/// Whether a text fits a pattern. `*` is any number of bytes, `?` one character (or one byte that
/// is part of none), `\` takes what follows as it is.
pub fn fits(pattern: &[u8], text: &[u8]) -> bool {
    if text.len() > TEXT_BYTES_MAX {
        return false;
    }
    let (mut p, mut t) = (0, 0);
    // Where the last star stands, and how much of the text it has taken.
    let mut star: Option<(usize, usize)> = None;
    loop {
        let step = match pattern.get(p) {
            Some(b'*') => {
                star = Some((p + 1, t));
                p += 1;
                continue;
            }
            None if t == text.len() => return true,
            None => None,
            Some(b'?') => (t < text.len()).then(|| (p + 1, t + character_bytes(&text[t..]))),
            Some(b'\\') if p + 1 < pattern.len() => {
                (text.get(t) == pattern.get(p + 1)).then_some((p + 2, t + 1))
            }
            Some(byte) => (text.get(t) == Some(byte)).then_some((p + 1, t + 1)),
        };
        match (step, star) {
            (Some(next), _) => (p, t) = next,
            (None, Some((after, taken))) if taken < text.len() => {
                star = Some((after, taken + 1));
                (p, t) = (after, taken + 1);
            }
            (None, _) => return false,
        }
    }
}

/// The prefix of every text that fits a pattern, and whether that prefix is the whole text.
pub fn literal_prefix(pattern: &[u8]) -> (Vec<u8>, bool) {
    let mut begin = Vec::new();
    let mut rest = pattern.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'*' | b'?' => return (begin, false),
            b'\\' => begin.push(*rest.next().unwrap_or(byte)),
            byte => begin.push(*byte),
        }
    }
    (begin, true)
}

/// How many bytes the first character takes; 1 where no character begins.
fn character_bytes(text: &[u8]) -> usize {
    let wanted = match text.first() {
        Some(0xc2..=0xdf) => 2,
        Some(0xe0..=0xef) => 3,
        Some(0xf0..=0xf4) => 4,
        _ => 1,
    };
    let whole = text.get(1..wanted).is_some_and(|rest| rest.iter().all(|b| b & 0xc0 == 0x80));
    if whole { wanted } else { 1 }
}

#[cfg(test)]
mod tests {
    use super::{fits, literal_prefix};

    #[test]
    fn texts_that_fit_begin_with_what_stands_before_the_first_wildcard() {
        for (pattern, begin, is_all) in [
            ("", "", true),
            ("mail", "mail", true),
            ("mail.*", "mail.", false),
            ("?", "", false),
            (r"a\*b*", "a*b", false),
            (r"a\\?", r"a\", false),
            (r"a\", r"a\", true),
        ] {
            assert_eq!(literal_prefix(pattern.as_bytes()), (begin.into(), is_all), "{pattern}");
            let fitting = format!("{begin}{}", if is_all { "" } else { "x" });
            assert!(fits(pattern.as_bytes(), fitting.as_bytes()), "{pattern}");
        }
    }

    #[test]
    fn stars_questions_and_backslashes_mean_what_the_documentation_says() {
        for (pattern, text, fit) in [
            ("", "", true),
            ("", "a", false),
            ("*", "", true),
            ("mail.*", "mail.", true),
            ("mail.*", "mail", false),
            ("*.low", "mail.low", true),
            ("*.low", "mail.low.x", false),
            ("a*b*c", "a-b-b-c", true),
            ("a*b*c", "a-c-b", false),
            ("a?c", "abc", true),
            ("a?c", "ac", false),
            ("a?c", "aäc", true),
            ("??", "äö", true),
            ("a\\*", "a*", true),
            ("a\\*", "ab", false),
            ("a\\", "a\\", true),
            ("**a", "bca", true),
        ] {
            assert_eq!(fits(pattern.as_bytes(), text.as_bytes()), fit, "{pattern} {text}");
        }
        assert!(fits(b"?", b"\xff") && fits(b"??", b"\xe4\xb8"));
    }

    #[test]
    fn a_pattern_of_many_stars_does_not_take_for_ever() {
        let pattern = "a*".repeat(500) + "b";
        assert!(!fits(pattern.as_bytes(), "a".repeat(4096).as_bytes()));
        assert!(!fits(b"*", &[b'a'; 5000]));
    }
}
