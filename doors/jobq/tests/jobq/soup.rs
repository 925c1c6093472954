//! Expressions made of SQL's words at random: each is answered or refused, and nothing else happens.

use spindle_jobq::QueryPath;

const WORDS: &[&str] = &[
    "(",
    ")",
    "(",
    ")",
    "'",
    "\"",
    "[",
    "]",
    "`",
    ",",
    ";",
    "--",
    "/*",
    "*/",
    "||",
    "->>",
    "=",
    "<",
    "*",
    "-",
    "1",
    "0x1",
    "'a'",
    "''",
    "NULL",
    "id",
    "j.id",
    "state",
    "payload",
    "events",
    "modified",
    "touch",
    "rowid",
    "fixed",
    "job",
    "j.",
    "sqlite_schema",
    "main.",
    "SELECT",
    "select",
    "FROM",
    "WHERE",
    "UNION",
    "ALL",
    "VALUES",
    "EXISTS",
    "WITH",
    "IN",
    "NOT",
    "AND",
    "OR",
    "IS",
    "LIKE",
    "ESCAPE",
    "GLOB",
    "MATCH",
    "BETWEEN",
    "CASE",
    "WHEN",
    "THEN",
    "ELSE",
    "END",
    "CAST",
    "AS",
    "TEXT",
    "COLLATE",
    "NOCASE",
    "LIMIT",
    "ORDER",
    "BY",
    "GROUP",
    "DELETE",
    "DROP",
    "TABLE",
    "PRAGMA",
    "ATTACH",
    "json_extract(",
    "lower(",
    "count(",
    "max(",
    "printf(",
    "replace(",
    "randomblob(",
    "load_extension(",
    "json_each(",
    "pragma_table_list",
    "OVER",
    "FILTER",
    "?1",
    ":a",
    "$b",
    "\u{e9}",
    "\0",
    "\\",
];

/// A number from the one before.
fn next(state: &mut u64) -> usize {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    (*state >> 33) as usize
}

#[test]
fn any_words_are_answered_or_refused_and_change_nothing() {
    let path = QueryPath::new().unwrap();
    let before = path.list(b"").unwrap();
    let (mut state, mut answered) = (7, 0);
    for round in 0..20_000 {
        let count = 1 + next(&mut state) % 6;
        let words: Vec<&str> = (0..count).map(|_| WORDS[next(&mut state) % WORDS.len()]).collect();
        let text = words.join(if round % 3 == 0 { "" } else { " " });
        let query = serde_json::json!([["=", text, 1]]);
        let body = serde_json::json!({"query": query, "state": 1}).to_string();
        let listed = path.list(body.as_bytes());
        let candidates = path.candidates(body.as_bytes());
        assert_eq!(listed.is_ok(), candidates.is_ok(), "{text}");
        if let (Ok(listed), Ok(candidates)) = (listed, candidates) {
            answered += 1;
            assert_eq!(listed.matches("{\"id\":").count(), candidates.len(), "{text}");
            assert!(candidates.iter().all(|id| (1..=3).contains(id)), "{text}");
        }
        if round % 500 == 0 {
            assert_eq!(path.list(b"").unwrap(), before, "{text}");
        }
    }
    assert_eq!(path.list(b"").unwrap(), before);
    assert!(answered > 200, "only {answered} were expressions");
}
