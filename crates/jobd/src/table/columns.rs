//! What the columns of a job table must be.

use super::session::Fault;

/// A column as the database describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Column {
    pub name: String,
    /// Its type in the database's words, for messages.
    pub type_name: String,
    pub kind: Kind,
    pub nullable: bool,
}

/// What matters of a column's type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Kind {
    /// A whole number.
    Integer,
    /// Text of at most so many characters.
    Text(usize),
    /// Bytes.
    Bytes,
    /// One of these words.
    Words(Vec<String>),
    /// SQLite takes anything anywhere.
    Any,
    /// Something else.
    Other,
}

/// What a column is wanted to be.
enum Want {
    Integer,
    Text(usize),
    Output,
    Words(&'static [&'static str]),
}

const STATUS: &[&str] = &["waiting", "manual", "accepted", "running", "done", "ignored"];

/// Name, type and whether it must take NULL.
const WANTED: [(&str, Want, bool); 10] = [
    ("id", Want::Integer, false),
    ("target", Want::Text(1), false),
    ("time_started", Want::Integer, false),
    ("time_finished", Want::Integer, false),
    ("status", Want::Words(STATUS), false),
    ("result", Want::Words(&["ok", "fail"]), true),
    ("return_code", Want::Integer, true),
    // The name of a signal, and before that the mark of the worker that has the row.
    ("sig", Want::Text(10), true),
    ("stdout", Want::Output, false),
    ("stderr", Want::Output, false),
];

impl Want {
    fn takes(&self, kind: &Kind) -> bool {
        match (self, kind) {
            (_, Kind::Any) | (Self::Integer, Kind::Integer) => true,
            (Self::Text(chars), Kind::Text(chars_max)) => chars <= chars_max,
            (Self::Output, Kind::Text(_) | Kind::Bytes) => true,
            (Self::Words(words), Kind::Words(there)) => {
                words.iter().all(|word| there.iter().any(|t| t == word))
            }
            (Self::Words(words), Kind::Text(chars_max)) => {
                words.iter().all(|word| word.len() <= *chars_max)
            }
            _ => false,
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Integer => "a whole number".to_owned(),
            Self::Text(1) => "text".to_owned(),
            Self::Text(chars) => format!("text of at least {chars} characters"),
            Self::Output => "text or bytes".to_owned(),
            Self::Words(words) => format!("one of the words {}", words.join(", ")),
        }
    }
}

/// Checks that all columns are there and of use. `schema` is the word after `jobd schema`.
pub(super) fn check(columns: &[Column], schema: &str) -> Result<(), Fault> {
    let mut problems = Vec::new();
    for (name, want, null) in &WANTED {
        // MySQL and SQLite compare column names without case.
        let column = columns.iter().find(|column| column.name.eq_ignore_ascii_case(name));
        let Some(column) = column else {
            problems.push(format!("has no column '{name}' ({} is expected)", want.describe()));
            continue;
        };
        if !want.takes(&column.kind) {
            let type_name = &column.type_name;
            let wanted = want.describe();
            problems.push(format!("column '{name}' is {type_name}, {wanted} is expected"));
        }
        if *null && !column.nullable {
            problems.push(format!("column '{name}' is NOT NULL, it must take NULL"));
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    let problems = problems.join("; ");
    Err(Fault::Schema(format!("{problems}. Compare the table with \"jobd schema {schema}\"")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Vec<Column> {
        let column = |(name, want, nullable): &(&str, Want, bool)| Column {
            name: (*name).to_owned(),
            type_name: "fine".to_owned(),
            kind: match want {
                Want::Integer => Kind::Integer,
                Want::Text(chars) => Kind::Text(*chars),
                Want::Output => Kind::Bytes,
                Want::Words(words) => Kind::Words(words.iter().map(ToString::to_string).collect()),
            },
            nullable: *nullable,
        };
        WANTED.iter().map(column).collect()
    }

    fn problem(change: impl FnOnce(&mut Vec<Column>)) -> String {
        let mut columns = good();
        change(&mut columns);
        match check(&columns, "mysql") {
            Err(Fault::Schema(problem)) => problem,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_wanted_columns_pass() {
        assert_eq!(check(&good(), "mysql"), Ok(()));
    }

    #[test]
    fn each_problem_is_named_with_what_is_expected() {
        let gone = problem(|columns| columns.retain(|c| c.name != "sig" && c.name != "id"));
        assert_eq!(
            gone,
            "has no column 'id' (a whole number is expected); has no column 'sig' (text of at \
             least 10 characters is expected). Compare the table with \"jobd schema mysql\""
        );
        let short = problem(|columns| columns[7].kind = Kind::Text(9));
        assert!(short.starts_with("column 'sig' is fine, text of at least 10"), "{short}");
        let words = problem(|columns| columns[4].kind = Kind::Words(vec!["waiting".to_owned()]));
        assert!(words.contains("column 'status' is fine, one of the words waiting, "), "{words}");
        let null = problem(|columns| columns[6].nullable = false);
        assert!(null.starts_with("column 'return_code' is NOT NULL"), "{null}");
        let other = problem(|columns| columns[8].kind = Kind::Integer);
        assert!(other.starts_with("column 'stdout' is fine, text or bytes"), "{other}");
    }
}
