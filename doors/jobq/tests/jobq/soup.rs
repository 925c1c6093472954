//! Expressions made of SQL's words at random, and bodies spoilt at random: each is answered or
//! refused, and nothing else happens. The fuzz target `jobq_queries` asks the same of more bytes.

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
    "update_seq",
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

const BODIES: &[&str] = &[
    r#"{"query": [["IS", "json_extract(state, '$[0]')", "CREATED"]]}"#,
    r#"{"query": [["IS", "j.state", null]], "state":["ASSIGNED", {"node": 1}]}"#,
    r#"{"query": [["=", "state", {"a": [1, null]}], [">=", "modified + 60", 1.5e3]], "limit": 2}"#,
    r#"{"query": [["NOT LIKE", "payload ->> 'msg'", "'%\u00e9%'"], ["<", "id", true]], "state": 1}"#,
    r#"{"query": [], "limit": 0, "state": null}"#,
];

const BYTES: &[u8] = b"\"\\,:[]{}()'0-eE.ntf\xc3\0";

#[test]
fn spoilt_bodies_are_answered_or_refused_and_change_nothing() {
    let path = QueryPath::new().unwrap();
    let before = path.list(b"").unwrap();
    let (mut state, mut answered, mut refused) = (11, 0, 0);
    for round in 0..20_000 {
        let mut body = BODIES[round % BODIES.len()].as_bytes().to_vec();
        for _ in 0..next(&mut state) % 4 {
            let at = next(&mut state) % body.len();
            match next(&mut state) % 4 {
                0 => body[at] = next(&mut state) as u8,
                1 => body.insert(at, BYTES[next(&mut state) % BYTES.len()]),
                2 => drop(body.remove(at)),
                _ => {
                    let end = at + (body.len() - at).min(next(&mut state) % 12);
                    body.extend_from_within(at..end);
                }
            }
        }
        let answer = (path.list(&body), path.candidates(&body));
        if let (Ok(listed), Ok(candidates)) = &answer {
            answered += 1;
            assert!(candidates.iter().all(|id| (1..=3).contains(id)));
            // Lists may have a limit.
            assert!(listed.matches("{\"id\":").count() <= candidates.len());
        }
        refused += usize::from(answer.0.is_err());
    }
    assert_eq!(path.list(b"").unwrap(), before);
    assert!(answered > 1_000 && refused > 1_000, "{answered} answered, {refused} refused");
}
