//! Checks an expression before SQLite sees it: it must be complete in itself, so that the
//! parentheses put around it still enclose it.

/// Why a text is not a complete expression.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ScanError {
    /// There is nothing in it.
    #[error("it is empty")]
    Empty,
    /// It is too long.
    #[error("it has more than {EXPR_BYTES_MAX} bytes")]
    TooLong,
    /// A parenthesis has no partner.
    #[error("its parentheses do not match")]
    Unbalanced,
    /// A string or a quoted name has no end.
    #[error("a quote in it has no end")]
    OpenQuote,
    /// A comment could hide what follows.
    #[error("comments are not taken")]
    Comment,
    /// The statement would end here.
    #[error("`{0}` is not taken outside of strings")]
    Forbidden(char),
    /// Each makes a text that may be as long as any.
    #[error("it has more than {JOINS_MAX} `||`")]
    TooManyJoins,
    /// A query in a query.
    #[error("sub-queries are not taken")]
    SubQuery,
}

/// The longest expression.
const EXPR_BYTES_MAX: usize = 16 * 1024;

/// Most `||` in an expression.
const JOINS_MAX: usize = 64;

/// Whether a text put between parentheses stays within them.
pub fn scan(text: &str) -> Result<(), ScanError> {
    if text.len() > EXPR_BYTES_MAX {
        return Err(ScanError::TooLong);
    }
    if text.trim_ascii().is_empty() {
        return Err(ScanError::Empty);
    }
    let bytes = text.as_bytes();
    let (mut at, mut depth, mut joins) = (0, 0_usize, 0);
    while let Some(byte) = bytes.get(at) {
        let next = bytes.get(at + 1);
        at += match byte {
            b'\'' | b'"' | b'`' => quoted(&bytes[at..], *byte)?,
            b'[' => quoted(&bytes[at..], b']')?,
            b'(' => {
                depth += 1;
                1
            }
            b')' => {
                depth = depth.checked_sub(1).ok_or(ScanError::Unbalanced)?;
                1
            }
            b'|' if next == Some(&b'|') => {
                joins += 1;
                if joins > JOINS_MAX {
                    return Err(ScanError::TooManyJoins);
                }
                2
            }
            b'-' if next == Some(&b'-') => return Err(ScanError::Comment),
            b'/' if next == Some(&b'*') => return Err(ScanError::Comment),
            // Parameters, and what ends a statement.
            b';' | b'?' | b':' | b'@' | b'#' | b'$' | b'\0' | b'\\' => {
                return Err(ScanError::Forbidden(char::from(*byte)));
            }
            _ if is_word_byte(*byte) => word(&bytes[at..])?,
            _ => 1,
        };
    }
    if depth == 0 { Ok(()) } else { Err(ScanError::Unbalanced) }
}

/// How long a quoted part is, its quotes included. A doubled quote stands for itself.
fn quoted(bytes: &[u8], end: u8) -> Result<usize, ScanError> {
    let mut at = 1;
    loop {
        match bytes.get(at) {
            None => return Err(ScanError::OpenQuote),
            Some(byte) if *byte != end => at += 1,
            // Brackets cannot be doubled.
            Some(_) if end != b']' && bytes.get(at + 1) == Some(&end) => at += 2,
            Some(_) => return Ok(at + 1),
        }
    }
}

/// How long a word is. Words that begin a query are refused here already; the authorizer would
/// refuse them as well.
fn word(bytes: &[u8]) -> Result<usize, ScanError> {
    let len = bytes.iter().take_while(|byte| is_word_byte(**byte)).count();
    let word = &bytes[..len];
    let begins = [&b"select"[..], b"values", b"exists", b"with"];
    if begins.iter().any(|keyword| word.eq_ignore_ascii_case(keyword)) {
        return Err(ScanError::SubQuery);
    }
    Ok(len)
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_expressions_pass() {
        for text in [
            "json_extract(state, '$[0]')",
            "'it''s; -- (no comment) /* ? */'",
            "state ->> '$.a' || \"x)\" || [b)] || `c\"`",
            "CASE WHEN id IN (1, 2) THEN -1 ELSE - -2 END",
            "selected",
            "x'00ff'",
        ] {
            assert_eq!(scan(text), Ok(()), "{text}");
        }
    }

    #[test]
    fn what_would_leave_its_place_is_refused() {
        for (text, error) in [
            ("", ScanError::Empty),
            (" \n", ScanError::Empty),
            ("1) OR (1", ScanError::Unbalanced),
            ("(1", ScanError::Unbalanced),
            ("'open", ScanError::OpenQuote),
            ("'a''", ScanError::OpenQuote),
            ("[open", ScanError::OpenQuote),
            ("1 -- rest", ScanError::Comment),
            ("1 /* rest", ScanError::Comment),
            ("1; DELETE FROM job", ScanError::Forbidden(';')),
            ("?1", ScanError::Forbidden('?')),
            (":a", ScanError::Forbidden(':')),
            ("1\0", ScanError::Forbidden('\0')),
            ("(sElect 1)", ScanError::SubQuery),
            ("EXISTS(values(1))", ScanError::SubQuery),
        ] {
            assert_eq!(scan(text), Err(error), "{text}");
        }
        assert_eq!(scan(&"1".repeat(EXPR_BYTES_MAX)), Ok(()));
        assert_eq!(scan(&"1".repeat(EXPR_BYTES_MAX + 1)), Err(ScanError::TooLong));
        let joined = |joins: usize| format!("id || '||'{}", " ||1".repeat(joins - 1));
        assert_eq!(scan(&joined(JOINS_MAX)), Ok(()));
        assert_eq!(scan(&joined(JOINS_MAX + 1)), Err(ScanError::TooManyJoins));
    }
}
