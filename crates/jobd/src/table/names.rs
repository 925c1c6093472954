//! Names and words from outside, made safe to stand in a statement.

use super::row::RowId;
use super::session::Fault;

/// A table's name between quotes, its own quotes doubled. One dot stands between the name of a
/// database (or PostgreSQL's schema) and that of the table.
pub(super) fn quoted_table(name: &str, quote: char) -> Result<String, Fault> {
    let parts: Vec<&str> = name.splitn(2, '.').collect();
    let quoted: Result<Vec<String>, Fault> =
        parts.into_iter().map(|part| quoted(part, quote)).collect();
    quoted.map(|parts| parts.join("."))
}

/// A single name between quotes.
pub(super) fn quoted(name: &str, quote: char) -> Result<String, Fault> {
    if name.is_empty() || name.contains('\0') {
        return Err(Fault::Schema(format!("{name:?} is no name of a table")));
    }
    let doubled = name.replace(quote, &format!("{quote}{quote}"));
    Ok(format!("{quote}{doubled}{quote}"))
}

/// Ids as the list inside `IN (...)`.
pub(super) fn id_list(ids: &[RowId]) -> String {
    let ids: Vec<String> = ids.iter().map(RowId::to_string).collect();
    ids.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quote_in_a_name_does_not_end_it() {
        assert_eq!(quoted_table("a`; DROP TABLE b; --", '`').unwrap(), "`a``; DROP TABLE b; --`");
        assert_eq!(quoted_table("a\"b", '"').unwrap(), "\"a\"\"b\"");
        assert_eq!(quoted_table("app.jobs", '"').unwrap(), "\"app\".\"jobs\"");
        assert_eq!(quoted_table("a.b.c", '`').unwrap(), "`a`.`b.c`");
    }

    #[test]
    fn an_empty_name_is_refused() {
        for name in ["", "app.", ".jobs", "a\0b"] {
            assert!(matches!(quoted_table(name, '`'), Err(Fault::Schema(_))), "{name:?}");
        }
    }
}
