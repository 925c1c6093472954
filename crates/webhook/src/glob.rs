//! Patterns of names: `*` stands for any bytes, `?` for one.

/// Whether a name fits a pattern. Takes at most pattern times name steps.
pub fn fits(pattern: &[u8], name: &[u8]) -> bool {
    let (mut at, mut in_name) = (0, 0);
    // Where the last star stands, and how far the name was when it was met.
    let mut star: Option<(usize, usize)> = None;
    while let Some(byte) = name.get(in_name) {
        match pattern.get(at) {
            Some(b'*') => {
                star = Some((at, in_name));
                at += 1;
            }
            Some(wanted) if *wanted == b'?' || wanted == byte => {
                at += 1;
                in_name += 1;
            }
            _ => {
                // The star takes one byte more.
                let Some((star_at, taken)) = star else { return false };
                star = Some((star_at, taken + 1));
                (at, in_name) = (star_at + 1, taken + 1);
            }
        }
    }
    pattern.get(at..).unwrap_or_default().iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stars_stand_for_any_bytes_and_question_marks_for_one() {
        let yes = [("*", ""), ("*", "a"), ("a*", "abc"), ("*c", "abcc"), ("a?c", "abc")];
        for (pattern, name) in yes.into_iter().chain([("a*b*c", "axxbyybzc"), ("mail", "mail")]) {
            assert!(fits(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        for (pattern, name) in [("", "a"), ("a", ""), ("a*b", "abc"), ("?", ""), ("mail", "mails")]
        {
            assert!(!fits(pattern.as_bytes(), name.as_bytes()), "{pattern} {name}");
        }
        let (pattern, name) = ("*a".repeat(200), "a".repeat(199) + "b");
        assert!(!fits(pattern.as_bytes(), name.as_bytes()));
    }
}
